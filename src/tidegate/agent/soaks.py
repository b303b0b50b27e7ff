"""The soak of a host: probes are declared and run, their results become reports, time decides.

switched ──▶ declare ──▶ ProbeJob ──▶ checked ──▶ ProbeResult
                            tick  ──▶ Converged | Failed | the next ProbeJob
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from tidegate.agent import journal as agent_journal, probe_schedule, probes
from tidegate.agent.errors import InvalidProbes
from tidegate.clock import Clock
from tidegate.domain.hosts import agent_side, effects as host_effects, facts, rows, states

REPORTS_MAX: Final = 10_000  # that wait: past it a probe that flaps is reported less often
FLAP_SECONDS: Final = 60  # past it, between a probe's pass and the next failure that is reported
# Stands for probes that were to be declared and cannot be: it never passes.
UNREADABLE: Final = facts.ProbeDeclared("probe-file", "declaration", states.ProbeMode.ENFORCE)

Say = Callable[..., bool]  # rollout id, kind of report, its members: whether it was reported
Remember = Callable[[rows.HostRecord, facts.AgentEvent, Sequence[host_effects.Effect]], None]

log = logging.getLogger("tidegate.agent")


class Soaks:
    """The probes of this host's orders while they soak."""

    def __init__(
        self,
        journal: agent_journal.Journal,
        load_probes: probe_schedule.LoadProbes,
        clock: Clock,
        say: Say,
        remember: Remember,
        run_probe: Callable[[probe_schedule.ProbeJob], None],
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._say = say
        self._remember = remember
        self._run_probe = run_probe
        self._probe_schedule = probe_schedule.ProbeSchedule(load_probes)
        # Enforced probes that were not asked since a restart, by rollout: what they said before it
        # decides nothing.
        self._unasked: dict[str, set[str]] = {}

    def declare(self, rollout_id: str) -> None:
        """Name the probes of this activation, before any of them speaks."""
        twin = self._journal.twins[rollout_id]
        self._unasked.pop(rollout_id, None)
        try:
            named = tuple(map(probes.to_declaration, self._probe_schedule.begin(twin)))
        except InvalidProbes as error:
            log.error("%s", error.detail)
            if self._say(rollout_id, facts.ProbeTopologyDeclared, probes=(UNREADABLE,)):
                ill = self._journal.twins[rollout_id]
                self._observe(ill, UNREADABLE.probe_name, probes.probe_failure(error.detail))
            return
        if self._say(rollout_id, facts.ProbeTopologyDeclared, probes=named):
            self._elapse(rollout_id)
            self._probe(rollout_id)

    def resume(self, twin: rows.HostRecord) -> None:
        """After a restart: no enforced probe was asked yet."""
        self._unasked[twin.rollout_id] = {
            name for name, known in twin.probes.items() if known.mode is states.ProbeMode.ENFORCE
        }

    def tick(self, twin: rows.HostRecord) -> None:
        """What the passing of time brings while it soaks."""
        if twin.topology_declared_at is None:
            self.declare(twin.rollout_id)
        self._elapse(twin.rollout_id)
        self._probe(twin.rollout_id)

    def checked(self, job: probe_schedule.ProbeJob, result: probes.ProbeOutcome) -> None:
        """Say what the probe says, if it is something new; and what follows from it."""
        self._probe_schedule.heard(job)
        twin = self._journal.twins.get(job.rollout_id)
        if twin is not None and twin.activation_completed_at == job.since:
            self._observe(twin, job.probe.name, result)
            self._elapse(job.rollout_id)

    def _observe(self, twin: rows.HostRecord, name: str, result: probes.ProbeOutcome) -> None:
        """Report what the probe says, if it is something new."""
        known = twin.probes.get(name)
        if (
            twin.state is not states.HostState.SOAKING
            or known is None
            or known.status is result.status
        ):
            self._answered(twin.rollout_id, name)
            return
        if self._is_flapping(known, result):
            if (
                known.mode is states.ProbeMode.ENFORCE
            ):  # nothing follows from time until it is reported
                self._unasked.setdefault(twin.rollout_id, set()).add(name)
            return
        self._answered(twin.rollout_id, name)
        self._say(
            twin.rollout_id,
            facts.ProbeResult,
            probe_name=name,
            mode=known.mode,
            status=result.status,
            failure_reason=result.reason,
        )

    def _is_flapping(self, known: rows.Probe, result: probes.ProbeOutcome) -> bool:
        """Whether a failure waits because too many reports do and the probe passed just now.

        So a probe adds two reports a minute at most while no server takes them. A pass never waits:
        a failure must not look longer than it was.
        """
        if len(self._journal.entries) < REPORTS_MAX or result.status is states.ProbeStatus.PASS:
            return False
        if known.status is not states.ProbeStatus.PASS or known.last_observed_at is None:
            return False
        since = self._clock() - known.last_observed_at
        return timedelta(0) <= since < timedelta(seconds=FLAP_SECONDS)

    def _answered(self, rollout_id: str, name: str) -> None:
        left = self._unasked.get(rollout_id, set())
        left.discard(name)
        if not left:
            self._unasked.pop(rollout_id, None)

    def _elapse(self, rollout_id: str) -> None:
        if self._unasked.get(rollout_id):
            return
        before = self._journal.twins.get(rollout_id)
        said = None if before is None else agent_side.tick(before, self._clock())
        if said is not None:
            self._remember(*said)

    def _probe(self, rollout_id: str) -> None:
        twin = self._journal.twins[rollout_id]
        if twin.state is states.HostState.SOAKING:
            for job in self._probe_schedule.due(twin, self._clock()):
                self._run_probe(job)
            for name in self._probe_schedule.lost(twin):
                self._observe(
                    twin, name, probes.probe_failure("it cannot be read from its file any more")
                )
