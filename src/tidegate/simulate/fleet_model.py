"""A plain model of a simulated fleet, built from facts. It refuses facts that break a rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from tidegate.domain.channels import facts as channel_facts
from tidegate.domain.hosts import (
    facts as host_facts,
    orders,
    rows as host_rows,
    states as host_states,
)
from tidegate.domain.rollouts import (
    facts as rollout_facts,
    rows as rollout_rows,
    states as rollout_states,
)
from tidegate.domain.windows.facts import WindowDeleted, WindowKind, WindowSet, WindowSpec
from tidegate.kernel import codec, model as kernel_model
from tidegate.kernel.store import Store
from tidegate.simulate.rollout_model import HostModel, RolloutModel
from tidegate.simulate.violations import InvariantViolation, demand


class FleetModel:
    """Rollouts, stops, windows and budgets according to the facts so far.

    Raises, from ``learn``:
        InvariantViolation.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.rollouts: dict[str, RolloutModel] = {}
        self.quarantined: set[tuple[str, str]] = set()
        self._freezes: dict[str, channel_facts.FreezeStarted] = {}
        self._held: set[str] = set()  # channels
        self._windows: dict[str, WindowSpec] = {}
        # Overridden gates by rollout, and until when; None: until its end.
        self._passed: dict[str, dict[rollout_states.OverridableGate, datetime | None]] = {}
        self.words: dict[
            tuple[str, str], rollout_states.Word
        ] = {}  # by channel and release: good or bad
        self._numbers: dict[tuple[str, str], int] = {}  # last report, by rollout and host
        self.taken: Counter[str] = Counter()  # slots of budgets
        self.events = 0
        self.host_events = 0
        self.types: set[str] = set()
        self.entered: set[str] = set()

    def learn(self, value: Struct, event: kernel_model.Event) -> None:
        self.events += 1
        self.types.add(event.type)
        self.host_events += event.kind in ("agent_event", "host_event")
        if isinstance(value, host_facts.AgentFact):
            self._learn_number(value)
        match value:
            case rollout_facts.RolloutOpened():
                active = [m for m in self.rollouts.values() if m.channel == value.channel]
                over = (rollout_states.RolloutState.SUPERSEDED, rollout_states.RolloutState.PRUNED)
                demand(all(m.state in over for m in active), lambda: "R7: two rollouts at once")
                planned = tuple(wave.hosts for wave in value.waves)
                self.rollouts[value.rollout_id] = RolloutModel(
                    value.channel,
                    value.target_closure,
                    planned,
                    shares=tuple(wave.success_percent for wave in value.waves),
                    minima=tuple(wave.converged_min for wave in value.waves),
                    release=value.target_ref,
                    start_at=value.start_at,
                    before=tuple(
                        edge.channel
                        for edge in value.edges
                        if edge.require is channel_facts.EdgeRequires.SUCCEEDED
                    ),
                )
                if value.emergency:
                    self._passed[value.rollout_id] = dict.fromkeys(rollout_states.ALL_PASSED)
                if value.rollback_of is not None:
                    self.words[value.channel, value.rollback_of] = rollout_states.Word.BAD
            case host_facts.DispatchReserved():
                self._demand_unstopped(value.rollout_id, event)
                self._learn_order(value, event.at)
            case host_facts.DispatchAck(rollout_id=rollout_id):
                self._demand_unstopped(rollout_id, event)
            case rollout_facts.GateOverridden():
                self._passed.setdefault(value.rollout_id, {})[value.gate] = value.until
            case (
                channel_facts.FreezeStarted()
                | channel_facts.FreezeEnded()
                | channel_facts.ChannelHeld()
                | channel_facts.ChannelUnheld()
            ):
                self._learn_stop(value)
            case WindowSet():
                self._windows[value.window_id] = value.window
            case WindowDeleted():
                del self._windows[value.window_id]
            case host_facts.HostJoined():
                model = self.rollouts[value.rollout_id]
                before = model.hosts.get(value.host_id)
                if before is not None and before.left:
                    model.gone[before.wave] += 1  # it returns as a late host
                model.hosts[value.host_id] = HostModel(
                    value.wave, host_states.HostState.PENDING, value.late
                )
            case host_facts.HostStateChanged():
                self._learn_move(value)
            case host_facts.HostSkipped():
                self._learn_skip(value)
            case (
                host_facts.RollbackComplete()
                | host_facts.RollbackFailed()
                | host_facts.DeadlineExpired()
            ):
                if value.channel and not self._only_expired(value):
                    self.quarantined.add((value.channel, value.target_closure))
            case channel_facts.QuarantineLifted():
                self.quarantined.discard((value.channel, value.closure_hash))
            case _:
                self._learn_rollout(value)

    def _learn_stop(
        self,
        value: channel_facts.FreezeStarted
        | channel_facts.FreezeEnded
        | channel_facts.ChannelHeld
        | channel_facts.ChannelUnheld,
    ) -> None:
        match value:
            case channel_facts.FreezeStarted():
                self._freezes[value.freeze_id] = value
            case channel_facts.FreezeEnded():
                del self._freezes[value.freeze_id]
            case channel_facts.ChannelHeld():
                self._held.add(value.channel)
            case channel_facts.ChannelUnheld():
                self._held.discard(value.channel)

    def _demand_unstopped(self, rollout_id: str, event: kernel_model.Event) -> None:
        """Demand that the channel is not frozen, held or outside its windows, unless a person
        overrode that gate for this rollout.
        """
        channel = self.rollouts[rollout_id].channel
        passed = self._passed_gates(rollout_id, event.at)
        held = channel in self._held and rollout_states.OverridableGate.HOLD not in passed
        demand(not held, lambda: f"{event.type} while {channel} is held")
        for freeze in (
            () if rollout_states.OverridableGate.FREEZE in passed else self._freezes.values()
        ):
            covers = not freeze.channels or channel in freeze.channels
            over = freeze.until is not None and event.at >= freeze.until
            demand(not covers or over, lambda: f"{event.type} while {channel} is frozen")
        if rollout_states.OverridableGate.WINDOW not in passed:
            demand(self._is_open(channel, event.at), lambda: f"{event.type} outside its windows")

    def _passed_gates(self, rollout_id: str, at: datetime) -> set[rollout_states.OverridableGate]:
        """The gates that a person has overridden for the rollout at this time."""
        passed = self._passed.get(rollout_id, {})
        return {gate for gate, until in passed.items() if until is None or at < until}

    def _is_open(self, channel: str, at: datetime) -> bool:
        """Whether windows allow orders on the channel. Windows of a simulation are for all hosts,
        in UTC, and occur once.
        """
        covering = [
            window
            for window in self._windows.values()
            if not window.channels or channel in window.channels
        ]
        lasting = {window.window_id for window in covering if _is_active(window, at)}
        denied = any(w.window_id in lasting for w in covering if w.kind is WindowKind.DENY)
        allowing = [w.window_id for w in covering if w.kind is WindowKind.ALLOW]
        return not denied and (not allowing or any(id in lasting for id in allowing))

    def _learn_number(self, value: host_facts.AgentFact) -> None:
        host = (value.rollout_id, value.host_id)
        expected = self._numbers.get(host, 0) + 1
        demand(value.seq == expected, lambda: f"H4: report {value.seq}, not {expected}")
        self._numbers[host] = value.seq

    def _only_expired(self, value: Struct) -> bool:
        return isinstance(value, host_facts.DeadlineExpired) and value.deadline != "rollback"

    def _take_slots(self, slots: Sequence[host_facts.BudgetSlot]) -> None:
        for slot in slots:
            self.taken[slot.budget_id] += 1
            taken = self.taken[slot.budget_id]
            if taken > slot.slots:
                raise InvariantViolation(f"budget {slot.budget_id}: {taken} in flight")

    def _learn_order(self, value: host_facts.DispatchReserved, at: datetime) -> None:
        model = self.rollouts[value.rollout_id]
        self._take_slots(value.budgets)
        pair = (value.channel, value.target_closure)
        demand(pair not in self.quarantined, lambda: f"RO-10: {pair} is quarantined")
        demand(not model.halted or value.late, lambda: "R9: an order while halted")
        passed = self._passed_gates(value.rollout_id, at)
        if rollout_states.OverridableGate.EDGES not in passed:
            self._demand_succeeded_before(model)
        is_early = model.start_at is not None and at < model.start_at
        early = is_early and rollout_states.OverridableGate.START_AT not in passed
        demand(not early, lambda: f"an order before {model.start_at}")
        if value.late:
            demand(model.ever_terminal, lambda: "a late host before the rollout has completed")
            return
        demand(value.wave <= model.wave, lambda: "R8: an order beyond the cursor")
        unsettled = model.unsettled(value.wave - 1) if value.wave else 0
        demand(
            unsettled == 0, lambda: f"RO-12: {unsettled} hosts before wave {value.wave} unsettled"
        )

    def _demand_succeeded_before(self, model: RolloutModel) -> None:
        """Demand that the release succeeded on every channel that an edge names."""
        for channel in model.before:
            word = self.words.get((channel, model.release))
            if word is not rollout_states.Word.GOOD or (channel, model.closure) in self.quarantined:
                raise InvariantViolation(
                    f"OP-2: an order for {model.release}, which is {word} on {channel}"
                )

    def _learn_move(self, value: host_facts.HostStateChanged) -> None:
        model = self.rollouts[value.rollout_id]
        self.taken.subtract(value.budgets)
        self._take_slots(value.slots)
        host = model.hosts[value.host_id]
        demand(host.state is value.from_, lambda: f"H8: it was {host.state}, not {value.from_}")
        absorbed = (
            value.from_ in host_states.ENDED and value.to is not host_states.HostState.PENDING
        )
        demand(not absorbed or value.to is value.from_, lambda: f"H5: {value.from_} moved")
        entered = value.to is host_states.HostState.ACTIVATING
        demand(not (entered and model.halted and not value.late), lambda: "R9: a switch")
        host.state = value.to
        taken_back = (
            value.to is host_states.HostState.PENDING and value.from_ not in host_states.ENDED
        )
        if taken_back and host.wave in model.passed and not host.late:
            host.left |= self._is_skipped(value.rollout_id, host.wave)
        record = self.record(value.rollout_id, value.host_id)
        if record is not None and record.state is host_states.HostState.CONVERGED is value.to:
            self._check_converged(record)

    def _is_skipped(self, rollout_id: str, wave: int) -> bool:
        (row,) = self._store.get(rollout_rows.tally_key(rollout_id))
        return (
            row is not None
            and codec.decode(row.data, rollout_rows.RolloutTally).waves[wave].skipped
        )

    def record(self, rollout_id: str, host_id: str) -> host_rows.HostRecord | None:
        key = kernel_model.Key(
            host_rows.HOST_RECORDS.name, host_rows.record_id(rollout_id, host_id)
        )
        (row,) = self._store.get(key)
        return None if row is None else codec.decode(row.data, host_rows.HostRecord)

    def _check_converged(self, record: host_rows.HostRecord) -> None:
        demand(record.current_closure == record.target_closure, lambda: "H1: another closure")
        due, at = record.soak_due_at, record.converged_at
        completed = record.activation_completed_at
        demand(due is not None and at is not None and at >= due, lambda: "H1: the soak")
        demand(completed is not None and due is not None and due >= completed, lambda: "H9")
        soaked = completed is not None and due is not None
        seconds = (due - completed).total_seconds() if soaked and due and completed else -1
        demand(seconds == record.policy.soak_seconds, lambda: "D5: soak runs from activation")
        demand(record.topology_declared_at is not None, lambda: "H1: no topology")
        for probe in record.probes.values():
            passed = probe.status == "pass" and probe.last_pass_at is not None
            fresh = passed and completed is not None and probe.last_pass_at >= completed  # type: ignore[operator]
            demand(probe.mode != "enforce" or fresh, lambda: "H1, H6: a probe has not passed")

    def _learn_skip(self, value: host_facts.HostSkipped) -> None:
        model = self.rollouts[value.rollout_id]
        host = model.hosts.get(value.host_id)
        if host is None or value.state is None:
            model.gone[value.wave] += 1
            if host is not None:
                model.hosts.pop(value.host_id)
        else:
            host.left = True
        if value.reason == orders.WAIVED and not model.counted(
            host_states.HostState.FAILED, host_states.HostState.REVERTED
        ):
            model.halted = False  # the last failed host is waived

    def _learn_rollout(self, value: Struct) -> None:
        model = self.rollouts.get(getattr(value, "rollout_id", ""))
        match value:
            case rollout_facts.RolloutHalted() if model:
                model.halted = True
                self.words[model.channel, model.release] = rollout_states.Word.BAD
            case rollout_facts.RolloutConcluded() if model:
                self._passed.pop(value.rollout_id, None)  # overrides do not cover late hosts
                ended = model.state in (
                    rollout_states.RolloutState.TERMINAL,
                    rollout_states.RolloutState.SUPERSEDED,
                )
                demand(ended, lambda: f"OP-1: an outcome in {model.state}")
                demand(model.outcome is None, lambda: "OP-1: two outcomes")
                model.outcome = value.outcome
                if value.outcome in rollout_states.BAD:
                    self.words[model.channel, model.release] = rollout_states.Word.BAD
                elif value.outcome is rollout_states.Outcome.SUCCEEDED:
                    self.words[model.channel, model.release] = rollout_states.Word.GOOD
            case rollout_facts.OperatorClearance(mode=mode) if model:
                model.halted = mode is rollout_states.Clearance.WAIVE and model.halted
            case rollout_facts.WaveAdvanced(to_wave=wave) if model:
                demand(not model.halted, lambda: "R9: a wave while halted")
                demand(wave == model.wave + 1, lambda: "R4: the cursor moves by one")
                if value.forced:
                    model.passed |= set(range(wave))
                demand(model.unsettled(model.wave) == 0, lambda: "RO-12: a wave too early")
                lacks = model.lacks_converged(model.wave)
                demand(lacks == 0, lambda: f"RO-12: a wave that lacks {lacks} converged hosts")
                model.wave = wave
            case rollout_facts.WaveSkipped(wave=wave) if model:
                demand(not model.halted, lambda: "R9: a wave skipped while halted")
                model.passed.add(wave)
                for host_id, host in model.hosts.items():
                    record = self.record(value.rollout_id, host_id)
                    if host.wave == wave and not host.late and record is not None:
                        host.left |= record.cancelled_at is not None and not record.late
            case rollout_facts.RolloutTerminal() if model:
                model.terminals += 1
                demand(model.terminals == 1, lambda: "two RolloutTerminal")
            case rollout_facts.RolloutTransitioned() if model:
                demand(model.state is value.from_ or value.from_ is None, lambda: "R5")
                model.state = value.to
                self.entered.add(value.to)
                model.ever_terminal |= value.to is rollout_states.RolloutState.TERMINAL
                if value.to is rollout_states.RolloutState.FAILED:
                    model.halted = True
                if value.to in rollout_states.CLEARABLE:
                    self.words[model.channel, model.release] = rollout_states.Word.BAD
            case rollout_facts.SuccessorOpened():
                pass
            case rollout_facts.RetentionExpired() if model:
                pass


def _is_active(window: WindowSpec, at: datetime) -> bool:
    start = datetime.fromisoformat(window.start).replace(tzinfo=UTC)
    return start <= at < start + timedelta(seconds=window.duration_seconds)
