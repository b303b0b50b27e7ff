"""Group commit: one writer thread drains what waits and hands it to the store as one flush.

    submit ─┐
    submit ─┼─▶ queue ─▶ writer ─▶ store.commit(a, b, c, …) ─▶ each future its receipt or error
    submit ─┘

The only thread of kernel and engines.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Lock, Thread

from tidegate.errors import StoreUnavailable, TidegateError
from tidegate.kernel.model import Commit, Put, Receipt
from tidegate.kernel.store import Store

GROUP_MAX = 512  # commits in one flush
GROUP_BYTES_MAX = 4_000_000
WAITING_MAX = 20_000  # commits in the queue; past it, callers are told to come back

# After a shared flush half of the clients are still waking up. Waiting this long for them, and only
# then, makes groups twice as large and costs a lone client nothing.
GATHER_SECONDS = 0.000_1

_Request = tuple[Commit, "Future[Receipt]"]


class Grouped:
    """A store's writer. ``submit`` returns at once; the future is resolved after the flush."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._queue: SimpleQueue[_Request | None] = SimpleQueue()
        self._closing = Lock()
        self._closed = False
        self._writer = Thread(target=self._run, name="tidegate-writer", daemon=True)
        self._writer.start()

    def submit(self, commit: Commit) -> Future[Receipt]:
        """Raises: StoreUnavailable: the writer is closed, or too much waits for it already."""
        future: Future[Receipt] = Future()
        with self._closing:  # nothing may come to stand behind the end of the queue
            if self._closed or self._queue.qsize() >= WAITING_MAX:
                raise StoreUnavailable("the writer takes no more commits now; try again later")
            self._queue.put((commit, future))
        return future

    def close(self) -> None:
        """Finish what waits, then stop. The store stays open."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._writer.join()

    def _run(self) -> None:
        shared = False
        while (group := self._gather(shared)) is not None:
            shared = len(group) > 1
            self._flush(group)

    def _gather(self, shared: bool) -> list[_Request] | None:
        """The next group, or None at the end. ``shared``: the last flush served several callers."""
        first = self._queue.get()
        if first is None:
            return None
        group = [first]
        size = _size(first[0])
        deadline = time.monotonic() + GATHER_SECONDS if shared else 0.0
        while len(group) < GROUP_MAX and size < GROUP_BYTES_MAX:
            try:
                request = self._queue.get_nowait()
            except Empty:
                if time.monotonic() >= deadline:
                    break
                time.sleep(GATHER_SECONDS / 4)
                continue
            if request is None:
                self._queue.put(None)  # close after this group
                break
            group.append(request)
            size += _size(request[0])
        return group

    def _flush(self, group: list[_Request]) -> None:
        # Whoever gave up while waiting is dropped now; from here on nobody can.
        group = [request for request in group if request[1].set_running_or_notify_cancel()]
        try:
            results = self.store.commit(*(commit for commit, _ in group)) if group else ()
            assert len(results) == len(group), "a store answers every commit"
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
            for _, future in group:
                future.set_exception(error)
            return
        for (_, future), result in zip(group, results, strict=True):
            if isinstance(result, TidegateError):
                future.set_exception(result)
            else:
                future.set_result(result)


def _size(commit: Commit) -> int:
    rows = sum(len(write.data) for write in commit.writes if isinstance(write, Put))
    return sum(len(fact.body) for fact in commit.facts) + rows + 256
