"""Raw access: it passes a row's write policy, but never the log, and never without a fact."""

from __future__ import annotations

from typing import cast

import pytest
from msgspec import Struct

from tests.contract.rows.registry import (
    NEXT,
    SCHEMA,
    T0,
    Release,
    ReleasePinned,
    Watched,
    read,
    seed,
)
from tidegate.clock import ManualClock
from tidegate.engines.memory import MemoryStore
from tidegate.errors import ImmutableRecord, InvalidDefinition, InvalidInput, NotFound
from tidegate.kernel import codec
from tidegate.kernel.records.records import RawRecords, RecordRepaired
from tidegate.kernel.store import Schema, Store
from tidegate.kernel.vocabulary import Vocabulary, facts


@pytest.fixture
def raw(watched: Watched, clock: ManualClock) -> RawRecords:
    return RawRecords(cast(Store, watched), clock)


def repairs(store: Store, after: int) -> list[tuple[int, str, Struct]]:
    events = store.feed(after=after, limit=500).events
    return [
        (event.position, event.meta.actor, SCHEMA.vocabulary.value(event))
        for event in events
        if event.kind == "repair"
    ]


@pytest.mark.req("RS-2")
def test_repairs_a_row_against_its_policy_and_records_it_in_the_same_commit(
    store: Store, raw: RawRecords, id: str
) -> None:
    first = seed(store, "once", id)

    raw.put("once", id, NEXT, reason="imported twice", actor="user_7")
    (second,) = store.get(first.key)
    raw.delete("once", id, reason="should not be here", actor="user_8")

    assert second is not None
    assert codec.decode(second.data, Release) == NEXT
    assert read(store, "once", id) is None
    put, deleted = repairs(store, first.version)
    assert put[0] == second.version
    assert put[1:] == (
        "user_7",
        RecordRepaired("once", id, "imported twice", "user_7", first.version),
    )
    assert deleted[1:] == (
        "user_8",
        RecordRepaired("once", id, "should not be here", "user_8", second.version),
    )


@pytest.mark.req("RS-2")
@pytest.mark.parametrize(("reason", "actor"), [("", "user_7"), ("  ", "user_7"), ("why", " ")])
def test_requires_an_actor_and_a_reason(
    store: Store, watched: Watched, raw: RawRecords, id: str, reason: str, actor: str
) -> None:
    before = seed(store, "once", id)

    with pytest.raises(InvalidInput):
        raw.put("once", id, NEXT, reason=reason, actor=actor)
    with pytest.raises(InvalidInput):
        raw.delete("once", id, reason=reason, actor=actor)
    with pytest.raises(InvalidInput):
        raw.delete("once", id, reason=cast(str, None), actor="user_7")

    assert watched.asked == []
    assert store.get(before.key) == (before,)
    assert repairs(store, before.version) == []


@pytest.mark.req("RS-2")
def test_repairs_neither_the_log_nor_what_is_folded_from_it(
    store: Store, watched: Watched, raw: RawRecords, id: str
) -> None:
    before = seed(store, "folded", id)

    with pytest.raises(ImmutableRecord):
        raw.put("folded", id, NEXT, reason="why", actor="user_7")
    with pytest.raises(ImmutableRecord):
        raw.delete("folded", id, reason="why", actor="user_7")
    for log in ("event_log", "event_index", "fact"):
        with pytest.raises(InvalidInput, match="not declared"):
            raw.delete(log, id, reason="why", actor="user_7")

    assert watched.asked == []
    assert store.get(before.key) == (before,)


@pytest.mark.req("RS-2")
def test_records_nothing_when_there_was_nothing_to_repair(
    store: Store, raw: RawRecords, id: str
) -> None:
    head = seed(store, "plain", id).version

    with pytest.raises(NotFound):
        raw.delete("once", id, reason="why", actor="user_7")

    assert repairs(store, head) == []


def test_opens_no_raw_access_where_the_log_cannot_record_it() -> None:
    silent = MemoryStore(Schema(Vocabulary(facts("release", ReleasePinned))))

    with pytest.raises(InvalidDefinition):
        RawRecords(silent, lambda: T0)
