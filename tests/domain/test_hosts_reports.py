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
    Life,
    Quay,
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
    SkipHost,
    observe_host,
    report_event,
    skip_host,
)
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


def test_orders_a_host_with_its_record_its_queue_row_and_its_joining() -> None:
    quay = Quay()

    order, joined = quay.reserve("rack-1", wave=0)

    assert isinstance(order, DispatchReserved)
    assert order.budgets == (BudgetSlot("rack-1", 2),)
    assert joined == HostJoined(**NAMED, at=T0, wave=0)
    assert (quay.record.state, quay.record.budgets) == (HostState.PENDING, ("rack-1",))
    assert quay.order == HostOrder(HOST, ROLLOUT, 1)
    assert quay.row(dispatch_key(HOST, ROLLOUT, 1)) == QueuedDispatch(
        **NAMED,
        attempt=1,
        channel="web-stable",
        target_closure=NEW,
        wave=0,
        policy=HostPolicy(),
        enqueued_at=T0,
    )
    assert quay.reserve("rack-1", wave=0) == []  # a repeat


def test_orders_one_thing_at_a_time() -> None:
    quay = Quay()
    quay.reserve()

    with pytest.raises(HostBusy) as refused:
        quay.reserve(attempt=2)

    assert refused.value.facts == {"host_id": HOST, "rollout_id": ROLLOUT}


def test_tries_a_host_again_after_it_went_back() -> None:
    quay = Quay()
    quay.reserve("rack-1")
    quay.acknowledge()
    quay.say(ActivationFailed, exit_code=1)
    quay.say(RollbackComplete, reverted_to_closure=OLD)
    quay.clock.advance(seconds(60))

    order, moved, joined = quay.reserve("rack-1", attempt=2)

    assert order.attempt == 2
    assert (moved.from_, moved.to) == (HostState.REVERTED, HostState.PENDING)
    assert joined == HostJoined(**NAMED, at=quay.clock(), wave=0, attempt=2)
    assert quay.record.last_event_seq == 3
    assert quay.order == HostOrder(HOST, ROLLOUT, 2)
    assert differences(quay.store, quay.folds) == []


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
def test_orders_nothing_in_a_rollout_that_does_not_go_on(changes: Any, refusal: Any) -> None:
    quay = Quay(**changes)

    with pytest.raises(refusal):
        quay.reserve()

    assert quay.types() == ["TallySet"]


def test_orders_nothing_beyond_the_wave_or_in_quarantine_or_nowhere() -> None:
    quay = Quay(current_wave=1)
    with pytest.raises(WaveNotReached):
        quay.reserve(wave=2)
    with pytest.raises(RolloutUnknown):
        quay.reserve(rollout_id="web-stable@web.9")
    with pytest.raises(InvalidInput):
        quay.reserve(rollout_id="web stable")

    quay.quarantine()

    with pytest.raises(ClosureQuarantined):
        quay.reserve(wave=1)


def test_orders_late_hosts_once_the_plan_is_through() -> None:
    quay = Quay()
    with pytest.raises(RolloutNotDispatchable):
        quay.reserve(late=True)

    quay.rollout(**TERMINAL)
    order, joined = quay.reserve(late=True)

    assert order.late
    assert joined.late
    assert quay.acknowledge()[1].late


def test_takes_an_order_back_once_and_gives_a_later_one() -> None:
    quay = Quay()
    quay.reserve("rack-1")
    command = CancelDispatch(rollout_id=ROLLOUT, host_id=HOST, reason="superseded")

    cancelled, freed = quay.run(cancel_dispatch, command)

    assert isinstance(cancelled, DispatchCancelled)
    assert (freed.from_, freed.to) == (HostState.PENDING, HostState.PENDING)
    assert (freed.freed, freed.budgets, freed.left) == (True, ("rack-1",), False)
    assert quay.order is None
    assert quay.run(cancel_dispatch, command) == []
    with pytest.raises(OrderCancelled):
        quay.acknowledge()
    assert names(quay.reserve("rack-1", attempt=2)) == ["DispatchReserved", "HostJoined"]
    assert differences(quay.store, quay.folds) == []


def test_takes_no_order_back_that_was_acknowledged_or_never_given() -> None:
    quay = Quay()
    command = CancelDispatch(rollout_id=ROLLOUT, host_id=HOST, reason="halted")
    with pytest.raises(HostNotInRollout):
        quay.run(cancel_dispatch, command)
    quay.reserve()
    quay.acknowledge()

    with pytest.raises(IllegalTransition) as refused:
        quay.run(cancel_dispatch, command)

    assert refused.value.facts["state"] == "Activating"


def test_lets_no_fact_take_the_slots_of_a_known_attempt_again() -> None:
    """Should a rule ever slip: the fold itself refuses, before anything is written."""
    quay = Quay()
    (order, _) = quay.reserve("rack-1")

    with pytest.raises(OrderRepeated):
        quay.folds.of("DispatchReserved")[0].step(quay.record, order, T0)


# ── reports ───────────────────────────────────────────────────────────────────────────────────────


def test_writes_a_report_then_what_the_rollout_hears_of_it() -> None:
    quay = Quay()
    quay.reserve("rack-1")

    ack = quay.acknowledge()
    quay.say(ActivationCompleted, observed_current_closure=NEW)
    topology = quay.say(ProbeTopologyDeclared, probes=(HTTP, DISK))
    result = quay.say(ProbeResult, probe_name="http", mode=ENFORCE, status=PASS)
    converged = quay.say(Converged, current_closure=NEW)

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
    assert quay.order is None
    assert differences(quay.store, quay.folds) == []


def test_answers_a_repeat_as_if_it_were_new_and_writes_nothing() -> None:
    quay = Quay()
    quay.reserve()
    (ack, _) = quay.acknowledge()
    quay.say(ActivationCompleted, observed_current_closure=NEW)
    quay.rollout(halted_at=T0)
    before = quay.types()

    assert quay.report(ack) == []

    assert quay.types() == before


def test_tells_the_number_that_is_missing() -> None:
    quay = Quay()
    quay.reserve()
    event = DispatchAck(**NAMED, at=T0, seq=3, target_closure=NEW, current_closure_at_dispatch=OLD)

    with pytest.raises(SequenceGap) as gap:
        quay.report(event)

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
def test_starts_no_switch_in_a_rollout_that_does_not_go_on(
    changes: Any, refusal: Any, code: str
) -> None:
    quay = Quay()
    quay.reserve()
    quay.rollout(**changes)

    with pytest.raises(refusal) as refused:
        quay.acknowledge()

    assert refused.value.code == code
    assert quay.record.state is HostState.PENDING


def test_starts_no_switch_to_a_quarantined_closure_or_beyond_the_wave() -> None:
    quay = Quay(current_wave=1)
    quay.reserve(wave=1)
    quay.rollout(current_wave=0)
    with pytest.raises(WaveNotReached):
        quay.acknowledge()
    quay.rollout(current_wave=1)
    quay.quarantine()

    with pytest.raises(ClosureQuarantined):
        quay.acknowledge()

    with pytest.raises(WrongClosure):  # nobody gets round it by another name
        quay.say(DispatchAck, target_closure="sha256:x", current_closure_at_dispatch=OLD)


@pytest.mark.parametrize("changes", [SUPERSEDED, {"halted_at": T0}, {"paused_at": T0}])
def test_records_what_happened_whatever_became_of_the_rollout(changes: Any) -> None:
    quay = Quay()
    quay.reserve()
    quay.acknowledge()

    quay.rollout(**changes)
    quay.say(ActivationFailed, exit_code=1)
    back, _ = quay.say(RollbackComplete, reverted_to_closure=OLD)

    assert (back.channel, back.target_closure) == ("web-stable", NEW)
    assert quay.record.state is HostState.REVERTED


def failed_by_probe(quay: Quay) -> None:
    quay.soak(budgets=(BudgetSlot("rack-1", 1),))
    quay.say(ProbeResult, probe_name="http", mode=ENFORCE, status=FAIL)
    quay.clock.advance(seconds(120))
    quay.say(Failed, **Life().failing("http"))


def test_lets_a_failure_that_is_allowed_for_go_back_and_holds_nobody_up_by_it() -> None:
    quay = Quay()
    failed_by_probe(quay)

    _, moved = quay.tolerate()

    assert (moved.from_, moved.to, moved.left) == (HostState.FAILED, HostState.FAILED, True)
    assert (moved.cleared_probes, quay.open_failure()) == (("http",), None)
    assert (moved.freed, quay.order) == (False, HostOrder(HOST, ROLLOUT, 1))

    back, moved = quay.say(RollbackComplete, reverted_to_closure=OLD)

    assert (back.channel, back.target_closure) == ("", "")  # it quarantines nothing
    assert (moved.left, moved.freed, moved.budgets) == (True, True, ("rack-1",))
    assert quay.order is None
    assert differences(quay.store, quay.folds) == []


def test_quarantines_nothing_by_the_silence_of_a_host_that_left() -> None:
    quay = Quay()
    failed_by_probe(quay)
    quay.tolerate()
    due_at = quay.record.due_at
    assert due_at is not None
    quay.clock.advance(due_at - quay.clock())

    expired, moved = quay.run(expire_deadline, ExpireDeadline(**NAMED, due_at=due_at))

    assert (expired.channel, expired.target_closure) == ("", "")
    assert (moved.left, moved.freed, moved.rollback_failed) == (True, True, True)


def test_takes_a_host_that_left_back_when_the_plan_is_through() -> None:
    quay = Quay()
    quay.reserve()
    quay.acknowledge()
    quay.say(ActivationDeferred, component="kernel")
    skip(quay)
    with pytest.raises(RolloutNotDispatchable):
        quay.reserve(attempt=2)

    quay.rollout(**TERMINAL)
    order, moved, joined = quay.reserve(attempt=2)

    assert (order.late, joined.late) == (True, True)
    assert (moved.from_, moved.to) == (HostState.DEFERRED, HostState.PENDING)
    assert (moved.left, moved.late) == (True, False)  # it was out of its wave's count
    assert quay.acknowledge()[1].late
    assert differences(quay.store, quay.folds) == []


def test_hears_nothing_of_unknown_rollouts_and_hosts() -> None:
    quay = Quay()
    event = ActivationFailed(**NAMED, at=T0, seq=1, exit_code=1)
    with pytest.raises(HostNotInRollout):
        quay.report(event)

    with pytest.raises(RolloutUnknown):
        quay.report(ActivationFailed(rollout_id="a@b.1", host_id=HOST, at=T0, seq=1, exit_code=1))


def test_hears_of_a_host_only_from_itself() -> None:
    quay = Quay()
    event = ActivationFailed(**NAMED, at=T0, seq=1, exit_code=1)

    with pytest.raises(InvalidInput, match="web-02"):
        quay.run(report_event, ReportEvent(rollout_id=ROLLOUT, host_id="web-02", event=event))


@pytest.mark.req("RO-19", **PURE)
@pytest.mark.parametrize(
    "kind",
    ["RolloutTerminal", "HostStateChanged", "DispatchReserved", "DeadlineExpired", "", None, 7],
)
def test_reads_no_event_that_is_not_an_agent_s(kind: Any) -> None:
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
def test_records_no_event_of_an_agent_that_is_ours_to_say(event: Any) -> None:
    quay = Quay()
    quay.reserve()
    before = quay.types()

    with pytest.raises(InvalidInput):
        quay.run(report_event, ReportEvent(rollout_id=ROLLOUT, host_id=HOST, event=event))

    assert quay.types() == before


def test_bounds_what_agents_may_write() -> None:
    quay = Quay()
    quay.reserve()
    quay.acknowledge()

    with pytest.raises(LimitExceeded):
        quay.say(ActivationFailed, exit_code=1, stderr_tail="x" * (STDERR_BYTES_MAX + 1))
    quay.say(ActivationFailed, exit_code=1, stderr_tail="x" * STDERR_BYTES_MAX)


def test_costs_no_more_than_one_report_may() -> None:
    """The dearest one: every enforced probe fails, and then the host goes back."""
    probes = tuple(ProbeDeclared(f"p{n}", "tcp", ENFORCE) for n in range(PROBES_MAX))
    quay = Quay()
    quay.reserve("a", "b", "c", "d", policy=HostPolicy(sustained_failure_seconds=0))
    quay.acknowledge()
    quay.say(ActivationCompleted, observed_current_closure=NEW)
    quay.say(ProbeTopologyDeclared, probes=probes)
    for probe in probes:
        quay.say(ProbeResult, probe_name=probe.probe_name, mode=ENFORCE, status=FAIL)
    quay.say(Failed, **Life(sustained_failure_seconds=0).failing("p0"))

    quay.say(RollbackComplete, reverted_to_closure=OLD)

    costs = [quay.store.schema.cost(commit) for commit in quay.desk.commits]
    assert max(costs) == costs[-1] <= COST_MAX / 2  # the rollout's own rows come on top
    assert differences(quay.store, quay.folds) == []


def test_records_reports_through_the_rollout_s_lane() -> None:
    quay = Quay()
    quay.reserve()
    lanes = quay.lanes()
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
    assert quay.record.state is HostState.CONVERGED
    assert differences(quay.store, quay.folds) == []


# ── what is seen without a report ─────────────────────────────────────────────────────────────────


def observed(quay: Quay, closure: str) -> list[Any]:
    command = ObserveHost(rollout_id=ROLLOUT, host_id=HOST, current_closure=closure)
    return quay.run(observe_host, command)


def converged(quay: Quay) -> None:
    quay.soak()
    quay.say(ProbeResult, probe_name="http", mode=ENFORCE, status=PASS)
    quay.say(Converged, current_closure=NEW)


def test_makes_nothing_of_heartbeats_that_say_what_is_known() -> None:
    quay = Quay()
    assert observed(quay, NEW) == []
    quay.reserve()
    quay.acknowledge()
    assert observed(quay, OLD) == []
    quay.say(ActivationCompleted, observed_current_closure=NEW)
    assert observed(quay, NEW) == []


def test_alerts_once_when_a_converged_host_runs_something_else() -> None:
    quay = Quay()
    converged(quay)
    quay.rollout(**TERMINAL)
    assert observed(quay, NEW) == []

    (regressed,) = observed(quay, OLD)

    assert (regressed.reason, regressed.observed_current_closure) == ("drift", OLD)
    assert quay.record.regressed_at == T0
    assert observed(quay, OLD) == []


def test_alerts_of_no_host_whose_channel_went_on() -> None:
    quay = Quay()
    converged(quay)
    quay.rollout(**SUPERSEDED)

    assert observed(quay, OLD) == []


def skip(quay: Quay, **changes: Any) -> list[Any]:
    said: dict[str, Any] = NAMED | {"wave": 0, "reason": "silent"}
    return quay.run(skip_host, SkipHost(**(said | changes)))


def test_goes_on_without_a_host_that_never_had_an_order() -> None:
    quay = Quay()

    (left,) = skip(quay)

    assert isinstance(left, HostSkipped)
    assert (left.state, left.channel, left.target_closure) == (None, "web-stable", NEW)
    assert skip(quay) == []
    quay.rollout(**TERMINAL)
    assert quay.reserve()[1].late  # it may come after all, and is counted apart


def test_says_of_a_host_without_its_order_that_it_was_out_already() -> None:
    quay = Quay()
    quay.reserve()
    quay.run(cancel_dispatch, CancelDispatch(rollout_id=ROLLOUT, host_id=HOST, reason="halted"))

    (left,) = skip(quay)

    assert left.state is None


def test_skips_nobody_who_is_under_way_or_failed_or_not_due() -> None:
    quay = Quay()
    with pytest.raises(WaveNotReached):
        skip(quay, wave=1)
    with pytest.raises(InvalidInput):
        skip(quay, reason="")
    quay.reserve(policy=HostPolicy(on_failure=OnFailure.HALT))
    quay.acknowledge()
    for event in ({"exit_code": 1}, None):
        with pytest.raises(IllegalTransition):
            skip(quay)
        if event is not None:
            quay.say(ActivationFailed, **event)
    assert expected_seq(quay.record) == 3
