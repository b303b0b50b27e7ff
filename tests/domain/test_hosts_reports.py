"""Reports and orders, decided and folded: what is written, in which order, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.domain.host_lives import (
    DISK,
    ENFORCE,
    FAIL,
    HOST,
    HTTP,
    NAMED,
    NEW,
    OLD,
    PASS,
    ROLLOUT,
    T0,
    HostLife,
    HostReports,
    seconds,
)
from tidegate.domain.hosts.facts import (
    ActivationCompleted,
    ActivationDeferred,
    ActivationFailed,
    BudgetSlot,
    Converged,
    DispatchAck,
    DispatchCancelled,
    DispatchReserved,
    Failed,
    HostJoined,
    HostRegressed,
    HostSkipped,
    HostStateChanged,
    ProbeDeclared,
    ProbeResult,
    ProbeTopologyDeclared,
    RollbackComplete,
)
from tidegate.domain.hosts.machine import expected_seq
from tidegate.domain.hosts.probes import PROBES_MAX
from tidegate.domain.hosts.refusals import (
    ClosureQuarantined,
    HostBusy,
    HostNotInRollout,
    OrderCancelled,
    OrderRepeated,
    RolloutIsHalted,
    RolloutIsPaused,
    RolloutIsPruned,
    RolloutIsSuperseded,
    RolloutNotDispatchable,
    RolloutUnknown,
    SequenceGap,
    WaveNotReached,
    WrongClosure,
    WrongHost,
)
from tidegate.domain.hosts.report_json import KINDS, STDERR_BYTES_MAX, event_from_json
from tidegate.domain.hosts.rows import HostOrder, QueuedDispatch, dispatch_key
from tidegate.domain.hosts.slices import (
    CancelDispatch,
    ExpireDeadline,
    cancel_dispatch,
    expire_deadline,
)
from tidegate.domain.hosts.states import HostPolicy, HostState, OnFailure
from tidegate.domain.rollouts.facts import RolloutTerminal
from tidegate.domain.rollouts.report_slices import (
    ObserveHost,
    ReportEvent,
    observe_host,
    report_event,
)
from tidegate.domain.rollouts.skip_slices import SkipHost, skip_host
from tidegate.domain.rollouts.states import RolloutState
from tidegate.errors import IllegalTransition, InvalidInput, LimitExceeded
from tidegate.kernel.model import COST_MAX
from tidegate.kernel.replay import differences

PURE = {"engines": None, "reason": "decided before any engine is asked"}
SUPERSEDED = {"state": RolloutState.SUPERSEDED}
TERMINAL = {"state": RolloutState.TERMINAL, "terminal_at": T0}


def names(facts: list[Any]) -> list[str]:
    return [type(fact).__name__ for fact in facts]


# ── orders ────────────────────────────────────────────────────────────────────────────────────────


def test_orders_a_host_with_its_record_its_queue_row_and_its_place_in_the_rollout() -> None:
    host_reports = HostReports()

    order, joined = host_reports.reserve("rack-1", wave=0)

    assert isinstance(order, DispatchReserved)
    assert order.budgets == (BudgetSlot("rack-1", 2),)
    assert joined == HostJoined(**NAMED, at=T0, wave=0)
    assert (host_reports.record.state, host_reports.record.budgets) == (
        HostState.PENDING,
        ("rack-1",),
    )
    assert host_reports.order == HostOrder(HOST, ROLLOUT, 1)
    assert host_reports.row(dispatch_key(HOST, ROLLOUT, 1)) == QueuedDispatch(
        **NAMED,
        attempt=1,
        channel="web-stable",
        target_closure=NEW,
        wave=0,
        policy=HostPolicy(),
        enqueued_at=T0,
    )
    assert host_reports.reserve("rack-1", wave=0) == []  # a repeat


def test_gives_a_host_one_order_at_a_time() -> None:
    host_reports = HostReports()
    host_reports.reserve()

    with pytest.raises(HostBusy) as refused:
        host_reports.reserve(attempt=2)

    assert refused.value.facts == {"host_id": HOST, "rollout_id": ROLLOUT}


def test_retries_a_host_after_its_rollback() -> None:
    host_reports = HostReports()
    host_reports.reserve("rack-1")
    host_reports.acknowledge()
    host_reports.say(ActivationFailed, exit_code=1)
    host_reports.say(RollbackComplete, reverted_to_closure=OLD)
    host_reports.clock.advance(seconds(60))

    order, moved, joined = host_reports.reserve("rack-1", attempt=2)

    assert order.attempt == 2
    assert (moved.from_, moved.to) == (HostState.REVERTED, HostState.PENDING)
    assert joined == HostJoined(**NAMED, at=host_reports.clock(), wave=0, attempt=2)
    assert host_reports.record.last_event_seq == 3
    assert host_reports.order == HostOrder(HOST, ROLLOUT, 2)
    assert differences(host_reports.store, host_reports.folds) == []


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"state": RolloutState.PRUNED}, RolloutIsPruned),
        (SUPERSEDED, RolloutIsSuperseded),
        ({"halted_at": T0}, RolloutIsHalted),
        ({"paused_at": T0}, RolloutIsPaused),
        ({"state": RolloutState.REVERTED}, RolloutNotDispatchable),
        ({"state": RolloutState.FAILED}, RolloutNotDispatchable),
        (TERMINAL, RolloutNotDispatchable),
        ({"target_closure": "sha256:other"}, WrongClosure),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_orders_nothing_in_a_rollout_that_has_stopped(changes: Any, refusal: Any) -> None:
    host_reports = HostReports(**changes)

    with pytest.raises(refusal):
        host_reports.reserve()

    assert host_reports.types() == ["TallySet"]


def test_orders_nothing_for_a_later_wave_a_quarantine_or_an_unknown_rollout() -> None:
    host_reports = HostReports(current_wave=1)
    with pytest.raises(WaveNotReached):
        host_reports.reserve(wave=2)
    with pytest.raises(RolloutUnknown):
        host_reports.reserve(rollout_id="web-stable@web.9")
    with pytest.raises(InvalidInput):
        host_reports.reserve(rollout_id="web stable")

    host_reports.quarantine()

    with pytest.raises(ClosureQuarantined):
        host_reports.reserve(wave=1)


def test_orders_late_hosts_once_the_plan_is_complete() -> None:
    host_reports = HostReports()
    with pytest.raises(RolloutNotDispatchable):
        host_reports.reserve(late=True)

    host_reports.rollout(**TERMINAL)
    order, joined = host_reports.reserve(late=True)

    assert order.late
    assert joined.late
    assert host_reports.acknowledge()[1].late


def test_cancels_an_order_once_and_gives_a_later_one() -> None:
    host_reports = HostReports()
    host_reports.reserve("rack-1")
    command = CancelDispatch(rollout_id=ROLLOUT, host_id=HOST, reason="superseded")

    cancelled, freed = host_reports.run(cancel_dispatch, command)

    assert isinstance(cancelled, DispatchCancelled)
    assert (freed.from_, freed.to) == (HostState.PENDING, HostState.PENDING)
    assert (freed.freed, freed.budgets, freed.left) == (True, ("rack-1",), False)
    assert host_reports.order is None
    assert host_reports.run(cancel_dispatch, command) == []
    with pytest.raises(OrderCancelled):
        host_reports.acknowledge()
    assert names(host_reports.reserve("rack-1", attempt=2)) == ["DispatchReserved", "HostJoined"]
    assert differences(host_reports.store, host_reports.folds) == []


def test_does_not_cancel_an_order_that_was_acknowledged_or_never_given() -> None:
    host_reports = HostReports()
    command = CancelDispatch(rollout_id=ROLLOUT, host_id=HOST, reason="halted")
    with pytest.raises(HostNotInRollout):
        host_reports.run(cancel_dispatch, command)
    host_reports.reserve()
    host_reports.acknowledge()

    with pytest.raises(IllegalTransition) as refused:
        host_reports.run(cancel_dispatch, command)

    assert refused.value.facts["state"] == "Activating"


def test_no_fact_takes_the_slots_of_a_known_attempt_again() -> None:
    """If a rule ever failed, the fold itself refuses before anything is written."""
    host_reports = HostReports()
    (order, _) = host_reports.reserve("rack-1")

    with pytest.raises(OrderRepeated):
        host_reports.folds.of("DispatchReserved")[0].step(host_reports.record, order, T0)


# ── reports ───────────────────────────────────────────────────────────────────────────────────────


def test_writes_a_report_before_the_facts_of_the_rollout_that_follow() -> None:
    host_reports = HostReports()
    host_reports.reserve("rack-1")

    ack = host_reports.acknowledge()
    host_reports.say(ActivationCompleted, observed_current_closure=NEW)
    topology = host_reports.say(ProbeTopologyDeclared, probes=(HTTP, DISK))
    result = host_reports.say(ProbeResult, probe_name="http", mode=ENFORCE, status=PASS)
    converged = host_reports.say(Converged, current_closure=NEW)

    assert names(ack) == ["DispatchAck", "HostStateChanged"]
    assert (names(topology), names(result)) == (["ProbeTopologyDeclared"], ["ProbeResult"])
    assert converged[1:] == [
        HostStateChanged(
            **NAMED,
            at=T0,
            from_=HostState.SOAKING,
            to=HostState.CONVERGED,
            wave=0,
            freed=True,
            budgets=("rack-1",),
        )
    ]
    assert host_reports.order is None
    assert differences(host_reports.store, host_reports.folds) == []


def test_answers_a_repeat_as_if_it_were_new_and_writes_nothing() -> None:
    host_reports = HostReports()
    host_reports.reserve()
    (ack, _) = host_reports.acknowledge()
    host_reports.say(ActivationCompleted, observed_current_closure=NEW)
    host_reports.rollout(halted_at=T0)
    before = host_reports.types()

    assert host_reports.report(ack) == []

    assert host_reports.types() == before


def test_names_the_missing_report_number() -> None:
    host_reports = HostReports()
    host_reports.reserve()
    event = DispatchAck(**NAMED, at=T0, seq=3, target_closure=NEW, current_closure_at_dispatch=OLD)

    with pytest.raises(SequenceGap) as gap:
        host_reports.report(event)

    assert gap.value.facts == {"state": "Pending", "found": 3, "expected": 1}


@pytest.mark.parametrize(
    ("changes", "refusal", "code"),
    [
        (SUPERSEDED, RolloutIsSuperseded, "rollout_superseded"),
        (SUPERSEDED | {"halted_at": T0}, RolloutIsSuperseded, "rollout_superseded"),
        ({"halted_at": T0}, RolloutIsHalted, "rollout_halted"),
        ({"paused_at": T0}, RolloutIsPaused, "rollout_paused"),
        ({"state": RolloutState.FAILED}, RolloutNotDispatchable, "rollout_not_dispatchable"),
        ({"state": RolloutState.PRUNED}, RolloutIsPruned, "rollout_pruned"),
    ],
)
def test_starts_no_switch_in_a_rollout_that_has_stopped(
    changes: Any, refusal: Any, code: str
) -> None:
    host_reports = HostReports()
    host_reports.reserve()
    host_reports.rollout(**changes)

    with pytest.raises(refusal) as refused:
        host_reports.acknowledge()

    assert refused.value.code == code
    assert host_reports.record.state is HostState.PENDING


def test_starts_no_switch_to_a_quarantined_artifact_or_in_a_later_wave() -> None:
    host_reports = HostReports(current_wave=1)
    host_reports.reserve(wave=1)
    host_reports.rollout(current_wave=0)
    with pytest.raises(WaveNotReached):
        host_reports.acknowledge()
    host_reports.rollout(current_wave=1)
    host_reports.quarantine()

    with pytest.raises(ClosureQuarantined):
        host_reports.acknowledge()

    with pytest.raises(WrongClosure):  # another name does not get around it
        host_reports.say(DispatchAck, target_closure="sha256:x", current_closure_at_dispatch=OLD)


@pytest.mark.parametrize("changes", [SUPERSEDED, {"halted_at": T0}, {"paused_at": T0}])
def test_records_reports_in_every_state_of_the_rollout(changes: Any) -> None:
    host_reports = HostReports()
    host_reports.reserve()
    host_reports.acknowledge()

    host_reports.rollout(**changes)
    host_reports.say(ActivationFailed, exit_code=1)
    back, _ = host_reports.say(RollbackComplete, reverted_to_closure=OLD)

    assert (back.channel, back.target_closure) == ("web-stable", NEW)
    assert host_reports.record.state is HostState.REVERTED


def failed_by_probe(host_reports: HostReports) -> None:
    host_reports.soak(budgets=(BudgetSlot("rack-1", 1),))
    host_reports.say(ProbeResult, probe_name="http", mode=ENFORCE, status=FAIL)
    host_reports.clock.advance(seconds(120))
    host_reports.say(Failed, **HostLife().failing("http"))


def test_a_tolerated_failure_rolls_back_and_delays_no_other_host() -> None:
    host_reports = HostReports()
    failed_by_probe(host_reports)

    _, moved = host_reports.tolerate()

    assert (moved.from_, moved.to, moved.left) == (HostState.FAILED, HostState.FAILED, True)
    assert (moved.cleared_probes, host_reports.open_failure()) == (("http",), None)
    assert (moved.freed, host_reports.order) == (False, HostOrder(HOST, ROLLOUT, 1))

    back, moved = host_reports.say(RollbackComplete, reverted_to_closure=OLD)

    assert (back.channel, back.target_closure) == ("", "")  # it quarantines nothing
    assert (moved.left, moved.freed, moved.budgets) == (True, True, ("rack-1",))
    assert host_reports.order is None
    assert differences(host_reports.store, host_reports.folds) == []


def test_the_silence_of_a_skipped_host_quarantines_nothing() -> None:
    host_reports = HostReports()
    failed_by_probe(host_reports)
    host_reports.tolerate()
    due_at = host_reports.record.due_at
    assert due_at is not None
    host_reports.clock.advance(due_at - host_reports.clock())

    expired, moved = host_reports.run(expire_deadline, ExpireDeadline(**NAMED, due_at=due_at))

    assert (expired.channel, expired.target_closure) == ("", "")
    assert (moved.left, moved.freed, moved.rollback_failed) == (True, True, True)


def test_a_skipped_host_gets_an_order_when_the_plan_is_complete() -> None:
    host_reports = HostReports()
    host_reports.reserve()
    host_reports.acknowledge()
    host_reports.say(ActivationDeferred, component="kernel")
    skip(host_reports)
    with pytest.raises(RolloutNotDispatchable):
        host_reports.reserve(attempt=2)

    host_reports.rollout(**TERMINAL)
    order, moved, joined = host_reports.reserve(attempt=2)

    assert (order.late, joined.late) == (True, True)
    assert (moved.from_, moved.to) == (HostState.DEFERRED, HostState.PENDING)
    assert (moved.left, moved.late) == (True, False)  # it was removed from its wave's count
    assert host_reports.acknowledge()[1].late
    assert differences(host_reports.store, host_reports.folds) == []


def test_refuses_reports_of_unknown_rollouts_and_hosts() -> None:
    host_reports = HostReports()
    event = ActivationFailed(**NAMED, at=T0, seq=1, exit_code=1)
    with pytest.raises(HostNotInRollout):
        host_reports.report(event)

    with pytest.raises(RolloutUnknown):
        host_reports.report(
            ActivationFailed(rollout_id="a@b.1", host_id=HOST, at=T0, seq=1, exit_code=1)
        )


def test_a_host_may_report_only_about_itself() -> None:
    host_reports = HostReports()
    event = ActivationFailed(**NAMED, at=T0, seq=1, exit_code=1)

    with pytest.raises(WrongHost, match="web-02"):
        host_reports.run(
            report_event, ReportEvent(rollout_id=ROLLOUT, host_id="web-02", event=event)
        )


@pytest.mark.req("RO-19", **PURE)
@pytest.mark.parametrize(
    "kind",
    ["RolloutTerminal", "HostStateChanged", "DispatchReserved", "DeadlineExpired", "", None, 7],
)
def test_refuses_events_that_are_not_agent_events(kind: Any) -> None:
    said = {"rollout_id": ROLLOUT, "host_id": HOST, "at": "2026-05-01T06:00:00Z", "seq": 1}

    with pytest.raises(InvalidInput) as refused:
        event_from_json({"kind": kind, **said})

    assert all(known in refused.value.detail for known in KINDS)


@pytest.mark.req("RO-19", **PURE)
@pytest.mark.parametrize(
    "event",
    [
        RolloutTerminal(rollout_id=ROLLOUT, at=T0),
        HostRegressed(**NAMED, at=T0, reason="drift"),
        HostJoined(**NAMED, at=T0, wave=0),
    ],
    ids=lambda event: type(event).__name__,
)
def test_refuses_agent_events_that_only_the_control_plane_may_write(event: Any) -> None:
    host_reports = HostReports()
    host_reports.reserve()
    before = host_reports.types()

    with pytest.raises(InvalidInput):
        host_reports.run(report_event, ReportEvent(rollout_id=ROLLOUT, host_id=HOST, event=event))

    assert host_reports.types() == before


def test_limits_what_agents_may_write() -> None:
    host_reports = HostReports()
    host_reports.reserve()
    host_reports.acknowledge()

    with pytest.raises(LimitExceeded):
        host_reports.say(ActivationFailed, exit_code=1, stderr_tail="x" * (STDERR_BYTES_MAX + 1))
    host_reports.say(ActivationFailed, exit_code=1, stderr_tail="x" * STDERR_BYTES_MAX)


def test_the_largest_report_fits_into_a_commit() -> None:
    """The largest one: every enforced probe fails, and then the host rolls back."""
    probes = tuple(ProbeDeclared(f"p{n}", "tcp", ENFORCE) for n in range(PROBES_MAX))
    host_reports = HostReports()
    host_reports.reserve("a", "b", "c", "d", policy=HostPolicy(sustained_failure_seconds=0))
    host_reports.acknowledge()
    host_reports.say(ActivationCompleted, observed_current_closure=NEW)
    host_reports.say(ProbeTopologyDeclared, probes=probes)
    for probe in probes:
        host_reports.say(ProbeResult, probe_name=probe.probe_name, mode=ENFORCE, status=FAIL)
    host_reports.say(Failed, **HostLife(sustained_failure_seconds=0).failing("p0"))

    host_reports.say(RollbackComplete, reverted_to_closure=OLD)

    costs = [host_reports.store.schema.cost(commit) for commit in host_reports.committer.commits]
    assert max(costs) == costs[-1] <= COST_MAX / 2  # the rollout's own rows are added to this
    assert differences(host_reports.store, host_reports.folds) == []


def test_records_reports_through_the_rollout_s_lane() -> None:
    host_reports = HostReports()
    host_reports.reserve()
    lanes = host_reports.lanes()
    events: list[Any] = [
        DispatchAck(**NAMED, at=T0, seq=1, target_closure=NEW, current_closure_at_dispatch=OLD),
        ActivationCompleted(**NAMED, at=T0, seq=2, observed_current_closure=NEW),
        ActivationCompleted(**NAMED, at=T0, seq=2, observed_current_closure=NEW),
        Converged(**NAMED, at=T0, seq=3, current_closure=NEW),
        ProbeTopologyDeclared(**NAMED, at=T0, seq=3),
        Converged(**NAMED, at=T0, seq=4, current_closure=NEW),
    ]

    futures = [
        lanes.record(
            ROLLOUT, report_event, ReportEvent(rollout_id=ROLLOUT, host_id=HOST, event=event)
        )
        for event in events
    ]
    said = [type(future.exception(timeout=60)).__name__ for future in futures]
    lanes.close()

    assert said == ["NoneType", "NoneType", "NoneType", "EarlyConvergence", "NoneType", "NoneType"]
    assert host_reports.record.state is HostState.CONVERGED
    assert differences(host_reports.store, host_reports.folds) == []


# ── observations without a report ─────────────────────────────────────────────────────────────────


def observed(host_reports: HostReports, closure: str) -> list[Any]:
    command = ObserveHost(rollout_id=ROLLOUT, host_id=HOST, current_closure=closure)
    return host_reports.run(observe_host, command)


def converged(host_reports: HostReports) -> None:
    host_reports.soak()
    host_reports.say(ProbeResult, probe_name="http", mode=ENFORCE, status=PASS)
    host_reports.say(Converged, current_closure=NEW)


def test_a_heartbeat_without_news_writes_nothing() -> None:
    host_reports = HostReports()
    assert observed(host_reports, NEW) == []
    host_reports.reserve()
    host_reports.acknowledge()
    assert observed(host_reports, OLD) == []
    host_reports.say(ActivationCompleted, observed_current_closure=NEW)
    assert observed(host_reports, NEW) == []


def test_alerts_once_when_a_converged_host_runs_something_else() -> None:
    host_reports = HostReports()
    converged(host_reports)
    host_reports.rollout(**TERMINAL)
    assert observed(host_reports, NEW) == []

    (regressed,) = observed(host_reports, OLD)

    assert (regressed.reason, regressed.observed_current_closure) == ("drift", OLD)
    assert host_reports.record.regressed_at == T0
    assert observed(host_reports, OLD) == []


def test_does_not_alert_about_a_host_whose_channel_has_a_newer_rollout() -> None:
    host_reports = HostReports()
    converged(host_reports)
    host_reports.rollout(**SUPERSEDED)

    assert observed(host_reports, OLD) == []


def skip(host_reports: HostReports, **changes: Any) -> list[Any]:
    said: dict[str, Any] = NAMED | {"wave": 0, "reason": "silent"}
    return host_reports.run(skip_host, SkipHost(**(said | changes)))


def test_continues_without_a_host_that_never_had_an_order() -> None:
    host_reports = HostReports()

    (left,) = skip(host_reports)

    assert isinstance(left, HostSkipped)
    assert (left.state, left.channel, left.target_closure) == (None, "web-stable", NEW)
    assert skip(host_reports) == []
    host_reports.rollout(**TERMINAL)
    assert host_reports.reserve()[1].late  # it may still come, and is counted separately


def test_skipping_a_host_again_reports_that_it_was_already_skipped() -> None:
    host_reports = HostReports()
    host_reports.reserve()
    host_reports.run(
        cancel_dispatch, CancelDispatch(rollout_id=ROLLOUT, host_id=HOST, reason="halted")
    )

    (left,) = skip(host_reports)

    assert left.state is None


def test_skips_no_host_that_is_under_way_failed_or_not_due() -> None:
    host_reports = HostReports()
    with pytest.raises(WaveNotReached):
        skip(host_reports, wave=1)
    with pytest.raises(InvalidInput):
        skip(host_reports, reason="")
    host_reports.reserve(policy=HostPolicy(on_failure=OnFailure.HALT))
    host_reports.acknowledge()
    for event in ({"exit_code": 1}, None):
        with pytest.raises(IllegalTransition):
            skip(host_reports)
        if event is not None:
            host_reports.say(ActivationFailed, **event)
    assert expected_seq(host_reports.record) == 3
