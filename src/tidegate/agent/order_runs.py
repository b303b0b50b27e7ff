"""The life of an order on a host: orders, switch results, probes and time become reports and jobs.

    order ──▶ twin, acknowledgement ──▶ accepted ──▶ Switch ──▶ switched ──▶ topology, Checks
                                                                   │
    Converged ◀── tick ── results ◀── Check ◀──────────────────────┘
       Failed ◀── tick ──▶ Switch back ──▶ RollbackComplete | RollbackFailed

One thread calls it. It writes only to the journal: ``jobs`` holds the work for other threads, and
the journal holds the reports to send.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from tidegate.agent import (
    drivers as agent_drivers,
    journal as agent_journal,
    probe_schedule,
    probes,
    soaks,
)
from tidegate.agent.errors import InvalidProbes
from tidegate.clock import Clock
from tidegate.domain.hosts import (
    agent_side,
    effects as host_effects,
    facts,
    protocol,
    report_json,
    rows,
    states,
    transition_steps,
)
from tidegate.errors import Refused

EXIT_UNPROBED: Final = -5  # the probe file cannot be read

log = logging.getLogger("tidegate.agent")


@dataclass(frozen=True, slots=True)
class SwitchJob:
    """Switch to the target artifact, or after a failure back to the prior one."""

    rollout_id: str
    attempt: int
    channel: str
    change: agent_drivers.SwitchRequest
    until: datetime  # fetching is retried until then while the server is away


Job = SwitchJob | probe_schedule.ProbeJob


class OrderRuns:
    """The orders of this host, and the jobs to do next."""

    def __init__(
        self,
        host_id: str,
        journal: agent_journal.Journal,
        drivers: Mapping[str, agent_drivers.Driver],
        load_probes: probe_schedule.LoadProbes,
        clock: Clock,
    ) -> None:
        self.jobs: deque[Job] = deque()
        self._host_id = host_id
        self._journal = journal
        self._drivers = drivers
        self._load_probes = load_probes
        self._clock = clock
        self._soaks = soaks.Soaks(
            journal, load_probes, clock, self._report, self._remember, self.jobs.append
        )

    @property
    def staged(self) -> tuple[str, ...]:
        """The rollouts whose order waits for a reboot."""
        twins = self._journal.twins
        return tuple(id for id, twin in twins.items() if twin.state is states.HostState.DEFERRED)

    @property
    def is_busy(self) -> bool:
        """Whether an order is running; then no other is taken."""
        return bool(self._journal.entries) or any(map(_is_live, self._journal.twins.values()))

    @property
    def may_poll(self) -> bool:
        """Whether the host may poll for an order: none is running, or one only soaks. An order that
        preempts replaces one that soaks.
        """
        twins = self._journal.twins
        soaking = {id for id, twin in twins.items() if twin.state is states.HostState.SOAKING}
        switching = any(_is_live(twin) for id, twin in twins.items() if id not in soaking)
        return not switching and all(
            entry.event.rollout_id in soaking for entry in self._journal.entries
        )

    # ── orders ──

    def take(self, order: protocol.Order, numbered: int = 0, objection: str | None = None) -> None:
        """Acknowledge or reject an order. The switch waits until the server has the report.

        ``numbered``: the number of the rollout's last report that the server has, perhaps from
        before the host was enrolled again. ``objection``: why the manifest forbids the order.
        """
        before = self._journal.twins.get(order.rollout_id)
        if order.host_id != self._host_id:
            log.warning("an order for %s came to us; it is left alone", order.host_id)
            return
        if self.is_busy and not self._preempt(order):
            return  # the server repeats it
        try:
            twin = agent_side.record_from_order(_to_queued_dispatch(order), before, self._clock())
        except Refused as refused:
            log.warning("order %s is not taken: %s", order.rollout_id, refused.detail)
            return
        if twin is before:
            return  # a repeated order
        last = max(twin.last_event_seq, numbered, self._journal.last_number(order.rollout_id))
        twin = replace(twin, last_event_seq=last)
        self._acknowledge(twin, order.content, objection or self._find_objection(order.channel))

    def _preempt(self, order: protocol.Order) -> bool:
        """Give up an order that soaks, for one that the server sends in its place."""
        soaking = [
            twin
            for twin in self._journal.twins.values()
            if twin.state is states.HostState.SOAKING and twin.rollout_id != order.rollout_id
        ]
        others = any(twin.channel != order.channel for twin in soaking)
        if not (order.policy.preempts and soaking and self.may_poll) or others:
            return False
        for twin in soaking:
            log.warning("%s is released: %s replaces it", twin.rollout_id, order.rollout_id)
            self._journal.append(
                agent_journal.GivenUpLine(twin.rollout_id, None, twin.last_event_seq)
            )
        return not self.is_busy

    def _acknowledge(self, twin: rows.HostRecord, content: str, objection: str | None) -> None:
        """Save the order and its acknowledgement or rejection in one write."""
        if objection is not None:
            log.warning("order %s is rejected: %s", twin.rollout_id, objection)
            reported = agent_side.report(
                twin, facts.DispatchReject, self._clock(), reason=_shorten(objection)
            )
        else:
            reported = agent_side.report(
                twin,
                facts.DispatchAck,
                self._clock(),
                # what runs now: a rollback returns to it
                current_closure_at_dispatch=self._drivers[twin.channel].current(),
                target_closure=twin.target_closure,
            )
        after, event, _ = reported
        self._journal.append(
            agent_journal.TwinLine(twin, content),
            agent_journal.ReportLine(report_json.event_to_json(event), after),
        )

    def _find_objection(self, channel: str) -> str | None:
        if channel not in self._drivers:
            return f"this host has no driver for channel {channel}"
        try:
            self._load_probes(channel)
        except InvalidProbes as error:
            return error.detail
        return None

    # ── responses of the server ──

    def confirm(self, rollout_id: str, through: int) -> None:
        """The server has saved the rollout's reports up to this number."""
        twin = self._journal.twins.get(rollout_id)
        was_pending = self._journal.is_acknowledgement_pending(rollout_id)
        self._journal.append(agent_journal.ConfirmedLine(rollout_id, through))
        is_pending = self._journal.is_acknowledgement_pending(rollout_id)
        if twin is not None and was_pending and not is_pending:
            self._forget_staged(twin)
            self._switch(twin)

    def drop_refused(
        self, entry: agent_journal.PendingReport, *, state: str, expected: int | None = None
    ) -> None:
        """The server refused this report for good: drop it and the later ones of its rollout."""
        event = entry.event
        twin, effects = agent_side.drop_refused_report(entry.before, event, state, self._clock())
        numbered = entry.before.last_event_seq if expected is None else expected - 1
        if twin is not None:
            twin = replace(twin, last_event_seq=numbered)
        self._journal.append(agent_journal.GivenUpLine(event.rollout_id, twin, numbered))
        self._act(event.rollout_id, effects)

    def withdraw(self, rollout_id: str) -> None:
        """The server withdrew an order that waits for a reboot: remove what is staged."""
        twin = self._journal.twins.get(rollout_id)
        if twin is None or twin.state is not states.HostState.DEFERRED:
            return
        log.warning("order %s was withdrawn before the reboot", rollout_id)
        after, effects = agent_side.withdraw(twin, self._clock())
        self._journal.append(agent_journal.GivenUpLine(rollout_id, after, twin.last_event_seq))
        self._act(rollout_id, effects)

    def _forget_staged(self, twin: rows.HostRecord) -> None:
        """Give up orders of this channel that wait for a reboot: the new one replaces them."""
        for other in list(self._journal.twins.values()):
            overtaken = other.channel == twin.channel and other.rollout_id != twin.rollout_id
            if overtaken and other.state is states.HostState.DEFERRED:
                self._journal.append(
                    agent_journal.GivenUpLine(other.rollout_id, None, other.last_event_seq)
                )

    # ── results of jobs ──

    def end_switch(self, job: SwitchJob, outcome: agent_drivers.SwitchOutcome) -> None:
        """A switch ended. It is ignored if the order is gone or has a new attempt."""
        twin = self._journal.twins.get(job.rollout_id)
        if twin is None or twin.attempt != job.attempt:
            return
        if job.change.is_rollback:
            self._finish_rollback(twin, outcome)
        elif twin.state in (states.HostState.ACTIVATING, states.HostState.DEFERRED):
            self._finish_switch(twin, outcome)

    def _finish_switch(self, twin: rows.HostRecord, outcome: agent_drivers.SwitchOutcome) -> None:
        rollout_id = twin.rollout_id
        match outcome:
            case agent_drivers.Switched():
                runs = self._drivers[twin.channel].current()
                if runs == twin.target_closure:
                    self._report(
                        rollout_id, facts.ActivationCompleted, observed_current_closure=runs
                    )
                else:
                    detail = f"the switch is done, and {runs or 'nothing'} runs"
                    self._report(
                        rollout_id, facts.ActivationFailed, exit_code=-1, stderr_tail=detail
                    )
            case agent_drivers.Staged(component):
                if (
                    twin.state is states.HostState.ACTIVATING
                ):  # otherwise it still waits for the reboot
                    self._report(rollout_id, facts.ActivationDeferred, component=component)
            case agent_drivers.SwitchFailed(code, stderr):
                self._report(
                    rollout_id,
                    facts.ActivationFailed,
                    exit_code=code,
                    stderr_tail=agent_drivers.tail(stderr),
                )

    def _finish_rollback(self, twin: rows.HostRecord, outcome: agent_drivers.SwitchOutcome) -> None:
        if agent_side.is_withdrawing(twin):
            if not isinstance(outcome, agent_drivers.Switched):
                log.error("%s could not be removed: %s", twin.rollout_id, outcome)
            self._journal.append(
                agent_journal.GivenUpLine(twin.rollout_id, None, twin.last_event_seq)
            )
            return
        if not agent_side.is_rolling_back(twin):
            return
        prior = transition_steps.prior_closure(twin)
        runs = self._drivers[twin.channel].current()
        match outcome:
            case agent_drivers.Switched() if runs == prior:
                self._report(twin.rollout_id, facts.RollbackComplete, reverted_to_closure=runs)
            case agent_drivers.Switched():
                self._report(twin.rollout_id, facts.RollbackFailed, phase="observe", exit_code=-1)
            case agent_drivers.Staged(component):
                self._report(
                    twin.rollout_id, facts.RollbackFailed, phase=_shorten(component), exit_code=75
                )
            case agent_drivers.SwitchFailed(code, stderr):
                log.error("the way back of %s failed: %s", twin.rollout_id, stderr)
                self._report(twin.rollout_id, facts.RollbackFailed, phase="switch", exit_code=code)

    def end_probe(self, job: probe_schedule.ProbeJob, result: probes.ProbeOutcome) -> None:
        """A probe ran."""
        self._soaks.end_probe(job, result)

    # ── time ──

    def resume(self) -> None:
        """Continue every order from its state in the journal."""
        for rollout_id, twin in list(self._journal.twins.items()):
            match twin.state:
                case states.HostState.PENDING if agent_side.is_withdrawing(twin):
                    self._roll_back(twin)
                case states.HostState.PENDING if not self._journal.is_acknowledgement_pending(
                    rollout_id
                ):
                    # A crash lost the acknowledgement. It may have been a rejection because of the
                    # manifest, so forget the order: the server repeats it, and it is checked again.
                    self._journal.append(
                        agent_journal.GivenUpLine(rollout_id, None, twin.last_event_seq)
                    )
                case states.HostState.ACTIVATING if not self._journal.is_acknowledgement_pending(
                    rollout_id
                ):
                    self._switch(twin)
                case states.HostState.DEFERRED:
                    self._switch(twin)
                case states.HostState.FAILED if agent_side.is_rolling_back(twin):
                    self._roll_back(twin)
                case states.HostState.SOAKING:
                    self._soaks.resume(twin)
                case _:
                    pass  # it waits for the server or for time, or has ended

    def tick(self) -> None:
        """Do what is due: probes, convergence, failure."""
        for twin in list(self._journal.twins.values()):
            if twin.state is states.HostState.SOAKING:
                self._soaks.tick(twin)

    # ── reports and effects ──

    def _report(self, rollout_id: str, kind: type[facts.AgentEvent], **members: Any) -> bool:
        """Save a report and do its effects; False: the machine does not allow it now."""
        before = self._journal.twins[rollout_id]
        try:
            reported = agent_side.report(before, kind, self._clock(), **members)
        except Refused as refused:
            log.warning("%s of %s is not reported: %s", kind.__name__, rollout_id, refused.detail)
            return False
        self._remember(*reported)
        return True

    def _remember(
        self,
        after: rows.HostRecord,
        event: facts.AgentEvent,
        effects: Sequence[host_effects.Effect],
    ) -> None:
        self._journal.append(agent_journal.ReportLine(report_json.event_to_json(event), after))
        log.info("%s: %s, now %s", event.rollout_id, type(event).__name__, after.state)
        self._act(event.rollout_id, effects)
        if after.state is states.HostState.CONVERGED:
            self._drivers[after.channel].keep(self._needed_artifacts(after))

    def _act(self, rollout_id: str, effects: Sequence[host_effects.Effect]) -> None:
        for effect in effects:
            twin = self._journal.twins[rollout_id]
            match effect:
                case host_effects.FireSwitch():
                    self._switch(twin)
                case host_effects.FireRollbackTo():
                    self._roll_back(twin)
                case host_effects.ResetProbeCache():
                    self._soaks.declare(rollout_id)
                case _:
                    pass  # the control plane's

    def _switch(self, twin: rows.HostRecord) -> None:
        if twin.channel not in self._drivers:
            self._report(
                twin.rollout_id, facts.ActivationFailed, exit_code=-1, stderr_tail="no driver"
            )
            return
        try:
            self._load_probes(twin.channel)
        except InvalidProbes as error:
            self._report(
                twin.rollout_id,
                facts.ActivationFailed,
                exit_code=EXIT_UNPROBED,
                stderr_tail=agent_drivers.tail(error.detail),
            )
            return
        if twin.state is states.HostState.ACTIVATING and twin.activation_started_at is None:
            method = type(self._drivers[twin.channel]).__name__.lower()
            self._report(twin.rollout_id, facts.ActivationStarted, switch_method=method)
        prior = twin.current_closure_at_dispatch or ""
        content = self._journal.content(twin.rollout_id)
        change = agent_drivers.SwitchRequest(twin.target_closure, prior, content)
        self._queue_switch(twin, change, twin.policy.activation_seconds)

    def _roll_back(self, twin: rows.HostRecord) -> None:
        prior = transition_steps.prior_closure(twin)
        assert prior is not None, "only a host with a way back goes it"
        if twin.channel not in self._drivers:
            self._finish_rollback(twin, agent_drivers.SwitchFailed(-1, "no driver"))
            return
        change = agent_drivers.SwitchRequest(prior, twin.target_closure, content="")
        self._queue_switch(twin, change, twin.policy.rollback_seconds)

    def _queue_switch(
        self, twin: rows.HostRecord, change: agent_drivers.SwitchRequest, seconds: int
    ) -> None:
        until = self._clock() + timedelta(seconds=seconds)
        self.jobs.append(SwitchJob(twin.rollout_id, twin.attempt, twin.channel, change, until))

    def _needed_artifacts(self, converged: rows.HostRecord) -> set[str]:
        """The artifacts of the channel that are still needed when this order has converged."""
        live = [twin for twin in self._journal.twins.values() if _is_live(twin)]
        closures = {
            closure
            for twin in (converged, *live)
            if twin.channel == converged.channel
            for closure in (twin.target_closure, twin.current_closure_at_dispatch)
        }
        return {closure for closure in closures if closure}


def _is_live(twin: rows.HostRecord) -> bool:
    under_way = twin.state in (states.HostState.ACTIVATING, states.HostState.SOAKING)
    back = agent_side.is_rolling_back(twin) or agent_side.is_withdrawing(twin)
    return under_way or back


def _to_queued_dispatch(order: protocol.Order) -> rows.QueuedDispatch:
    return rows.QueuedDispatch(
        host_id=order.host_id,
        rollout_id=order.rollout_id,
        attempt=order.attempt,
        channel=order.channel,
        target_closure=order.target_closure,
        wave=order.wave,
        policy=order.policy,
        enqueued_at=order.enqueued_at,
        last_event_seq=order.last_event_seq,
    )


def _shorten(text: str) -> str:
    return agent_drivers.tail(text, agent_drivers.REASON_BYTES)
