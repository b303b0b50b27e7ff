"""Rows as they were at an earlier log position, computed from their facts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidegate.control.queries.reads import Found, Reads
from tidegate.control.runtime import CommandOutcome
from tidegate.errors import TooLarge
from tidegate.kernel import codec, folds as kernel_folds, model
from tidegate.kernel.replay import Replay
from tidegate.kernel.store import Store

AS_OF_EVENTS_MAX = 50_000
PAGE = 1_000


class HistoryTooLong(TooLarge):
    """The object has more history than one request can replay."""

    code = "history_too_long"

    def __init__(self) -> None:
        super().__init__(f"more than {AS_OF_EVENTS_MAX} events", allowed=AS_OF_EVENTS_MAX)


class RowHistory:
    """Computes earlier versions of rows by replaying their facts."""

    def __init__(self, store: Store, folds: kernel_folds.Folds) -> None:
        self._store = store
        self._folds = folds
        self._reads = Reads(store)

    def row_at(
        self, fold: kernel_folds.Fold, id: str, query: model.Query, position: model.Position
    ) -> Found[Any] | None:
        """Return the row as it was at a position; None: it did not exist.

        Raises:
            HistoryTooLong.
        """
        replay = Replay(self._folds, only=(fold,))
        for count, event in enumerate(self._events_up_to(query, position)):
            if count == AS_OF_EVENTS_MAX:
                raise HistoryTooLong
            replay.step(event)
        key = model.Key(fold.collection.name, id)
        if key not in replay.rows:
            return None
        record = replay.record(key)
        return Found(codec.decode(record.data, fold.collection.model), record.version, id)

    def row_after(
        self, outcome: CommandOutcome, fold: kernel_folds.Fold, id: str, query: model.Query
    ) -> Found[Any] | None:
        """Return the row as it was after this outcome, so that a repeat gets the first response.

        ``query`` finds the row's facts. Raises: HistoryTooLong.
        """
        found = self._reads.find(model.Key(fold.collection.name, id), fold.collection.model)
        receipt = outcome.receipt
        if receipt is None or (
            found is not None and receipt.first <= found.version <= receipt.last
        ):
            return found
        return self.row_at(fold, id, query, receipt.last)

    def _events_up_to(self, query: model.Query, position: model.Position) -> Iterator[model.Event]:
        after = 0
        while page := self._store.read(query, after=after, limit=PAGE).events:
            for event in page:
                if event.position > position:
                    return
                yield event
            after = page[-1].position
