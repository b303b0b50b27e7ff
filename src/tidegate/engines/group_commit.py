"""Group commit: the commits that wait are written in one flush, by one of their callers.

    submit ─┐                 ┌─ the first caller that asks for its result leads: it writes for all
    submit ─┼─▶ queue ─▶ ─────┤─ the others wait; after the flush, each caller wakes the next one
    submit ─┘                 └─ if no caller waits without a time limit, the writer thread leads

A caller that has to wait anyway writes its commit itself, which saves two thread switches
(ADR-0005). The writer thread is the only thread of kernel and engines. Python runs one thread at a
time, so waking all callers at once would only make them wait for the interpreter. That is why they
wake each other one by one (ADR-0010).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from threading import Event, Lock, RLock, Thread, current_thread, main_thread
from typing import Any

from tidegate.errors import OutcomeUnknown, StoreUnavailable
from tidegate.kernel import futures, model
from tidegate.kernel.store import Store

GROUP_MAX = 512  # commits in one flush
GROUP_BYTES_MAX = 4_000_000
WAITING_MAX = 20_000  # commits in the queue; beyond it, submit raises StoreUnavailable

# After a shared flush its callers are still waking up. The next leader waits until as many have
# queued again, which makes larger groups and costs a lone client nothing. It waits at most
# GATHER_EACH_SECONDS per caller, and stops when a check after GATHER_SECONDS finds no new one. More
# frequent checks would take the interpreter from the callers it waits for.
GATHER_EACH_SECONDS = 0.000_1
GATHER_SECONDS = 0.001
PATIENCE_SECONDS = 0.01  # how long the writer thread waits for a caller to lead
RECHECK_SECONDS = 0.1  # of two threads that wait for one future, only one is woken


class PendingCommit(futures.LightFuture[model.Receipt]):
    """A commit that waits for its flush. The thread that asks for its result may write it."""

    def __init__(self, group: GroupCommit, commit: model.Commit) -> None:
        super().__init__()
        self.commit = commit
        self._group = group
        self.waiter_lock = Lock()  # held by the thread that waits in ``GroupCommit.help``
        # Released to wake that thread, because the commit is done or the thread should lead.
        self._wake_signal = Lock()
        self._wake_signal.acquire()

    def cancel(self) -> bool:
        """Take the commit back, which works only while it is in the queue."""
        if self._group.withdraw(self):
            super().cancel()
            self.set_running_or_notify_cancel()
            self.answer = CancelledError()
            self.wake()
        return isinstance(self.answer, CancelledError)

    def add_done_callback(self, fn: Callable[[Future[model.Receipt]], Any]) -> None:
        super().add_done_callback(fn)
        self._group.hurry()  # no caller may ask for the result, so the writer thread must lead

    def wake(self) -> None:
        """Wake the thread that waits in ``GroupCommit.help``, if it sleeps."""
        _release(self._wake_signal)

    def wait_for_wake(self) -> None:
        """Sleep until woken."""
        self._wake_signal.acquire(timeout=RECHECK_SECONDS)

    def _wait_for_answer(self, timeout: float | None) -> model.Receipt | BaseException:
        # A flush cannot be interrupted, so a caller with a time limit does not lead one.
        if self.answer is None and not (timeout is None and self._group.help(self)):
            self._group.hurry()
            return super()._wait_for_answer(timeout)
        assert self.answer is not None
        return self.answer


class GroupCommit:
    """Writes the commits of a store. ``submit`` returns a future that is resolved after the flush.

    Two locks matter. ``_lead`` is held while a group is written, by one thread at a time.
    ``_queue_lock`` is held only while the queue changes, so that callers can queue during a flush.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._queue: deque[PendingCommit] = deque()
        self._done: deque[PendingCommit] = deque()  # resolved; their callers may still sleep
        # Held by the thread that writes. An RLock knows its owner, so releasing it without having
        # got it raises instead of releasing another thread's.
        self._lead = RLock()
        self._is_led = False  # whether the owner of the lead is inside ``_flush_group``
        self._in_flight: list[PendingCommit] = []  # the group that is being written
        self._is_sent = False  # whether the store may have applied it already
        # The answers of groups that were written. The leader resolves them; if it was interrupted,
        # the writer thread does.
        self._answered: deque[tuple[PendingCommit, model.Receipt | BaseException]] = deque()
        self._callers = 1  # served by the last flush, or queued during it
        self._wanted = 0  # how many commits the leader waits for
        self._enough_queued = Lock()  # released when that many are queued
        self._enough_queued.acquire()
        self._queue_lock = Lock()  # held while the queue changes
        self._closed = False
        self._has_work = Event()
        self._hurry = Event()
        self._thread = Thread(target=self._run, name="tidegate-writer", daemon=True)
        self._thread.start()

    def submit(self, commit: model.Commit) -> PendingCommit:
        """Queue the commit.

        Raises:
            StoreUnavailable: the writer is closed, or its queue is full.
        """
        pending = PendingCommit(self, commit)
        with self._queue_lock:  # so that nothing is queued after close() has set ``_closed``
            if self._closed or len(self._queue) >= WAITING_MAX:
                raise StoreUnavailable("the writer takes no more commits now; try again later")
            self._queue.append(pending)
        if 0 < self._wanted <= len(self._queue):
            self._wanted = 0
            _release(self._enough_queued)
        if not self._has_work.is_set():
            self._has_work.set()
        return pending

    def close(self) -> None:
        """Write the commits that wait, then stop. The store stays open."""
        with self._queue_lock:
            self._closed = True
        self._has_work.set()
        self._hurry.set()
        self._thread.join()
        with self._lead:  # a caller may still be writing the last group
            pass

    def hurry(self) -> None:
        """Let the writer thread write the queue now."""
        self._hurry.set()

    def withdraw(self, pending: PendingCommit) -> bool:
        """Take the commit out of the queue; False if it is being written or done."""
        with self._queue_lock:
            if pending in self._in_flight:
                return False
            try:
                self._queue.remove(pending)
            except ValueError:
                return False
        return True

    def help(self, pending: PendingCommit) -> bool:
        """Wait until the commit is done, and lead whenever no other thread does.

        Return False if another thread waits here for the same commit.
        """
        if not pending.waiter_lock.acquire(blocking=False):
            return False
        try:
            while pending.answer is None:
                if not self._try_to_lead():
                    pending.wait_for_wake()
                elif pending.answer is None:
                    self._wake_next_caller()
        finally:
            pending.waiter_lock.release()
            self._wake_next_caller()
        return True

    def _wake_next_caller(self) -> None:
        """Wake one caller whose commit is done.

        Each caller calls this when it returns, whether it was woken or found its answer by itself.
        So every caller is woken in the end.
        """
        while self._done:
            try:
                pending = self._done.popleft()
            except IndexError:
                return  # another thread took the last one
            if pending.waiter_lock.locked():
                pending.wake()
                return

    def _run(self) -> None:
        """The writer thread.

        It leads if no caller did within ``PATIENCE_SECONDS``, and at once after ``hurry``. It also
        finishes what an interrupted leader could not.
        """
        while not (self._closed and not self._is_busy()):
            self._has_work.wait()
            oldest = self._oldest()
            hurried = self._hurry.wait(PATIENCE_SECONDS)
            self._hurry.clear()
            if self._in_flight or hurried or (oldest is not None and oldest is self._oldest()):
                self._try_to_lead()
            self._resolve_interrupted()
            self._wake_next_caller()
            self._has_work.clear()
            if self._is_busy():
                self._has_work.set()

    def _is_busy(self) -> bool:
        """Whether a commit waits, is being written, or is not resolved yet."""
        return bool(self._queue or self._in_flight or self._answered)

    def _resolve_interrupted(self) -> None:
        """Resolve the commits that an interrupted leader did not, and drop the resolved ones."""
        for pending, answer in self._answered.copy():
            if pending.answer is None:
                pending.resolve(answer)
                self._done.append(pending)
            self._answered.popleft()

    def _oldest(self) -> PendingCommit | None:
        try:
            return self._queue[0]
        except IndexError:
            return None

    def _try_to_lead(self) -> bool:
        """Write the next group; False if another thread is writing.

        After True, the caller must wake the next one (``_wake_next_caller``). It does so last, so
        that two threads do not compete for the interpreter.

        In the main thread a signal handler may raise after every call. So the state of the flush is
        kept in this object, and the next leader or the writer thread continues from it.
        """
        answers: list[tuple[PendingCommit, model.Receipt | BaseException]] = []
        try:
            if not self._lead.acquire(blocking=False) or self._is_led:
                return False
            self._flush_group(answers)
        finally:
            try:  # noqa: SIM105 - no other call may come before this one
                self._lead.release()
            except RuntimeError:
                pass  # we did not get it
        # A caller that tried to lead before this moment found the lead taken and now sleeps. Wake
        # one, to lead the next group.
        if (oldest := self._oldest()) is not None:
            oldest.wake()
        # Resolve only after the lead is released: a callback may commit, too.
        try:
            for pending, answer in answers:
                pending.resolve(answer)
        finally:
            self._done.extend([pending for pending, _ in answers])
        return True

    def _flush_group(
        self, answers: list[tuple[PendingCommit, model.Receipt | BaseException]]
    ) -> None:
        """Gather and write one group, as the owner of the lead."""
        try:
            self._is_led = True
            if self._is_sent:  # a leader was interrupted after it gave the group to the store
                unknown = OutcomeUnknown("the writer was interrupted")
                self._answered.extend([(pending, unknown) for pending in self._in_flight])
                self._in_flight, self._is_sent = [], False
            self._gather()
            self._write(answers)
        finally:
            self._is_led = False

    def _gather(self) -> None:
        """Move the queue into the next group, after the callers of the last one could return."""
        group = self._in_flight  # not empty if a leader was interrupted here
        wanted = min(self._callers, GROUP_MAX)
        if wanted > 1 and len(self._queue) < wanted:
            self._wait_for(wanted)
        size = 0
        with self._queue_lock:  # from here on no commit can be cancelled
            # If a leader was interrupted between append and popleft below, the commit is in both.
            if group and self._queue and self._queue[0] is group[-1]:
                self._queue.popleft()
            while self._queue and len(group) < GROUP_MAX and size < GROUP_BYTES_MAX:
                group.append(self._queue[0])
                self._queue.popleft()
                size += _size(group[-1].commit)

    def _wait_for(self, wanted: int) -> None:
        """Wait until this many commits are queued, or until no more come."""
        left = GATHER_EACH_SECONDS * wanted
        before = -1
        while before < len(self._queue) < wanted and left > 0:
            before = len(self._queue)
            self._wanted = wanted
            self._enough_queued.acquire(timeout=min(left, GATHER_SECONDS))
            self._wanted = 0
            left -= GATHER_SECONDS

    def _write(self, answers: list[tuple[PendingCommit, model.Receipt | BaseException]]) -> None:
        """Write the group, and collect its answers.

        If this is interrupted while ``_is_sent`` is True, the outcome of the group is unknown.
        """
        group = self._in_flight
        if not group:
            return
        results: Sequence[model.Receipt | BaseException]
        self._is_sent = True
        try:
            results = self.store.commit(*[pending.commit for pending in group])
            assert len(results) == len(group), "a store answers every commit"
        except Exception as error:
            if current_thread() is main_thread():
                raise  # perhaps from a signal handler: it must not become a commit's answer
            results = [error] * len(group)
        answers += zip(group, results, strict=True)
        self._answered.extend(answers)
        self._in_flight, self._is_sent = [], False
        self._callers = len(group) + len(self._queue)


def _release(lock: Lock) -> None:
    """Release a lock that is used as a signal. A second release before a wait has no effect."""
    try:
        lock.release()
    except RuntimeError:
        return


def _size(commit: model.Commit) -> int:
    size = 256
    for fact in commit.facts:
        size += len(fact.body)
    for write in commit.writes:
        if isinstance(write, model.Put):
            size += len(write.data)
    return size
