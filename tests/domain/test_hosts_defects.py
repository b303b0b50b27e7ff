"""Defects of the previous system, each with a test that ours does not have it.

The numbers are those of the list in the reference; these defects are about a host's machine.
"""

from __future__ import annotations

from typing import Any, get_args

import pytest
from msgspec.structs import replace

from tests.domain.host_lives import (
    DISK,
    ENFORCE,
    FAIL,
    HOST,
    HTTP,
    NAMED,
    NEW,
    OBSERVE,
    OLD,
    PASS,
    ROLLOUT,
    T0,
    HostLife,
    HostReports,
    examples,
    seconds,
)
from tidegate.domain.hosts.effects import FireRollbackTo
from tidegate.domain.hosts.facts import (
    ActivationCompleted,
    ActivationDeferred,
    ActivationFailed,
    ActivationStarted,
    AgentEvent,
    Converged,
    DeadlineExpired,
    DispatchAck,
    Failed,
    HostStateChanged,
    ProbeFailureFirst,
    ProbeResult,
    ProbeTopologyDeclared,
    RecoveryActivationAssumed,
    RollbackComplete,
    RollbackFailed,
)
from tidegate.domain.hosts.machine import expected_seq
from tidegate.domain.hosts.probes import list_sustained
from tidegate.domain.hosts.refusals import (
    EarlyConvergence,
    HostInvariant,
    HostNotInRollout,
    SequenceGap,
    UnsustainedFailure,
    WrongClosure,
)
from tidegate.domain.hosts.report_json import event_from_json, event_to_json
from tidegate.domain.hosts.slices import ExpireDeadline, expire_deadline
from tidegate.domain.hosts.states import Deadline, HostState
from tidegate.domain.rollouts.report_slices import ObserveHost, observe_host
from tidegate.domain.rollouts.skip_slices import SkipHost, skip_host
from tidegate.errors import IllegalTransition, InvalidInput
from tidegate.kernel.replay import differences

HOURS = 3_600


def test_d05_a_host_soaks_from_its_activation_however_late_its_wave_starts() -> None:
    """Not from the rollout's opening, its order or its acknowledgement."""
    life = HostLife(soak_seconds=1_800).wait(9 * HOURS).ordered().wait(600).acknowledged().wait(300)
    life.say(ActivationCompleted, observed_current_closure=NEW)
    life.say(ProbeTopologyDeclared, probes=(HTTP,)).probe(PASS)

    assert life.record.soak_due_at == T0 + seconds(9 * HOURS + 900 + 1_800)
    with pytest.raises(EarlyConvergence):
        life.wait(1_799).say(Converged, current_closure=NEW)
    assert life.wait(1).say(Converged, current_closure=NEW).record.state is HostState.CONVERGED


def test_d05_a_new_attempt_soaks_again() -> None:
    life = HostLife(soak_seconds=1_800).reverted().wait(HOURS).ordered(attempt=2)
    assert life.record.soak_due_at is None

    life.acknowledged().say(ActivationCompleted, observed_current_closure=NEW)

    assert life.record.soak_due_at == life.now + seconds(1_800)


def test_d06_no_host_converges_before_its_probes_reported() -> None:
    life = HostLife(soak_seconds=0).soaking()

    for said in ("no probe topology", "no pass of probe http"):
        with pytest.raises(EarlyConvergence, match=said):
            life.say(Converged, current_closure=NEW)
        if said.startswith("no probe"):
            life.say(ProbeTopologyDeclared, probes=(HTTP,))

    assert life.probe(PASS).say(Converged, current_closure=NEW).record.converged_at == T0


def test_d06_no_result_from_before_the_activation_counts() -> None:
    life = HostLife().soaking(HTTP)

    with pytest.raises(HostInvariant, match="before the activation"):
        life.say(ProbeResult, at=T0 - seconds(1), probe_name="http", mode=ENFORCE, status=PASS)
    with pytest.raises(EarlyConvergence):
        life.say(Converged, current_closure=NEW)


def test_d06_a_heartbeat_on_the_target_does_not_converge_a_host() -> None:
    host_reports = HostReports()
    host_reports.reserve()
    command = ObserveHost(rollout_id=ROLLOUT, host_id=HOST, current_closure=NEW)

    assert host_reports.run(observe_host, command) == []  # not even acknowledged

    host_reports.acknowledge()
    assumed, moved = host_reports.run(observe_host, command)
    assert isinstance(assumed, RecoveryActivationAssumed)
    assert isinstance(moved, HostStateChanged)
    assert moved.to is HostState.SOAKING
    with pytest.raises(EarlyConvergence):
        host_reports.say(Converged, current_closure=NEW)


def test_d07_a_pass_closes_the_open_failure_of_a_probe() -> None:
    host_reports = HostReports(current_wave=2)
    host_reports.soak(wave=2)

    host_reports.say(
        ProbeResult, probe_name="http", mode=ENFORCE, status=FAIL, failure_reason="503"
    )
    opened = host_reports.open_failure()
    host_reports.say(ProbeResult, probe_name="disk", mode=OBSERVE, status=FAIL)
    host_reports.say(ProbeResult, probe_name="http", mode=ENFORCE, status=PASS)

    assert opened is not None
    assert (opened.wave, opened.failure_reason, opened.observed_at) == (2, "503", T0)
    assert host_reports.open_failure("disk") is None  # observed only
    assert host_reports.open_failure() is None


def test_d07_the_rollback_closes_what_was_open() -> None:
    host_reports = HostReports()
    host_reports.soak()
    host_reports.say(ProbeResult, probe_name="http", mode=ENFORCE, status=FAIL)
    host_reports.clock.advance(seconds(120))
    host_reports.say(Failed, **HostLife().failing("http"))
    assert host_reports.open_failure() is not None

    _, moved = host_reports.say(RollbackComplete, reverted_to_closure=OLD)

    assert moved.cleared_probes == ("http",)
    assert host_reports.open_failure() is None
    assert differences(host_reports.store, host_reports.folds) == []


def test_d08_a_pass_resets_the_failure_time_of_a_probe() -> None:
    life = HostLife().soaking(HTTP).probe(FAIL).wait(10).probe(PASS).wait(109).probe(FAIL).wait(1)

    assert life.now == T0 + seconds(120)
    assert list_sustained(life.record, life.now) == ()
    with pytest.raises(UnsustainedFailure):
        life.say(Failed, **life.failing("http"))

    assert life.wait(119).say(Failed, **life.failing("http")).record.failure == "probes"


def test_d08_an_observed_probe_starts_no_clock() -> None:
    life = HostLife().soaking(HTTP, DISK).probe(PASS).probe(FAIL, "disk", OBSERVE)
    life.say(ProbeFailureFirst, probe_name="disk", mode=OBSERVE).wait(HOURS)

    assert life.record.probe_failure_first_at is None
    assert life.record.probes["disk"].failing_since is None
    with pytest.raises(UnsustainedFailure):
        life.say(Failed, **life.failing("disk"))
    assert life.say(Converged, current_closure=NEW).record.state is HostState.CONVERGED


def test_d08_a_repeated_failure_does_not_restart_the_clock() -> None:
    life = HostLife().soaking(HTTP).probe(FAIL).wait(60).probe(FAIL).wait(60)

    assert life.record.probes["http"].failing_since == T0
    assert life.say(Failed, **life.failing("http")).record.state is HostState.FAILED


def test_d12_an_assumed_activation_takes_no_number_of_the_agent() -> None:
    life = HostLife().acknowledged().wait(30)
    sent = [
        life.event(ActivationStarted, seq=2),
        life.event(ActivationCompleted, seq=3, observed_current_closure=NEW),
        life.event(ProbeTopologyDeclared, seq=4, probes=(HTTP,)),
    ]

    life.say(RecoveryActivationAssumed, observed_current_closure=NEW)
    assert expected_seq(life.record) == 2
    for event in sent:
        life.take(event)

    assert (life.record.last_event_seq, life.record.state) == (4, HostState.SOAKING)


def test_d12_silence_takes_no_number_either() -> None:
    life = HostLife().acknowledged().silent()

    assert expected_seq(life.record) == 2
    assert life.say(RollbackComplete, reverted_to_closure=OLD).record.last_event_seq == 2


@pytest.mark.parametrize(
    ("life", "deadline"),
    [
        (lambda: HostLife().acknowledged(), Deadline.ACTIVATION),
        (lambda: HostLife().soaking(), Deadline.TOPOLOGY),
        (lambda: HostLife().soaking(HTTP).probe(PASS), Deadline.CONVERGENCE),
        (
            lambda: HostLife().acknowledged().say(ActivationDeferred, component="kernel"),
            Deadline.DEFERRAL,
        ),
    ],
    ids=lambda value: value.value if isinstance(value, Deadline) else "",
)
def test_d13_a_silent_host_fails_in_time(life: Any, deadline: Deadline) -> None:
    silent = life().silent()

    assert (silent.record.state, silent.record.failure) == (HostState.FAILED, deadline.value)


def test_d13_the_timer_loses_against_the_agent() -> None:
    host_reports = HostReports()
    host_reports.reserve()
    host_reports.acknowledge()
    due_at = host_reports.record.due_at
    assert due_at is not None
    host_reports.clock.advance(due_at - T0)
    late = ExpireDeadline(rollout_id=ROLLOUT, host_id=HOST, due_at=due_at)

    host_reports.say(ActivationCompleted, observed_current_closure=NEW)

    assert host_reports.run(expire_deadline, late) == []
    assert host_reports.record.state is HostState.SOAKING


def test_d13_the_timer_does_not_come_early() -> None:
    host_reports = HostReports()
    host_reports.reserve()
    due_at = host_reports.record.due_at
    assert due_at is not None
    host_reports.clock.advance(due_at - T0 - seconds(1))

    early = ExpireDeadline(rollout_id=ROLLOUT, host_id=HOST, due_at=due_at)

    assert host_reports.run(expire_deadline, early) == []
    with pytest.raises(HostNotInRollout):
        host_reports.run(expire_deadline, replace(early, host_id="web-02"))


def test_d13_the_agent_that_loses_against_the_timer_still_rolls_back() -> None:
    host_reports = HostReports()
    host_reports.reserve()
    host_reports.acknowledge()
    due_at = host_reports.record.due_at
    assert due_at is not None
    host_reports.clock.advance(due_at - T0)

    expired, moved = host_reports.run(
        expire_deadline, ExpireDeadline(rollout_id=ROLLOUT, host_id=HOST, due_at=due_at)
    )
    with pytest.raises(IllegalTransition) as refused:
        host_reports.say(ActivationCompleted, observed_current_closure=NEW)

    assert isinstance(expired, DeadlineExpired)
    assert (moved.from_, moved.to, moved.freed) == (HostState.ACTIVATING, HostState.FAILED, False)
    assert refused.value.facts["state"] == "Failed"
    host_reports.say(RollbackComplete, reverted_to_closure=OLD)
    assert host_reports.record.state is HostState.REVERTED


def test_d13_an_order_that_is_not_fetched_is_waited_for_or_skipped() -> None:
    host_reports = HostReports()
    host_reports.reserve("rack-1")
    due_at = host_reports.record.due_at
    assert due_at is not None
    host_reports.clock.advance(due_at - T0)

    (expired,) = host_reports.run(
        expire_deadline, ExpireDeadline(rollout_id=ROLLOUT, host_id=HOST, due_at=due_at)
    )
    assert expired.deadline is Deadline.ACK
    assert (host_reports.record.state, host_reports.record.busy) == (HostState.PENDING, True)

    command = SkipHost(rollout_id=ROLLOUT, host_id=HOST, wave=0, reason="silent for a day")
    skipped, freed = host_reports.run(skip_host, command)
    assert skipped.state is HostState.PENDING
    assert (freed.left, freed.freed, freed.budgets) == (True, True, ("rack-1",))
    assert host_reports.order is None
    assert host_reports.run(skip_host, command) == []


def test_d17_a_failed_rollback_is_recorded() -> None:
    host_reports = HostReports()
    host_reports.reserve()
    host_reports.acknowledge()
    host_reports.say(ActivationFailed, exit_code=-1)

    failed, moved = host_reports.say(RollbackFailed, phase="switch", exit_code=7)

    assert (failed.channel, failed.target_closure) == ("web-stable", NEW)  # and so quarantined
    assert (moved.from_, moved.to) == (HostState.FAILED, HostState.FAILED)
    assert (moved.rollback_failed, moved.freed) == (True, True)
    assert host_reports.record.rollback_failed


@pytest.mark.parametrize("way", ["rolled back after all", "tried again"])
def test_d17_later_events_show_that_the_rollback_had_failed(way: str) -> None:
    """The rollout counts such hosts, and could not stop counting them otherwise."""
    host_reports = HostReports()
    host_reports.reserve()
    host_reports.acknowledge()
    host_reports.say(ActivationFailed, exit_code=-1)
    host_reports.say(RollbackFailed, phase="switch", exit_code=7)

    if way == "tried again":
        _, moved, _ = host_reports.reserve(attempt=2)
    else:
        _, moved = host_reports.say(RollbackComplete, reverted_to_closure=OLD)

    assert (moved.from_, moved.rollback_failed) == (HostState.FAILED, True)
    assert not host_reports.record.rollback_failed
    assert differences(host_reports.store, host_reports.folds) == []


def test_d17_a_rollback_without_a_report_is_recorded() -> None:
    host_reports = HostReports()
    host_reports.reserve()
    host_reports.acknowledge()
    host_reports.say(ActivationFailed, exit_code=-1)
    due_at = host_reports.record.due_at
    assert due_at is not None
    host_reports.clock.advance(due_at - T0)

    expired, moved = host_reports.run(
        expire_deadline, ExpireDeadline(rollout_id=ROLLOUT, host_id=HOST, due_at=due_at)
    )

    assert (expired.deadline, expired.target_closure) == (Deadline.ROLLBACK, NEW)
    assert moved.rollback_failed
    assert host_reports.record.rollback_failed


def test_d22_a_refused_report_does_not_block_the_next_one() -> None:
    host_reports = HostReports()
    host_reports.soak()
    seq = expected_seq(host_reports.record)
    poison = Converged(**NAMED, at=T0, seq=seq, current_closure="sha256:other")
    behind = ProbeResult(**NAMED, at=T0, seq=seq + 1, probe_name="http", mode=ENFORCE, status=PASS)

    with pytest.raises(WrongClosure) as refused:
        host_reports.report(poison)
    with pytest.raises(SequenceGap) as gap:
        host_reports.report(behind)

    assert refused.value.facts["state"] == "Soaking"
    assert gap.value.facts["expected"] == seq
    host_reports.say(ProbeResult, probe_name="http", mode=ENFORCE, status=PASS)
    assert host_reports.record.last_event_seq == seq


def test_d25_a_rollback_returns_to_what_ran_and_never_to_the_target() -> None:
    honest, confused = HostLife().failed(), HostLife().failed(prior=NEW)

    assert FireRollbackTo(OLD) in honest.effects
    assert not [effect for effect in confused.effects if isinstance(effect, FireRollbackTo)]
    assert confused.record.rollback_failed
    with pytest.raises(WrongClosure):
        honest.say(RollbackComplete, reverted_to_closure=NEW)
    with pytest.raises(HostInvariant):
        confused.say(RollbackComplete, reverted_to_closure=NEW)


def test_d25_an_acknowledgement_names_the_current_and_the_target_artifact() -> None:
    (ack,) = examples(HostLife().ordered().record, DispatchAck, T0)

    with pytest.raises(InvalidInput):
        event_from_json({k: v for k, v in event_to_json(ack).items() if k != "target_closure"})  # type: ignore[arg-type]


@pytest.mark.parametrize("struct", get_args(AgentEvent), ids=lambda struct: struct.__name__)
def test_d26_every_kind_of_report_is_numbered(struct: type[Any]) -> None:
    (event, *_) = examples(HostLife().ordered().record, struct, T0)
    sent = event_to_json(event)  # type: ignore[arg-type]

    assert sent["seq"] == 1
    assert event_from_json(sent) == event
    with pytest.raises(InvalidInput):
        event_from_json({name: value for name, value in sent.items() if name != "seq"})
    with pytest.raises(InvalidInput, match="from 1 on"):
        event_from_json(sent | {"seq": 0})


def test_d26_a_live_host_reaches_deferred_and_converges_after_its_reboot() -> None:
    host_reports = HostReports()
    host_reports.reserve()
    host_reports.acknowledge()
    host_reports.say(ActivationStarted)

    _, moved = host_reports.say(ActivationDeferred, component="kernel")
    assert (moved.to, moved.freed, host_reports.order) == (HostState.DEFERRED, True, None)

    host_reports.clock.advance(seconds(HOURS))
    host_reports.say(ActivationCompleted, observed_current_closure=NEW)
    host_reports.say(ProbeTopologyDeclared, probes=())
    host_reports.say(Converged, current_closure=NEW)
    assert host_reports.record.state is HostState.CONVERGED
    assert differences(host_reports.store, host_reports.folds) == []
