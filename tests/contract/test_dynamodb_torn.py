"""Torn visibility: what the DynamoDB engine reads while a transaction's items appear one by one.

The table is the model of `dynamodb_model`. When a rule of the engine is turned off, the checker of
`dynamodb_history` must notice, or the checker would prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import pytest

from tests.contract.dynamodb_history import MIXED, ROWS_ONLY, Decision, chaos, handle
from tests.contract.dynamodb_model import CALM, COMMON, Actors, TornTable, Weather
from tests.contract.world import (
    OrderPlaced,
    ProductAdded,
    ProductRenamed,
    append,
    clause,
    commit_of,
    positions,
    query_of,
)
from tidegate.engines.dynamodb import DynamoStore
from tidegate.engines.dynamodb.commit import CommitAttempt
from tidegate.engines.dynamodb.items import FENCE, SPAN, fence_place, index_partition, void_slot
from tidegate.engines.dynamodb.log import SlotLog
from tidegate.engines.dynamodb.pack import ActionPurpose, Pack, PackedAction
from tidegate.engines.dynamodb.read import IndexReader
from tidegate.engines.dynamodb.transport import (
    Action,
    Item,
    ItemKey,
    RemoveItem,
    ReplaceItem,
    UpdateItem,
)
from tidegate.errors import StoreUnavailable
from tidegate.kernel.model import Query, Receipt

pytestmark = pytest.mark.parametrize("engine", ["dynamodb"])

PRODUCT = query_of(ProductAdded, ProductRenamed, tags="product_id:p1")
BOTH = Query((*PRODUCT.clauses, clause(OrderPlaced, tags="customer_id:c1")))


class LaggingTable:
    """A table of which some items lag, until a reader waits."""

    def __init__(self) -> None:
        self.table = TornTable(Actors(0))
        self.store = handle(self.table, CALM)
        self.waits = 0

    def draw(self, before: dict[ItemKey, Item], lagging: Sequence[ItemKey]) -> DynamoStore:
        """Open a handle that reads these items as they were, and their current values once it has
        waited.
        """
        now = dict(self.table.items)
        for place in lagging:
            self.table.items.pop(place)
            if place in before:
                self.table.items[place] = before[place]

        def sleep(seconds: float) -> None:
            self.waits += 1
            self.table.items.update(now)

        store = handle(self.table, CALM)
        store._pace.sleep = sleep
        return store

    def picture(self) -> dict[ItemKey, Item]:
        return {place: dict(item) for place, item in self.table.items.items()}


@pytest.mark.req("CB-25")
@pytest.mark.parametrize("query", [PRODUCT, BOTH], ids=["one index", "two indexes"])
def test_a_read_is_whole_whichever_part_of_a_transaction_appears_first(
    engine: str, query: Query
) -> None:
    """Entry before fence, fence before entry, and every other part of a transaction under way."""
    curtain = LaggingTable()
    append(curtain.store, ProductAdded("p1"), OrderPlaced("o1", "c1"))
    before = curtain.picture()
    append(curtain.store, ProductRenamed("p1"), OrderPlaced("o2", "c1"))
    after = curtain.picture()
    moving = sorted(place for place in after if after[place] != before.get(place))
    new = curtain.store.read(query).events
    old = tuple(event for event in new if event.position < SPAN * 2)
    fences = {place for place in moving if place.sk == FENCE}
    pages = []

    for number in range(len(moving) + 1):
        for lagging in combinations(moving, number):
            if 0 < len(fences & set(lagging)) < len(fences):
                continue  # fences are read in one snapshot, which splits no transaction
            curtain.table.items = {place: dict(item) for place, item in after.items()}
            pages.append(curtain.draw(before, lagging).read(query).events)

    assert set(pages) == {old, new}
    assert curtain.waits > 0


@pytest.mark.req("CB-25")
def test_an_index_that_is_one_entry_short_is_read_again(engine: str) -> None:
    curtain = LaggingTable()
    receipts = [append(curtain.store, ProductRenamed("p1", str(n))) for n in range(4)]
    place = ItemKey(index_partition("product_id:p1"), f"{receipts[1].first:016}")
    reader = curtain.draw({}, [place])

    page = reader.read(PRODUCT)

    assert positions(page.events) == [receipt.first for receipt in receipts]
    assert curtain.waits > 0


def test_an_index_that_never_becomes_whole_is_unavailable_and_never_short(engine: str) -> None:
    """F10: missing items are never taken for the end."""
    curtain = LaggingTable()
    receipt = append(curtain.store, ProductAdded("p1"))
    del curtain.table.items[ItemKey(index_partition("product_id:p1"), f"{receipt.first:016}")]

    with pytest.raises(StoreUnavailable, match="not complete"):
        handle(curtain.table, CALM).read(PRODUCT)


def test_events_above_the_fence_are_returned_by_the_next_read(engine: str) -> None:
    """F8, F11: an event that appears before its fence was raised belongs to no boundary yet."""
    curtain = LaggingTable()
    first = append(curtain.store, ProductAdded("p1"))
    before = curtain.picture()
    second = append(curtain.store, ProductRenamed("p1"))
    reader = curtain.draw(before, [fence_place("product_id:p1")])

    early = reader.read(PRODUCT)
    reader._pace.sleep(0)
    late = reader.read(PRODUCT, after=first.last)

    assert positions(early.events) == [first.last]
    assert early.has_boundary
    assert early.boundary.seen["product_id:p1"] == {
        "ProductAdded": first.last,
        "ProductRenamed": 0,
    }
    assert positions(late.events) == [second.last]
    (refused,) = reader.commit(commit_of(ProductRenamed("p1"), on=[early.boundary]))
    assert not isinstance(refused, Receipt)


# ── chaos ─────────────────────────────────────────────────────────────────────────────────────────

SEEDS = 50
STALLING = Weather(stall=0.06)


@pytest.mark.req("CB-1", "CB-10", "CB-15", "CB-25")
@pytest.mark.parametrize("share", range(2))
def test_every_decision_follows_from_the_facts_before_it(engine: str, share: int) -> None:
    """Writers stall and die; requests are lost, late and torn. The replay finds no
    contradiction.
    """
    runs = {seed: chaos(seed) for seed in range(share * SEEDS // 2, (share + 1) * SEEDS // 2)}

    assert {seed: found for seed, found in runs.items() if found} == {}


def test_rows_follow_from_their_facts(engine: str) -> None:
    runs = {seed: chaos(seed, decisions=ROWS_ONLY) for seed in range(20)}

    assert {seed: found for seed, found in runs.items() if found} == {}


# ── each rule turned off ──────────────────────────────────────────────────────────────────────────


def resent(change: Callable[[PackedAction], Action]) -> Callable[[pytest.MonkeyPatch], None]:
    """Change the actions of every transaction that is sent."""

    def switch(monkeypatch: pytest.MonkeyPatch) -> None:
        sound = Pack._steps

        def steps(
            self: Pack, number: int, tx: str, now: float, *, inline: bool
        ) -> list[PackedAction]:
            made = sound(self, number, tx, now, inline=inline)
            return [replace(step, action=change(step)) for step in made]

        monkeypatch.setattr(Pack, "_steps", steps)

    return switch


def of_fences(change: Callable[[UpdateItem], Action]) -> Callable[[pytest.MonkeyPatch], None]:
    return resent(lambda s: change(s.action) if _is(s, ActionPurpose.FENCE) else s.action)  # type: ignore[arg-type]


def of_rows(change: Callable[[UpdateItem], Action]) -> Callable[[pytest.MonkeyPatch], None]:
    return resent(lambda s: change(s.action) if _is(s, ActionPurpose.ROW) else s.action)  # type: ignore[arg-type]


def _is(step: PackedAction, role: ActionPurpose) -> bool:
    return step.role is role and isinstance(step.action, UpdateItem)


def only_checked(change: UpdateItem) -> UpdateItem:
    advances = any(name.startswith("pos") for name in change.sets)
    return change if advances else replace(change, sets={}, below={})


def overwritten(step: PackedAction) -> Action:
    if step.role is ActionPurpose.SLOT and not isinstance(step.action, RemoveItem | UpdateItem):
        return ReplaceItem(step.action.item)
    return step.action


def forgotten(change: UpdateItem) -> Action:
    return RemoveItem(change.place) if "version" in change.removes else change


def counts_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IndexReader, "_is_complete", lambda self, fence, name, events: True)


def settle_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def resend(self: CommitAttempt, drafts: Any, waits: int) -> Any:
        self._number = None
        return [(drafts, waits)]

    monkeypatch.setattr(CommitAttempt, "_resolve_outcome", resend)


def holes_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlotLog, "_void_hole", lambda self, hole: void_slot(hole))


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the engine, how to turn it off, and where its absence is noticed soon."""

    off: Callable[[pytest.MonkeyPatch], None]
    weather: Weather = COMMON
    decisions: Sequence[Decision] = MIXED


RULES = {
    "an index is accepted by its counts": Rule(counts_off),
    "what was observed is compared": Rule(of_fences(lambda c: replace(c, equal={}))),
    "absent is an observed value": Rule(
        of_fences(lambda c: replace(c, equal={k: v for k, v in c.equal.items() if v}))
    ),
    "a consumed fence is touched": Rule(of_fences(only_checked)),
    "numbers rise along a fence": Rule(of_fences(lambda c: replace(c, below={}))),
    "numbers rise along a row": Rule(of_rows(lambda c: replace(c, below={})), STALLING, ROWS_ONLY),
    "a row is at its version": Rule(of_rows(lambda c: replace(c, equal={})), decisions=ROWS_ONLY),
    "an absent row remembers its number": Rule(of_rows(forgotten), STALLING, ROWS_ONLY),
    "a closed slot stays closed": Rule(resent(overwritten), STALLING),
    "an unknown outcome is settled": Rule(settle_off),
    "a hole is closed before it is passed": Rule(holes_off),
}
SEEDS_MAX = 300


@pytest.mark.parametrize("rule", RULES)
def test_the_checker_notices_a_rule_that_is_turned_off(
    engine: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = RULES[rule]
    off.off(monkeypatch)

    broken = (chaos(seed, off.weather, off.decisions) for seed in range(SEEDS_MAX))

    assert any(broken), f"{SEEDS_MAX} runs without the rule show nothing"
