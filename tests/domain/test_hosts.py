"""The host machine: every pair of state and event, then each guard."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from itertools import product
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from tests.domain.host_lives import (
    DISK,
    ENFORCE,
    FAIL,
    HOST,
    HTTP,
    LATER,
    NAMED,
    NEW,
    OBSERVE,
    OLD,
    PASS,
    ROLLOUT,
    T0,
    HostLife,
    examples,
    reserved,
    seconds,
)
from tidegate.domain.hosts.effects import (
    FireRollbackTo,
    FireSwitch,
    InsertQuarantine,
    QueueDispatch,
    RecordTransition,
    ResetProbeCache,
)
from tidegate.domain.hosts.facts import (
    ActivationCompleted,
    ActivationDeferred,
    ActivationFailed,
    ActivationStarted,
    AgentEvent,
    AgentFact,
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
from tidegate.domain.hosts.probes import PROBES_MAX, list_sustained
from tidegate.domain.hosts.refusals import (
    ClockSkew,
    EarlyConvergence,
    HostBusy,
    HostInvariant,
    HostNotInRollout,
    OrderCancelled,
    SequenceGap,
    SequenceRegression,
    UndeclaredProbe,
    UnsustainedFailure,
    WrongClosure,
)
from tidegate.domain.hosts.rows import HostRecord
from tidegate.domain.hosts.states import (
    ENDED,
    IN_FLIGHT,
    SETTLED,
    Deadline,
    HostPolicy,
    HostState,
    OnFailure,
)
from tidegate.domain.hosts.transition_steps import deadline_of
from tidegate.domain.hosts.transitions import TABLE
from tidegate.errors import Gone, IllegalTransition, InvalidInput, LimitExceeded, TidegateError

PURE = {"engines": None, "reason": "a pure function"}
HALT = {"on_failure": OnFailure.HALT}
EVENTS: tuple[type[Any], ...] = get_args(HostEvent)


def skipped(life: HostLife) -> HostLife:
    record = life.record
    return life.say(HostSkipped, wave=record.wave, state=record.state, reason="silent")


def deferred() -> HostLife:
    return HostLife().acknowledged().say(ActivationDeferred, component="kernel")


def assumed() -> HostLife:
    return HostLife().acknowledged().say(RecoveryActivationAssumed, observed_current_closure=NEW)


LIVES: dict[str, Callable[[], HostLife]] = {
    "ordered": lambda: HostLife().ordered(),
    "cancelled": lambda: HostLife().ordered().say(DispatchCancelled, reason="superseded"),
    "skipped before an order": lambda: HostLife().take(
        HostSkipped(**NAMED, at=T0, wave=0, state=None, reason="silent")
    ),
    "acknowledged": lambda: HostLife().acknowledged(),
    "started": lambda: HostLife().acknowledged().say(ActivationStarted),
    "deferred": deferred,
    "deferred, and left": lambda: skipped(deferred()),
    "activated": lambda: HostLife().soaking(),
    "assumed to be activated": assumed,
    "probed": lambda: HostLife().soaking(HTTP, DISK, LATER),
    "healthy": lambda: HostLife().soaking(HTTP).probe(PASS),
    "unhealthy": lambda: HostLife().soaking(HTTP).probe(FAIL),
    "converged": lambda: HostLife().converged(),
    "regressed": lambda: HostLife().converged().say(HostRegressed, reason="drift"),
    "failed, going back": lambda: HostLife().failed(),
    "failed for good": lambda: HostLife(**HALT).failed(),
    "failed, and not back in time": lambda: HostLife().failed().silent(),
    "rejected": lambda: HostLife().ordered().say(DispatchReject, reason="not verified"),
    "reverted": lambda: HostLife().reverted(),
    "reverted, and left": lambda: skipped(HostLife().reverted()),
}


def lives_in(state: HostState) -> list[HostLife]:
    return [life for make in LIVES.values() if (life := make()).record.state is state]


def outcomes(state: HostState, struct: type[Any]) -> list[HostState | TidegateError]:
    """Return the results of every valid event of the type on every host in the state."""
    found: list[HostState | TidegateError] = []
    for life in lives_in(state):
        now = life.record.due_at or life.now
        for event in examples(life.record, struct, now):
            try:
                found.append(step(life.record, event, now)[0].state)
            except TidegateError as error:
                found.append(error)
    return found


# ── every pair ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RO-23", **PURE)
def test_has_the_states_of_the_seed_and_deferred() -> None:
    seed = {"Pending", "Activating", "Soaking", "Converged", "Failed", "Reverted"}

    assert {state.value for state in HostState} == seed | {"Deferred"}
    assert {HostState.PENDING, HostState.ACTIVATING, HostState.SOAKING} == IN_FLIGHT
    assert {HostState.CONVERGED, HostState.DEFERRED} == SETTLED
    assert set(TABLE) == set(HostState)


@pytest.mark.req("RO-1", "RO-23", **PURE)
@pytest.mark.parametrize(
    ("state", "struct"),
    [*product(HostState, EVENTS)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_accepts_exactly_the_pairs_of_the_table(state: HostState, struct: type[Any]) -> None:
    found = outcomes(state, struct)

    reached = {outcome for outcome in found if isinstance(outcome, HostState)}
    assert found
    assert reached == TABLE[state].get(struct, frozenset())
    if struct not in TABLE[state]:
        for outcome in found:
            assert isinstance(outcome, IllegalTransition)
            assert outcome.facts == {"machine": "host", "state": state, "event": struct.__name__}


def test_lists_only_events_that_exist() -> None:
    assert {struct for row in TABLE.values() for struct in row} == set(EVENTS)


def test_accepts_no_report_of_an_agent_at_the_end() -> None:
    for state in ENDED:
        assert not set(TABLE[state]) & set(get_args(AgentEvent))


@pytest.mark.parametrize("struct", EVENTS, ids=lambda struct: struct.__name__)
def test_begins_with_an_order_or_leaves_without_one(struct: type[Any]) -> None:
    (event, *_) = examples(HostLife().ordered().record, struct, T0)

    if struct is DispatchReserved:
        assert step(None, event, T0)[0].state is HostState.PENDING
        return
    with pytest.raises(HostNotInRollout) as refused:
        step(None, event, T0)
    assert refused.value.facts == {"rollout_id": ROLLOUT, "host_id": HOST}


def test_refuses_an_event_of_another_host() -> None:
    life = HostLife().ordered()

    with pytest.raises(InvalidInput):
        life.take(reserved(host_id="web-02", attempt=2))


# ── orders ────────────────────────────────────────────────────────────────────────────────────────


def test_orders_a_host() -> None:
    slots = (BudgetSlot("rack-1", 3), BudgetSlot("eu", 9))

    life = HostLife(ack_seconds=30).ordered(budgets=slots, wave=2)

    record = life.record
    assert (record.state, record.wave, record.attempt) == (HostState.PENDING, 2, 1)
    assert (record.busy, record.budgets) == (True, ("rack-1", "eu"))
    assert record.due_at == T0 + seconds(30)
    assert life.effects == [QueueDispatch(HOST, ROLLOUT, 1)]


def test_the_same_attempt_never_restarts_a_host() -> None:
    for make in LIVES.values():
        life = make()
        known = life.record

        life.take(reserved(life.now, attempt=known.attempt, wave=7))

        assert life.record is known
        assert life.effects == []


@pytest.mark.parametrize("name", ["failed for good", "failed, and not back in time", "reverted"])
def test_a_later_attempt_restarts_a_host_and_continues_its_report_numbers(name: str) -> None:
    life = LIVES[name]().wait(5)
    before = life.record

    life.ordered(attempt=2)

    fresh, _ = step(None, reserved(life.now, attempt=2, policy=life.policy), life.now)
    assert life.record == replace(fresh, last_event_seq=before.last_event_seq)
    assert life.effects == [
        RecordTransition(HOST, ROLLOUT, before.state, HostState.PENDING, life.now),
        QueueDispatch(HOST, ROLLOUT, 2),
    ]


def test_restarts_a_host_only_when_it_has_rolled_back() -> None:
    life = HostLife().failed()

    with pytest.raises(HostBusy):
        life.ordered(attempt=2)
    with pytest.raises(HostBusy):  # its slots are free, but it rolls back too
        deferred().silent().ordered(attempt=2)

    assert life.say(RollbackComplete, reverted_to_closure=OLD).ordered(attempt=2).record.busy


@pytest.mark.parametrize("name", ["converged", "deferred"])
def test_does_not_restart_a_host_that_is_done(name: str) -> None:
    with pytest.raises(IllegalTransition):
        LIVES[name]().ordered(attempt=2)


def test_a_skipped_host_may_return_as_a_late_one() -> None:
    life = LIVES["deferred, and left"]().ordered(attempt=2)

    assert (life.record.state, life.record.late, life.record.left) == (
        HostState.PENDING,
        True,
        None,
    )


def test_cancels_an_order_and_frees_its_slots() -> None:
    life = HostLife().ordered(budgets=(BudgetSlot("rack-1", 1),)).wait(1)

    life.say(DispatchCancelled, reason="halted")

    record = life.record
    assert (record.state, record.cancelled_at) == (HostState.PENDING, life.now)
    assert (record.busy, record.budgets, record.due_at) == (False, (), None)
    assert deadline_of(record) is None


@pytest.mark.parametrize("struct", [DispatchAck, DispatchReject, DispatchCancelled])
def test_a_cancelled_order_cannot_be_acknowledged(struct: type[Any]) -> None:
    for name in ("cancelled", "skipped before an order"):
        record = LIVES[name]().record
        (event,) = examples(record, struct, T0)

        with pytest.raises(OrderCancelled) as refused:
            step(record, event, T0)

        assert isinstance(refused.value, Gone)


def test_refuses_a_policy_with_negative_times() -> None:
    with pytest.raises(InvalidInput, match="soak_seconds"):
        step(None, reserved(policy=HostPolicy(soak_seconds=-1)), T0)


# ── numbers and times of reports ──────────────────────────────────────────────────────────────────


REPORTS = get_args(AgentEvent)


@pytest.mark.parametrize("name", LIVES)
def test_refuses_a_number_that_is_known_or_not_next(name: str) -> None:
    record = LIVES[name]().record
    for struct in REPORTS:
        for event in examples(record, struct, T0):
            assert isinstance(event, AgentFact)
            for seq, refusal in ((event.seq - 1, SequenceRegression), (event.seq + 1, SequenceGap)):
                with pytest.raises(refusal) as refused:
                    step(record, replace(event, seq=seq), T0)
                assert refused.value.facts["expected"] == expected_seq(record)
                assert refused.value.facts["state"] == record.state


def test_counts_an_accepted_report_and_no_refused_one() -> None:
    life = HostLife().acknowledged()
    assert life.record.last_event_seq == 1

    with pytest.raises(WrongClosure):
        life.say(ActivationCompleted, observed_current_closure=OLD)

    assert expected_seq(life.record) == 2
    assert life.say(ActivationCompleted, observed_current_closure=NEW).record.last_event_seq == 2


def test_refuses_times_of_the_future_and_keeps_others_as_they_were_sent() -> None:
    life = HostLife().ordered()
    said = {"target_closure": NEW, "current_closure_at_dispatch": OLD}

    with pytest.raises(ClockSkew):
        life.say(DispatchAck, at=T0 + seconds(60.000001), **said)
    life.say(DispatchAck, at=T0 + seconds(60), **said)
    life.say(ActivationCompleted, at=T0 - seconds(3600), observed_current_closure=NEW)

    assert life.record.dispatch_acked_at == T0 + seconds(60)
    assert life.record.activation_completed_at == T0 - seconds(3600)


# ── activation ────────────────────────────────────────────────────────────────────────────────────


def test_switches_after_the_order_is_acknowledged() -> None:
    life = HostLife().acknowledged()

    assert life.record.current_closure_at_dispatch == OLD
    assert life.effects == [
        RecordTransition(HOST, ROLLOUT, HostState.PENDING, HostState.ACTIVATING, T0),
        FireSwitch(NEW),
    ]


def test_refuses_another_artifact_than_the_ordered_one() -> None:
    ordered = HostLife().ordered()
    with pytest.raises(WrongClosure) as refused:
        ordered.say(DispatchAck, target_closure="sha256:x", current_closure_at_dispatch=OLD)
    assert refused.value.facts == {"state": "Pending", "found": "sha256:x", "expected": NEW}

    for life, struct, member in (
        (HostLife().acknowledged(), ActivationCompleted, "observed_current_closure"),
        (HostLife().acknowledged(), RecoveryActivationAssumed, "observed_current_closure"),
        (HostLife().soaking(HTTP).probe(PASS), Converged, "current_closure"),
        (HostLife().failed(), RollbackComplete, "reverted_to_closure"),
    ):
        with pytest.raises(WrongClosure):
            life.say(struct, **{member: "sha256:x"})


def test_only_exit_code_zero_is_a_success() -> None:
    with pytest.raises(HostInvariant):
        HostLife().acknowledged().say(
            ActivationCompleted, observed_current_closure=NEW, exit_code=1
        )
    with pytest.raises(HostInvariant):
        HostLife().failed().say(RollbackComplete, reverted_to_closure=OLD, exit_code=1)


def test_the_soak_of_a_deferred_host_begins_at_its_reboot() -> None:
    life = deferred()
    life.policy = life.record.policy
    assert (life.record.busy, life.record.soak_due_at) == (False, None)

    life.wait(86_400).say(ActivationCompleted, observed_current_closure=NEW)

    assert life.record.state is HostState.SOAKING
    assert life.record.activation_completed_at == T0 + seconds(86_400)


def test_accepts_the_agents_report_after_an_assumed_activation() -> None:
    life = assumed().wait(10)
    assert life.record.last_event_seq == 1  # an assumption takes no number of the agent's

    life.say(ActivationStarted).say(ActivationDeferred, component="kernel")
    life.say(ActivationCompleted, observed_current_closure=NEW)

    assert life.record.activation_completed_at == T0 + seconds(10)
    assert not life.record.activation_assumed
    assert life.effects == [ResetProbeCache()]
    with pytest.raises(IllegalTransition):
        life.say(ActivationCompleted, observed_current_closure=NEW)


def test_refuses_an_activation_once_its_probes_are_declared() -> None:
    life = assumed().say(ProbeTopologyDeclared, probes=(HTTP,))

    for struct in (ActivationStarted, ActivationCompleted, ActivationFailed, ActivationDeferred):
        (event,) = examples(life.record, struct, life.now)
        with pytest.raises(IllegalTransition):
            life.take(event)


# ── probes, soak, convergence ─────────────────────────────────────────────────────────────────────


@pytest.mark.req("RO-12", **PURE)
def test_converges_after_the_soak_with_every_enforced_probe_passing() -> None:
    life = HostLife(soak_seconds=300).soaking(HTTP, DISK, LATER).wait(10).probe(PASS).wait(289)
    life.probe(FAIL, "disk", OBSERVE)

    with pytest.raises(EarlyConvergence) as early:
        life.say(Converged, current_closure=NEW)
    life.wait(1).say(Converged, current_closure=NEW)

    assert early.value.facts["missing"] == (
        f"the soak is over at {(T0 + seconds(300)).isoformat()}",
    )
    record = life.record
    assert (record.state, record.converged_at) == (HostState.CONVERGED, life.now)
    assert (record.busy, record.due_at, record.current_closure) == (False, None, NEW)
    assert life.effects == [
        RecordTransition(HOST, ROLLOUT, HostState.SOAKING, HostState.CONVERGED, life.now)
    ]


@pytest.mark.req("RO-12", **PURE)
def test_lists_everything_that_convergence_still_lacks() -> None:
    life = HostLife(soak_seconds=9).soaking(HTTP, replace(HTTP, probe_name="tcp")).probe(FAIL)

    with pytest.raises(EarlyConvergence) as early:
        life.say(Converged, current_closure=NEW)

    assert early.value.facts["state"] == "Soaking"
    assert early.value.facts["missing"] == (
        f"the soak is over at {(T0 + seconds(9)).isoformat()}",
        "no pass of probe http",
        "no pass of probe tcp",
    )


def test_converges_without_probes_once_it_declared_none() -> None:
    life = HostLife().soaking()
    with pytest.raises(EarlyConvergence):
        life.say(Converged, current_closure=NEW)

    life.say(ProbeTopologyDeclared, probes=()).say(Converged, current_closure=NEW)

    assert life.record.state is HostState.CONVERGED


@pytest.mark.parametrize(
    ("name", "mode", "said"),
    [
        ("tcp", ENFORCE, "is not declared"),
        ("later", LATER.mode, "is disabled"),
        ("http", OBSERVE, "is declared as enforce, not observe"),
        ("disk", ENFORCE, "is declared as observe, not enforce"),
    ],
)
def test_accepts_results_of_declared_probes_only(name: str, mode: Any, said: str) -> None:
    life = HostLife().soaking(HTTP, DISK, LATER)

    for struct, more in (
        (ProbeResult, {"status": PASS}),
        (ProbeObservedFirst, {}),
        (ProbeFailureFirst, {}),
    ):
        with pytest.raises(UndeclaredProbe, match=said) as refused:
            life.say(struct, probe_name=name, mode=mode, **more)
        assert refused.value.facts["probe_name"] == name


def test_declares_probes_once_distinct_and_not_too_many() -> None:
    life = HostLife().soaking()
    many = tuple(ProbeDeclared(f"p{n}", "tcp", ENFORCE) for n in range(PROBES_MAX + 1))

    with pytest.raises(LimitExceeded):
        life.say(ProbeTopologyDeclared, probes=many)
    with pytest.raises(InvalidInput, match="twice"):
        life.say(ProbeTopologyDeclared, probes=(HTTP, HTTP))
    with pytest.raises(InvalidInput):
        life.say(ProbeTopologyDeclared, probes=(ProbeDeclared("", "tcp", ENFORCE),))
    life.say(ProbeTopologyDeclared, probes=many[1:])
    with pytest.raises(HostInvariant, match="declared already"):
        life.say(ProbeTopologyDeclared, probes=())


def test_stamps_each_first_observation_once() -> None:
    life = HostLife().soaking(HTTP)

    for wait in (1, 2):
        life.wait(wait).say(ProbeObservedFirst, probe_name="http", mode=ENFORCE)
        life.say(ProbeFailureFirst, probe_name="http", mode=ENFORCE)

    assert life.record.probe_observed_first_at == T0 + seconds(1)
    assert life.record.probe_failure_first_at == T0 + seconds(1)


@pytest.mark.parametrize(
    "named",
    [(), ("http", "disk"), ("tcp",), ("disk",)],
    ids=lambda named: ",".join(named) or "none",
)
def test_fails_by_probes_that_are_enforced_and_fail(named: tuple[str, ...]) -> None:
    life = HostLife().soaking(HTTP, DISK).probe(FAIL).probe(FAIL, "disk", OBSERVE).wait(500)

    with pytest.raises(UnsustainedFailure):
        life.say(Failed, **life.failing(*named))


def test_fails_only_by_its_own_policy() -> None:
    life = HostLife().soaking(HTTP).probe(FAIL).wait(500)

    with pytest.raises(HostInvariant):
        life.say(Failed, **(life.failing("http") | {"policy_applied": OnFailure.HALT}))


# ── failure and rollback ──────────────────────────────────────────────────────────────────────────


FAILURES: dict[str, Callable[[HostLife], HostLife]] = {
    "probes": lambda life: life.failed(),
    "activation": lambda life: life.acknowledged().say(ActivationFailed, exit_code=-3),
    "topology": lambda life: life.soaking().silent(),
    "convergence": lambda life: life.soaking(HTTP).silent(),
    "deferral": lambda life: life.acknowledged().say(ActivationDeferred, component="init").silent(),
}


@pytest.mark.parametrize("why", FAILURES)
def test_rolls_back_to_the_artifact_that_ran_before(why: str) -> None:
    life = FAILURES[why](HostLife(rollback_seconds=40))

    record = life.record
    assert (record.state, record.failure) == (HostState.FAILED, why)
    assert (record.failed_at, record.policy_applied) == (life.now, OnFailure.ROLLBACK)
    assert (record.due_at, record.rollback_failed) == (life.now + seconds(40), False)
    assert life.effects[1:] == [FireRollbackTo(OLD)]

    life.wait(3).say(RollbackComplete, reverted_to_closure=OLD)

    record = life.record
    assert (record.state, record.reverted_at) == (HostState.REVERTED, life.now)
    assert record.reverted_to == record.current_closure == OLD
    assert (record.busy, record.due_at) == (False, None)
    quarantines = [] if why == "deferral" else [InsertQuarantine("web-stable", NEW)]
    assert life.effects == [
        *quarantines,  # not if it only missed the deadline of its reboot
        RecordTransition(HOST, ROLLOUT, HostState.FAILED, HostState.REVERTED, life.now),
    ]


@pytest.mark.parametrize("why", FAILURES)
def test_does_not_roll_back_under_halt(why: str) -> None:
    life = FAILURES[why](HostLife(**HALT))

    record = life.record
    assert (record.state, record.policy_applied) == (HostState.FAILED, OnFailure.HALT)
    assert (record.busy, record.due_at, record.rollback_failed) == (False, None, False)
    assert [type(effect) for effect in life.effects] == [RecordTransition]
    for struct in (RollbackComplete, RollbackFailed, DeadlineExpired):
        (event,) = examples(record, struct, life.now)
        with pytest.raises(HostInvariant):
            life.take(event)


@pytest.mark.parametrize("prior", ["", NEW], ids=["nothing", "the target"])
def test_cannot_roll_back_without_an_earlier_artifact(prior: str) -> None:
    life = HostLife().failed(prior=prior)

    record = life.record
    assert (record.rollback_failed, record.busy, record.due_at) == (True, False, None)
    assert [type(effect) for effect in life.effects] == [RecordTransition]


def test_needs_no_rollback_when_it_rejects_the_order() -> None:
    life = LIVES["rejected"]()

    assert (life.record.failure, life.record.rollback_failed) == ("rejected", True)
    assert life.record.busy is False
    assert [type(effect) for effect in life.effects] == [RecordTransition]


def test_reports_a_failed_rollback_and_may_still_roll_back_later() -> None:
    life = HostLife().failed().say(RollbackFailed, phase="switch", exit_code=4)
    still = RecordTransition(HOST, ROLLOUT, HostState.FAILED, HostState.FAILED, life.now)
    assert (life.record.state, life.record.rollback_failed) == (HostState.FAILED, True)
    assert (life.record.busy, life.record.due_at) == (False, None)
    assert life.effects == [InsertQuarantine("web-stable", NEW), still]

    life.say(RollbackFailed, phase="switch", exit_code=4)
    assert life.effects == [InsertQuarantine("web-stable", NEW)]  # reported once

    life.say(RollbackComplete, reverted_to_closure=OLD)
    assert (life.record.state, life.record.rollback_failed) == (HostState.REVERTED, False)


def test_a_tolerated_failure_quarantines_nothing() -> None:
    life = skipped(HostLife().failed())
    assert life.record.busy  # until it is back
    assert life.effects == [
        RecordTransition(HOST, ROLLOUT, HostState.FAILED, HostState.FAILED, life.now)
    ]

    life.say(RollbackComplete, reverted_to_closure=OLD)

    assert [type(effect) for effect in life.effects] == [RecordTransition]
    assert life.record.left == "skipped"


# ── silence and removal ───────────────────────────────────────────────────────────────────────────


def in_time(life: HostLife) -> tuple[Deadline | None, datetime | None]:
    return deadline_of(life.record), life.record.due_at


def test_every_state_has_its_deadline() -> None:
    times = {
        "soak_seconds": 50,
        "ack_seconds": 1,
        "activation_seconds": 2,
        "topology_seconds": 3,
        "convergence_seconds": 4,
        "rollback_seconds": 5,
        "deferral_seconds": 6,
        "sustained_failure_seconds": 0,
    }

    def life() -> HostLife:
        return HostLife(**times)

    assert in_time(life().ordered()) == (Deadline.ACK, T0 + seconds(1))
    assert in_time(life().acknowledged()) == (Deadline.ACTIVATION, T0 + seconds(2))
    assert in_time(life().soaking()) == (Deadline.TOPOLOGY, T0 + seconds(3))
    assert in_time(life().soaking(HTTP)) == (Deadline.CONVERGENCE, T0 + seconds(54))
    assert in_time(life().failed()) == (Deadline.ROLLBACK, T0 + seconds(5))
    late = life().acknowledged().say(ActivationDeferred, component="init")
    assert in_time(late) == (Deadline.DEFERRAL, T0 + seconds(6))
    assert in_time(life().converged()) == (None, None)
    assert in_time(life().reverted()) == (None, None)


def test_runs_deadlines_on_our_clock() -> None:
    life = HostLife(topology_seconds=10).acknowledged().wait(60)

    life.say(ActivationCompleted, at=T0 - seconds(9_000), observed_current_closure=NEW)

    assert life.record.due_at == life.now + seconds(10)


def test_an_order_that_was_not_fetched_does_not_fail_its_host() -> None:
    life = HostLife(ack_seconds=30).ordered().silent()

    assert (life.record.state, life.record.due_at) == (HostState.PENDING, T0 + seconds(60))
    assert life.effects == []


@pytest.mark.parametrize("name", ["ordered", "acknowledged", "activated", "probed", "deferred"])
def test_refuses_a_deadline_that_is_not_due(name: str) -> None:
    life = LIVES[name]()
    due, wanted = life.record.due_at, deadline_of(life.record)
    assert due is not None

    for deadline in Deadline:
        life.now = due - seconds(1) if deadline is wanted else due
        with pytest.raises(HostInvariant):
            life.say(DeadlineExpired, deadline=deadline)


@pytest.mark.parametrize(
    ("reason", "left"), [("silent since Monday", "skipped"), ("waived", "waived")]
)
def test_leaves_by_an_event_and_only_once(reason: str, left: str) -> None:
    life = HostLife().ordered(budgets=(BudgetSlot("rack-1", 1),))
    event = life.event(HostSkipped, wave=0, state=HostState.PENDING, reason=reason)

    life.take(event)

    record = life.record
    assert (record.left, record.busy, record.budgets, record.due_at) == (left, False, (), None)
    with pytest.raises(HostInvariant, match=left):
        life.take(event)


def test_leaves_as_what_it_is_counted_as() -> None:
    life = HostLife().ordered(wave=1)

    for members in (
        {"wave": 0, "state": HostState.PENDING},
        {"wave": 1, "state": HostState.FAILED},
        {"wave": 1, "state": None},
    ):
        with pytest.raises(HostInvariant):
            life.say(HostSkipped, reason="silent", **members)
    late = HostLife().ordered(late=True)
    with pytest.raises(HostInvariant, match="after the plan"):
        skipped(late)

    life.say(DispatchCancelled, reason="halted")
    life.say(HostSkipped, wave=1, state=None, reason="silent")
    assert life.record.left == "skipped"
    assert life.effects == []  # it was free already


def test_records_that_a_host_left_although_it_never_had_an_order() -> None:
    life = LIVES["skipped before an order"]()

    assert (life.record.attempt, life.record.left, life.record.busy) == (0, "skipped", False)
    with pytest.raises(HostInvariant):
        skipped(life)
    assert life.ordered(attempt=1).record.late


def test_records_once_that_a_converged_host_regressed() -> None:
    life = HostLife().converged().wait(5).say(HostRegressed, reason="drift")

    assert (life.record.state, life.record.regressed_at) == (HostState.CONVERGED, life.now)
    assert life.effects == []
    with pytest.raises(HostInvariant):
        life.say(HostRegressed, reason="drift")


def test_names_the_probes_that_currently_fail_the_host() -> None:
    life = HostLife().soaking(HTTP, DISK).probe(FAIL).probe(FAIL, "disk", OBSERVE)

    assert list_sustained(life.record, T0 + seconds(119)) == ()
    assert list_sustained(life.record, T0 + seconds(120)) == ("http",)


def test_a_refusal_does_not_change_the_record() -> None:
    """Rows are values: the row that a refusal read is the row that remains."""
    for make in LIVES.values():
        record: HostRecord = make().record
        copy = replace(record, probes=dict(record.probes))
        for struct in EVENTS:
            for event in examples(record, struct, T0):
                with suppress(TidegateError):
                    step(record, event, T0)
        assert record == copy
