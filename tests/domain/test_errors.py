"""Errors built from a template: their sentence, their facts, and their arguments."""

from __future__ import annotations

from string import Formatter
from typing import Any

import pytest

from tests.source_tree import own_errors
from tidegate.domain.channels.refusals import QuarantineNotFound
from tidegate.errors import Formatted, NotFound

FORMATTED = [error for error in own_errors() if issubclass(error, Formatted)]


def test_fills_its_fields_into_its_sentence_and_keeps_them_as_facts() -> None:
    error = QuarantineNotFound("web-stable", "sha256:{0}")
    named = QuarantineNotFound(channel="web-stable", closure_hash="sha256:{0}")

    assert isinstance(error, NotFound)
    assert error.detail == str(error) == "sha256:{0} is not quarantined on web-stable"
    assert error.facts == {"channel": "web-stable", "closure_hash": "sha256:{0}"}
    assert (error.channel, error.closure_hash) == ("web-stable", "sha256:{0}")
    assert (named.detail, named.facts) == (error.detail, error.facts)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (("a",), {}),
        (("a", "b", "c"), {}),
        (("a",), {"channel": "b"}),
        (("a", "b"), {"channel": "b"}),
        ((), {"channel": "a", "closure": "b"}),
    ],
)
def test_requires_each_field_once(values: tuple[str, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="QuarantineNotFound takes channel, closure_hash"):
        QuarantineNotFound(*values, **named)


@pytest.mark.parametrize("error", FORMATTED, ids=lambda error: error.__name__)
def test_names_only_fields_that_the_error_has(error: type[Any]) -> None:
    named = {name for _, name, _, _ in Formatter().parse(error.message) if name is not None}

    assert named <= set(error.__annotations__)
