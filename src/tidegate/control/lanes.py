"""Lanes: all reports for one busy row go through one queue and are committed in packs.

    report ─┐                     ┌─ rows cached from the last pack, or read once
    report ─┼─▶ lane ─▶ pack ─────┤─ each report decided and folded on them, in order
    command ┘ (overtakes)         └─ one commit; each report has its own answer and meta

Optimistic retries on one row waste most attempts; a queue per row wastes none. Versions are still
checked, because other processes have lanes, too: after a conflict, a pack is read and decided
again, until its deadline.
"""

from __future__ import annotations

import random
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from threading import Lock
from typing import Any, TypeVar

from msgspec import Struct

from tidegate import errors
from tidegate.clock import Clock, system_clock
from tidegate.control.runtime import CommandOutcome, Submit
from tidegate.kernel import commit_builder, folds as kernel_folds, futures, model, slices
from tidegate.kernel.store import Store

THREADS_MAX = 8  # lanes that run at once
PACK_MAX = 500  # reports in one commit
WAITING_MAX = 10_000  # reports, or commands, in one lane; beyond, callers must retry
DEADLINE_SECONDS = 10.0
COMMAND_SECONDS = 20.0  # how long a command waits for its turn
BACK_OFF_SECONDS = 0.002  # after a conflict with another process; full jitter, doubled
BACK_OFF_SECONDS_MAX = 0.1
DOUBLINGS_MAX = 10
GATHER_SECONDS = 0.000_3  # how long a pack waits for the next reports of the last one's callers
ROWS_KNOWN_MAX = 16_384  # cached per lane, from pack to pack
LANES_IDLE_MAX = 64  # idle lanes that keep their cached rows
ROWS_IDLE_MAX = 65_536  # cached by all idle lanes together

T = TypeVar("T")


class LaneBusy(errors.Unavailable):
    """Other commands kept the rollout, package or fleet busy; nothing was changed, try again."""

    code = "lane_busy"

    def __init__(self, lane: str, seconds: float) -> None:
        super().__init__(
            f"{lane} was busy for {seconds:g} s and nothing was changed; try again", lane=lane
        )


class _Report(Struct):
    slice: slices.Slice
    report: Struct
    keys: tuple[model.Key, ...]
    meta: model.Meta
    deadline: float
    future: Future[CommandOutcome]

    # The outcome in the current pack.
    facts: tuple[Struct, ...] = ()
    answer: bytes = b""
    span: range = range(0)  # its facts in the pack, including follow-ups
    error: Exception | None = None


@dataclass(slots=True)
class _Command:
    run: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)


@dataclass(slots=True)
class _Lane:
    name: str
    reports: deque[_Report] = field(default_factory=deque)
    commands: deque[_Command] = field(default_factory=deque)
    draining: bool = False
    callers: int = 1  # of the last pack, or arrived since
    known: commit_builder.Rows = field(default_factory=dict)


@dataclass(slots=True)
class _Pack:
    """Reports that were decided one after the other, to be committed together."""

    builder: commit_builder.CommitBuilder
    at: datetime
    meta: model.Meta  # of facts that have none of their own
    reports: list[_Report] = field(default_factory=list)
    # What repeated and refused reports read: they add nothing else to the commit.
    doubtful: dict[model.Key, model.Position] = field(default_factory=dict)

    def is_spoiled(self, error: Exception) -> bool:
        """Whether the commit can never succeed because of one report, which exceeds a limit, is
        malformed, or creates a work row that already exists.
        """
        if isinstance(error, errors.VersionConflict):
            row = model.Key(str(error.facts["collection"]), str(error.facts["id"]))
            return self.builder.intends(row)
        return isinstance(error, errors.Invalid | errors.TooLarge)


class Lanes:
    """The lanes of a process, each drained by at most one thread at a time."""

    def __init__(
        self,
        store: Store,
        folds: kernel_folds.Folds,
        submit: Submit,
        *,
        clock: Clock = system_clock,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
        threads: Executor | None = None,
    ) -> None:
        self._store = store
        self._folds = folds
        self._submit = submit
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._jitter = jitter
        self._lock = Lock()  # guards the lanes and their queues; never held while work runs
        self._lanes: dict[str, _Lane] = {}
        self._idle: OrderedDict[str, None] = OrderedDict()  # longest idle first
        self._closed = False
        self._threads = threads or ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="lane")

    def record(
        self,
        lane: str,
        item: slices.Slice,
        report: Struct,
        *,
        meta: model.Meta = model.NO_META,
        future: Future[CommandOutcome] | None = None,
    ) -> Future[CommandOutcome]:
        """Queue a report. The future, which the caller may provide, is resolved when the report's
        pack is durable.

        The future raises Refused (by its machine; other reports in the pack are not affected),
        Unavailable (not applied) or Unknown.

        Raises:
            StoreUnavailable: the lane is full or closed. InvalidInput: another slice's report.
        """
        waiting = _report(item, report, meta, self._monotonic() + DEADLINE_SECONDS, future)
        self._enqueue(lane, [waiting])
        return waiting.future

    def record_all(
        self, lane: str, reports: Sequence[tuple[slices.Slice, Struct, model.Meta]]
    ) -> list[Future[CommandOutcome]]:
        """Queue reports one after another, all of them or none; each has its own future.

        If nothing else waits in the lane, they form one pack.

        Raises:
            StoreUnavailable: the lane is full or closed. InvalidInput: another slice's report.
            LimitExceeded: more than fit into a pack.
        """
        model.at_most("reports at once", len(reports), PACK_MAX)
        deadline = self._monotonic() + DEADLINE_SECONDS
        waiting = [_report(item, report, meta, deadline) for item, report, meta in reports]
        if waiting:
            self._enqueue(lane, waiting)
        return [report.future for report in waiting]

    def command(self, lane: str, run: Callable[[], Any]) -> Future[Any]:
        """Run a command alone in the lane, ahead of all waiting reports.

        Raises:
            StoreUnavailable: the lane is full or closed.
        """
        waiting = _Command(run)
        self._enqueue(lane, [waiting])
        return waiting.future

    def run(self, lane: str, run: Callable[[], T]) -> T:
        """Run a command alone in the lane and return its result.

        Raises:
            LaneBusy: it did not start within ``COMMAND_SECONDS``, and never will.
            StoreUnavailable: the lane is full or closed. Also the errors of the command.
        """
        future: Future[T] = self.command(lane, run)
        wait([future], COMMAND_SECONDS)
        if future.cancel():
            raise LaneBusy(lane, COMMAND_SECONDS)
        return future.result()  # it has started: every commit has its own deadline

    def close(self) -> None:
        """Finish all waiting work, then stop."""
        with self._lock:
            self._closed = True
        self._threads.shutdown(wait=True)

    # ── queues and turns ──

    def _enqueue(self, name: str, waiting: Sequence[_Report] | Sequence[_Command]) -> None:
        with self._lock:
            if self._closed:
                raise errors.StoreUnavailable("the lanes are closed; report again later", lane=name)
            lane = self._lanes.get(name) or _Lane(name)
            reporting = isinstance(waiting[0], _Report)
            queue: deque[Any] = lane.reports if reporting else lane.commands
            if len(queue) + len(waiting) > WAITING_MAX:
                raise errors.StoreUnavailable(f"lane {name} is full; report again later", lane=name)
            queue.extend(waiting)
            self._lanes[name] = lane
            self._idle.pop(name, None)
            starts = not lane.draining
            lane.draining = True
        if starts:
            self._start(lane)

    def _start(self, lane: _Lane) -> None:
        try:
            self._threads.submit(self._drain, lane)
        except RuntimeError:  # closed meanwhile: this thread drains the lane
            self._drain(lane)

    def _drain(self, lane: _Lane) -> None:
        """Give the lane one turn; if more work waits, put it at the end of the queue of lanes."""
        while self._turn(lane):
            try:
                self._threads.submit(self._drain, lane)
            except RuntimeError:
                continue  # closing: this thread finishes the waiting work
            return

    def _turn(self, lane: _Lane) -> bool:
        """Run a command, or else a pack of reports; return whether there was any work."""
        self._gather(lane)
        with self._lock:
            command = lane.commands.popleft() if lane.commands else None
            pack = [] if command else self._next_pack(lane)
            if command is None and not pack:
                self._rest(lane)
                return False
        # Drop what callers cancelled while it waited; from here on nothing can be cancelled.
        if command is not None:
            if command.future.set_running_or_notify_cancel():
                self._run(lane, command)
        else:
            pack = [item for item in pack if item.future.set_running_or_notify_cancel()]
            self._run_pack(lane, pack)
            lane.callers = len(pack) + len(lane.reports)
        return True

    def _gather(self, lane: _Lane) -> None:
        """Wait briefly for the callers of the last pack to send more, because larger packs are
        cheaper. A single client does not wait.
        """
        if 0 < len(lane.reports) < lane.callers and not lane.commands:
            lane.callers = len(lane.reports)
            self._sleep(GATHER_SECONDS)

    def _rest(self, lane: _Lane) -> None:
        """Keep the lane's cached rows, for a limited number of idle lanes."""
        lane.draining = False
        self._idle[lane.name] = None
        while len(self._idle) > LANES_IDLE_MAX or self._rows_idle() > ROWS_IDLE_MAX:
            longest, _ = self._idle.popitem(last=False)
            del self._lanes[longest]

    def _rows_idle(self) -> int:
        return sum([len(self._lanes[name].known) for name in self._idle])

    def _next_pack(self, lane: _Lane) -> list[_Report]:
        count = min(len(lane.reports), PACK_MAX)
        return [lane.reports.popleft() for _ in range(count)]

    def _run(self, lane: _Lane, command: _Command) -> None:
        lane.known.clear()  # the command may write rows that are cached here
        try:
            answer = command.run()
        except BaseException as error:  # noqa: BLE001 - its callers must get it
            command.future.set_exception(error)
        else:
            command.future.set_result(answer)

    # ── packs ──

    def _run_pack(self, lane: _Lane, waiting: list[_Report]) -> None:
        """Decide, fold and commit the reports, in as many commits as needed."""
        conflicts = 0
        size = len(waiting)
        while waiting := self._in_time(waiting):
            pack = self._decide(lane, waiting[:size])
            try:
                receipt = self._land(pack)
            except Exception as error:  # noqa: BLE001 - its callers must get it
                lane.known.clear()
                spoiled = pack.is_spoiled(error)
                if isinstance(error, errors.VersionConflict | errors.BoundaryMoved) and not spoiled:
                    conflicts += 1
                    self._back_off(conflicts)
                    continue
                if spoiled and len(pack.reports) > 1:
                    size = len(pack.reports) // 2  # halve it until the bad report is alone
                    continue
                self._fail(pack.reports, error)
            else:
                self._answer(lane, pack, receipt)
            waiting = waiting[len(pack.reports) :]
            size = len(waiting)

    def _in_time(self, waiting: list[_Report]) -> list[_Report]:
        now = self._monotonic()
        late = [report for report in waiting if report.deadline < now]
        if late:
            error = errors.StoreUnavailable("the report waited too long for its row; send it again")
            self._fail(late, error)
        return [report for report in waiting if report.deadline >= now]

    def _decide(self, lane: _Lane, reports: list[_Report]) -> _Pack:
        """Decide the reports in order, until the commit is full."""
        builder = commit_builder.CommitBuilder(
            self._folds, self._store.get, lane.known, self._store.pack_cost_max
        )
        pack = _Pack(builder, self._clock(), reports[0].meta)
        try:
            builder.fetch(key for report in reports for key in report.keys)
        except Exception as error:  # noqa: BLE001 - the rows could not be read: all reports fail
            for report in reports:
                report.facts, report.error = (), error
            pack.reports = reports
            return pack
        for report in reports:
            start = len(builder.facts)
            report.facts, report.error = (), None
            own = None if report.meta == pack.meta else report.meta
            try:
                report.facts, report.answer = builder.decide(
                    report.slice, report.report, pack.at, own, report.keys
                )
            except commit_builder.PackFull:
                break
            except Exception as error:  # noqa: BLE001 - only this report fails, not the others
                report.error = error
            if not report.facts:
                pack.doubtful |= builder.looked
            report.span = range(start, len(builder.facts))
            pack.reports.append(report)
        return pack

    def _land(self, pack: _Pack) -> model.Receipt | None:
        pack.builder.demand_current(pack.doubtful)
        if not pack.builder.facts:
            return None
        return self._submit(pack.builder.commit(model.Commit(pack.at, pack.meta))).result()

    def _back_off(self, conflicts: int) -> None:
        longest = BACK_OFF_SECONDS * 2 ** min(conflicts, DOUBLINGS_MAX)
        self._sleep(min(longest, BACK_OFF_SECONDS_MAX) * self._jitter())

    def _answer(self, lane: _Lane, pack: _Pack, receipt: model.Receipt | None) -> None:
        if receipt is not None:
            lane.known.update(pack.builder.settled(receipt.first))
        for key in list(islice(lane.known, max(0, len(lane.known) - ROWS_KNOWN_MAX))):
            del lane.known[key]
        for report in pack.reports:
            if report.error is not None:
                report.future.set_exception(report.error)
                continue
            own = None
            if receipt is not None and report.span:
                last = receipt.first + report.span[-1]
                own = model.Receipt(receipt.first + report.span[0], last, receipt.at)
            report.future.set_result(CommandOutcome(report.facts, own, report.answer))

    def _fail(self, reports: list[_Report], error: Exception) -> None:
        for report in reports:
            report.future.set_exception(error)


def _report(
    item: slices.Slice,
    report: Struct,
    meta: model.Meta,
    deadline: float,
    future: Future[CommandOutcome] | None = None,
) -> _Report:
    if item.rows is None or item.expects or item.spends:
        raise errors.InvalidDefinition(
            f"{item.name} is no report: those are decided from rows alone"
        )
    if not isinstance(report, item.command):
        raise errors.InvalidInput(f"{item.name} takes {item.command.__name__}")
    if future is None:
        future = futures.LightFuture()
    return _Report(item, report, item.rows(report), meta, deadline, future)
