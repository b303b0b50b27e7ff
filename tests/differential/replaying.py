"""Replays what an engine accepted, in the order of its positions, against the oracle.

Each acknowledged commit must have been right at its place in the log: what its decision read is
still everything that exists, and every row is at the version that it replaced. Nothing here uses an
engine or a clock: the histories of clients and the final log are enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from tests.differential.history import Attempt, History, Landed, Unknown
from tidegate.engines.memory import MemoryStore
from tidegate.errors import TidegateError
from tidegate.kernel.model import ABSENT, Boundary, Commit, Key, Meta, Position, Put
from tidegate.kernel.store import Schema

AT = datetime(2026, 3, 1, tzinfo=UTC)
ROW = b'{"state":"open"}'
EVENTS_MAX = 1_000_000


def contradictions(history: History, schema: Schema) -> list[str]:
    """Return what the oracle refuses of the accepted commits, or places elsewhere."""
    return list(_Replay(history, schema).run())


class _Replay:
    def __init__(self, history: History, schema: Schema) -> None:
        self._history = history
        self._oracle = MemoryStore(schema)
        self._ordinals: dict[Position, Position] = {ABSENT: ABSENT}  # engine → oracle
        self._keys: set[Key] = set()

    def run(self) -> Iterator[str]:
        for first, attempt in self._accepted():
            yield from self._commit(first, attempt)
        yield from self._compare()

    def _accepted(self) -> list[tuple[Position, Attempt]]:
        """Return every commit that took effect, including those of which only the log shows it."""
        written: dict[str, Position] = {}
        for event in self._history.log:
            written.setdefault(event.meta.request, event.position)
        found: dict[Position, Attempt] = {}
        for attempt in self._history.attempts:
            match attempt.outcome:
                case Landed(first, _, replayed) if not replayed:
                    found[first] = attempt
                case Unknown() if attempt.token in written:
                    found.setdefault(written[attempt.token], attempt)
        return sorted(found.items())

    def _commit(self, first: Position, attempt: Attempt) -> Iterator[str]:
        where = f"{attempt.token} at {first}"
        boundaries: list[Boundary] = []
        for reading in attempt.readings:
            page = self._oracle.read(reading.query)
            there = [event.position for event in page.events]
            read = [self._ordinals.get(position, -1) for position in reading.positions]
            if read != there:
                yield f"{where}: read {read} of {reading.query}, there is {there}"
            assert page.has_boundary
            boundaries.append(page.boundary)
        writes = tuple(Put(key, ROW, self._ordinals.get(v, -1)) for key, v in attempt.rows)
        commit = Commit(AT, Meta(), attempt.facts, tuple(boundaries), writes)
        (answer,) = self._oracle.commit(commit)
        if isinstance(answer, TidegateError):
            yield f"{where}: {answer}"
            return
        self._keys.update(key for key, _ in attempt.rows)
        for offset in range(commit.span):
            self._ordinals[first + offset] = answer.first + offset

    def _compare(self) -> Iterator[str]:
        log = self._oracle.feed(after=0, limit=EVENTS_MAX).events
        ours = [(e.position, e.type, e.tags, e.body) for e in log]
        theirs = [
            (self._ordinals.get(e.position, -1), e.type, e.tags, e.body) for e in self._history.log
        ]
        if ours != theirs:
            yield f"the log has {len(theirs)} events, replayed are {len(ours)}, or others"
        rows = {record.key: record.version for record in self._oracle.get(*self._keys) if record}
        found = {
            key: self._ordinals.get(version, -1) for key, version in self._history.rows.items()
        }
        if rows != found:
            yield f"the rows are at {found}, replayed at {rows}"
