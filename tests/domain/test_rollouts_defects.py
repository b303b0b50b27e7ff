"""Sequences of whole rollouts, and the defects of the previous system that they must not repeat.

Host, rollout and channel run through their own slices and folds, on the oracle. No events are fed
by hand, except where a test shows that one is refused. The numbers are those of the list of
defects.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from msgspec import Struct

from tests.domain.memory_fleet import CHANNEL, HALT, MemoryFleet
from tests.domain.registry import digest_of
from tidegate.control.fleet.dispatch import has_stopped
from tidegate.domain.channels.facts import ChannelPolicy
from tidegate.domain.channels.refusals import SupersessionExpected
from tidegate.domain.channels.rows import QUARANTINE, quarantine_key
from tidegate.domain.channels.slices import EditChannel, edit_channel
from tidegate.domain.composition import FOLDS
from tidegate.domain.hosts.facts import DispatchReject, HostStateChanged, RollbackComplete
from tidegate.domain.hosts.refusals import (
    ClosureQuarantined,
    HostBusy,
    RolloutIsHalted,
    RolloutIsPruned,
    RolloutIsSuperseded,
    RolloutNotDispatchable,
)
from tidegate.domain.hosts.states import HostState, OnFailure
from tidegate.domain.rollouts.effects import (
    InsertQuarantineFromRollout,
    RecordRolloutTransition,
    SchedulePruning,
    UpdateCurrentWave,
)
from tidegate.domain.rollouts.facts import (
    OperatorClearance,
    RetentionExpired,
    RolloutOpened,
    RolloutTerminal,
    RolloutTransitioned,
    SuccessorOpened,
    WaveAdvanced,
)
from tidegate.domain.rollouts.folds import rollout_tallies, step_tally
from tidegate.domain.rollouts.machine import step
from tidegate.domain.rollouts.slices import (
    AbortRollout,
    ExpireRetention,
    abort_rollout,
    expire_retention,
)
from tidegate.domain.rollouts.states import Clearance, RolloutState
from tidegate.errors import Gone, IllegalTransition
from tidegate.kernel.commit_builder import CommitBuilder
from tidegate.kernel.replay import differences, rebuild

pure = {"engines": None, "reason": "pure steps on the oracle; engines have their own suite"}


@pytest.fixture
def fleet() -> Iterator[MemoryFleet]:
    """A fleet whose log, at the end of the test, must give exactly its rows."""
    sailed = MemoryFleet()
    yield sailed
    assert differences(sailed.store, FOLDS) == []


def path(fleet: MemoryFleet, rollout_id: str) -> list[tuple[str, int]]:
    """Return the states of a rollout by the log, each with its wave."""
    return [
        (fact.to, fact.current_wave)
        for fact in fleet.events(RolloutTransitioned)
        if fact.rollout_id == rollout_id
    ]


def effects_of(fleet: MemoryFleet, rollout_id: str) -> set[type]:
    """Return the effects of a rollout's steps, computed again from the facts in the log."""
    tally, asked = None, set()
    reads = {kind.__name__ for kind in rollout_tallies.reads}
    for event in fleet.log():
        if event.type in reads and f"rollout_id:{rollout_id}" in event.tags:
            value = FOLDS.vocabulary.value(event)
            asked |= {type(effect) for effect in step(tally, value, event.at)[1]}  # type: ignore[arg-type]
            tally, _ = step_tally(tally, value, event.at)  # type: ignore[arg-type]
    return asked


def expire(fleet: MemoryFleet, rollout_id: str) -> None:
    due_at = fleet.tally(rollout_id).due_at
    assert due_at is not None
    fleet.clock.now = due_at
    command = ExpireRetention(rollout_id=rollout_id, due_at=due_at)
    fleet.execute(expire_retention, command)


# ── waves and states ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RO-3", "RO-6", **pure)
def test_d01_advances_the_cursor_by_a_fact_and_is_converging_in_between(
    fleet: MemoryFleet,
) -> None:
    rollout_id = fleet.promote("web.1", 2, 1)
    fleet.reach(rollout_id, "w0-0", "w0-1")

    assert [(f.from_wave, f.to_wave) for f in fleet.events(WaveAdvanced)] == [(0, 1)]
    assert fleet.rollout(rollout_id).current_wave == 1
    fleet.reach(rollout_id, "w1-0")
    assert path(fleet, rollout_id) == [
        ("Active", 0),
        ("Converging", 0),
        ("Active", 1),
        ("Converging", 1),
        ("Terminal", 1),
    ]
    (end,) = fleet.events(RolloutTerminal)
    assert (end.rollout_id, end.reason) == (rollout_id, "converged")


@pytest.mark.req("RO-6", **pure)
def test_d01_writes_the_facts_of_a_report_in_a_fixed_order(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 1, 1)
    fleet.start(rollout_id, "w0-0")
    fleet.activate(rollout_id, "w0-0")
    fleet.declare(rollout_id, "w0-0")
    before = fleet.head
    fleet.converge(rollout_id, "w0-0")

    assert fleet.types_since(before) == [
        "Converged",
        "HostStateChanged",
        "RolloutTransitioned",
        "WaveAdvanced",
        "RolloutTransitioned",
    ]
    kinds = {event.type: event.kind for event in fleet.log()}
    assert kinds["Converged"] == "agent_event"
    assert {kinds[name] for name in fleet.types_since(before)[1:]} == {"rollout_event"}


@pytest.mark.req("RO-3", **pure)
def test_d02_is_reverted_when_its_policy_rolls_back(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 2, 1)
    fleet.start(rollout_id, "w0-0", "w0-1")
    fleet.fail(rollout_id, "w0-0")
    assert (fleet.state(rollout_id), fleet.tally(rollout_id).halted_by) == ("Active", "w0-0")

    fleet.revert(rollout_id, "w0-0")
    assert fleet.state(rollout_id) is RolloutState.ACTIVE, "its sibling is on the target"
    fleet.activate(rollout_id, "w0-1")
    fleet.declare(rollout_id, "w0-1")
    fleet.converge(rollout_id, "w0-1")
    assert fleet.state(rollout_id) is RolloutState.REVERTED


def test_d02_is_failed_when_a_host_could_not_roll_back_and_at_once_under_halt(
    fleet: MemoryFleet,
) -> None:
    rollout_id = fleet.promote("web.1", 1)
    fleet.start(rollout_id, "w0-0")
    fleet.fail(rollout_id, "w0-0")
    fleet.lose(rollout_id, "w0-0")
    assert fleet.state(rollout_id) is RolloutState.FAILED

    halting = MemoryFleet(**HALT)
    rollout_id = halting.promote("web.1", 1)
    halting.start(rollout_id, "w0-0")
    halting.fail(rollout_id, "w0-0")
    assert halting.state(rollout_id) is RolloutState.FAILED
    assert differences(halting.store, FOLDS) == []


def test_d02_fails_by_silence_when_no_report_of_the_rollback_arrives(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 1)
    fleet.start(rollout_id, "w0-0")
    fleet.expire(rollout_id, "w0-0")  # of its activation
    assert fleet.tally(rollout_id).halted_by == "w0-0"
    fleet.expire(rollout_id, "w0-0")  # of its rollback

    assert fleet.state(rollout_id) is RolloutState.FAILED
    assert fleet.sample.row(quarantine_key(CHANNEL, digest_of("web.1"))) is not None


# ── dispatch ──────────────────────────────────────────────────────────────────────────────────────


def test_d03_orders_and_starts_no_host_after_a_failure(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 3, 1)
    fleet.order(rollout_id, "w0-0", "w0-1")
    fleet.ack(rollout_id, "w0-0")
    fleet.fail(rollout_id, "w0-0")

    with pytest.raises(RolloutIsHalted):
        fleet.order(rollout_id, "w0-2")
    with pytest.raises(RolloutIsHalted):
        fleet.ack(rollout_id, "w0-1")  # its order was delivered before
    fleet.revert(rollout_id, "w0-0")
    assert fleet.state(rollout_id) is RolloutState.REVERTED
    with pytest.raises((RolloutIsHalted, RolloutNotDispatchable)):
        fleet.order(rollout_id, "w0-2")
    started = [f.host_id for f in fleet.events(HostStateChanged) if f.to is HostState.ACTIVATING]
    assert started == ["w0-0"]


@pytest.mark.req("RO-10", **pure)
def test_d04_keeps_an_artifact_that_was_rolled_back_from_its_channel(fleet: MemoryFleet) -> None:
    fleet.create("web-canary")
    bad = fleet.promote("web.1", 2)
    fleet.start(bad, "w0-0")
    fleet.fail(bad, "w0-0")
    fleet.revert(bad, "w0-0")

    with pytest.raises(ClosureQuarantined):
        fleet.promote("web.1", 2)
    other = fleet.promote("web.1", 1, channel="web-canary")
    fleet.reach(other, "w0-9")  # another channel decides for itself
    assert fleet.state(other) is RolloutState.TERMINAL


@pytest.mark.req("RO-10", "RO-16", **pure)
def test_d04_has_one_row_per_channel_and_artifact_from_the_first_rollback_since_the_lift(
    fleet: MemoryFleet,
) -> None:
    rollout_id = fleet.promote("web.1", 2)
    key = quarantine_key(CHANNEL, digest_of("web.1"))
    borns = []
    for _ in range(2):
        fleet.start(rollout_id, "w0-0", "w0-1")
        fleet.fail(rollout_id, "w0-0", "w0-1")
        before = fleet.head
        fleet.revert(rollout_id, "w0-0", "w0-1")
        (record,) = fleet.store.get(key)
        assert record is not None
        shown = [
            event.position
            for event in fleet.log()
            if event.type == RollbackComplete.__name__ and event.position > before
        ]
        assert (record.born, record.version) == (shown[0], shown[0])
        borns.append(record.born)
        assert len(fleet.store.range(QUARANTINE.name, limit=10)) == 1
        fleet.clear(rollout_id, Clearance.RESUME)
        assert fleet.sample.row(key) is None, "who resumes lifts it in the same commit"
    assert borns[0] < borns[1]
    assert "QuarantineLifted" in [event.type for event in fleet.log()]


def test_d04_a_tolerated_failure_quarantines_nothing(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 3, failures_max=1)
    fleet.start(rollout_id, "w0-0")
    fleet.fail(rollout_id, "w0-0")
    fleet.revert(rollout_id, "w0-0")
    assert fleet.store.range(QUARANTINE.name, limit=1) == ()

    fleet.reach(rollout_id, "w0-1", "w0-2")
    assert fleet.state(rollout_id) is RolloutState.TERMINAL
    assert fleet.tally(rollout_id).waves[0].tolerated == 1


# ── the log ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RO-22", **pure)
def test_d10_rebuilds_every_table_from_the_log_alone(fleet: MemoryFleet) -> None:
    first = fleet.promote("web.1", 1, 1)
    fleet.reach(first, "w0-0")
    second = fleet.promote("web.2", 1)
    fleet.start(second, "w0-5")
    fleet.fail(second, "w0-5")
    fleet.revert(second, "w0-5")

    names = [fold.collection.name for fold in FOLDS.folds]
    before = {name: fleet.store.range(name, limit=1_000) for name in names}
    for name in names:
        fleet.store.restore(name, ())
    rebuild(fleet.store, FOLDS, *FOLDS.folds)
    after = {name: fleet.store.range(name, limit=1_000) for name in names}

    assert after == before
    filled = ("rollouts", "rollout_tallies", "host_rollout_records", "quarantined_closures")
    assert all(before[name] for name in filled)
    assert {record.key.id for record in after["rollouts"]} == {first, second}


@pytest.mark.req("RO-9", "RO-22", **pure)
def test_d14_promotes_an_earlier_release_as_another_incarnation(fleet: MemoryFleet) -> None:
    ids = [fleet.promote(release, 1) for release in ("web.1", "web.2", "web.1", "web.2", "web.1")]

    assert ids == [
        "web-stable@web.1",
        "web-stable@web.2",
        "web-stable@web.1~2",
        "web-stable@web.2~2",
        "web-stable@web.1~3",
    ]
    assert [fact.incarnation for fact in fleet.events(RolloutOpened)] == [1, 1, 2, 2, 3]
    assert fleet.rollout(ids[2]).previous_ref == "web.2"
    fleet.reach(ids[-1], "w0-0")
    assert fleet.channel().terminal_ref == "web.1"


def test_d15_hands_out_no_order_of_a_superseded_rollout(fleet: MemoryFleet) -> None:
    old = fleet.promote("web.1", 2)
    fleet.order(old, "w0-0", "w0-1")
    fleet.ack(old, "w0-1")
    new = fleet.promote("web.2", 2)

    with pytest.raises(RolloutIsSuperseded):
        fleet.ack(old, "w0-0")
    with pytest.raises(RolloutIsSuperseded):
        fleet.order(old, "w0-2")
    with pytest.raises(HostBusy):
        fleet.order(new, "w0-0")
    fleet.cancel(old, "w0-0")
    fleet.reach(new, "w0-0")

    # A host that had started continues and is recorded; the old rollout does not change.
    fleet.activate(old, "w0-1")
    fleet.declare(old, "w0-1")
    fleet.converge(old, "w0-1")
    assert fleet.state(old) is RolloutState.SUPERSEDED
    assert fleet.rollout(old).superseded_by == new


@pytest.mark.req("RO-5", **pure)
def test_d18_keeps_the_rows_of_a_pruned_rollout_and_accepts_nothing_more(
    fleet: MemoryFleet,
) -> None:
    old = fleet.promote("web.1", 1)
    fleet.reach(old, "w0-0")
    fleet.promote("web.2", 1)
    expire(fleet, old)

    row = fleet.rollout(old)
    assert (row.state, row.pruned_at) == (RolloutState.PRUNED, fleet.clock.now)
    assert (row.terminal_at, row.superseded_at) != (None, None)
    assert [record.host_id for record in fleet.records(old)] == ["w0-0"]
    with pytest.raises(RolloutIsPruned) as gone:
        fleet.converge(old, "w0-0")
    assert isinstance(gone.value, Gone)
    with pytest.raises(RolloutIsPruned):
        fleet.clear(old, Clearance.RESUME)


@pytest.mark.req("RO-5", **pure)
def test_d18_prunes_terminal_and_superseded_rollouts_by_their_own_times(
    fleet: MemoryFleet,
) -> None:
    day = timedelta(days=1)
    first = fleet.promote("web.1", 1)
    fleet.reach(first, "w0-0")
    ended = fleet.clock.now
    assert fleet.tally(first).due_at == ended + 90 * day

    fleet.clock.advance(10 * day)
    second = fleet.promote("web.2", 1)
    assert fleet.tally(first).due_at == ended + 100 * day
    assert fleet.tally(second).due_at is None, "a running rollout is not pruned"
    fleet.start(second, "w0-1")
    fleet.fail(second, "w0-1")
    fleet.revert(second, "w0-1")
    assert fleet.tally(second).due_at is None, "a stopped rollout is not pruned"


# ── nothing is dead ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RO-6", "RO-18", **pure)
def test_d19_produces_every_event_and_effect_of_the_seed(
    fleet: MemoryFleet,
) -> None:
    first = fleet.promote("web.1", 1, 1)
    fleet.reach(first, "w0-0")
    fleet.start(first, "w1-0")
    fleet.fail(first, "w1-0")
    fleet.revert(first, "w1-0")
    fleet.clear(first, Clearance.RESUME)
    fleet.reach(first, "w1-0")
    fleet.promote("web.2", 1)
    expire(fleet, first)

    seed = {
        *("RolloutOpened", "HostJoined", "HostStateChanged", "WaveAdvanced", "RolloutTerminal"),
        *("SuccessorOpened", "RetentionExpired", "OperatorClearance"),
    }
    logged = {event.type: event.kind for event in fleet.log()}
    assert {name: logged.get(name) for name in seed} == dict.fromkeys(seed, "rollout_event")
    effects: set[type[Struct]] = {
        RecordRolloutTransition,
        UpdateCurrentWave,
        InsertQuarantineFromRollout,
        SchedulePruning,
    }
    assert effects <= effects_of(fleet, first)
    (cleared,) = fleet.events(OperatorClearance)
    assert (cleared.operator, cleared.reason) == ("user_1", "looked at it")
    (ended,) = fleet.events(SuccessorOpened)
    (pruned,) = fleet.events(RetentionExpired)
    assert ended.superseded_rollout_id == pruned.rollout_id == first


@pytest.mark.req("RO-4", **pure)
def test_d19_requires_the_supersession_before_another_opening(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 1)
    (opened,) = fleet.events(RolloutOpened)
    other = RolloutOpened(
        rollout_id="web-stable@web.2",
        at=fleet.clock.now,
        channel=CHANNEL,
        target_ref="web.2",
        target_closure="sha256:2",
        plan_digest="sha256:plan",
        waves=opened.waves,
        on_failure=OnFailure.ROLLBACK,
        retention_seconds=1,
    )
    ended = SuccessorOpened(
        superseded_rollout_id=rollout_id,
        successor_rollout_id=other.rollout_id,
        at=fleet.clock.now,
    )
    for order in ((other,), (other, ended)):
        with pytest.raises(SupersessionExpected):
            CommitBuilder(FOLDS, fleet.store.get).add(order, fleet.clock.now)
    CommitBuilder(FOLDS, fleet.store.get).add((ended, other), fleet.clock.now)

    fleet.promote("web.2", 1)
    positions = {event.type: event.position for event in fleet.log()}
    assert positions["SuccessorOpened"] < positions["RolloutOpened"]


def test_d19_records_that_an_agent_rejects_its_order(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 2)
    fleet.order(rollout_id, "w0-0")
    fleet.reject(rollout_id, "w0-0")

    assert fleet.state(rollout_id) is RolloutState.FAILED
    assert len(fleet.events(DispatchReject)) == 1
    assert fleet.store.range(QUARANTINE.name, limit=1) == (), "it never ran there"


def test_d20_follows_the_policy_and_the_waves_of_its_opening_after_edits_of_the_channel(
    fleet: MemoryFleet,
) -> None:
    rollout_id = fleet.promote("web.1", 1, 1)
    opened = fleet.tally(rollout_id)
    command = EditChannel(
        channel=CHANNEL,
        selector="*",
        policy=ChannelPolicy(on_failure=OnFailure.HALT, retention_seconds=1, edges=()),
        operator="user_1",
        fleet_version=fleet.fleet_version(),
    )
    fleet.execute(edit_channel, command)

    assert fleet.tally(rollout_id) == opened
    fleet.start(rollout_id, "w0-0")
    fleet.fail(rollout_id, "w0-0")
    assert fleet.state(rollout_id) is RolloutState.ACTIVE, "it rolls back, as its plan says"
    fleet.revert(rollout_id, "w0-0")
    assert fleet.state(rollout_id) is RolloutState.REVERTED


# ── clearance, on the whole ───────────────────────────────────────────────────────────────────────


@pytest.mark.req("RO-18", **pure)
def test_continues_after_each_kind_of_clearance(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 2)
    fleet.start(rollout_id, "w0-0", "w0-1")
    fleet.fail(rollout_id, "w0-0", "w0-1")
    with pytest.raises(IllegalTransition):
        fleet.clear(rollout_id, Clearance.RESUME)  # it is halted, not Reverted yet
    fleet.revert(rollout_id, "w0-0", "w0-1")

    fleet.clear(rollout_id, Clearance.RESUME)
    fleet.reach(rollout_id, "w0-0")
    fleet.start(rollout_id, "w0-1")
    fleet.fail(rollout_id, "w0-1")
    fleet.lose(rollout_id, "w0-1")
    assert fleet.state(rollout_id) is RolloutState.FAILED

    fleet.clear(rollout_id, Clearance.WAIVE, "w0-1")
    assert fleet.state(rollout_id) is RolloutState.TERMINAL
    record = fleet.record(rollout_id, "w0-1")
    assert record is not None
    assert (record.left, record.state) == ("waived", HostState.FAILED)
    assert len(fleet.events(RolloutTerminal)) == 1


@pytest.mark.req("RO-18", "RO-5", **pure)
def test_abandons_without_a_successor_and_frees_the_channel(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 1)
    fleet.start(rollout_id, "w0-0")
    fleet.fail(rollout_id, "w0-0")
    fleet.revert(rollout_id, "w0-0")
    fleet.clear(rollout_id, Clearance.ABANDON)

    row, channel = fleet.rollout(rollout_id), fleet.channel()
    assert (row.state, row.superseded_by) == (RolloutState.SUPERSEDED, None)
    assert (channel.active_rollout_id, channel.newest_state) == (None, "Superseded")
    assert fleet.promote("web.2", 1) == "web-stable@web.2"
    assert fleet.events(SuccessorOpened) == []


@pytest.mark.req("RO-5", **pure)
def test_aborts_a_running_rollout_and_lets_delivered_orders_finish(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 3)
    fleet.start(rollout_id, "w0-0")
    fleet.order(rollout_id, "w0-1")
    command = AbortRollout(rollout_id=rollout_id, operator="user_1", reason="not this one")
    fleet.execute(abort_rollout, command)

    row, channel = fleet.rollout(rollout_id), fleet.channel()
    assert (row.state, row.superseded_by) == (RolloutState.SUPERSEDED, None)
    assert row.reason == "aborted: not this one"
    assert (channel.active_rollout_id, channel.newest_state) == (None, "Superseded")
    assert has_stopped(fleet.tally(rollout_id)), "the dispatcher cancels its orders"
    with pytest.raises(RolloutIsSuperseded):
        fleet.ack(rollout_id, "w0-1")
    with pytest.raises(RolloutIsSuperseded):
        fleet.order(rollout_id, "w0-2")
    fleet.cancel(rollout_id, "w0-1")

    fleet.activate(rollout_id, "w0-0")
    fleet.declare(rollout_id, "w0-0")
    fleet.converge(rollout_id, "w0-0")
    assert fleet.counts(rollout_id)[HostState.CONVERGED] == 1
    assert fleet.state(rollout_id) is RolloutState.SUPERSEDED
    assert fleet.promote("web.2", 1) == "web-stable@web.2"
    assert fleet.events(SuccessorOpened) == []
    assert differences(fleet.store, FOLDS) == []


def test_only_one_of_two_operators_can_clear(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 1)
    fleet.start(rollout_id, "w0-0")
    fleet.fail(rollout_id, "w0-0")
    fleet.revert(rollout_id, "w0-0")
    rival = fleet.sample.rival()
    abandoned = fleet.clearance(rollout_id, Clearance.ABANDON)
    fleet.sample.committer.before.append(lambda: rival.execute(*abandoned))

    with pytest.raises(IllegalTransition):
        fleet.clear(rollout_id, Clearance.RESUME)
    assert [fact.mode for fact in fleet.events(OperatorClearance)] == [Clearance.ABANDON]


def test_brings_a_late_host_to_the_release_of_all_others(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 1)
    fleet.reach(rollout_id, "w0-0")
    fleet.order(rollout_id, "w0-7", late=True)
    fleet.ack(rollout_id, "w0-7")
    fleet.fail(rollout_id, "w0-7")

    tally = fleet.tally(rollout_id)
    assert (tally.state, tally.late, tally.degraded) == (
        RolloutState.TERMINAL,
        {HostState.FAILED: 1},
        True,
    )
    assert len(fleet.events(RolloutTerminal)) == 1


def test_ends_at_once_without_hosts(fleet: MemoryFleet) -> None:
    before = fleet.head
    rollout_id = fleet.promote("web.1")

    assert fleet.types_since(before)[-4:] == [
        "RolloutOpened",
        "RolloutTerminal",
        "RolloutTransitioned",
        "RolloutConcluded",
    ]
    assert (fleet.state(rollout_id), fleet.rollout(rollout_id).reason) == (
        RolloutState.TERMINAL,
        "empty_plan",
    )
    assert fleet.channel().terminal_rollout_id == rollout_id


def test_continues_without_silent_hosts(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 2, 1, converged_min=0)
    fleet.order(rollout_id, "w0-0")
    fleet.skip(rollout_id, "w0-0")  # it had its order
    fleet.skip(rollout_id, "w0-1")  # it never got one

    assert fleet.rollout(rollout_id).current_wave == 1
    fleet.reach(rollout_id, "w1-0")
    assert fleet.state(rollout_id) is RolloutState.TERMINAL
    assert fleet.tally(rollout_id).waves[0].left == 2
