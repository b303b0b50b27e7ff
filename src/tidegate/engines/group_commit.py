"""Group commit: all that waits goes to the store as one flush, written by one of those who wait.

    submit ─┐                 ┌─ the first who asks for a result leads: it writes for everybody
    submit ─┼─▶ queue ─▶ ─────┤─ the others wait; when the flush is done, each wakes the next
    submit ─┘                 └─ if nobody can lead (a callback, a time limit), the thread does

A caller that waits anyway writes its own commit without a hop to another thread and back
(ADR-0005). The thread is the only one of kernel and engines. Python runs one thread at a time: who
is woken while another runs only goes to sleep again, so they wake each other in turn (ADR-0010).
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
WAITING_MAX = 20_000  # commits in the queue; past it, callers are told to come back

# After a shared flush its callers are still waking up. To wait for as many as there were makes
# larger groups and costs a lone client nothing: at most this long for each, and for all as long as
# they keep coming. A leader that looks more often takes the interpreter from those it waits for.
GATHER_EACH_SECONDS = 0.000_1
GATHER_SECONDS = 0.001
PATIENCE_SECONDS = 0.01  # how long the thread leaves it to somebody who waits
RECHECK_SECONDS = 0.1  # two threads that wait for one future: only one of them is woken


class PendingCommit(futures.LightFuture[model.Receipt]):
    """A commit that waits for its flush. Asking for its result may be what makes it happen."""

    def __init__(self, group: GroupCommit, commit: model.Commit) -> None:
        super().__init__()
        self.commit = commit
        self._group = group
        self.seat = Lock()  # held by whoever waits in ``GroupCommit.help``
        self._turn = Lock()  # released to wake him: it is done, or it shall lead
        self._turn.acquire()

    def cancel(self) -> bool:
        """Give up, which works as long as it waits."""
        if self._group.withdraw(self):
            super().cancel()
            self.set_running_or_notify_cancel()
            self.answer = CancelledError()
            self.wake()
        return isinstance(self.answer, CancelledError)

    def add_done_callback(self, fn: Callable[[Future[model.Receipt]], Any]) -> None:
        super().add_done_callback(fn)
        self._group.hurry()  # nobody waits in a thread of his own

    def wake(self) -> None:
        """Let whoever waits in ``GroupCommit.help`` look again; nothing if he does already."""
        _release(self._turn)

    def wait_turn(self) -> None:
        """Sleep until woken."""
        self._turn.acquire(timeout=RECHECK_SECONDS)

    def _awaited(self, timeout: float | None) -> model.Receipt | BaseException:
        # A flush cannot be broken off, so whoever has a time limit does not lead one.
        if self.answer is None and not (timeout is None and self._group.help(self)):
            self._group.hurry()
            return super()._awaited(timeout)
        assert self.answer is not None
        return self.answer


class GroupCommit:
    """A store's writer. ``submit`` returns at once; the future is resolved after the flush."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._queue: deque[PendingCommit] = deque()
        self._done: deque[PendingCommit] = deque()  # whose callers are to be woken, one by another
        self._lead = (
            RLock()
        )  # held by whoever writes; freeing it where we did not get it is no harm
        self._is_led = False  # by the thread that holds the lead
        self._flight: list[PendingCommit] = []  # the group that is being written
        self._is_sent = False  # whether the store may have it already
        # Answers of groups that were written. The leader tells them; the thread sees to it.
        self._landed: deque[tuple[PendingCommit, model.Receipt | BaseException]] = deque()
        self._callers = 1  # that the last flush served, or that came meanwhile
        self._awaited = 0  # how many the leader waits for
        self._complete = Lock()  # released when so many are there
        self._complete.acquire()
        self._entrance = Lock()  # held by whoever changes what waits
        self._closed = False
        self._armed = Event()
        self._hurry = Event()
        self._thread = Thread(target=self._run, name="tidegate-writer", daemon=True)
        self._thread.start()

    def submit(self, commit: model.Commit) -> PendingCommit:
        """Raises: StoreUnavailable: the writer is closed, or too much waits for it already."""
        pending = PendingCommit(self, commit)
        with self._entrance:  # nothing may come to stand behind the end of the queue
            if self._closed or len(self._queue) >= WAITING_MAX:
                raise StoreUnavailable("the writer takes no more commits now; try again later")
            self._queue.append(pending)
        if 0 < self._awaited <= len(self._queue):
            self._awaited = 0
            _release(self._complete)
        if not self._armed.is_set():
            self._armed.set()
        return pending

    def close(self) -> None:
        """Finish what waits, then stop. The store stays open."""
        with self._entrance:
            self._closed = True
        self._armed.set()
        self._hurry.set()
        self._thread.join()
        with self._lead:  # a caller may still be writing the last group
            pass

    def hurry(self) -> None:
        """Let the thread write what waits now."""
        self._hurry.set()

    def withdraw(self, pending: PendingCommit) -> bool:
        """Take it out of the queue; False if it is on its way, or done."""
        with self._entrance:
            if pending in self._flight:
                return False
            try:
                self._queue.remove(pending)
            except ValueError:
                return False
        return True

    def help(self, pending: PendingCommit) -> bool:
        """Wait until it is done, and lead whenever nobody else does; False if another waits here
        for the same commit.
        """
        if not pending.seat.acquire(blocking=False):
            return False
        try:
            while pending.answer is None:
                if not self._led():
                    pending.wait_turn()
                elif pending.answer is None:
                    self._wake_next()
        finally:
            pending.seat.release()
            self._wake_next()
        return True

    def _wake_next(self) -> None:
        """Wake one whose commit is done. He does the same when he runs, and so does one who came
        to know of it by himself meanwhile: nobody who waits is left out.
        """
        while self._done:
            try:
                pending = self._done.popleft()
            except IndexError:
                return  # somebody else woke the last one
            if pending.seat.locked():
                pending.wake()
                return

    def _run(self) -> None:
        while not (self._closed and not self._is_busy()):
            self._armed.wait()
            oldest = self._oldest()
            hurried = self._hurry.wait(PATIENCE_SECONDS)
            self._hurry.clear()
            if self._flight or hurried or (oldest is not None and oldest is self._oldest()):
                self._led()
            self._tell_untold()
            self._wake_next()
            self._armed.clear()
            if self._is_busy():
                self._armed.set()

    def _is_busy(self) -> bool:
        """Whether something waits, is being written, or is yet to be told."""
        return bool(self._queue or self._flight or self._landed)

    def _tell_untold(self) -> None:
        """Tell what a leader that was interrupted did not, and drop what is told."""
        for pending, answer in self._landed.copy():
            if pending.answer is None:
                pending.resolve(answer)
                self._done.append(pending)
            self._landed.popleft()

    def _oldest(self) -> PendingCommit | None:
        try:
            return self._queue[0]
        except IndexError:
            return None

    def _led(self) -> bool:
        """Write the next group; False if somebody writes already. Then somebody is to be woken:
        whoever led does it as he leaves, so that two do not wake at once for one interpreter.

        A signal handler may raise here, in the main thread, after every call. What is under way is
        kept in the writer, so that the next leader, or the thread, goes on where this one ended.
        """
        answers: list[tuple[PendingCommit, model.Receipt | BaseException]] = []
        try:
            if not self._lead.acquire(blocking=False) or self._is_led:
                return False
            self._lead_once(answers)
        finally:
            try:  # noqa: SIM105 - no other call may come before this one
                self._lead.release()
            except RuntimeError:
                pass  # we did not get it
        # Whoever queued before this moment found the lead taken: one of them is next.
        if (oldest := self._oldest()) is not None:
            oldest.wake()
        # Now that the lead is free, a callback may commit as well.
        try:
            for pending, answer in answers:
                pending.resolve(answer)
        finally:
            self._done.extend([pending for pending, _ in answers])
        return True

    def _lead_once(
        self, answers: list[tuple[PendingCommit, model.Receipt | BaseException]]
    ) -> None:
        try:
            self._is_led = True
            if self._is_sent:  # a leader was interrupted while the store had them
                unknown = OutcomeUnknown("the writer was interrupted")
                self._landed.extend([(pending, unknown) for pending in self._flight])
                self._flight, self._is_sent = [], False
            self._gather()
            self._write(answers)
        finally:
            self._is_led = False

    def _gather(self) -> None:
        """The next group: all that waits, once the callers of the last one had time to return."""
        group = self._flight  # not empty if a leader was interrupted here
        wanted = min(self._callers, GROUP_MAX)
        if wanted > 1 and len(self._queue) < wanted:
            self._wait_for(wanted)
        size = 0
        with self._entrance:  # from here on nobody can give up
            if group and self._queue and self._queue[0] is group[-1]:
                self._queue.popleft()
            while self._queue and len(group) < GROUP_MAX and size < GROUP_BYTES_MAX:
                group.append(self._queue[0])
                self._queue.popleft()
                size += _size(group[-1].commit)

    def _wait_for(self, wanted: int) -> None:
        """Until so many wait, or nobody comes any more."""
        left = GATHER_EACH_SECONDS * wanted
        came = -1
        while came < len(self._queue) < wanted and left > 0:
            came = len(self._queue)
            self._awaited = wanted
            self._complete.acquire(timeout=min(left, GATHER_SECONDS))
            self._awaited = 0
            left -= GATHER_SECONDS

    def _write(self, answers: list[tuple[PendingCommit, model.Receipt | BaseException]]) -> None:
        group = self._flight
        if not group:
            return
        results: Sequence[model.Receipt | BaseException]
        self._is_sent = True
        try:
            results = self.store.commit(*[pending.commit for pending in group])
            assert len(results) == len(group), "a store answers every commit"
        except Exception as error:
            if current_thread() is main_thread():
                raise  # perhaps a signal handler's, which is nobody else's business
            results = [error] * len(group)
        answers += zip(group, results, strict=True)
        self._landed.extend(answers)
        self._flight, self._is_sent = [], False
        self._callers = len(group) + len(self._queue)


def _release(lock: Lock) -> None:
    """Release a lock that serves as a signal; two signals at once are one."""
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
