"""The soak of an order: run its probes, report their results, conclude when its time is over.

switched ──▶ declare ──▶ ProbeJob ──▶ end_probe ──▶ ProbeResult
                            tick  ──▶ Converged | Failed | the next ProbeJob
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from tidegate.agent import errors, journal as agent_journal, probe_schedule, probes
from tidegate.clock import Clock
from tidegate.domain.hosts import agent_side, effects as host_effects, facts, rows, states

REPORTS_MAX: Final = 10_000  # pending; from then on a flapping probe is reported less often
FLAP_SECONDS: Final = 60  # then the least time between a pass and the next reported failure
# Declared in place of probes that cannot be read; it never passes.
UNREADABLE: Final = facts.ProbeDeclared("probe-file", "declaration", states.ProbeMode.ENFORCE)

# Takes a rollout id, a kind of report and its members; returns whether it was saved.
Report = Callable[..., bool]
Remember = Callable[[rows.HostRecord, facts.AgentEvent, Sequence[host_effects.Effect]], None]

log = logging.getLogger("tidegate.agent")


class Soaks:
    """Runs and reports the probes of the orders that soak."""

    def __init__(
        self,
        journal: agent_journal.Journal,
        load_probes: probe_schedule.LoadProbes,
        clock: Clock,
        report: Report,
        remember: Remember,
        run_probe: Callable[[probe_schedule.ProbeJob], None],
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._report = report
        self._remember = remember
        self._run_probe = run_probe
        self._probe_schedule = probe_schedule.ProbeSchedule(load_probes)
        # By rollout: enforced probes that must have a new result before the soak can end. Their
        # stored result is from before a restart, or a failure is not reported yet.
        self._awaited: dict[str, set[str]] = {}

    def declare(self, rollout_id: str) -> None:
        """Report which probes this activation has, before any result."""
        twin = self._journal.twins[rollout_id]
        self._awaited.pop(rollout_id, None)
        try:
            declared = tuple(map(probes.to_declaration, self._probe_schedule.begin(twin)))
        except errors.InvalidProbes as error:
            log.error("%s", error.detail)
            if self._report(rollout_id, facts.ProbeTopologyDeclared, probes=(UNREADABLE,)):
                record = self._journal.twins[rollout_id]
                self._report_change(
                    record, UNREADABLE.probe_name, probes.probe_failure(error.detail)
                )
            return
        if self._report(rollout_id, facts.ProbeTopologyDeclared, probes=declared):
            self._conclude(rollout_id)
            self._run_due_probes(rollout_id)

    def resume(self, twin: rows.HostRecord) -> None:
        """After a restart, wait for a new result of every enforced probe."""
        self._awaited[twin.rollout_id] = {
            name for name, known in twin.probes.items() if known.mode is states.ProbeMode.ENFORCE
        }

    def tick(self, twin: rows.HostRecord) -> None:
        """Resume an interrupted declaration, conclude if possible, and run due probes."""
        if twin.topology_declared_at is None:
            self.declare(twin.rollout_id)
        self._conclude(twin.rollout_id)
        self._run_due_probes(twin.rollout_id)

    def end_probe(self, job: probe_schedule.ProbeJob, result: probes.ProbeOutcome) -> None:
        """A probe ran: report its result if it changed, and conclude if possible."""
        self._probe_schedule.end_run(job)
        twin = self._journal.twins.get(job.rollout_id)
        if twin is not None and twin.activation_completed_at == job.since:
            self._report_change(twin, job.probe.name, result)
            self._conclude(job.rollout_id)

    def _report_change(self, twin: rows.HostRecord, name: str, result: probes.ProbeOutcome) -> None:
        """Report a probe's result if it changed."""
        known = twin.probes.get(name)
        if (
            twin.state is not states.HostState.SOAKING
            or known is None
            or known.status is result.status
        ):
            self._note_result(twin.rollout_id, name)
            return
        if self._is_flapping(known, result):
            if known.mode is states.ProbeMode.ENFORCE:
                # The soak cannot end before the failure is reported.
                self._awaited.setdefault(twin.rollout_id, set()).add(name)
            return
        self._note_result(twin.rollout_id, name)
        self._report(
            twin.rollout_id,
            facts.ProbeResult,
            probe_name=name,
            mode=known.mode,
            status=result.status,
            failure_reason=result.reason,
        )

    def _is_flapping(self, known: rows.Probe, result: probes.ProbeOutcome) -> bool:
        """Whether to delay a failure: many reports are pending, and the probe passed just now.

        So a probe adds at most two reports a minute while the server is away. A pass is never
        delayed: otherwise a failure would look longer than it was.
        """
        if len(self._journal.entries) < REPORTS_MAX or result.status is states.ProbeStatus.PASS:
            return False
        if known.status is not states.ProbeStatus.PASS or known.last_observed_at is None:
            return False
        since = self._clock() - known.last_observed_at
        return timedelta(0) <= since < timedelta(seconds=FLAP_SECONDS)

    def _note_result(self, rollout_id: str, name: str) -> None:
        awaited = self._awaited.get(rollout_id, set())
        awaited.discard(name)
        if not awaited:
            self._awaited.pop(rollout_id, None)

    def _conclude(self, rollout_id: str) -> None:
        if self._awaited.get(rollout_id):
            return
        before = self._journal.twins.get(rollout_id)
        concluded = None if before is None else agent_side.tick(before, self._clock())
        if concluded is not None:
            self._remember(*concluded)

    def _run_due_probes(self, rollout_id: str) -> None:
        twin = self._journal.twins[rollout_id]
        if twin.state is states.HostState.SOAKING:
            for job in self._probe_schedule.due(twin, self._clock()):
                self._run_probe(job)
            for name in self._probe_schedule.list_missing(twin):
                self._report_change(
                    twin, name, probes.probe_failure("it cannot be read from its file any more")
                )
