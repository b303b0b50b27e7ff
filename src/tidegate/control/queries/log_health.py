"""Check that the log accepts commits, that the outbox is not stuck, and that rows match the log."""

from __future__ import annotations

from tidegate.clock import Clock
from tidegate.domain.epochs import LOG_IDS
from tidegate.domain.outbox.rows import QUEUES, Queue
from tidegate.errors import TidegateError
from tidegate.kernel import codec, folds as kernel_folds, model, replay
from tidegate.kernel.store import Store


class LogHealth:
    """Checks the health of one log."""

    def __init__(self, store: Store, folds: kernel_folds.Folds, clock: Clock) -> None:
        self._store = store
        self._folds = folds
        self._clock = clock

    def write_fault(self) -> str:
        """Return why the log accepts no commits now; empty: it does.

        A commit that only checks a version takes the same path as a write, but changes nothing.
        """
        key = model.Key(LOG_IDS.name, "log")
        try:
            (record,) = self._store.get(key)
            version = 0 if record is None else record.version
            commit = model.Commit(self._clock(), writes=(model.Check(key, version),))
            (outcome,) = self._store.commit(commit)
        except TidegateError as error:
            return error.detail
        return outcome.detail if isinstance(outcome, TidegateError) else ""

    def outbox_age(self) -> int:
        """Return for how many seconds the oldest due intent has been waiting."""
        for record in self._store.range(QUEUES.name, index="due", limit=1):
            due = codec.decode(record.data, Queue).next_attempt_at
            assert due is not None, "it would not be in the index"
            return max(0, int((self._clock() - due).total_seconds()))
        return 0

    def differences(self) -> list[replay.Difference]:
        """List all folded rows that differ from a replay of the log."""
        return replay.differences(self._store, self._folds)
