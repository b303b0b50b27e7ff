"""The history checker finds every kind of planted anomaly, and none in clean histories."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from msgspec.structs import replace as restruct

from tests.differential.clients import KEYS, T0, Client, whole_log
from tests.differential.history import (
    Attempt,
    History,
    Landed,
    Moved,
    Reading,
    Rule,
    Unknown,
    anomalies,
)
from tests.differential.world import CLAUSES, FACTS, SCHEMA
from tidegate.engines.memory import MemoryStore
from tidegate.kernel.model import Event, Meta, Query

CLIENTS = 4
OPERATIONS = 120
SEEDS = range(5)
SINCE_EVER = -1.0


@cache
def clean(seed: int) -> History:
    """Return the history of clients that take turns on the oracle: stale boundaries conflict there
    too.
    """
    store = MemoryStore(SCHEMA)
    dice = random.Random(seed)
    clients = [
        Client(store, number, random.Random(seed * CLIENTS + number)) for number in range(CLIENTS)
    ]
    for _ in range(OPERATIONS):
        dice.choice(clients).operate()
    log = whole_log(store)
    return History(
        tuple(reading for client in clients for reading in client.readings),
        tuple(attempt for client in clients for attempt in client.attempts),
        log,
        {record.key: record.version for record in store.get(*KEYS) if record is not None},
        (tuple(event.position for event in log),),
    )


def found(history: History) -> set[Rule]:
    return {anomaly.rule for anomaly in anomalies(history, SCHEMA.vocabulary)}


# ── planted anomalies ─────────────────────────────────────────────────────────────────────────────


class Planter:
    """One clean history, and seeded random changes that spoil it."""

    def __init__(self, seed: int) -> None:
        self.history = clean(seed)
        self.dice = random.Random(seed)

    def attempt(self, wanted: Callable[[Attempt, Landed], bool]) -> tuple[Attempt, Landed]:
        """Return some commit that succeeded and matches."""
        return self.dice.choice(
            [
                (attempt, attempt.outcome)
                for attempt in self.history.attempts
                if isinstance(attempt.outcome, Landed)
                and not attempt.outcome.replayed
                and wanted(attempt, attempt.outcome)
            ]
        )

    def reading(self, events_min: int) -> Reading:
        """Return some read that returned this much."""
        return self.dice.choice(
            [each for each in self.history.readings if len(each.positions) >= events_min]
        )

    def with_attempt(self, old: Attempt, new: Attempt) -> History:
        attempts = tuple(new if each is old else each for each in self.history.attempts)
        return replace(self.history, attempts=attempts)

    def with_reading(self, old: Reading, new: Reading) -> History:
        readings = tuple(new if each is old else each for each in self.history.readings)
        return replace(self.history, readings=readings)

    def with_log(self, *events: Event) -> History:
        return replace(self.history, log=tuple(sorted(events, key=lambda event: event.position)))

    def written(self, attempt: Attempt) -> list[Event]:
        return [event for event in self.history.log if event.meta.request == attempt.token]

    @property
    def beyond(self) -> int:
        """Return a position that does not exist."""
        return self.history.log[-1].position + 100

    # ── one way to spoil a history for each rule ──

    def lost_ack(self) -> History:
        attempt, _ = self.attempt(lambda attempt, _: bool(attempt.facts))
        kept = [event for event in self.history.log if event.meta.request != attempt.token]
        return self.with_log(*kept)

    def conflict_present(self) -> History:
        attempt, _ = self.attempt(
            lambda attempt, _: self.sent_once(attempt) and bool(attempt.facts)
        )
        return self.with_attempt(attempt, replace(attempt, outcome=Moved(self.beyond)))

    def sent_once(self, attempt: Attempt) -> bool:
        return sum(each.token == attempt.token for each in self.history.attempts) == 1

    def from_nowhere(self) -> History:
        event = self.dice.choice(self.history.log)
        stranger = restruct(event, meta=restruct(event.meta, request="nobody"))
        return self.with_log(*(stranger if each is event else each for each in self.history.log))

    def torn(self) -> History:
        attempt, _ = self.attempt(lambda attempt, _: len(attempt.facts) > 1)
        event = self.dice.choice(self.written(attempt))
        return self.with_log(*(each for each in self.history.log if each is not event))

    def duplicate(self) -> History:
        attempt, _ = self.attempt(lambda attempt, _: bool(attempt.facts))
        copies = [
            restruct(event, position=self.beyond + number)
            for number, event in enumerate(self.written(attempt))
        ]
        return self.with_log(*self.history.log, *copies)

    def scattered(self) -> History:
        attempt, _ = self.attempt(lambda attempt, _: len(attempt.facts) > 1)
        event = self.written(attempt)[-1]
        moved = restruct(event, position=self.beyond)
        return self.with_log(*(moved if each is event else each for each in self.history.log))

    def wrong_position(self) -> History:
        attempt, landed = self.attempt(lambda attempt, _: bool(attempt.facts))
        told = Landed(landed.first + 1, landed.last + 1)
        return self.with_attempt(attempt, replace(attempt, outcome=told))

    def condition_violated(self) -> History:
        attempt, _ = self.attempt(
            lambda attempt, _: any(reading.positions for reading in attempt.readings)
        )
        blind = tuple(
            replace(reading, positions=reading.positions[:-1]) for reading in attempt.readings
        )
        return self.with_attempt(attempt, replace(attempt, readings=blind))

    def time_inverted(self) -> History:
        newest = max(event.position for event in self.history.log)
        attempt, _ = self.attempt(lambda attempt, landed: landed.first > newest // 2)
        return self.with_attempt(attempt, replace(attempt, invoked=SINCE_EVER, returned=SINCE_EVER))

    def dirty_read(self) -> History:
        reading = self.reading(0)
        return self.with_reading(
            reading, replace(reading, positions=(*reading.positions, self.beyond))
        )

    def read_extra(self) -> History:
        reading = self.reading(1)
        others = {event.position for event in self.history.log}.difference(reading.positions)
        earlier = [position for position in others if position < reading.positions[-1]]
        position = self.dice.choice(earlier)
        return self.with_reading(
            reading, replace(reading, positions=tuple(sorted((*reading.positions, position))))
        )

    def read_missed(self) -> History:
        reading = self.reading(2)
        place = self.dice.randrange(len(reading.positions) - 1)
        kept = reading.positions[:place] + reading.positions[place + 1 :]
        return self.with_reading(reading, replace(reading, positions=kept))

    def read_stale(self) -> History:
        reading = self.reading(1)
        return self.with_reading(reading, replace(reading, positions=reading.positions[:-1]))

    def read_future(self) -> History:
        reading = self.reading(1)
        return self.with_reading(reading, replace(reading, invoked=SINCE_EVER, returned=SINCE_EVER))

    def went_back(self) -> History:
        earlier = self.dice.choice(
            [
                reading
                for reading in self.history.readings
                if reading.positions and len(self.repeats(reading)) > 0
            ]
        )
        later = self.dice.choice(self.repeats(earlier))
        return self.with_reading(later, replace(later, positions=earlier.positions[:-1]))

    def repeats(self, earlier: Reading) -> list[Reading]:
        return [
            reading
            for reading in self.history.readings
            if (reading.client, reading.query) == (earlier.client, earlier.query)
            and reading.invoked > earlier.invoked
        ][:1]

    def row_lost(self) -> History:
        attempt, _ = self.attempt(lambda attempt, _: bool(attempt.rows))
        rows = tuple((key, expected + 1) for key, expected in attempt.rows)
        return self.with_attempt(attempt, replace(attempt, rows=rows))

    def row_wrong(self) -> History:
        key = self.dice.choice(sorted(self.history.rows))
        return replace(self.history, rows={**self.history.rows, key: self.beyond})

    def feed_differs(self) -> History:
        (followed,) = self.history.followed
        place = self.dice.randrange(len(followed))
        return replace(self.history, followed=(followed[:place] + followed[place + 1 :],))

    def unjustified(self) -> History:
        attempt = self.dice.choice(
            [
                each
                for each in self.history.attempts
                if isinstance(each.outcome, Moved)
                and all(reading.positions for reading in each.readings)
                and len(each.readings) == 1
            ]
        )
        seen = attempt.readings[0].positions[0]
        return self.with_attempt(attempt, replace(attempt, outcome=Moved(seen)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rule", Rule, ids=lambda rule: rule.name.lower())
def test_finds_every_planted_anomaly(rule: Rule, seed: int) -> None:
    plant = getattr(Planter(seed), rule.name.lower())

    assert rule in found(plant())


@pytest.mark.parametrize("seed", range(20))
def test_finds_nothing_in_a_clean_history(seed: int) -> None:
    history = clean(seed)

    assert anomalies(history, SCHEMA.vocabulary) == []
    assert anomalies(history, SCHEMA.vocabulary, one_order=False) == []
    assert sum(isinstance(attempt.outcome, Moved) for attempt in history.attempts) >= 1


@pytest.mark.parametrize("seed", SEEDS)
def test_accepts_an_unknown_outcome_as_present_or_absent(seed: int) -> None:
    history = clean(seed)
    doubted = tuple(
        replace(attempt, outcome=Unknown()) if not attempt.rows and place % 3 == 0 else attempt
        for place, attempt in enumerate(history.attempts)
    )

    assert anomalies(replace(history, attempts=doubted), SCHEMA.vocabulary) == []


def test_allows_a_late_arrival_only_without_a_total_order() -> None:
    """DynamoDB: of two unrelated commits, the one with the lower number may appear later."""
    names = (
        'Opened {"order_id":"1:1#"}',
        'Placed {"order_id":"1","customer_id":"C","product_ids":[]}',
    )
    log = tuple(
        Event(
            position,
            T0,
            fact.kind,
            fact.type,
            fact.schema,
            fact.tags,
            Meta(request=name),
            fact.body,
        )
        for position, name in enumerate(names, start=1)
        for fact in (FACTS[name],)
    )
    attempts = tuple(
        Attempt(0, 0.0, 9.0, name, (FACTS[name],), (), (), Landed(position, position))
        for position, name in enumerate(names, start=1)
    )
    query = Query((CLAUSES["[Opened @ order_id:1:1#]"], CLAUSES["[Placed @ customer_id:C]"]))
    history = History((Reading(1, 1.0, 2.0, query, (2,)),), attempts, log)

    assert found(history) == {Rule.READ_MISSED}
    assert anomalies(history, SCHEMA.vocabulary, one_order=False) == []
