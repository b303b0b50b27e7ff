"""Bytes: one JSON text per value, the same for ever, and nothing that another reader would
change.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import Struct, defstruct

from tidegate.errors import InvalidDefinition, InvalidInput
from tidegate.kernel import canonical_json, codec
from tidegate.kernel.model import TIME_MAX, TIME_MIN, Event, Fact, Meta
from tidegate.kernel.vocabulary import FactType, Vocabulary, facts

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TIMES = st.datetimes(
    TIME_MIN.replace(tzinfo=None), TIME_MAX.replace(tzinfo=None), timezones=st.just(UTC)
)


class Phase(StrEnum):
    OPEN = "open"


class Inner(Struct, frozen=True):
    at: datetime
    count: int = 0


class Outer(Struct, frozen=True, rename="camel", omit_defaults=True):
    first_name: str
    phase: Phase = Phase.OPEN
    inner: Inner | None = None
    several: tuple[Inner, ...] = ()
    names: frozenset[str] = frozenset()
    counts: dict[str, int] = {}
    free: Any = None
    ready_at: datetime | None = None


class Number(Struct, frozen=True):
    count: int


class Moment(Struct, frozen=True):
    at: datetime


class Text(Struct, frozen=True):
    text: str


class Free(Struct, frozen=True):
    content: Any


class Tree(Struct, frozen=True):
    count: int
    children: tuple[Tree, ...] = ()


for _known in (Outer, Number, Moment, Text, Free, Tree):
    codec.prepare(_known)


def test_writes_members_in_the_order_of_their_declaration_without_spaces() -> None:
    value = Outer("Ada", inner=Inner(NOON, 3), counts={"b": 2, "a": 1})

    assert codec.encode(value) == (
        b'{"firstName":"Ada","inner":{"at":"2026-03-01T12:00:00.000000Z","count":3},'
        b'"counts":{"a":1,"b":2}}'
    )


def test_omits_defaults_where_the_type_requires_it() -> None:
    assert codec.encode(Outer("Ada")) == b'{"firstName":"Ada"}'
    assert codec.encode(Outer("Ada", ready_at=None, names=frozenset())) == b'{"firstName":"Ada"}'
    assert codec.encode(Inner(NOON)) == b'{"at":"2026-03-01T12:00:00.000000Z","count":0}'


@given(st.lists(st.text(alphabet="abcé", max_size=3), unique=True), st.randoms())
def test_the_insertion_order_of_a_set_or_a_dict_changes_nothing(
    names: list[str], random: Any
) -> None:
    shuffled = random.sample(names, len(names))

    first = Outer("x", names=frozenset(names), counts=dict.fromkeys(names, 1), free=set(names))
    second = Outer(
        "x", names=frozenset(shuffled), counts=dict.fromkeys(shuffled, 1), free=set(shuffled)
    )

    assert codec.encode(first) == codec.encode(second)


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (NOON, "2026-03-01T12:00:00.000000Z"),
        (NOON.replace(microsecond=1), "2026-03-01T12:00:00.000001Z"),
        (NOON.replace(microsecond=120_000), "2026-03-01T12:00:00.120000Z"),
        (NOON.astimezone(timezone(timedelta(hours=2))), "2026-03-01T12:00:00.000000Z"),
        (TIME_MIN, "1970-01-01T00:00:00.000000Z"),
        (TIME_MAX, "9998-12-31T23:59:59.999999Z"),
    ],
    ids=str,
)
def test_times_have_one_width(at: datetime, text: str) -> None:
    assert codec.encode(Moment(at)) == f'{{"at":"{text}"}}'.encode()
    assert codec.decode(codec.encode(Moment(at)), Moment).at == at
    assert codec.time_value(codec.time_text(at.astimezone(UTC))) == at


@given(TIMES)
def test_writes_every_time_as_its_text(at: datetime) -> None:
    assert codec.encode(Moment(at)) == f'{{"at":"{codec.time_text(at)}"}}'.encode()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_reads_many_texts_as_it_reads_each(count: int) -> None:
    values = [Outer("Ada", inner=Inner(NOON, number)) for number in range(count)]

    assert codec.decode_all([codec.encode(value) for value in values], Outer) == values


@pytest.mark.parametrize("text", [b'{"count":"one"}', b"{", b'{"count":1},{"count":2}', b""])
def test_names_the_malformed_one_of_many_texts(text: bytes) -> None:
    with pytest.raises(InvalidInput, match="not a Number"):
        codec.decode_all([b'{"count":1}', text], Number)


@given(TIMES, TIMES)
def test_order_as_text_is_order_in_time(one: datetime, other: datetime) -> None:
    assert (codec.time_text(one) < codec.time_text(other)) == (one < other)


@pytest.mark.parametrize(
    "value",
    [
        Moment(datetime(2026, 1, 1)),  # noqa: DTZ001
        Moment("2026-01-01T00:00:00Z"),  # type: ignore[arg-type]
        Outer("x", inner=Inner(datetime(2026, 1, 1))),  # noqa: DTZ001
        Outer("x", several=(Inner(NOON), Inner(datetime(2026, 1, 1)))),  # noqa: DTZ001
        Free({"deep": [datetime(2026, 1, 1)]}),  # noqa: DTZ001
    ],
    ids=["naive", "text", "nested", "in a tuple", "in anything"],
)
def test_refuses_a_time_that_is_not_aware(value: Struct) -> None:
    with pytest.raises(InvalidInput, match=r"at|inner|several|deep"):
        codec.encode(value)


@pytest.mark.parametrize("count", [2**53 - 1, -(2**53) + 1, 0])
def test_accepts_integers_that_every_reader_keeps(count: int) -> None:
    assert codec.decode(codec.encode(Number(count)), Number).count == count


@pytest.mark.parametrize(
    "value",
    [
        Number(2**53),
        Number(-(2**53)),
        Inner(NOON, 2**53),
        Outer("x", counts={"a": 2**60}),
        Outer("x", several=(Inner(NOON, 2**53),)),
        Free([1, {"a": 2**53}]),
        Tree(1, (Tree(2**53),)),
    ],
    ids=str,
)
def test_refuses_integers_that_some_reader_would_change(value: Struct) -> None:
    with pytest.raises(InvalidInput, match=r"beyond 2\*\*53"):
        codec.encode(value)


@pytest.mark.parametrize("number", [1.5, float("nan"), float("inf"), -0.0])
@pytest.mark.parametrize(
    "build",
    [
        Free,
        Number,
        lambda number: Free([{"a": (number,)}]),
        lambda number: Outer("x", counts={"a": number}),
        lambda number: Inner(NOON, number),
    ],
    ids=["anything", "in place of an integer", "deep", "in a dict", "next to a time"],
)
def test_refuses_floats(build: Any, number: float) -> None:
    with pytest.raises(InvalidInput, match=r"float|integer"):
        codec.encode(build(number))


def test_refuses_a_type_that_holds_a_float() -> None:
    class Price(Struct, frozen=True):
        amount: float

    class Prices(Struct, frozen=True):
        amounts: dict[str, list[float]]

    for struct in (Price, Prices):
        with pytest.raises(InvalidDefinition, match="float"):
            canonical_json.check_type(struct)


def test_refuses_a_type_without_a_portable_form() -> None:
    class Odd(Struct, frozen=True):
        number: complex

    with pytest.raises(InvalidDefinition, match=r"Odd\.number"):
        canonical_json.check_type(Odd)


@pytest.mark.parametrize(
    "value",
    [Text("\ud800"), Free({"\udfff": 1}), Outer("a", names=frozenset({"\ud83d"}))],
    ids=["text", "key", "set"],
)
def test_refuses_lone_surrogates(value: Struct) -> None:
    with pytest.raises(InvalidInput, match="lone surrogate"):
        codec.encode(value)


@pytest.mark.parametrize("text", ["", "é", "😀", "\x00", "\u2028", '"\\/', "\x7f"])
def test_accepts_every_other_text(text: str) -> None:
    assert codec.decode(codec.encode(Text(text)), Text).text == text


def test_refuses_values_without_a_json_form_or_nested_too_deeply() -> None:
    deep: Any = 0
    for _ in range(codec.DEPTH_MAX + 2):
        deep = [deep]

    with pytest.raises(InvalidInput, match="complex"):
        codec.encode(Free(complex(1, 2)))
    with pytest.raises(InvalidInput, match="nested deeper"):
        codec.encode(Free(deep))


def test_writes_recursive_types() -> None:
    tree = Tree(1, (Tree(2), Tree(3, (Tree(4),))))

    assert codec.decode(codec.encode(tree), Tree) == tree


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'{"count":"1"}', b'{"count":1.5}', b'{"count":null}', b"{}", b"\xff"],
)
def test_names_the_type_that_bytes_do_not_match(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="not a Number"):
        codec.decode(data, Number)


def test_meta_omits_empty_members() -> None:
    assert codec.meta_text(Meta()) == "{}"
    assert codec.meta_text(Meta(actor="user_1")) == '{"actor":"user_1"}'
    assert codec.meta_value(codec.meta_text(Meta("a", "b", "c", "d"))) == Meta("a", "b", "c", "d")
    assert codec.meta_value("{}") == Meta()


def test_a_leaf_is_a_function_of_the_stored_columns_alone() -> None:
    event = Event(7, NOON, "shop", "Added", 1, ("a:1", "b:2"), Meta(actor="x"), b'{"a":1}')

    leaf = codec.leaf(event)

    columns = [7, "2026-03-01T12:00:00.000000Z", "shop", "Added", 1, ["a:1", "b:2"], {"actor": "x"}]
    content = json.dumps([*columns, sha256(event.body).hexdigest()], separators=(",", ":"))
    assert leaf == sha256(b"\x00" + content.encode()).digest()
    for changed in (
        Event(8, NOON, "shop", "Added", 1, ("a:1", "b:2"), Meta(actor="x"), b'{"a":1}'),
        Event(7, NOON, "shop", "Added", 1, ("a:1", "b:2"), Meta(actor="x"), b'{"a":2}'),
        Event(7, NOON, "shop", "Added", 1, ("a:1",), Meta(actor="x"), b'{"a":1}'),
        Event(7, NOON, "shop", "Added", 1, ("a:1", "b:2"), Meta(), b'{"a":1}'),
    ):
        assert codec.leaf(changed) != leaf


def test_omits_an_equal_default_even_if_it_is_another_object() -> None:
    class Row(Struct, frozen=True, omit_defaults=True):
        state: str = "pending"
        total: int = 1_000_000
        names: tuple[str, ...] = ("a", "b")

    codec.prepare(Row)
    same = codec.decode(b'{"state":"pending","total":1000000,"names":["a","b"]}', Row)

    assert codec.encode(same) == codec.encode(Row()) == b"{}"


# ── schemas ───────────────────────────────────────────────────────────────────────────────────────


class PriceSetV1(Struct, frozen=True):
    product_id: str
    euros: int


class PriceSet(Struct, frozen=True):
    product_id: str
    cents: int
    currency: str


def _v2(content: dict[str, Any]) -> dict[str, Any]:
    return {"product_id": content["product_id"], "cents": content["euros"] * 100}


def _v3(content: dict[str, Any]) -> dict[str, Any]:
    return content | {"currency": "EUR"}


def test_upgrades_an_old_fact_to_the_newest_schema_step_by_step() -> None:
    newest = Vocabulary([FactType(PriceSet, "shop", schema=3, upcasts={1: _v2, 2: _v3})])
    tags = ("product_id:p1",)

    first = Fact("shop", "PriceSet", 1, tags, b'{"product_id":"p1","euros":5}')
    second = Fact("shop", "PriceSet", 2, tags, b'{"product_id":"p1","cents":500}')

    assert newest.value(first) == newest.value(second) == PriceSet("p1", 500, "EUR")
    assert newest.fact(PriceSet("p1", 1, "CHF")).schema == 3
    view = defstruct("PriceSet", [("currency", str)])
    codec.prepare(view)
    assert newest.value(first, view) == view("EUR")


def test_an_unknown_type_or_a_newer_schema_cannot_be_decoded() -> None:
    vocabulary = Vocabulary(facts("shop", PriceSetV1))

    with pytest.raises(InvalidInput, match="PriceSet of schema 1 is unknown here"):
        vocabulary.value(Fact("shop", "PriceSet", 1, (), b"{}"))
    with pytest.raises(InvalidInput, match="PriceSetV1 of schema 2 is unknown here"):
        vocabulary.value(Fact("shop", "PriceSetV1", 2, (), b"{}"))
    with pytest.raises(InvalidInput, match="not a PriceSetV1"):
        vocabulary.value(Fact("shop", "PriceSetV1", 1, (), b'{"product_id":"p1"}'))


def test_writes_no_time_before_1970() -> None:
    with pytest.raises(InvalidInput, match="1970 to 9998"):
        codec.encode(Inner(datetime(1969, 12, 31, tzinfo=UTC)))
