"""Finds what concurrent clients must never observe, from their histories and the final log.

The log itself is the reference: its order is the order in which everything should have happened, so
no search is needed and each rule is about linear. The checker trusts the final read of the log; so
that read uses a fresh handle and is compared with feeds that were followed during the run. It does
not find anomalies that no history touches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from tidegate.kernel.model import ABSENT, Clause, Event, Fact, Key, Position, Query
from tidegate.kernel.vocabulary import Vocabulary

# ── what clients record ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Reading:
    """A whole read from the start of the log, and what it returned."""

    client: int
    invoked: float
    returned: float
    query: Query
    positions: tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class Landed:
    first: Position
    last: Position
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Moved:
    """A boundary conflict: there is an event at this position that was not read."""

    position: Position


@dataclass(frozen=True, slots=True)
class RowMoved:
    key: Key
    expected: Position
    found: Position


@dataclass(frozen=True, slots=True)
class Unknown:
    """It may have happened, as a whole."""


Outcome = Landed | Moved | RowMoved | Unknown


@dataclass(frozen=True, slots=True)
class Attempt:
    """A commit that was sent. Its token is in the meta of its facts; a resend keeps its token."""

    client: int
    invoked: float
    returned: float
    token: str
    facts: tuple[Fact, ...]
    readings: tuple[Reading, ...]  # one for each boundary
    rows: tuple[tuple[Key, Position], ...]  # put, each at this version
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class History:
    """All that is known of a run."""

    readings: tuple[Reading, ...]
    attempts: tuple[Attempt, ...]
    log: tuple[Event, ...]
    rows: dict[Key, Position] = field(default_factory=dict)
    followed: tuple[tuple[Position, ...], ...] = ()  # feeds, each read while the run was going on


class Rule(StrEnum):
    LOST_ACK = "an acknowledged commit is not in the log"
    CONFLICT_PRESENT = "a commit that was answered with a conflict is in the log"
    FROM_NOWHERE = "an event that no client wrote"
    TORN = "a part of a commit, or other facts than were sent"
    DUPLICATE = "a commit is in the log more than once"
    SCATTERED = "the facts of one commit are not next to each other"
    WRONG_POSITION = "a receipt names other positions than the log"
    CONDITION_VIOLATED = "an event precedes the commit, and its decision did not read it"
    TIME_INVERTED = "a commit precedes one that was acknowledged before it was sent"
    DIRTY_READ = "a read returned what is not in the log"
    READ_EXTRA = "a read returned what does not match"
    READ_MISSED = "a read omitted an event before one that it returned"
    READ_STALE = "a read left out what was acknowledged before it began"
    READ_FUTURE = "a read returned what was sent after it ended"
    WENT_BACK = "a client saw less than it had seen before"
    ROW_LOST = "a row was written over a version that its writer had not read"
    ROW_WRONG = "a row is not at the version of its last write"
    FEED_DIFFERS = "a followed feed is not the log"
    UNJUSTIFIED = "a conflict names nothing that was unseen"


@dataclass(frozen=True, slots=True)
class Anomaly:
    rule: Rule
    what: str


# ── the checker ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Line:
    """The events of one clause in log order, with the client and the time of each."""

    positions: list[Position]
    sent_at: list[float]
    earliest_ack: list[float]  # of this event and all after it


class Checker:
    """``one_order``: reads return a prefix of the whole log. Otherwise (DynamoDB) they return a
    prefix of each clause, and only commits, which touch every fence they read, are in the order of
    positions.
    """

    def __init__(self, history: History, vocabulary: Vocabulary, *, one_order: bool) -> None:
        self._history = history
        self._vocabulary = vocabulary
        self._one_order = one_order
        self._events = {event.position: event for event in history.log}
        self._sent: dict[str, Attempt] = {}
        self._acknowledged: dict[str, float] = {}
        for attempt in sorted(history.attempts, key=lambda attempt: attempt.invoked):
            self._sent.setdefault(attempt.token, attempt)
            if isinstance(attempt.outcome, Landed):
                self._acknowledged.setdefault(attempt.token, attempt.returned)
        self._lines: dict[Query, _Line] = {}
        self._landed = sorted(
            (
                (attempt.outcome.first, attempt)
                for attempt in history.attempts
                if isinstance(attempt.outcome, Landed) and not attempt.outcome.replayed
            ),
            key=lambda pair: pair[0],
        )

    def anomalies(self) -> list[Anomaly]:
        rules: tuple[Callable[[], Iterable[Anomaly]], ...] = (
            self._commits,
            self._conditions,
            self._real_time,
            self._reads,
            self._sessions,
            self._row_chains,
            self._feeds,
            self._conflicts,
        )
        return [anomaly for rule in rules for anomaly in rule()]

    def _commits(self) -> Iterator[Anomaly]:
        """Check that what was acknowledged is there, once, whole, and where the receipt says."""
        written: defaultdict[str, list[Event]] = defaultdict(list)
        for event in self._history.log:
            written[event.meta.request].append(event)
        for token, events in written.items():
            if token not in self._sent:
                yield Anomaly(Rule.FROM_NOWHERE, f"{token!r} at {events[0].position}")
            else:
                yield from self._whole(self._sent[token], events)
        outcomes: defaultdict[str, list[Outcome]] = defaultdict(list)
        for attempt in self._history.attempts:
            outcomes[attempt.token].append(attempt.outcome)
        for token, told in outcomes.items():
            yield from self._told(token, told, written.get(token, []))

    def _whole(self, sent: Attempt, events: list[Event]) -> Iterator[Anomaly]:
        found = [(event.kind, event.type, event.tags, event.body) for event in events]
        wanted = [(fact.kind, fact.type, fact.tags, fact.body) for fact in sent.facts]
        if len(found) > len(wanted):
            yield Anomaly(Rule.DUPLICATE, f"{sent.token}: {len(found)} facts of {len(wanted)}")
        elif found != wanted:
            yield Anomaly(Rule.TORN, f"{sent.token}: {len(found)} facts of {len(wanted)}")
        positions = [event.position for event in events]
        if any(after != before + 1 for before, after in pairwise(positions)):
            yield Anomaly(Rule.SCATTERED, f"{sent.token}: {positions}")

    def _told(self, token: str, told: list[Outcome], events: list[Event]) -> Iterator[Anomaly]:
        landed = [outcome for outcome in told if isinstance(outcome, Landed)]
        refused = [outcome for outcome in told if isinstance(outcome, Moved | RowMoved)]
        if not self._sent[token].facts:
            return
        if landed and not events:
            yield Anomaly(Rule.LOST_ACK, token)
        if refused and not landed and events:
            yield Anomaly(Rule.CONFLICT_PRESENT, token)
        for outcome in landed:
            if events and (outcome.first, outcome.last) != (
                events[0].position,
                events[-1].position,
            ):
                yield Anomaly(Rule.WRONG_POSITION, f"{token}: {outcome}, {events[0].position} …")

    def _conditions(self) -> Iterator[Anomaly]:
        for first, attempt in self._landed:
            for reading in attempt.readings:
                for clause in reading.query.clauses:
                    line = self._line(Query((clause,))).positions
                    before = line[: bisect_left(line, first)]
                    unseen = set(before).difference(reading.positions)
                    if unseen:
                        yield Anomaly(
                            Rule.CONDITION_VIOLATED,
                            f"{attempt.token} at {first} did not see {clause} at {min(unseen)}",
                        )

    def _real_time(self) -> Iterator[Anomaly]:
        """Check, from the end of the log, that no commit comes after one that it preceded in
        time.
        """
        earliest_ack = float("inf")
        for first, attempt in reversed(self._landed):
            if earliest_ack < attempt.invoked:
                yield Anomaly(Rule.TIME_INVERTED, f"{attempt.token} at {first}")
            earliest_ack = min(earliest_ack, attempt.returned)

    def _reads(self) -> Iterator[Anomaly]:
        for reading in self._history.readings:
            unwritten = [p for p in reading.positions if p not in self._events]
            if unwritten:
                yield Anomaly(Rule.DIRTY_READ, f"{reading.query} returned {unwritten[0]}")
            for query in self._views(reading.query):
                yield from self._read(reading, query)
            matching = set(self._line(reading.query).positions)
            extra = [p for p in reading.positions if p in self._events and p not in matching]
            if extra or list(reading.positions) != sorted(set(reading.positions)):
                yield Anomaly(Rule.READ_EXTRA, f"{reading.query}: {extra or reading.positions}")

    def _read(self, reading: Reading, query: Query) -> Iterator[Anomaly]:
        line = self._line(query)
        returned = set(reading.positions)
        count = next(
            (n for n, position in enumerate(line.positions) if position not in returned),
            len(line.positions),
        )
        later = returned.intersection(line.positions[count:])
        if later:
            yield Anomaly(
                Rule.READ_MISSED,
                f"{query} returned {min(later)} without {line.positions[count]}",
            )
        if count < len(line.positions) and line.earliest_ack[count] < reading.invoked:
            yield Anomaly(Rule.READ_STALE, f"{query} ended before {line.positions[count]}")
        for position, sent_at in zip(line.positions[:count], line.sent_at, strict=False):
            if sent_at > reading.returned:
                yield Anomaly(Rule.READ_FUTURE, f"{query} returned {position}")

    def _sessions(self) -> Iterator[Anomaly]:
        seen: dict[tuple[int, Query], Reading] = {}
        for reading in sorted(self._history.readings, key=lambda reading: reading.invoked):
            before = seen.get((reading.client, reading.query))
            if before is not None and not set(before.positions) <= set(reading.positions):
                yield Anomaly(Rule.WENT_BACK, f"client {reading.client}: {reading.query}")
            seen[reading.client, reading.query] = reading

    def _row_chains(self) -> Iterator[Anomaly]:
        versions: dict[Key, Position] = {}
        for first, attempt in self._landed:
            for key, expected in attempt.rows:
                version = versions.get(key, ABSENT)
                if version != expected:
                    yield Anomaly(
                        Rule.ROW_LOST, f"{key} was at {version} when {first} expected {expected}"
                    )
                versions[key] = first
        # A commit with an unknown outcome may have been the last to write.
        if not any(isinstance(attempt.outcome, Unknown) for attempt in self._history.attempts):
            for key in versions.keys() | self._history.rows.keys():
                if versions.get(key) != self._history.rows.get(key):
                    yield Anomaly(Rule.ROW_WRONG, f"{key} is at {self._history.rows.get(key)}")

    def _feeds(self) -> Iterator[Anomaly]:
        log = tuple(event.position for event in self._history.log)
        if list(log) != sorted(set(log)):
            yield Anomaly(Rule.FEED_DIFFERS, "the log is not in the order of its positions")
        for followed in self._history.followed:
            if followed != log:
                differing = sorted(set(followed) ^ set(log))
                yield Anomaly(Rule.FEED_DIFFERS, f"{len(followed)} events; {differing[:3]}")

    def _conflicts(self) -> Iterator[Anomaly]:
        for attempt in self._history.attempts:
            match attempt.outcome:
                case Moved(position):
                    seen = [set(reading.positions) for reading in attempt.readings]
                    if position not in self._events or all(position in each for each in seen):
                        yield Anomaly(Rule.UNJUSTIFIED, f"{attempt.token}: {position}")
                case RowMoved(key, expected, found):
                    if expected == found or (key, expected) not in attempt.rows:
                        yield Anomaly(Rule.UNJUSTIFIED, f"{attempt.token}: {key} at {found}")

    # ── lines ──

    def _views(self, query: Query) -> list[Query]:
        if self._one_order:
            return [query]
        return [Query((clause,)) for clause in query.clauses]

    def _line(self, query: Query) -> _Line:
        line = self._lines.get(query)
        if line is None:
            line = self._lines[query] = self._draw(query)
        return line

    def _draw(self, query: Query) -> _Line:
        events = [event for event in self._history.log if self._matches(query.clauses, event)]
        acknowledged = [
            self._acknowledged.get(event.meta.request, float("inf")) for event in events
        ]
        for place in range(len(events) - 2, -1, -1):
            acknowledged[place] = min(acknowledged[place], acknowledged[place + 1])
        return _Line(
            [event.position for event in events],
            [
                sent.invoked if (sent := self._sent.get(event.meta.request)) else float("-inf")
                for event in events
            ],
            acknowledged,
        )

    def _matches(self, clauses: tuple[Clause, ...], event: Event) -> bool:
        return any(self._vocabulary.matches(clause, event) for clause in clauses)


def anomalies(history: History, vocabulary: Vocabulary, *, one_order: bool = True) -> list[Anomaly]:
    """Return every anomaly of the history. The queries read must be fenced exactly by what they
    match: single tags and declared composites.
    """
    return Checker(history, vocabulary, one_order=one_order).anomalies()
