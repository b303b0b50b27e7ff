"""Lanes: all reports on one hot row pass through one queue, and are committed in packs.

    report ─┐                     ┌─ rows known from the last pack, or read once
    report ─┼─▶ lane ─▶ pack ─────┤─ each report decided and stepped on them, in order
    command ┘ (overtakes)         └─ one commit; each report its own answer

Optimistic retries on one row give up most of what they try; a queue per row gives up nothing. The
guards stay, because other processes have lanes too: a pack that meets a conflict is read and
decided again, until its deadline.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from msgspec import Struct

from tidegate.clock import Clock, system_clock
from tidegate.control.runtime import Outcome, Submit
from tidegate.errors import (
    BoundaryMoved,
    InvalidDefinition,
    LimitExceeded,
    StoreUnavailable,
    TidegateError,
    VersionConflict,
)
from tidegate.kernel.folds import Folds, Unfolding
from tidegate.kernel.model import NO_META, Commit, Key, Meta, Position, Receipt
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Store

THREADS_MAX = 8  # lanes that are drained at once
PACK_MAX = 200  # reports in one commit
WAITING_MAX = 10_000  # reports in one lane; past it, callers are told to come back
DEADLINE_SECONDS = 10.0
BACK_OFF_SECONDS = 0.002  # after a conflict with another process, full jitter, doubled
BACK_OFF_SECONDS_MAX = 0.1
ROWS_KNOWN_MAX = 4_096  # per lane, handed from pack to pack


@dataclass(slots=True)
class _Report:
    slice: Slice
    report: Struct
    meta: Meta
    deadline: float
    future: Future[Outcome] = field(default_factory=Future)
    facts: tuple[Struct, ...] = ()
    span: range = range(0)  # its facts in the pack, follow-ups included


@dataclass(slots=True)
class _Command:
    run: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)


@dataclass(slots=True)
class _Lane:
    lock: Lock = field(default_factory=Lock)
    reports: deque[_Report] = field(default_factory=deque)
    commands: deque[_Command] = field(default_factory=deque)
    draining: bool = False
    known: dict[Key, tuple[Position, Any]] = field(default_factory=dict)


class PackFull(LimitExceeded):
    """The pack would cost more than one commit may; alone in it, a report is simply too large."""


class Lanes:
    """The lanes of a process, each drained by at most one thread at a time."""

    def __init__(
        self,
        store: Store,
        folds: Folds,
        submit: Submit,
        *,
        clock: Clock = system_clock,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._folds = folds
        self._submit = submit
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._jitter = jitter
        self._lanes: dict[str, _Lane] = {}
        self._lock = Lock()
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="tidegate-lane")

    def record(
        self, lane: str, item: Slice, report: Struct, *, meta: Meta = NO_META
    ) -> Future[Outcome]:
        """Queue a report. The future is resolved when its pack is durable.

        The future raises Refused (its machine says no; the neighbours in the pack are unharmed),
        Unavailable (not applied) or Unknown.
        """
        if item.rows is None:
            raise InvalidDefinition(f"a report is decided from rows; {item.name} reads facts")
        waiting = _Report(item, report, meta, self._monotonic() + DEADLINE_SECONDS)
        found = self._lane(lane)
        with found.lock:
            if len(found.reports) >= WAITING_MAX:
                raise StoreUnavailable(f"lane {lane} is full; report again later", lane=lane)
            found.reports.append(waiting)
        self._wake(found)
        return waiting.future

    def command(self, lane: str, run: Callable[[], Any]) -> Future[Any]:
        """Run a command alone in the lane, before any report that still waits there."""
        waiting = _Command(run)
        found = self._lane(lane)
        with found.lock:
            found.commands.append(waiting)
        self._wake(found)
        return waiting.future

    def close(self) -> None:
        """Finish what waits, then stop."""
        self._threads.shutdown(wait=True)

    def _lane(self, name: str) -> _Lane:
        with self._lock:
            return self._lanes.setdefault(name, _Lane())

    def _wake(self, lane: _Lane) -> None:
        with lane.lock:
            if lane.draining:
                return
            lane.draining = True
        self._threads.submit(self._drain, lane)

    def _drain(self, lane: _Lane) -> None:
        while True:
            with lane.lock:
                command = lane.commands.popleft() if lane.commands else None
                pack = [] if command else self._next_pack(lane)
                if command is None and not pack:
                    lane.draining = False
                    return
            if command is not None:
                self._run(lane, command)
            else:
                self._run_pack(lane, pack)

    def _next_pack(self, lane: _Lane) -> list[_Report]:
        count = min(len(lane.reports), PACK_MAX)
        pack = [lane.reports.popleft()] if count else []
        while len(pack) < count and lane.reports[0].meta == pack[0].meta:
            pack.append(lane.reports.popleft())
        return pack

    def _run(self, lane: _Lane, command: _Command) -> None:
        lane.known.clear()  # the command writes rows that we would not notice
        try:
            command.future.set_result(command.run())
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
            command.future.set_exception(error)

    def _run_pack(self, lane: _Lane, pack: list[_Report]) -> None:
        """Decide, step and commit the pack; what does not fit goes back to the head of the lane."""
        conflicts = 0
        while pack:
            pack = self._in_time(pack)
            try:
                unfolding, taken, rest = self._unfold(lane, pack)
                receipt = self._land(unfolding, pack[0].meta)
            except (VersionConflict, BoundaryMoved):
                lane.known.clear()
                conflicts += 1
                longest = min(BACK_OFF_SECONDS * 2**conflicts, BACK_OFF_SECONDS_MAX)
                self._sleep(longest * self._jitter())
                continue
            except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
                lane.known.clear()
                for report in pack:
                    if not report.future.done():
                        report.future.set_exception(error)
                return
            self._answer(lane, unfolding, taken, receipt)
            pack = rest

    def _in_time(self, pack: list[_Report]) -> list[_Report]:
        now = self._monotonic()
        for report in pack:
            if report.deadline < now:
                late = StoreUnavailable("the report waited too long for its row; send it again")
                report.future.set_exception(late)
        return [report for report in pack if report.deadline >= now]

    def _unfold(
        self, lane: _Lane, pack: list[_Report]
    ) -> tuple[Unfolding, list[_Report], list[_Report]]:
        """Step the reports of a pack in order until its cost is spent; the rest is for the next."""
        unfolding = Unfolding(self._folds, self._store.get, lane.known)
        rows = [item.slice.rows for item in pack]
        unfolding.fetch(
            key for item, of in zip(pack, rows, strict=True) if of for key in of(item.report)
        )
        now = self._clock()
        cost_max = self._store.pack_cost_max
        taken: list[_Report] = []
        for number, report in enumerate(pack):
            start = len(unfolding.facts)
            try:
                with unfolding.kept_whole():
                    report.facts = unfolding.decide(report.slice, report.report, now)
                    if (cost := unfolding.cost()) > cost_max:
                        raise PackFull("storage items of a pack", cost, cost_max)
            except PackFull as full:
                if start:
                    return unfolding, taken, pack[number:]
                report.future.set_exception(full)
                continue
            except TidegateError as refusal:
                report.future.set_exception(refusal)
                continue
            report.span = range(start, len(unfolding.facts))
            taken.append(report)
        return unfolding, taken, []

    def _land(self, unfolding: Unfolding, meta: Meta) -> Receipt | None:
        if not unfolding.facts:
            return None
        return self._submit(unfolding.commit(Commit(self._clock(), meta))).result()

    def _answer(
        self, lane: _Lane, unfolding: Unfolding, taken: list[_Report], receipt: Receipt | None
    ) -> None:
        if receipt is not None:
            lane.known.update(unfolding.settled(receipt.first))
        while len(lane.known) > ROWS_KNOWN_MAX:
            lane.known.pop(next(iter(lane.known)))
        for report in taken:
            own = None
            if receipt is not None and report.span:
                last = receipt.first + report.span[-1]
                own = Receipt(receipt.first + report.span[0], last, receipt.at)
            answer = report.slice.answer(report.facts)
            report.future.set_result(Outcome(report.facts, own, answer))
