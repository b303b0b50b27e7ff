"""Where the CPU time of a report goes: the work of a lane, stage by stage, in one thread.

decode   a JSON object becomes a report
decide   its slice decides
step     folds and machines step their rows
encode   facts and rows become bytes
unfold   the rest of building a commit: rows are fetched and kept, costs are counted
commit   the store checks, writes and flushes
answer   the rows' new versions, and the response to the agent

The first and the last two are measured as CPU time, batch by batch. The stages of building a commit
alternate too fast for that clock, which takes microseconds. Their CPU time is therefore divided in
proportion to their shares on a finer clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from bench.fleet.fleets import FleetAtWork, Wire, line
from tidegate.clock import system_clock
from tidegate.control.fleet.agent_reports import Report, to_reported
from tidegate.domain.composition import COLLECTIONS, FACTS, FOLDS, SLICES
from tidegate.domain.rollouts.report_slices import report_event
from tidegate.errors import TidegateError
from tidegate.kernel.commit_builder import CommitBuilder, Rows
from tidegate.kernel.folds import Folds
from tidegate.kernel.model import Commit
from tidegate.kernel.store import Schema
from tidegate.kernel.vocabulary import Vocabulary

STAGES: Final = ("decode", "decide", "step", "encode", "unfold", "commit", "answer")
SHARED: Final = ("decide", "step", "encode", "unfold")


class Meter:
    """CPU seconds of this thread by stage; stages of the commit builder by their share."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self._shares = dict.fromkeys(SHARED, 0)
        self._stage = "unfold"
        self._since = 0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begun = time.thread_time()
        yield
        self.seconds[name] += time.thread_time() - begun

    @contextmanager
    def builder(self) -> Iterator[None]:
        self._shares = dict.fromkeys(SHARED, 0)
        self._since = time.perf_counter_ns()
        begun = time.thread_time()
        yield
        self._enter("unfold")
        spent = time.thread_time() - begun
        for name, share in self._shares.items():
            self.seconds[name] += spent * share / sum(self._shares.values())

    def shared(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the function; inside the commit builder its time counts for this stage."""

        def run(*args: Any) -> Any:
            before = self._enter(name)
            try:
                return function(*args)
            finally:
                self._enter(before)

        return run

    def _enter(self, name: str) -> str:
        """Charge the time since the last call to the current stage; return that stage."""
        now, before = time.perf_counter_ns(), self._stage
        self._shares[before] += now - self._since
        self._stage, self._since = name, now
        return before


def measured(fleet: FleetAtWork, batches: Sequence[Sequence[Wire]]) -> dict[str, float]:
    """CPU seconds by stage of these reports, with each batch as one commit."""
    meter = Meter()
    folds = _metered(meter)
    item = replace(report_event, decide=meter.shared("decide", report_event.decide))
    assert item.rows is not None
    known: Rows = {}
    for batch in batches:
        with meter.stage("decode"):
            lines = [line(report) for report in batch]
        with meter.builder():
            pack = CommitBuilder(folds, fleet.store.get, known, fleet.store.pack_cost_max)
            pack.fetch(key for _, command, _ in lines for key in item.rows(command))
            at = system_clock()
            for _, command, meta in lines:
                pack.decide(item, command, at, meta)
        with meter.stage("encode"):
            commit = pack.commit(Commit(at, lines[0][2]))
        with meter.stage("commit"):
            (receipt,) = fleet.store.commit(commit)
        if isinstance(receipt, TidegateError):
            raise receipt
        with meter.stage("answer"):
            known.update(pack.settled(receipt.first))
            for report in batch:
                answered = Report(report["rollout_id"], report["seq"], Future())
                to_reported(answered, None)
    return meter.seconds


def _metered(meter: Meter) -> Folds:
    """The folds of the domain, with the meter around steps and around the encoding of facts."""
    vocabulary = Vocabulary(FACTS, SLICES)
    vocabulary.fact = meter.shared("encode", vocabulary.fact)  # type: ignore[method-assign]
    schema = Schema(vocabulary, COLLECTIONS)
    return Folds(
        schema, [replace(fold, step=meter.shared("step", fold.step)) for fold in FOLDS.folds]
    )
