"""A simulated host: the production state machine, a journal that survives crashes, and faults.

It works as the real agent does: it acknowledges before it switches, keeps each report until it is
confirmed, resumes from any state, and rolls back when it fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from random import Random
from typing import Any, Protocol

from tidegate.domain.hosts import agent_side, effects as host_effects, facts, rows, states
from tidegate.errors import Refused, TidegateError
from tidegate.simulate.rates import Rates

PROBES = (
    facts.ProbeDeclared("http", "http", states.ProbeMode.ENFORCE),
    facts.ProbeDeclared("disk", "exec", states.ProbeMode.OBSERVE),
)
TICK_SECONDS_MAX = 60.0
FLAP_SECONDS = 30.0
CHATTY = 0.2  # share of hosts that also report a probe's first result and first failure
DRIFT_SECONDS = 60.0
SEND_SECONDS = 0.1  # from the journal to the network


class AgentEnvironment(Protocol):
    """What a host needs of its world."""

    def after(self, seconds: float, action: Callable[[], None]) -> None: ...
    def now(self) -> datetime: ...
    def flush(self, agent: SimulatedAgent) -> None: ...


@dataclass(slots=True)
class JournalEntry:
    """A report in the journal, and the twin before it."""

    event: facts.AgentEvent
    before: rows.HostRecord


@dataclass(slots=True)
class OrderFaults:
    """The faults of one order, drawn when it is taken."""

    rejects: bool
    activation_fails: bool
    defers: bool
    probe_fails: bool
    probe_flaps: bool
    rollback_fails: bool
    dies: bool

    @classmethod
    def draw(cls, rates: Rates, random: Random) -> OrderFaults:
        return cls(*(random.random() < getattr(rates, name) for name in cls.__slots__))


@dataclass
class SimulatedAgent:
    """One host. ``running``, ``twins`` and ``journal`` are on disk; a crash loses the rest."""

    host_id: str
    rates: Rates
    random: Random
    world: AgentEnvironment
    base: str = ""  # what runs at first; empty: nothing
    doomed: bool = False  # its probes fail for every release
    running: dict[str, str] = field(default_factory=dict)  # channel → closure
    twins: dict[str, rows.HostRecord] = field(default_factory=dict)
    journal: deque[JournalEntry] = field(default_factory=deque)
    luck: dict[str, OrderFaults] = field(default_factory=dict)
    online: bool = True
    dead: bool = False
    lives: int = 0  # a crash starts another; actions planned in an earlier one are dropped

    # ── orders ──

    @property
    def busy(self) -> bool:
        """Whether an order is running."""
        return bool(self.journal) or any(
            twin.state in (states.HostState.ACTIVATING, states.HostState.SOAKING)
            or agent_side.is_rolling_back(twin)
            or agent_side.is_withdrawing(twin)
            for twin in self.twins.values()
        )

    def take(self, order: rows.QueuedDispatch) -> None:
        """Acknowledge an order. The switch starts when the acknowledgement is accepted."""
        before = self.twins.get(order.rollout_id)
        try:
            twin = agent_side.record_from_order(order, before, self.world.now())
        except Refused:
            return  # a repeated order
        if twin is before:
            return
        self._unstage(order)
        self.twins[order.rollout_id] = twin
        self.luck[order.rollout_id] = luck = OrderFaults.draw(self.rates, self.random)
        luck.probe_fails |= self.doomed
        if luck.rejects:
            self._report(
                order.rollout_id, facts.DispatchReject, reason="the signature does not verify"
            )
            return
        self._report(
            order.rollout_id,
            facts.DispatchAck,
            current_closure_at_dispatch=self.running.get(order.channel, self.base),
            target_closure=order.target_closure,
        )

    def _unstage(self, order: rows.QueuedDispatch) -> None:
        """Drop orders of this channel that wait for a reboot: the new one replaces them."""
        for rollout_id, twin in list(self.twins.items()):
            staged = twin.state is states.HostState.DEFERRED and twin.channel == order.channel
            if staged and rollout_id != order.rollout_id:
                del self.twins[rollout_id]

    def confirm(self, entry: JournalEntry) -> None:
        """The control plane has saved this report."""
        if isinstance(entry.event, facts.DispatchAck):
            self._act(
                entry.event.rollout_id, (host_effects.FireSwitch(entry.event.target_closure),)
            )

    def drop_refused(self, entry: JournalEntry, error: TidegateError) -> None:
        """The report is refused for good: drop it and the later ones of its rollout."""
        rollout_id = entry.event.rollout_id
        self.journal = deque(item for item in self.journal if item.event.rollout_id != rollout_id)
        state = str(error.facts.get("state", ""))
        twin, effects = agent_side.drop_refused_report(
            entry.before, entry.event, state, self.world.now()
        )
        if twin is None:
            self.twins.pop(rollout_id, None)
        else:
            self.twins[rollout_id] = twin
            self._act(rollout_id, effects)

    def withdraw(self, rollout_id: str) -> None:
        """The control plane withdrew an order that waits for a reboot."""
        twin = self.twins[rollout_id]
        after, effects = agent_side.withdraw(twin, self.world.now())
        if after is None:
            del self.twins[rollout_id]
        else:
            self.twins[rollout_id] = after
            self._act(rollout_id, effects)

    # ── life ──

    def crash(self) -> None:
        """Lose the memory and resume from disk."""
        self.lives += 1
        self.world.after(self.random.uniform(1.0, 60.0), self.resume)

    def recover(self, rates: Rates) -> None:
        """End all faults of this host."""
        self.rates = rates
        self.online = True
        for luck in self.luck.values():
            luck.dies = luck.activation_fails = luck.probe_fails = luck.rollback_fails = False
        if self.dead:
            self.dead = False
            self.lives += 1
            self.resume()

    def resume(self) -> None:
        """Continue every order from its state on disk."""
        if self.dead:
            return
        unsent = {item.event.rollout_id for item in self.journal if _is_ack(item.event)}
        for rollout_id, twin in list(self.twins.items()):
            if twin.state is states.HostState.ACTIVATING and rollout_id not in unsent:
                self._switch(rollout_id)
            elif twin.state is states.HostState.DEFERRED:
                self._after(self.rates.reboot.draw(self.random), partial(self._switch, rollout_id))
            elif twin.state is states.HostState.SOAKING:
                self._probe(rollout_id)
            elif agent_side.is_rolling_back(twin) or agent_side.is_withdrawing(twin):
                self._roll_back(rollout_id)

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        life = self.lives

        def alive() -> None:
            if life == self.lives and not self.dead:
                action()

        self.world.after(seconds, alive)

    # ── acting on effects ──

    def _report(self, rollout_id: str, kind: type[facts.AgentEvent], **members: Any) -> bool:
        """Save a report and do its effects; False: the machine does not allow it now."""
        before = self.twins[rollout_id]
        try:
            twin, event, effects = agent_side.report(before, kind, self.world.now(), **members)
        except Refused:
            return False
        self._record(before, twin, event, effects)
        return True

    def _record(
        self,
        before: rows.HostRecord,
        twin: rows.HostRecord,
        event: facts.AgentEvent,
        effects: Sequence[host_effects.Effect],
    ) -> None:
        self.twins[event.rollout_id] = twin
        self.journal.append(JournalEntry(event, before))
        self.world.after(SEND_SECONDS, lambda: self.world.flush(self))
        if not _is_ack(event):
            self._act(event.rollout_id, effects)

    def _act(self, rollout_id: str, effects: Sequence[host_effects.Effect]) -> None:
        for effect in effects:
            match effect:
                case host_effects.FireSwitch():
                    self._switch(rollout_id)
                case host_effects.FireRollbackTo():
                    self._roll_back(rollout_id)
                case host_effects.ResetProbeCache():
                    self._declare(rollout_id)
                case _:
                    pass  # the control plane's

    def _switch(self, rollout_id: str) -> None:
        if rollout_id not in self.twins:
            return  # a newer order came before the reboot
        luck = self.luck[rollout_id]
        if luck.dies:
            self.dead = True
            return
        self._report(rollout_id, facts.ActivationStarted, switch_method="simulated")
        seconds = self.rates.activation.draw(self.random)
        self._after(seconds, lambda: self._switched(rollout_id, luck))

    def _switched(self, rollout_id: str, luck: OrderFaults) -> None:
        twin = self.twins.get(rollout_id)
        if twin is None or luck is not self.luck[rollout_id]:
            return  # the order was given up meanwhile, or has a later attempt
        if twin.state not in (states.HostState.ACTIVATING, states.HostState.DEFERRED):
            return
        if luck.activation_fails:
            self._report(
                rollout_id, facts.ActivationFailed, exit_code=1, stderr_tail="it did not start"
            )
            return
        if luck.defers:
            luck.defers = False
            if self._report(rollout_id, facts.ActivationDeferred, component="kernel"):
                self._after(
                    self.rates.reboot.draw(self.random), lambda: self._switched(rollout_id, luck)
                )
            return
        self.running[twin.channel] = twin.target_closure
        if self.random.random() < self.rates.agent_crashes:
            self.crash()  # before it can report the switch
            return
        self._report(
            rollout_id, facts.ActivationCompleted, observed_current_closure=twin.target_closure
        )

    def _declare(self, rollout_id: str) -> None:
        if self._report(rollout_id, facts.ProbeTopologyDeclared, probes=PROBES):
            self._probe(rollout_id)

    def _probe(self, rollout_id: str) -> None:
        """Schedule the probes' first results, and the ticks."""
        luck = self.luck[rollout_id]
        bad = luck.probe_fails or luck.probe_flaps
        self._after(
            self.rates.probe.draw(self.random), lambda: self._result(rollout_id, "http", bad)
        )
        self._after(
            self.rates.probe.draw(self.random), lambda: self._result(rollout_id, "disk", bad)
        )
        if luck.probe_flaps and not luck.probe_fails:
            self._after(FLAP_SECONDS, lambda: self._result(rollout_id, "http", False))
        self._after(self.rates.tick, lambda: self._tick(rollout_id))

    def _result(self, rollout_id: str, name: str, bad: bool) -> None:
        twin = self.twins.get(rollout_id)
        if twin is None or twin.state is not states.HostState.SOAKING or name not in twin.probes:
            return
        status = states.ProbeStatus.FAIL if bad else states.ProbeStatus.PASS
        if twin.probes[name].status is status:
            return  # unchanged: not reported again
        reason = "503" if bad else None
        mode = twin.probes[name].mode
        if twin.probe_observed_first_at is None and self.random.random() < CHATTY:
            self._report(rollout_id, facts.ProbeObservedFirst, probe_name=name, mode=mode)
        self._report(
            rollout_id,
            facts.ProbeResult,
            probe_name=name,
            mode=mode,
            status=status,
            failure_reason=reason,
        )
        first = bad and mode is states.ProbeMode.ENFORCE and twin.probe_failure_first_at is None
        if first and self.random.random() < CHATTY:
            self._report(rollout_id, facts.ProbeFailureFirst, probe_name=name, mode=mode)

    def _tick(self, rollout_id: str) -> None:
        twin = self.twins.get(rollout_id)
        if twin is None or twin.state is not states.HostState.SOAKING:
            return
        concluded = agent_side.tick(twin, self.world.now())
        if concluded is not None:
            self._record(twin, *concluded)
            self._drift(rollout_id)
        after = self.twins[rollout_id]
        if after.state is states.HostState.SOAKING:
            self._after(self._next_tick(after), lambda: self._tick(rollout_id))

    def _next_tick(self, twin: rows.HostRecord) -> float:
        """Seconds to the next tick; more while only the soak has to pass."""
        failing = any(probe.failing_since is not None for probe in twin.probes.values())
        if failing or twin.soak_due_at is None:
            return self.rates.tick
        left = (twin.soak_due_at - self.world.now()).total_seconds()
        return min(max(left, self.rates.tick), TICK_SECONDS_MAX)

    def _drift(self, rollout_id: str) -> None:
        """After convergence, sometimes change by hand what runs."""
        twin = self.twins[rollout_id]
        if twin.state is states.HostState.CONVERGED and self.random.random() < self.rates.drifts:
            self._after(DRIFT_SECONDS, lambda: self.running.update({twin.channel: "by hand"}))

    def _roll_back(self, rollout_id: str) -> None:
        seconds = self.rates.rollback.draw(self.random)
        self._after(seconds, lambda: self._rolled_back(rollout_id))

    def _rolled_back(self, rollout_id: str) -> None:
        twin = self.twins.get(rollout_id)
        if twin is not None and agent_side.is_withdrawing(twin):
            self.running[twin.channel] = twin.current_closure_at_dispatch or ""
            del self.twins[rollout_id]
            return
        if twin is None or not agent_side.is_rolling_back(twin):
            return
        if self.luck[rollout_id].rollback_fails:
            self._report(rollout_id, facts.RollbackFailed, phase="switch", exit_code=1)
            return
        prior = twin.current_closure_at_dispatch or ""
        self.running[twin.channel] = prior
        self._report(rollout_id, facts.RollbackComplete, reverted_to_closure=prior)


def _is_ack(event: facts.AgentEvent) -> bool:
    return isinstance(event, facts.DispatchAck)
