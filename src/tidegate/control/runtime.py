"""The one write path: a command is decided, its facts are folded, and all of it is one commit.

    receipt(key)? ─▶ read ─▶ decide ─▶ follow-ups and rows ─▶ commit
                       ▲                      ▲                 │ a fold's row moved: step again
                       │                      └─────────────────┤
                       └────────────────────────────────────────┘ the boundary moved: again

Two verbs write facts: ``execute`` (a command) and ``record`` (a report, through its lane).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime
from hashlib import sha256

from msgspec import Struct

from tidegate.clock import Clock, system_clock
from tidegate.errors import (
    AttemptsExhausted,
    BoundaryMoved,
    Conflict,
    IdempotencyMismatch,
    InvalidInput,
    Refused,
    VersionConflict,
)
from tidegate.kernel import codec
from tidegate.kernel.folds import Folds, Unfolding
from tidegate.kernel.model import (
    COST_MAX,
    NO_META,
    Boundary,
    Check,
    Commit,
    Key,
    Meta,
    Once,
    Position,
    Receipt,
)
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Store, demand_boundary

ATTEMPTS_MAX = 3
REFOLDS_MAX = 50  # a fold's row that moved costs no attempt, but not for ever
BACK_OFF_SECONDS = 0.005  # doubled per attempt, full jitter
BACK_OFF_SECONDS_MAX = 0.2

Submit = Callable[[Commit], "Future[Receipt]"]


class Outcome(Struct, frozen=True):
    """What became of a command or report. No receipt: it changes nothing, nothing was written."""

    facts: tuple[Struct, ...]
    receipt: Receipt | None
    answer: bytes = b""

    @property
    def position(self) -> Position:
        """The log position that it caused, 0 if none."""
        return 0 if self.receipt is None else self.receipt.last


class Control:
    """Runs slices against a store and keeps its folds in step.

    ``submit`` hands a commit to the writer (``Grouped(store).submit``); everything that waits or
    tosses a coin is a parameter, so that a simulation owns it.
    """

    def __init__(
        self,
        store: Store,
        folds: Folds,
        submit: Submit,
        *,
        clock: Clock = system_clock,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
        attempts_max: int = ATTEMPTS_MAX,
    ) -> None:
        self.store = store
        self.folds = folds
        self.clock = clock
        self._submit = submit
        self._sleep = sleep
        self._jitter = jitter
        self._attempts_max = attempts_max

    def execute(
        self, item: Slice, command: Struct, *, meta: Meta = NO_META, key: str | None = None
    ) -> Outcome:
        """Decide the command and commit what follows from it.

        With a ``key`` a repeat gives the first answer.

        Raises:
            Refused: a rule says no. IdempotencyMismatch: the key belongs to another command.
            AttemptsExhausted: somebody else moved first, every time.
            Unavailable: nothing was applied. Unknown: it may have been; ask again with the key.
        """
        if not isinstance(command, item.command):
            raise InvalidInput(f"{item.name} takes {item.command.__name__}")
        once = None if key is None else Once(key, digest(meta.actor, item.name, command))
        if once is not None and (earlier := self._earlier(once)) is not None:
            return earlier
        moved = Conflict("no attempt was allowed")
        for attempt in range(self._attempts_max):
            if attempt:
                self._back_off(attempt)
            try:
                return self._attempt(item, command, meta, once)
            except (BoundaryMoved, VersionConflict) as conflict:
                moved = conflict
            except Refused:
                # The refusal may have seen this very command's earlier copy.
                if once is not None and (earlier := self._earlier(once)) is not None:
                    return earlier
                raise
        raise AttemptsExhausted(
            f"{item.name} met another commit {self._attempts_max} times, last: {moved.detail}",
            attempts=self._attempts_max,
            **moved.facts,
        ) from moved

    def _attempt(self, item: Slice, command: Struct, meta: Meta, once: Once | None) -> Outcome:
        at = self.clock()
        if item.rows is not None:
            return self._from_rows(item, command, at, meta, once)
        boundary, state = self._read(item, command)
        basis = Commit(at, meta, boundaries=(boundary,))
        try:
            values = tuple(item.decide(state, command, at))
        except Refused:
            if item.certify:
                self._land(basis)
            raise
        if not values:
            return Outcome((), None, item.answer(()))
        return self._fold(values, basis, item.answer(values), once)

    def _read(self, item: Slice, command: Struct) -> tuple[Boundary, object]:
        vocabulary = self.folds.vocabulary
        query = vocabulary.query(item, command)
        page = self.store.read(query, guard=vocabulary.guard(item, query))
        views = {struct.__name__: struct for struct in item.reads}
        assert item.start is not None
        assert item.evolve is not None
        state = item.start(command)
        for event in page.events:
            state = item.evolve(state, vocabulary.value(event, views[event.type]))
        return demand_boundary(page, query), state

    def _fold(
        self, values: tuple[Struct, ...], basis: Commit, answer: bytes, once: Once | None
    ) -> Outcome:
        """Step the rows of decided facts and commit; a row that moved is read and stepped again."""
        moved = Conflict("no fold was allowed")
        for _ in range(REFOLDS_MAX):
            unfolding = Unfolding(self.folds, self.store.get)
            unfolding.fetch(key for value in values for key in self.folds.keys(value))
            try:
                unfolding.add(values, basis.at)
            except Refused:
                # The rows are newer than the decision: if its boundary moved, that is the reason.
                self._land(basis)
                raise
            try:
                return self._landed(values, unfolding, basis, answer, once)
            except VersionConflict as conflict:
                moved = conflict
                self._back_off(1)
        raise moved

    def _from_rows(
        self, item: Slice, command: Struct, at: datetime, meta: Meta, once: Once | None
    ) -> Outcome:
        """A slice that starts from rows: its boundary is the versions of what it read."""
        assert item.rows is not None
        read = item.rows(command)
        moved = Conflict("no fold was allowed")
        for _ in range(REFOLDS_MAX):
            unfolding = Unfolding(self.folds, self.store.get)
            unfolding.fetch(read)
            seen = tuple(Check(key, unfolding.known[key][0]) for key in read)
            try:
                values = unfolding.decide(item, command, at)
            except Refused:
                if item.certify:
                    self._land(Commit(at, meta, writes=seen))
                raise
            if not values:
                return Outcome((), None, item.answer(()))
            answer = item.answer(values)
            try:
                return self._landed(values, unfolding, Commit(at, meta), answer, once)
            except VersionConflict as conflict:
                if Key(str(conflict.facts["collection"]), str(conflict.facts["id"])) in read:
                    raise
                moved = conflict
                self._back_off(1)
        raise moved

    def _landed(
        self,
        values: tuple[Struct, ...],
        unfolding: Unfolding,
        basis: Commit,
        answer: bytes,
        once: Once | None,
    ) -> Outcome:
        if once is not None:
            once = Once(once.key, once.digest, answer)
        receipt = self._land(unfolding.commit(basis, once))
        if receipt.replayed:
            return Outcome((), receipt, receipt.answer)
        return Outcome(values, receipt, answer)

    def _land(self, commit: Commit) -> Receipt:
        self.store.schema.check(commit, COST_MAX)
        return self._submit(commit).result()

    def _earlier(self, once: Once) -> Outcome | None:
        receipt = self.store.receipt(once.key)
        if receipt is None:
            return None
        if receipt.digest != once.digest:
            raise IdempotencyMismatch(once.key)
        return Outcome((), receipt, receipt.answer)

    def _back_off(self, attempt: int) -> None:
        longest = min(BACK_OFF_SECONDS * 2 ** (attempt - 1), BACK_OFF_SECONDS_MAX)
        self._sleep(longest * self._jitter())


def digest(actor: str, route: str, command: Struct) -> bytes:
    """What an idempotency key stands for: who asked what, never how it was answered."""
    parts = (actor.encode(), route.encode(), codec.encode(command))
    return sha256(b"".join(len(part).to_bytes(8) + part for part in parts)).digest()
