"""Twenty events whose leaves are fixed for ever, the same on every engine.

A leaf is a hash of what an engine returns, so it changes if an engine alters a byte, a time, a tag
or the meta of an event, or if the codec writes them differently. The file was written once, by
`python -m tests.contract.test_golden --write`. A leaf in it changes only together with a decision
on how old logs are read from then on.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.differential.logs import Logs
from tidegate.engines.memory import MemoryStore
from tidegate.kernel import codec
from tidegate.kernel.model import NO_META, Commit, Meta, Receipt
from tidegate.kernel.store import Schema, Store
from tidegate.kernel.tags import Cross, Partition
from tidegate.kernel.vocabulary import FactType, Vocabulary

GOLDEN = Path(__file__).with_name("golden_leaves.json")
EVENTS = 20
T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Noted(Struct, frozen=True):
    text: str
    at: datetime | None = None


class Counted(Struct, frozen=True):
    shelf_id: str
    count: int
    parts: dict[str, int] = {}


class Shipped(Struct, frozen=True):
    order_id: Annotated[str, Partition()]
    customer_id: Annotated[str, Cross()]
    product_ids: tuple[str, ...] = ()
    express: bool = False


SCHEMA = Schema(
    Vocabulary(
        (
            FactType(Noted, "notice", global_order=True),
            FactType(Counted, "stock", schema=3, upcasts={1: lambda old: old, 2: lambda old: old}),
            FactType(Shipped, "order"),
        )
    )
)

EVERYBODY = Meta(actor="user_1", on_behalf_of="user_2", request="r-1", cause="7")


def commits() -> tuple[Commit, ...]:
    """Return the twenty events, in the commits that append them."""

    def commit(at: datetime, meta: Meta, *values: Struct) -> Commit:
        return Commit(at, meta, tuple(SCHEMA.vocabulary.fact(value) for value in values))

    products = tuple(f"p{number:02}" for number in range(60))
    return (
        commit(T0, NO_META, Noted("")),
        commit(T0, NO_META, Noted("plain"), Noted('"quoted" \\ / \t\n')),
        commit(T0 + timedelta(microseconds=1), Meta(actor="ann"), Noted("é ß 日本語 𐍈 🚢")),
        commit(T0.replace(microsecond=999_999), Meta(request="r"), Noted("\u2028\u2029\u007f")),
        commit(datetime(1970, 1, 1, tzinfo=UTC), Meta(cause="1"), Noted("first", T0)),
        commit(datetime(9998, 12, 31, 23, 59, 59, 999_999, UTC), EVERYBODY, Noted("last")),
        commit(
            T0 - timedelta(hours=1),  # a clock that stepped back
            Meta(on_behalf_of="user_é", cause="𐍈"),
            Counted("s:1", 0),
            Counted("s#1", 2**53 - 1, {"b": 1, "a": -(2**53 - 1)}),
            Counted("s/1", -1, {"é": 0}),
        ),
        commit(T0.replace(microsecond=100_000), EVERYBODY, Shipped("1", "c")),
        commit(
            T0,
            Meta(actor="a" * 200),
            Shipped("1:1", "C", ("p",)),
            Shipped("é", "日本", ("p", "q", "𐍈"), express=True),
            Shipped("o" * 200, "c", products),
        ),
        commit(T0, NO_META, *(Shipped(f"{n}", "same", ("x",)) for n in range(5))),
        commit(T0, NO_META, Noted("x" * 10_000)),
    )


def leaves(store: Store) -> list[str]:
    """Return the leaves of a store with the appended events, with ordinals for positions."""
    for commit in commits():
        (answer,) = store.commit(commit)
        assert isinstance(answer, Receipt)
    events = store.feed(after=0, limit=2 * EVENTS).events
    return [
        codec.leaf(replace(event, position=ordinal)).hex()
        for ordinal, event in enumerate(events, start=1)
    ]


def test_returns_the_golden_leaves(engine: str, tmp_path: Path) -> None:
    with closing(Logs(engine, tmp_path)) as logs:
        found = leaves(logs.store(SCHEMA))

    assert len(found) == EVENTS
    assert found == json.loads(GOLDEN.read_text())


@pytest.mark.parametrize("member", ["at", "kind", "type", "schema", "tags", "meta", "body"])
def test_a_leaf_depends_on_every_member(member: str) -> None:
    store = MemoryStore(SCHEMA)
    store.commit(*commits())
    first, *_, last = store.feed(after=0, limit=2 * EVENTS).events
    shipped = store.feed(after=13, limit=1).events[0]
    changed = {
        "at": last.at + timedelta(microseconds=1),
        "kind": "other",
        "type": "Other",
        "schema": 2,
        "tags": shipped.tags,
        "meta": EVERYBODY,
        "body": first.body,
    }

    assert codec.leaf(replace(last, **{member: changed[member]})) != codec.leaf(last)


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    assert not GOLDEN.exists(), "the golden leaves are written once"
    GOLDEN.write_text(json.dumps(leaves(MemoryStore(SCHEMA)), indent=1) + "\n")
