"""One command on every engine: folded, decided, tried up to three times, written once or not at
all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

import pytest
from msgspec import Struct

from tests.contract.address import Address
from tests.domain.sample_domain import (
    FOLDS,
    PICKERS,
    FellTree,
    FruitPicked,
    HandPick,
    PlantTree,
    TreeFelled,
    TreePlanted,
    fell_tree,
    hand_pick,
    plant_tree,
)
from tests.examples.racing import connector, control_of
from tidegate.control.runtime import ATTEMPTS_MAX, Control
from tidegate.errors import (
    AttemptsExhausted,
    BoundaryMoved,
    Conflict,
    IdempotencyMismatch,
    NotFound,
)
from tidegate.kernel.model import ALL, Event, EventPage, Key, Query
from tidegate.kernel.replay import differences
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Store

PICK = HandPick("elm", "ann", 3)
PLANTED, FELLED = TreePlanted("elm", "north"), TreeFelled("elm")

Facts = tuple[Struct, ...]


class Interrupted:
    """A store in which something happens between a decision's read and its commit."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.after_read: deque[Callable[[], object]] = deque()  # one is run after each read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, query: Query, *, guard: Query | None = None) -> EventPage:
        page = self._store.read(query, guard=guard)
        if self.after_read:
            self.after_read.popleft()()
        return page


class World:
    """A command's own store, and a rival on another handle of the same log."""

    def __init__(self, store: Interrupted, control: Control, rival: Control) -> None:
        self.store = store
        self.control = control
        self.rival = rival

    def events(self) -> tuple[Event, ...]:
        return self.rival.store.read(ALL).events

    def types(self) -> list[str]:
        return [event.type for event in self.events()]

    def fell(self) -> None:
        self.rival.execute(fell_tree, FellTree("elm"))

    def plant(self) -> None:
        self.rival.execute(plant_tree, PlantTree("elm", "north"))

    def fell_and_plant(self) -> None:
        """Change the boundary of every reader of the tree, and leave the tree as it was."""
        self.fell()
        self.plant()


@pytest.fixture
def world(address: Address | None) -> Iterator[World]:
    """Start with one tree that has not been picked from."""
    connect = connector(address, FOLDS)
    with ExitStack() as stack:
        rival = stack.enter_context(control_of(stack.enter_context(closing(connect())), FOLDS))
        store = Interrupted(stack.enter_context(closing(connect())))
        control = stack.enter_context(control_of(cast(Store, store), FOLDS))
        world = World(store, control, rival)
        world.plant()
        yield world
        assert differences(rival.store, FOLDS) == []


def traced(item: Slice) -> tuple[Slice, list[tuple[str, Facts]]]:
    """Wrap the slice: its state is the list of folded events, and each call is recorded by name and
    input.
    """
    calls: list[tuple[str, Facts]] = []

    def start(command: Struct) -> Facts:
        calls.append(("start", ()))
        return ()

    def evolve(state: Facts, fact: Struct) -> Facts:
        calls.append(("evolve", (fact,)))
        return (*state, fact)

    def decide(state: Facts, command: Struct, now: datetime) -> Sequence[Struct]:
        calls.append(("decide", state))
        return item.decide(bool(state) and isinstance(state[-1], TreePlanted), command, now)

    return replace(item, start=start, evolve=evolve, decide=decide), calls


def decided_on(calls: list[tuple[str, Facts]]) -> list[Facts]:
    return [state for name, state in calls if name == "decide"]


# ── a fold, then a decision ───────────────────────────────────────────────────────────────────────


@pytest.mark.req("CB-9")
def test_folds_every_event_once_and_in_order_before_it_decides(world: World) -> None:
    world.rival.execute(plant_tree, PlantTree("oak", "north"))  # in addition to the boundary
    world.fell_and_plant()
    world.rival.execute(hand_pick, HandPick("elm", "bob", 1))  # of a type that is not read
    item, calls = traced(hand_pick)

    outcome = world.control.execute(item, PICK)

    history = (PLANTED, FELLED, PLANTED)
    folded = [("evolve", (fact,)) for fact in history]
    assert calls == [("start", ()), *folded, ("decide", history)]
    assert outcome.facts == (FruitPicked("elm", "ann", 3, 0),)
    assert world.events()[-1].position == outcome.position


@pytest.mark.req("CB-9")
def test_decides_on_the_initial_state_when_there_are_no_facts(world: World) -> None:
    item, calls = traced(hand_pick)

    with pytest.raises(NotFound):
        world.control.execute(item, HandPick("ash", "ann", 1))

    assert calls == [("start", ()), ("decide", ())]
    assert world.types() == ["TreePlanted"]


# ── retried after a conflict ──────────────────────────────────────────────────────────────────────


@pytest.mark.req("CB-9", "CB-14")
def test_folds_and_decides_again_when_another_commit_intervenes(world: World) -> None:
    item, calls = traced(hand_pick)
    world.store.after_read.append(world.fell)

    with pytest.raises(NotFound):
        world.control.execute(item, PICK)

    assert [name for name, _ in calls].count("start") == 2
    assert decided_on(calls) == [(PLANTED,), (PLANTED, FELLED)]
    assert world.types() == ["TreePlanted", "TreeFelled"]


@pytest.mark.req("CB-14")
def test_commits_once_at_its_third_attempt(world: World) -> None:
    item, calls = traced(hand_pick)
    world.store.after_read.extend([world.fell_and_plant] * (ATTEMPTS_MAX - 1))

    outcome = world.control.execute(item, PICK)

    assert [len(state) for state in decided_on(calls)] == [1, 3, 5]
    assert world.types().count("FruitPicked") == 1
    assert world.events()[-1].position == outcome.position


@pytest.mark.req("CB-14")
def test_gives_up_after_three_attempts_and_writes_nothing(world: World) -> None:
    item, calls = traced(hand_pick)
    world.store.after_read.extend([world.fell_and_plant] * (ATTEMPTS_MAX + 1))

    with pytest.raises(AttemptsExhausted) as exhausted:
        world.control.execute(item, PICK, key="k")

    assert isinstance(exhausted.value, Conflict)
    assert isinstance(exhausted.value.__cause__, BoundaryMoved)
    assert [len(state) for state in decided_on(calls)] == [1, 3, 5]
    assert world.types() == ["TreePlanted", *["TreeFelled", "TreePlanted"] * ATTEMPTS_MAX]
    assert world.rival.store.get(Key(PICKERS.name, "ann")) == (None,)
    assert world.rival.store.receipt("k") is None


# ── empty decisions and repeated commands ─────────────────────────────────────────────────────────


@pytest.mark.req("CB-14")
def test_appends_nothing_for_an_empty_decision(world: World) -> None:
    before = world.events()

    outcome = world.control.execute(plant_tree, PlantTree("elm", "south"), key="k")

    assert (outcome.facts, outcome.receipt, outcome.position) == ((), None, 0)
    assert world.events() == before
    assert world.rival.store.feed(after=before[-1].position, limit=10).events == ()
    assert world.rival.store.receipt("k") is None


@pytest.mark.req("CB-14")
def test_decides_a_command_once_per_key(world: World) -> None:
    item, calls = traced(hand_pick)
    first = world.control.execute(item, PICK, key="k")
    before = world.events()

    again = world.control.execute(item, PICK, key="k")
    elsewhere = world.rival.execute(hand_pick, PICK, key="k")

    assert [again.position, elsewhere.position] == [first.position] * 2
    assert [again.answer, elsewhere.answer] == [b"FruitPicked"] * 2
    assert len(decided_on(calls)) == 1
    with pytest.raises(IdempotencyMismatch):
        world.control.execute(item, HandPick("elm", "ann", 4), key="k")
    assert world.events() == before
