"""A stand-in for the writer: it commits directly and can be made to fail.

It replaces ``submit``, so a rival's commit, a lost answer or a failed database can happen between
the read and the commit, on any engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from tests.domain.sample_domain import FOLDS, SCHEMA, T0
from tidegate.clock import Clock, ManualClock
from tidegate.control.lanes import Lanes
from tidegate.control.runtime import Control
from tidegate.engines.memory import MemoryStore
from tidegate.errors import OutcomeUnknown, TidegateError
from tidegate.kernel import codec
from tidegate.kernel.folds import Folds
from tidegate.kernel.model import ALL, Commit, Event, Key, Receipt
from tidegate.kernel.store import Store


class FaultyCommitter:
    """A writer without a thread, with a plan of what happens at its next commits."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.commits: list[Commit] = []
        self.before: deque[Callable[[], object]] = deque()  # one runs before each commit
        self.lost_answers = 0  # this many commits succeed and their answers are lost
        self.errors: deque[BaseException] = deque()  # each answers one commit in place of the store

    def submit(self, commit: Commit) -> Future[Receipt]:
        if self.before:
            self.before.popleft()()
        future: Future[Receipt] = Future()
        self.commits.append(commit)
        if self.errors:
            future.set_exception(self.errors.popleft())
            return future
        (answer,) = self.store.commit(commit)
        if self.lost_answers:
            self.lost_answers -= 1
            future.set_exception(OutcomeUnknown("the connection broke"))
        elif isinstance(answer, TidegateError):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future


class SampleControl:
    """A store with a writer, a control, a clock that only a test moves, and waits that take no
    time.
    """

    def __init__(self, store: Store | None = None, folds: Folds = FOLDS) -> None:
        self.store: Store = MemoryStore(SCHEMA) if store is None else store
        self.folds = folds
        self.committer = FaultyCommitter(self.store)
        self.clock = ManualClock(T0)
        self.waits: list[float] = []
        self.control = self.control_with()

    def control_with(self, *, attempts_max: int = 3, jitter: float = 0.5) -> Control:
        return Control(
            self.store,
            self.folds,
            self.committer.submit,
            clock=self.clock,
            sleep=self.waits.append,
            jitter=lambda: jitter,
            attempts_max=attempts_max,
        )

    def rival(self) -> Control:
        """Another client of the same store, whose commits nothing interrupts."""
        return SampleControl(self.store, self.folds).control

    def lanes(
        self, *, monotonic: Callable[[], float] = lambda: 0.0, clock: Clock | None = None
    ) -> Lanes:
        return Lanes(
            self.store,
            self.folds,
            self.committer.submit,
            clock=clock or self.clock,
            monotonic=monotonic,
            sleep=self.waits.append,
            jitter=lambda: 0.5,
        )

    def events(self) -> tuple[Event, ...]:
        return self.store.read(ALL).events

    def types(self) -> list[str]:
        return [event.type for event in self.events()]

    def row(self, key: Key) -> object:
        """Return the decoded row, or None if there is none."""
        (record,) = self.store.get(key)
        model = self.store.schema.collection(key.collection).model
        return None if record is None else codec.decode(record.data, model)
