"""Runs one program on the oracle and on an engine, and compares every answer.

Engines may differ only in positions: DynamoDB's are sparse. So each successful commit pairs the
oracle's positions with the engine's, and later answers of the engine are converted to the oracle's
numbers before they are compared. Where positions are dense, they must be equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from tests.differential.program import (
    NO_FACT,
    ONCE_KEYS,
    Action,
    AskReceipt,
    Expect,
    Feed,
    Get,
    Group,
    Pause,
    Program,
    Range,
    Read,
    Reopen,
    Request,
    Restore,
    Row,
    Step,
    Switch,
)
from tests.differential.world import (
    CLAUSES,
    FACTS,
    KEYS,
    RANGES,
    ROW_NOT_ALLOWED,
    ROWS,
    UNKNOWN_CLAUSES,
)
from tidegate.errors import TidegateError
from tidegate.kernel.collections import entry
from tidegate.kernel.model import (
    ABSENT,
    POSITION_MAX,
    Boundary,
    Check,
    Commit,
    CommitKey,
    Delete,
    Event,
    EventPage,
    Meta,
    Position,
    Put,
    Query,
    Receipt,
    Record,
    Write,
)
from tidegate.kernel.store import Store

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
HANDLES = 2
ROWS_MAX = 1_000
EVENTS_MAX = 10_000
PAGE = 7  # of the last pages of the feed: small, so that pages end inside commits
NEVER: Position = POSITION_MAX

Connect = Callable[[], Store]


class Difference(AssertionError):
    """The engine's answer is not the oracle's."""

    def __init__(self, where: str, expected: object, found: object) -> None:
        super().__init__(f"{where}\n  oracle: {expected!r}\n  engine: {found!r}")


class Machine:
    """The oracle and an engine, through several handles on one log."""

    def __init__(self, oracle: Store, connect: Connect, *, dense: bool) -> None:
        self._oracle = oracle
        self._connect = connect
        self._dense = dense
        self._handles = [connect() for _ in range(HANDLES)]
        self._handle = 0
        self._ordinals: dict[Position, Position] = {ABSENT: ABSENT, NEVER: NEVER}  # engine → oracle
        self._positions: dict[Position, Position] = {ABSENT: ABSENT, NEVER: NEVER}  # and back
        self._head: Position = 0
        self._boundaries: list[tuple[Boundary, Boundary]] = []
        self._stale: dict[int, Position] = {}
        self._where = "at the start"
        self.tally: Counter[str] = Counter()

    def run(self, program: Program) -> Counter[str]:
        """Run the program, and return what happened how often. Raises: Difference."""
        try:
            for number, step in enumerate(program):
                self._where = f"step {number}: {step}"
                self._step(step)
            self._where = "at the end"
            self._compare_all()
            self._step(Reopen())
            self._where = "after reopening"
            self._compare_all()
        finally:
            for handle in self._handles:
                handle.close()
        return self.tally

    @property
    def _engine(self) -> Store:
        return self._handles[self._handle]

    def _step(self, step: Step) -> None:
        self.tally[type(step).__name__] += 1
        match step:
            case Pause():
                pass
            case Read():
                self._read(step)
            case Group():
                self._commit(step)
            case Get(keys):
                wanted = [KEYS[key] for key in keys]
                self._compare_rows(self._oracle.get(*wanted), self._engine.get(*wanted))
            case Range():
                self._range(step)
            case Feed():
                self._feed(step)
            case AskReceipt(key):
                self._compare_receipts(key)
            case Switch():
                self._handle = (self._handle + 1) % HANDLES
            case Reopen():
                self._engine.close()
                self._handles[self._handle] = self._connect()
            case Restore():
                self._restore(step)

    # ── asking both ───────────────────────────────────────────────────────────────────────────────

    def _read(self, step: Read) -> None:
        query = _query(step.clauses)
        guard = _query(step.guard) if step.guard else None
        after = self._back(step.after)
        expected = _answer(
            lambda: self._oracle.read(query, guard=guard, after=after, limit=step.limit)
        )
        found = _answer(
            lambda: self._engine.read(
                query, guard=guard, after=self._positions[after], limit=step.limit
            )
        )
        if not (isinstance(expected, EventPage) and isinstance(found, EventPage)):
            self._same(_told(expected), _told(found))
            self.tally["read refused"] += 1
            return
        self._compare_pages(expected, found)
        self.tally["events read"] += bool(expected.events)
        if not (expected.has_boundary and found.has_boundary):
            self._same(expected.has_boundary, found.has_boundary)
            self.tally["no boundary"] += 1
            return
        self._same(expected.boundary.query, found.boundary.query)
        self._boundaries.append((expected.boundary, found.boundary))
        self.tally["boundary"] += 1

    def _commit(self, group: Group) -> None:
        at = T0 + timedelta(microseconds=self._head)
        rows = self._oracle.get(*KEYS)
        versions = [ABSENT if row is None else row.version for row in rows]
        commits = [self._request(request, at, versions) for request in group.requests]
        expected = self._oracle.commit(*(ours for ours, _ in commits))
        found = self._engine.commit(*(theirs for _, theirs in commits))
        self._same(len(expected), len(found))
        for oracle, engine in zip(expected, found, strict=True):
            self._compare_outcomes(oracle, engine)
        for key, version in enumerate(versions):
            if version != ABSENT:
                self._stale[key] = version

    def _range(self, step: Range) -> None:
        after = ""
        if step.after is not None:
            rows = self._oracle.range(
                step.collection,
                index=step.index,
                prefix=step.prefix,
                limit=ROWS_MAX,
                descending=step.descending,
            )
            if step.after < len(rows):
                after = self._place(step, rows[step.after])
        oracle, engine = (
            store.range(
                step.collection,
                index=step.index,
                prefix=step.prefix,
                after=after,
                limit=step.limit,
                descending=step.descending,
            )
            for store in (self._oracle, self._engine)
        )
        self.tally["rows ranged"] += bool(oracle)
        self._compare_rows(oracle, engine)

    def _feed(self, step: Feed) -> None:
        after = self._back(step.after)
        self._compare_pages(
            self._oracle.feed(after=after, limit=step.limit),
            self._engine.feed(after=self._positions[after], limit=step.limit),
        )

    def _restore(self, step: Restore) -> None:
        rows = self._oracle.range(step.collection, limit=ROWS_MAX)[: step.kept]
        self._oracle.restore(step.collection, rows)
        self._engine.restore(
            step.collection,
            [
                replace(row, version=self._positions[row.version], born=self._positions[row.born])
                for row in rows
            ],
        )

    # ── from choices to values ────────────────────────────────────────────────────────────────────

    def _back(self, steps: int | None) -> Position:
        return 0 if steps is None else max(0, self._head - steps)

    def _place(self, step: Range, row: Record) -> str:
        if step.index is None:
            return row.key.id
        declared = self._oracle.schema.collection(step.collection)
        return entry(declared.entries(row.data)[step.index], row.key.id)

    def _request(
        self, request: Request, at: datetime, versions: list[Position]
    ) -> tuple[Commit, Commit]:
        """Build the commit as it is sent to the oracle and to the engine."""
        facts = tuple(FACTS[name] for name in request.facts)
        held = [
            self._boundaries[-1 - back % len(self._boundaries)]
            for back in request.boundaries
            if self._boundaries
        ]
        once = None
        if request.once is not None:
            key, dice = request.once
            # Mostly one digest for a key, so that replays are as frequent as mismatches.
            once = CommitKey(key, b"other" if dice == 0 else b"first", f"answer {dice}".encode())
        meta = Meta(actor="ann", request=f"r{len(facts)}") if len(facts) % 2 else Meta()
        writes = [self._write(row, len(facts) or 1, versions) for row in request.rows]
        ours, theirs = (
            Commit(
                at,
                meta,
                facts,
                boundaries=tuple(pair[side] for pair in held),
                writes=tuple(pair[side] for pair in writes),
                once=once,
            )
            for side in (0, 1)
        )
        return ours, theirs

    def _write(self, row: Row, span: int, versions: list[Position]) -> tuple[Write, Write]:
        key = KEYS[row.key]
        version = {
            Expect.RIGHT: versions[row.key],
            Expect.STALE: self._stale.get(row.key, NEVER),
            Expect.ABSENT: ABSENT,
            Expect.NEVER: NEVER,
        }[row.expect]
        fact = row.fact if row.fact == NO_FACT else row.fact % span
        action = row.action
        if action is Action.DELETE and row.expect is Expect.RIGHT and version == ABSENT:
            action = Action.CHECK  # deleting an absent row is malformed, not interesting

        def write(expect: Position) -> Write:
            match action:
                case Action.PUT:
                    data = ROWS[row.row] if row.row < len(ROWS) else ROW_NOT_ALLOWED
                    return Put(key, data, expect, fact)
                case Action.DELETE:
                    return Delete(key, expect, fact)
                case Action.CHECK:
                    return Check(key, expect)

        return write(version), write(self._positions[version])

    # ── comparing ──

    def _compare_outcomes(
        self, expected: Receipt | TidegateError, found: Receipt | TidegateError
    ) -> None:
        if isinstance(expected, Receipt) and isinstance(found, Receipt):
            if not (expected.replayed or found.replayed):
                self._land(expected, found)
            self.tally["replayed" if expected.replayed else "landed"] += 1
            self._same(expected, self._receipt(found))
            return
        self._same(self._outcome(expected, {}), self._outcome(found, self._ordinals))
        self.tally[type(expected).__name__] += 1

    def _land(self, expected: Receipt, found: Receipt) -> None:
        """Record which positions of the engine correspond to which of the oracle."""
        self._same(expected.last - expected.first, found.last - found.first)
        if self._dense:
            self._same(expected, found)
        newest = self._positions.get(self._head, 0)
        if found.first <= newest:
            raise Difference(self._where, f"a position above {newest}", found.first)
        for offset in range(expected.last - expected.first + 1):
            self._ordinals[found.first + offset] = expected.first + offset
            self._positions[expected.first + offset] = found.first + offset
        self._head = expected.last

    def _outcome(self, told: Receipt | TidegateError, ordinals: dict[Position, Position]) -> Any:
        if isinstance(told, Receipt):
            return "landed", told
        facts = {
            name: ordinals.get(value, value)
            if name in ("position", "expected", "found") and isinstance(value, int)
            else value
            for name, value in told.facts.items()
        }
        return type(told), told.code, facts

    def _compare_pages(self, expected: EventPage, found: EventPage) -> None:
        events = tuple(
            replace(event, position=self._ordinal(event.position)) for event in found.events
        )
        self._same(expected.events, events)

    def _compare_rows(
        self, expected: tuple[Record | None, ...], found: tuple[Record | None, ...]
    ) -> None:
        rows = tuple(
            row and replace(row, version=self._ordinal(row.version), born=self._ordinal(row.born))
            for row in found
        )
        self._same(expected, rows)

    def _compare_receipts(self, key: str) -> None:
        expected, found = self._oracle.receipt(key), self._engine.receipt(key)
        self._same(expected, found and self._receipt(found))

    def _compare_all(self) -> None:
        self._compare_rows(self._oracle.get(*KEYS), self._engine.get(*KEYS))
        for collection, index in RANGES:
            oracle, engine = (
                store.range(collection, index=index, limit=ROWS_MAX)
                for store in (self._oracle, self._engine)
            )
            self._compare_rows(oracle, engine)
        for key in ONCE_KEYS:
            self._compare_receipts(key)
        walked: list[Event] = []
        after = 0
        for _ in range(EVENTS_MAX):
            page = self._engine.feed(after=after, limit=PAGE)
            if not page.events:
                break
            walked += page.events
            after = page.events[-1].position
        self._compare_pages(self._oracle.feed(after=0, limit=EVENTS_MAX), EventPage(tuple(walked)))

    def _receipt(self, found: Receipt) -> Receipt:
        return replace(found, first=self._ordinal(found.first), last=self._ordinal(found.last))

    def _ordinal(self, position: Position) -> Position:
        if position not in self._ordinals:
            raise Difference(self._where, "a position of this log", position)
        return self._ordinals[position]

    def _same(self, expected: object, found: object) -> None:
        if expected != found:
            raise Difference(self._where, expected, found)


def _query(names: tuple[str, ...]) -> Query:
    return Query(tuple(CLAUSES.get(name) or UNKNOWN_CLAUSES[name] for name in names))


def _answer(ask: Callable[[], EventPage]) -> EventPage | TidegateError:
    try:
        return ask()
    except TidegateError as error:
        return error


def _told(answer: EventPage | TidegateError) -> object:
    return (
        (type(answer), answer.code, answer.detail) if isinstance(answer, TidegateError) else answer
    )
