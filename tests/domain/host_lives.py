"""The events of one host in one rollout, step by step, and a store to record them in.

``HostLife`` steps the machine alone. ``HostReports`` runs the slices on the memory engine; a test
sets its tally of the rollout, so hosts are tested without the machine of rollouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from msgspec import Struct

from tests.domain.sample_control import SampleControl
from tidegate.domain.channels.rows import CHANNELS, QUARANTINE, Quarantined, quarantine_key
from tidegate.domain.channels.stops import CHANNEL_STOPS
from tidegate.domain.fleet.rows import HOSTS as FLEET_HOSTS
from tidegate.domain.hosts import declarations as hosts, folds as host_folds
from tidegate.domain.hosts.effects import Effect
from tidegate.domain.hosts.facts import (
    ActivationCompleted,
    ActivationDeferred,
    ActivationFailed,
    ActivationStarted,
    AgentEvent,
    BudgetSlot,
    Converged,
    DeadlineExpired,
    DispatchAck,
    DispatchCancelled,
    DispatchReject,
    DispatchReserved,
    Failed,
    HostEvent,
    HostRegressed,
    HostSkipped,
    ProbeDeclared,
    ProbeFailureFirst,
    ProbeObservedFirst,
    ProbeResult,
    ProbeTopologyDeclared,
    RecoveryActivationAssumed,
    RollbackComplete,
    RollbackFailed,
)
from tidegate.domain.hosts.machine import expected_seq, step
from tidegate.domain.hosts.orders import counted_as
from tidegate.domain.hosts.rows import (
    HostOrder,
    HostRecord,
    Probe,
    ProbeFailure,
    order_key,
    probe_failure_id,
    record_key,
)
from tidegate.domain.hosts.states import Deadline, HostPolicy, OnFailure, ProbeMode, ProbeStatus
from tidegate.domain.hosts.transition_steps import deadline_of, prior_closure
from tidegate.domain.rollouts import order_slices, report_slices, skip_slices
from tidegate.domain.rollouts.order_slices import ReserveDispatch
from tidegate.domain.rollouts.report_slices import ReportEvent
from tidegate.domain.rollouts.rows import GATES, TALLIES, RolloutTally, tally_key
from tidegate.domain.rollouts.states import RolloutState
from tidegate.engines.memory import MemoryStore
from tidegate.kernel.folds import Fold, Folds
from tidegate.kernel.model import Key
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Schema
from tidegate.kernel.tags import Partition
from tidegate.kernel.vocabulary import Vocabulary, facts

T0 = datetime(2026, 5, 1, 6, tzinfo=UTC)
CHANNEL, ROLLOUT, HOST = "web-stable", "web-stable@web.2", "web-01"
NEW, OLD = "sha256:new", "sha256:old"
NAMED: dict[str, Any] = {"rollout_id": ROLLOUT, "host_id": HOST}
HTTP = ProbeDeclared("http", "http", ProbeMode.ENFORCE)
DISK = ProbeDeclared("disk", "exec", ProbeMode.OBSERVE)
LATER = ProbeDeclared("later", "tcp", ProbeMode.DISABLED)
PASS, FAIL = ProbeStatus.PASS, ProbeStatus.FAIL
ENFORCE, OBSERVE = ProbeMode.ENFORCE, ProbeMode.OBSERVE


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def reserved(at: datetime = T0, **changes: Any) -> DispatchReserved:
    said: dict[str, Any] = {"channel": CHANNEL, "target_closure": NEW, "wave": 0}
    return DispatchReserved(**(NAMED | said | {"policy": HostPolicy(), "at": at} | changes))


class HostLife:
    """A host record, the time, and all effects so far."""

    def __init__(self, **policy: Any) -> None:
        self.policy = HostPolicy(**policy)
        self.now = T0
        self.effects: list[Effect] = []
        self.current: HostRecord | None = None

    @property
    def record(self) -> HostRecord:
        assert self.current is not None
        return self.current

    def take(self, event: HostEvent) -> HostLife:
        self.current, effects = step(self.current, event, self.now)
        self.effects = list(effects)
        return self

    def wait(self, count: float) -> HostLife:
        self.now += seconds(count)
        return self

    def event(self, struct: type[Any], **members: Any) -> Any:
        """Build an event with the current time, and with the next number if it has one."""
        said: dict[str, Any] = NAMED | {"at": self.now}
        if "seq" in struct.__struct_fields__:
            said["seq"] = expected_seq(self.record)
        return struct(**(said | members))

    def say(self, struct: type[Any], **members: Any) -> HostLife:
        return self.take(self.event(struct, **members))

    # ── as lives go ──

    def ordered(self, **changes: Any) -> HostLife:
        return self.take(reserved(self.now, **({"policy": self.policy} | changes)))

    def acknowledged(self, prior: str = OLD) -> HostLife:
        if self.current is None:
            self.ordered()
        return self.say(DispatchAck, target_closure=NEW, current_closure_at_dispatch=prior)

    def soaking(self, *probes: ProbeDeclared, prior: str = OLD) -> HostLife:
        """Activate, and declare these probes. Without probes, stop before the declaration."""
        self.acknowledged(prior).say(ActivationStarted)
        self.say(ActivationCompleted, observed_current_closure=NEW)
        return self.say(ProbeTopologyDeclared, probes=probes) if probes else self

    def probe(self, status: ProbeStatus, name: str = "http", mode: ProbeMode = ENFORCE) -> HostLife:
        return self.say(ProbeResult, probe_name=name, mode=mode, status=status)

    def converged(self) -> HostLife:
        self.soaking(HTTP).probe(PASS).wait(self.policy.soak_seconds)
        return self.say(Converged, current_closure=NEW)

    def failed(self, prior: str = OLD) -> HostLife:
        """Fail by its probes: ``http`` has failed for long enough."""
        self.soaking(HTTP, prior=prior).probe(FAIL)
        self.wait(self.policy.sustained_failure_seconds)
        return self.say(Failed, **self.failing("http"))

    def failing(self, *names: str) -> dict[str, Any]:
        return {
            "sustained_duration_secs": self.policy.sustained_failure_seconds,
            "failing_probes": names,
            "policy_applied": self.policy.on_failure,
        }

    def reverted(self) -> HostLife:
        return self.failed().wait(1).say(RollbackComplete, reverted_to_closure=OLD)

    def silent(self) -> HostLife:
        """Stay silent until the deadline passes."""
        due, deadline = self.record.due_at, deadline_of(self.record)
        assert due is not None
        self.now = due
        return self.say(DeadlineExpired, deadline=deadline)


# ── one valid example of each event for a record, where there is one ──────────────────────────────


def examples(record: HostRecord, struct: type[Any], now: datetime) -> list[HostEvent]:
    """Return valid events of this type about this record: the right artifact, the next number."""
    said: dict[str, Any] = {
        "rollout_id": record.rollout_id,
        "host_id": record.host_id,
        "at": now,
    }
    if "seq" in struct.__struct_fields__:
        said["seq"] = expected_seq(record)
    return [struct(**(said | members)) for members in _MEMBERS[struct](record)]


def _one(**members: Any) -> Callable[[HostRecord], list[dict[str, Any]]]:
    return lambda record: [members]


def _orders(record: HostRecord) -> list[dict[str, Any]]:
    said = {"channel": record.channel, "target_closure": record.target_closure}
    again = said | {"wave": record.wave, "policy": record.policy}
    return [again | {"attempt": record.attempt + more} for more in (0, 1)]


def _failures(record: HostRecord) -> list[dict[str, Any]]:
    names = tuple(n for n, probe in record.probes.items() if probe.failing_since is not None)
    return [
        {
            "sustained_duration_secs": record.policy.sustained_failure_seconds,
            "failing_probes": names or ("http",),
            "policy_applied": record.policy.on_failure,
        }
    ]


def _of_probes(**members: Any) -> Callable[[HostRecord], list[dict[str, Any]]]:
    return lambda record: [
        {"probe_name": name, "mode": probe.mode, **members}
        for name, probe in (record.probes or {"http": Probe(ENFORCE)}).items()
        if probe.mode is not ProbeMode.DISABLED
    ]


_MEMBERS: dict[type[Any], Callable[[HostRecord], list[dict[str, Any]]]] = {
    DispatchReserved: _orders,
    DispatchCancelled: _one(reason="superseded"),
    DispatchAck: lambda record: [
        {"target_closure": record.target_closure, "current_closure_at_dispatch": OLD}
    ],
    DispatchReject: _one(reason="not verified"),
    ActivationStarted: _one(switch_method="link"),
    ActivationCompleted: lambda record: [{"observed_current_closure": record.target_closure}],
    ActivationFailed: _one(exit_code=-1, stderr_tail="no space left"),
    ActivationDeferred: _one(component="kernel"),
    ProbeTopologyDeclared: lambda record: [{"probes": (HTTP, DISK, LATER)}, {"probes": ()}],
    ProbeObservedFirst: _of_probes(),
    ProbeResult: lambda record: [
        *_of_probes(status=PASS)(record),
        *_of_probes(status=FAIL, failure_reason="503")(record),
    ],
    ProbeFailureFirst: _of_probes(),
    Failed: _failures,
    RollbackComplete: lambda record: [{"reverted_to_closure": prior_closure(record) or OLD}],
    RollbackFailed: _one(phase="switch", exit_code=1),
    Converged: lambda record: [{"current_closure": record.target_closure}],
    DeadlineExpired: lambda record: [{"deadline": deadline_of(record) or Deadline.ACK}],
    RecoveryActivationAssumed: lambda record: [{"observed_current_closure": record.target_closure}],
    HostRegressed: _one(reason="drift", observed_current_closure=OLD),
    HostSkipped: lambda record: [
        {"wave": record.wave, "state": counted_as(record), "reason": "silent"}
    ],
}


# ── a store to record it in ───────────────────────────────────────────────────────────────────────


class TallySet(Struct, frozen=True):
    """Sets the state of the rollout from now on."""

    rollout_id: Annotated[str, Partition()]
    tally: RolloutTally


class ClosureQuarantinedHere(Struct, frozen=True):
    """The artifact must no longer run on the channel."""

    channel_id: Annotated[str, Partition()]
    row: Quarantined


def _tally_step(row: Any, fact: TallySet, now: datetime) -> RolloutTally:
    return fact.tally


def _quarantine_step(row: Any, fact: ClosureQuarantinedHere, now: datetime) -> Quarantined:
    return fact.row


def _same(rows: Any, command: Struct, now: datetime) -> Sequence[Struct]:
    return (command,)


SET_TALLY = Slice(
    name="set-tally",
    command=TallySet,
    writes=(TallySet,),
    rows=lambda command: (tally_key(command.rollout_id),),
    decide=_same,
)
SET_QUARANTINE = Slice(
    name="set-quarantine",
    command=ClosureQuarantinedHere,
    writes=(ClosureQuarantinedHere,),
    rows=lambda command: (quarantine_key(command.row.channel, command.row.closure_hash),),
    decide=_same,
)
TOLERATE = Slice(
    name="tolerate",
    command=HostSkipped,
    writes=(HostSkipped,),
    rows=lambda command: (record_key(command.rollout_id, command.host_id),),
    decide=_same,
)
VOCABULARY = Vocabulary(
    (*hosts.FACTS, *facts("rollout_event", TallySet, ClosureQuarantinedHere)),
    (
        *hosts.SLICES,
        *report_slices.SLICES,
        *order_slices.SLICES,
        *skip_slices.SLICES,
        SET_TALLY,
        SET_QUARANTINE,
        TOLERATE,
    ),
)
SCHEMA = Schema(
    VOCABULARY,
    (*hosts.COLLECTIONS, TALLIES, GATES, QUARANTINE, CHANNELS, CHANNEL_STOPS, FLEET_HOSTS),
)
FOLDS = Folds(
    SCHEMA,
    (
        *hosts.FOLDS,
        Fold(TALLIES, 1, (TallySet,), lambda f: (f.rollout_id,), host_folds.nothing, _tally_step),
        Fold(
            QUARANTINE,
            1,
            (ClosureQuarantinedHere,),
            lambda f: (f"{f.row.channel}/{f.row.closure_hash}",),
            host_folds.nothing,
            _quarantine_step,
        ),
        Fold(GATES, 1, (), lambda f: (), host_folds.nothing, lambda row, f, now: row),
        Fold(CHANNELS, 1, (), lambda f: (), host_folds.nothing, lambda row, f, now: row),
        Fold(CHANNEL_STOPS, 1, (), lambda f: (), host_folds.nothing, lambda row, f, now: row),
        Fold(FLEET_HOSTS, 1, (), lambda f: (), host_folds.nothing, lambda row, f, now: row),
    ),
)


def tally(**changes: Any) -> RolloutTally:
    said: dict[str, Any] = {
        "rollout_id": ROLLOUT,
        "channel": CHANNEL,
        "target_ref": "web.2",
        "target_closure": NEW,
        "on_failure": OnFailure.ROLLBACK,
        "opened_at": T0,
        "retention_seconds": 60,
        "plan_digest": "sha256:plan",
        "state": RolloutState.ACTIVE,
    }
    return RolloutTally(**(said | changes))


class HostReports(SampleControl):
    """The slices of hosts on the memory engine, with a rollout whose state a test sets."""

    def __init__(self, **changes: Any) -> None:
        super().__init__(MemoryStore(SCHEMA), FOLDS)
        self.rollout(**changes)

    def rollout(self, **changes: Any) -> None:
        self.control.execute(SET_TALLY, TallySet(ROLLOUT, tally(**changes)))

    def quarantine(self, closure: str = NEW) -> None:
        row = Quarantined(
            channel=CHANNEL,
            closure_hash=closure,
            quarantined_at=T0,
            rollout_id="web-stable@web.1",
            host_id="web-09",
            reason="rolled back",
        )
        self.control.execute(SET_QUARANTINE, ClosureQuarantinedHere(CHANNEL, row))

    def reserve(self, *budgets: str, **changes: Any) -> list[Any]:
        said: dict[str, Any] = NAMED | {"target_closure": NEW, "wave": 0, "policy": HostPolicy()}
        slots = tuple(BudgetSlot(name, 2) for name in budgets)
        return self.run(
            order_slices.reserve_dispatch, ReserveDispatch(**(said | {"budgets": slots} | changes))
        )

    def report(self, event: AgentEvent) -> list[Any]:
        command = ReportEvent(rollout_id=event.rollout_id, host_id=event.host_id, event=event)
        return self.run(report_slices.report_event, command)

    def say(self, struct: type[Any], **members: Any) -> list[Any]:
        """Report the host's next event with the current time."""
        said: dict[str, Any] = NAMED | {"at": self.clock(), "seq": expected_seq(self.record)}
        return self.report(struct(**(said | members)))

    def acknowledge(self) -> list[Any]:
        return self.say(DispatchAck, target_closure=NEW, current_closure_at_dispatch=OLD)

    def soak(self, **changes: Any) -> None:
        """Order, acknowledge and activate, with ``http`` declared as enforced."""
        self.reserve(**changes)
        self.acknowledge()
        self.say(ActivationCompleted, observed_current_closure=NEW)
        self.say(ProbeTopologyDeclared, probes=(HTTP, DISK))

    def tolerate(self) -> list[Any]:
        """Let the rollout continue without the host although it failed."""
        record = self.record
        said: dict[str, Any] = NAMED | {"at": self.clock(), "reason": "tolerated failure"}
        return self.run(TOLERATE, HostSkipped(**said, wave=record.wave, state=record.state))

    def run(self, item: Slice, command: Struct) -> list[Any]:
        """Return the facts that the command wrote, including follow-ups."""
        before = len(self.events())
        self.control.execute(item, command)
        return [SCHEMA.vocabulary.value(event) for event in self.events()[before:]]

    @property
    def record(self) -> HostRecord:
        row = self.row(record_key(ROLLOUT, HOST))
        assert isinstance(row, HostRecord)
        return row

    @property
    def order(self) -> HostOrder | None:
        row = self.row(order_key(HOST))
        assert row is None or isinstance(row, HostOrder)
        return row

    def open_failure(self, name: str = "http") -> ProbeFailure | None:
        row = self.row(Key("probe_failures", probe_failure_id(ROLLOUT, HOST, name)))
        assert row is None or isinstance(row, ProbeFailure)
        return row
