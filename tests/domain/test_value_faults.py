"""Why a value does not fit its type: one clause that says what is allowed and what was found."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta, Struct

from tidegate import value_faults


class Gate(StrEnum):
    FREEZE = "freeze"
    WINDOW = "window"


class Sample(Struct, forbid_unknown_fields=True):
    number: Annotated[int, Meta(ge=1, le=5)] = 1
    name: Annotated[str, Meta(min_length=2, max_length=3, pattern="^[a-z]+$")] = "aa"
    title: Annotated[str, Meta(min_length=1)] = "a"
    gate: Gate | None = None
    mode: Literal["on", "off"] = "on"
    at: Annotated[datetime, Meta(tz=True)] | None = None
    share: Annotated[float, Meta(gt=0)] = 1.0
    few: Annotated[tuple[int, ...], Meta(max_length=1)] = ()
    sure: bool = False
    inner: Inner | None = None


class Inner(Struct):
    id: str


TYPES = {field.name: field.type for field in msgspec.structs.fields(Sample)}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"number": 0}, "number is at least 1; found 0"),
        ({"number": 9}, "number is at most 5; found 9"),
        ({"number": "x"}, "number is an integer; found 'x'"),
        ({"number": None}, "number is an integer; found null"),
        ({"name": "a"}, "name has at least 2 characters; found 1"),
        ({"name": "aaaa"}, "name has at most 3 characters; found 4"),
        ({"name": "A1"}, "name has the form ^[a-z]+$; found 'A1'"),
        ({"name": 7}, "name is a text; found 7"),
        ({"title": ""}, "title is empty"),
        ({"gate": "probe"}, "gate is one of freeze, window; found 'probe'"),
        ({"mode": "up"}, "mode is one of on, off; found 'up'"),
        ({"at": "soon"}, "at is a time such as 2026-01-31T18:00:00Z; found 'soon'"),
        (
            {"at": "2026-01-01T00:00:00"},
            "at is a time such as 2026-01-31T18:00:00Z with its zone; found '2026-01-01T00:00:00'",
        ),
        ({"share": 0}, "share is more than 0; found 0"),
        ({"few": [1, 2]}, "few has at most 1 entry; found 2"),
        ({"few": ["x"]}, "few[0] is an integer; found 'x'"),
        ({"few": {}}, "few is a list; found an object"),
        ({"sure": "yes"}, "sure is true or false; found 'yes'"),
        ({"inner": {}}, "inner lacks id"),
        ({"other": 1}, "it has the unknown member other"),
        ({"name": ["x" * 500]}, "name is a text; found a list"),
        ({"mode": "x" * 500}, f"mode is one of on, off; found {'x' * 80!r}"),
    ],
)
def test_names_what_is_allowed_and_what_was_found(content: Any, said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as wrong:
        msgspec.convert(content, Sample)

    assert value_faults.explain_member(wrong.value, content, TYPES) == said


def test_keeps_an_unknown_reason_unchanged() -> None:
    assert value_faults.explain("Something else", 1) == "Something else"
