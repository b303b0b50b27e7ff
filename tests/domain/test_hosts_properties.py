"""Invariants of a host under any events: H1 to H9 over random lives.

Most steps of a life are legal. Some repeat a report, skip one, come late or from the future, name
another artifact, or do not fit the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import Struct
from msgspec.structs import replace

from tests.domain.host_lives import NEW, OLD, T0, examples, reserved, seconds
from tests.quick import fewer
from tidegate.domain.hosts.effects import Effect, RecordTransition
from tidegate.domain.hosts.facts import (
    ActivationCompleted,
    AgentEvent,
    AgentFact,
    BudgetSlot,
    DeadlineExpired,
    DispatchAck,
    DispatchReserved,
    HostEvent,
    HostSkipped,
    HostStateChanged,
    RecoveryActivationAssumed,
)
from tidegate.domain.hosts.folds import ORDERS_FOLD, PROBE_FAILURES_FOLD, step_record
from tidegate.domain.hosts.machine import expected_seq, step
from tidegate.domain.hosts.probes import open_failures
from tidegate.domain.hosts.rows import HostRecord, probe_failure_id
from tidegate.domain.hosts.states import (
    ENDED,
    HostPolicy,
    HostState,
    OnFailure,
    ProbeMode,
    ProbeStatus,
)
from tidegate.domain.hosts.transitions import TABLE
from tidegate.errors import TidegateError
from tidegate.kernel import codec

STEPS_MAX = 40
THROW_MAX = 2**48
EVENTS: tuple[type[Any], ...] = get_args(HostEvent)
RARE = {DispatchReserved, HostSkipped, DeadlineExpired}
LATENCY = seconds(0.25)  # from the agent's step to ours
PURE = pytest.mark.req("RO-1", engines=None, reason="a pure function")


class Step(Struct, frozen=True):
    """One step of a life: the event, its time and its result. Without a record after it, the event
    was refused.
    """

    before: HostRecord | None
    event: HostEvent
    now: datetime
    after: HostRecord | None
    effects: tuple[Effect, ...]
    error: TidegateError | None = None

    @property
    def record(self) -> HostRecord:
        assert self.after is not None
        return self.after


policies = st.builds(
    HostPolicy,
    soak_seconds=st.sampled_from((0, 1, 60)),
    on_failure=st.sampled_from(OnFailure),
    sustained_failure_seconds=st.sampled_from((0, 30)),
    activation_seconds=st.sampled_from((30, 600)),
    convergence_seconds=st.sampled_from((30, 900)),
)


def stepped(record: HostRecord | None, event: HostEvent, now: datetime) -> Step:
    try:
        after, effects = step(record, event, now)
    except TidegateError as error:
        return Step(record, event, now, None, (), error)
    return Step(record, event, now, after, tuple(effects))


class Dice:
    """A single number that yields many choices, so that a life is a short list of numbers."""

    def __init__(self, number: int) -> None:
        self.number = number

    def throw(self, sides: int) -> int:
        self.number, thrown = divmod(self.number, sides)
        return thrown

    def pick(self, among: Sequence[Any]) -> Any:
        return among[self.throw(len(among))]


def run_life(policy: HostPolicy, throws: Sequence[int]) -> list[Step]:
    now = T0
    life = [stepped(None, reserved(now, policy=policy), now)]
    record = life[0].record
    for throw in throws:
        dice = Dice(throw)
        now += seconds(dice.pick((0, 1, 0, 20, 60)))
        if dice.throw(20) == 19 and record.due_at is not None:
            now = max(now, record.due_at)
        step_ = stepped(record, draw_event(dice, record, now), now)
        life.append(step_)
        record = record if step_.after is None else step_.after
    return life


def draw_event(dice: Dice, record: HostRecord, now: datetime) -> HostEvent:
    """Generate an event about this record: mostly one that may come next, otherwise an invalid
    one.
    """
    legal = [struct for struct in TABLE[record.state] if struct not in RARE]
    if not legal or dice.throw(10) == 9:
        legal = list(TABLE[record.state] if dice.throw(2) else EVENTS)
    event: HostEvent = dice.pick(examples(record, dice.pick(legal), now))
    return _spoiled(event, dice.throw(6), now) if dice.throw(5) == 4 else event


def lives() -> st.SearchStrategy[list[Step]]:
    throws = st.lists(st.integers(0, THROW_MAX), min_size=5, max_size=STEPS_MAX)
    return st.builds(run_life, policies, throws)


def _spoiled(event: Any, how: int, now: datetime) -> Any:
    """Give the event a wrong number, another time, or another artifact."""
    names = event.__struct_fields__
    if how < 2 and "seq" in names:
        return replace(event, seq=max(1, event.seq + (-1, 1)[how]))
    if how == 2:
        return replace(event, at=now + seconds(61))
    if how == 3:
        return replace(event, at=now - seconds(90))
    closures = [name for name in names if name.endswith(("closure", "closure_at_dispatch"))]
    if how == 4 and closures:
        return replace(event, **dict.fromkeys(closures, "sha256:other"))
    if how == 5 and isinstance(event, DispatchAck):
        return replace(event, current_closure_at_dispatch="")
    return event


def accepted(life: list[Step]) -> list[Step]:
    return [step_ for step_ in life if step_.after is not None]


@PURE
@settings(max_examples=fewer(300))
@given(lives())
def test_h1_converged_means_soaked_and_probed_on_the_target(life: list[Step]) -> None:
    for step_ in accepted(life):
        record = step_.record
        if record.state is not HostState.CONVERGED:
            continue
        assert record.current_closure == record.target_closure
        assert record.converged_at is not None
        assert record.soak_due_at is not None
        assert record.activation_completed_at is not None
        assert record.topology_declared_at is not None
        assert record.converged_at >= record.soak_due_at
        for probe in record.probes.values():
            if probe.mode is ProbeMode.ENFORCE:
                assert probe.status is ProbeStatus.PASS
                assert probe.last_pass_at is not None
                assert probe.last_pass_at >= record.activation_completed_at


@PURE
@settings(max_examples=fewer(300))
@given(lives())
def test_h2_reverted_means_back_on_the_earlier_artifact_after_a_failure(life: list[Step]) -> None:
    for step_ in accepted(life):
        record = step_.record
        if record.state is HostState.REVERTED:
            assert record.reverted_to == record.current_closure
            assert record.reverted_to == record.current_closure_at_dispatch != NEW
            assert record.reverted_at is not None
            assert record.failed_at is not None
        if record.state is HostState.REVERTED and step_.before is not None:
            assert step_.before.state in (HostState.FAILED, HostState.REVERTED)


@PURE
@settings(max_examples=fewer(300))
@given(lives())
def test_h3_failed_records_when_why_and_by_which_policy(life: list[Step]) -> None:
    for step_ in accepted(life):
        record = step_.record
        if record.state is HostState.FAILED:
            assert record.failed_at is not None
            assert record.failure
            assert record.policy_applied is record.policy.on_failure
            # Either a rollback is awaited until its deadline, or the host is free.
            assert record.due_at is not None or not record.busy
            if record.policy_applied is OnFailure.HALT:
                assert not record.rollback_failed


@PURE
@settings(max_examples=fewer(300))
@given(lives())
def test_h4_numbers_never_decrease_and_a_repeat_changes_nothing(life: list[Step]) -> None:
    last = 0
    for step_ in life:
        record = step_.after or step_.before
        assert record is not None
        assert record.last_event_seq >= last
        assert record.last_event_seq - last == (
            isinstance(step_.event, AgentFact) and step_.after is not None
        )
        last = record.last_event_seq
        if isinstance(step_.event, AgentFact) and step_.after is not None:
            again = stepped(record, step_.event, step_.now)
            assert again.error is not None
            assert again.error.code == "sequence_regression"


@PURE
@settings(max_examples=fewer(300))
@given(lives())
def test_h5_the_end_absorbs_all_reports_and_all_but_a_new_attempt(life: list[Step]) -> None:
    for step_ in accepted(life):
        if step_.before is None or step_.before.state not in ENDED:
            continue
        assert not isinstance(step_.event, get_args(AgentEvent))
        if step_.record.state is not step_.before.state:
            assert step_.before.state is HostState.REVERTED
            assert isinstance(step_.event, DispatchReserved)
            assert step_.event.attempt > step_.before.attempt


@PURE
@settings(max_examples=fewer(300))
@given(lives())
def test_h6_an_activation_discards_earlier_probe_results(life: list[Step]) -> None:
    for step_ in accepted(life):
        record = step_.record
        if isinstance(step_.event, ActivationCompleted | RecoveryActivationAssumed):
            assert record.probes == {}
            assert record.topology_declared_at is None
        completed = record.activation_completed_at
        for probe in record.probes.values():
            assert completed is not None
            assert probe.last_observed_at is None or probe.last_observed_at >= completed
            assert (probe.failing_since is not None) is (
                probe.status is ProbeStatus.FAIL and probe.mode is ProbeMode.ENFORCE
            )


@PURE
@settings(max_examples=fewer(300))
@given(lives())
def test_h7_agent_and_control_plane_end_in_the_same_bytes(life: list[Step]) -> None:
    """The control plane gets everything a little later, through its fold and the log's bytes.

    Only ``due_at`` differs: it runs on the clock of the side that waits.
    """
    agent: HostRecord | None = None
    mirror: HostRecord | None = None
    for step_ in accepted(life):
        if isinstance(step_.event, DispatchReserved) and step_.after is step_.before:
            continue  # a repeat: it is not written to the log
        agent, _ = step(agent, step_.event, step_.now)
        stored = codec.decode(codec.encode(step_.event), type(step_.event))
        mirror, _ = step_record(mirror, stored, step_.now + LATENCY)
        ours = codec.encode(replace(mirror, due_at=None))

        assert codec.encode(replace(agent, due_at=None)) == ours
        assert agent == step_.after


@PURE
@settings(max_examples=fewer(300))
@given(lives())
def test_h8_every_change_of_state_is_reported_once_and_correctly(life: list[Step]) -> None:
    for step_ in accepted(life):
        told_ = [effect for effect in step_.effects if isinstance(effect, RecordTransition)]
        before, after = step_.before, step_.record
        if before is None:
            assert told_ == []
            continue
        assert len(told_) <= 1
        for effect in told_:
            assert (effect.from_, effect.to) == (before.state, after.state)
            assert effect.at == step_.event.at
        if before.state is not after.state:
            assert len(told_) == 1
        noted = before.busy and not after.busy
        if noted or (after.rollback_failed and not before.rollback_failed):
            assert len(told_) == 1


@PURE
@settings(max_examples=fewer(300))
@given(lives())
def test_h9_no_soak_ends_before_it_begins(life: list[Step]) -> None:
    for step_ in accepted(life):
        record = step_.record
        if record.soak_due_at is not None:
            assert record.activation_completed_at is not None
            soak = record.soak_due_at - record.activation_completed_at
            assert soak == seconds(record.policy.soak_seconds) >= seconds(0)


@PURE
@settings(max_examples=fewer(300))
@given(lives())
def test_steps_deterministically_and_does_not_change_its_input(life: list[Step]) -> None:
    for step_ in life:
        kept = None if step_.before is None else codec.encode(step_.before)

        again = stepped(step_.before, step_.event, step_.now)

        assert (again.after, again.effects) == (step_.after, step_.effects)
        assert type(again.error) is type(step_.error)
        assert kept == (None if step_.before is None else codec.encode(step_.before))


@settings(max_examples=fewer(300))
@given(lives())
def test_holds_slots_only_while_it_is_busy_and_waits_only_where_a_deadline_runs(
    life: list[Step],
) -> None:
    for step_ in accepted(life):
        record = step_.record
        assert record.busy or record.budgets == ()
        assert record.due_at is None or record.state not in ENDED
        if record.state in (HostState.ACTIVATING, HostState.SOAKING, HostState.DEFERRED):
            was_let_go = record.state is HostState.SOAKING and record.left is not None
            assert was_let_go or record.due_at is not None  # silence is an event


@settings(max_examples=fewer(300))
@given(lives())
def test_keeps_orders_slots_and_open_failures_consistent_with_the_record(life: list[Step]) -> None:
    record: HostRecord | None = None
    rows: dict[tuple[str, str], Any] = {}
    slots: list[str] = []
    for step_ in accepted(life):
        event: Any = step_.event
        if isinstance(event, DispatchReserved):
            if step_.after is step_.before:
                continue
            event = replace(event, budgets=(BudgetSlot("rack-1", 2), BudgetSlot("eu", 2)))
            slots += ["rack-1", "eu"]
        record, follow_ups = step_record(record, event, step_.now)
        for fact in (event, *follow_ups):
            if isinstance(fact, HostStateChanged):
                for name in fact.budgets:
                    slots.remove(name)
                slots += [slot.budget_id for slot in fact.slots]  # back from a reboot
            _fold(rows, fact, step_.now)

        assert slots == list(record.budgets)
        assert (("host_orders", record.host_id) in rows) is record.busy
        failing = {id for name, id in rows if name == "probe_failures"}
        may_fail = {
            probe_failure_id(record.rollout_id, record.host_id, name)
            for name in open_failures(record)
        }
        assert failing == may_fail if record.left is None else failing <= may_fail


def _fold(rows: dict[tuple[str, str], Any], fact: Any, now: datetime) -> None:
    """Step the two views by a fact, as the runtime does."""
    for fold in (PROBE_FAILURES_FOLD, ORDERS_FOLD):
        for id in fold.ids(fact) if type(fact) in fold.reads else ():
            key = (fold.collection.name, id)
            after = fold.step(rows.get(key), fact, now)
            rows.pop(key, None)
            if after is not None:
                rows[key] = after


@pytest.mark.long
def test_lives_reach_every_state_and_refusal() -> None:
    """Proves that the lives above are varied: they reach every state and every kind of refusal."""
    toss = Random(4)
    many = [
        run_life(HostPolicy(), [toss.randrange(THROW_MAX) for _ in range(STEPS_MAX)])
        for _ in range(400)
    ]

    refused = {step_.error.code for life in many for step_ in life if step_.error is not None}
    assert {step_.record.state for life in many for step_ in accepted(life)} == set(HostState)
    assert refused >= {
        *("invalid_transition", "sequence_gap", "sequence_regression", "clock_skew"),
        *("wrong_closure", "early_convergence", "undeclared_probe", "unsustained_failure"),
        *("host_invariant", "host_busy", "order_cancelled"),
    }


def test_the_wrong_artifacts_in_lives_are_wrong() -> None:
    record, _ = step(None, reserved(), T0)
    (ack,) = examples(record, DispatchAck, T0)

    assert isinstance(ack, DispatchAck)
    assert (ack.target_closure, ack.current_closure_at_dispatch) == (NEW, OLD)
    assert _spoiled(ack, 4, T0).target_closure == "sha256:other"
    assert ack.seq == expected_seq(record)
