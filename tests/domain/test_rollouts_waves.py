"""When the next wave starts: one predicate, a delay, an operator's command; and skipped waves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.domain.memory_fleet import MemoryFleet
from tests.domain.rollout_events import (
    ACTIVATING,
    DEFERRED,
    FAILED,
    PENDING,
    ROLLOUT,
    T0,
    after,
    events_to_converged,
    joins,
    moves,
    opened,
    runs,
)
from tidegate.domain.composition import FOLDS
from tidegate.domain.hosts.refusals import WaveNotReached
from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts.facts import WaveAdvanced, WaveContinued, WaveSkipped
from tidegate.domain.rollouts.machine import step
from tidegate.domain.rollouts.refusals import (
    NothingToContinue,
    RolloutInvariant,
    WaveNotFound,
    WavePassed,
)
from tidegate.domain.rollouts.rows import WaveTally
from tidegate.domain.rollouts.slices import (
    PauseRollout,
    ResumeRollout,
    pause_rollout,
    resume_rollout,
)
from tidegate.domain.rollouts.states import Outcome, RolloutState
from tidegate.domain.rollouts.tallies import is_done, reached
from tidegate.domain.rollouts.wave_slices import (
    ContinueRollout,
    PromoteAll,
    SkipWave,
    StartDueWave,
    continue_rollout,
    promote_all,
    skip_wave,
    start_due_wave,
)
from tidegate.errors import IllegalTransition
from tidegate.kernel.replay import differences

pure = {"engines": None, "reason": "pure steps on the oracle; engines have their own suite"}
BY: dict[str, Any] = {"operator": "user_1", "reason": "I looked"}


@pytest.fixture
def fleet() -> Iterator[MemoryFleet]:
    """A fleet whose log, at the end of the test, must give exactly its rows."""
    played = MemoryFleet()
    yield played
    assert differences(played.store, FOLDS) == []


def finish(fleet: MemoryFleet, rollout_id: str, host_id: str) -> None:
    """Let a switching host converge."""
    fleet.activate(rollout_id, host_id)
    fleet.declare(rollout_id, host_id)
    fleet.converge(rollout_id, host_id)


# ── the predicate ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RO-12", "OP-9", **pure)
@pytest.mark.parametrize(
    ("hosts", "percent", "least", "converged", "deferred", "left", "done"),
    [
        (1, 100, 1, 0, 0, 1, False),  # the only host was skipped: no host proved it
        (10, 100, 1, 8, 1, 1, True),  # 9 of the 9 that count
        (10, 100, 1, 0, 10, 0, False),  # all wait for a reboot
        (100, 95, 1, 90, 0, 10, True),  # 95 % of 90, rounded up, is 86
        (100, 95, 1, 94, 0, 0, False),
        (100, 95, 1, 95, 0, 0, True),
        (3, 100, 5, 3, 0, 0, True),  # it requires no more than there are
        (3, 1, 0, 0, 0, 0, False),  # 1 % of 3 is one host
        (3, 1, 0, 1, 0, 0, True),
        (3, 100, 0, 0, 0, 3, True),  # the policy requires no host
    ],
)
def test_a_wave_is_done_when_enough_hosts_converged_and_enough_are_done(
    hosts: int, percent: int, least: int, converged: int, deferred: int, left: int, done: bool
) -> None:
    counts = {HostState.CONVERGED: converged, HostState.DEFERRED: deferred}
    wave = WaveTally(
        name="w",
        hosts=hosts,
        success_percent=percent,
        converged_min=least,
        states={state: count for state, count in counts.items() if count},
        left=left,
    )

    assert is_done(wave) is done


@pytest.mark.req("RO-12", "OP-9", **pure)
def test_starts_the_next_wave_while_hosts_of_a_share_are_under_way(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 4, 1, members={"success_percent": 50})
    fleet.start(rollout_id, "w0-2", "w0-3")
    fleet.reach(rollout_id, "w0-0")
    assert fleet.rollout(rollout_id).current_wave == 0
    fleet.reach(rollout_id, "w0-1")

    row, tally = fleet.rollout(rollout_id), fleet.tally(rollout_id)
    assert (row.state, row.current_wave) == (tally.state, tally.current_wave) == ("Active", 1)
    fleet.reach(rollout_id, "w1-0")
    assert fleet.state(rollout_id) == "Active", "the end waits for the stragglers"
    fleet.fail(rollout_id, "w0-2")
    assert fleet.tally(rollout_id).halted_at is not None, "a straggler that fails still halts it"


def test_waits_again_when_a_host_that_counted_is_no_longer_done() -> None:
    share = {"success_percent": 50}
    tally = after(
        opened(2, 1, 1, members=share), *events_to_converged(), *events_to_converged(1, "c")
    )
    assert (tally.current_wave, reached(tally)) == (2, 2)


# ── a delay ───────────────────────────────────────────────────────────────────────────────────────

MINUTE = timedelta(minutes=1)


def promote_later(fleet: MemoryFleet, *hosts: int, **members: Any) -> str:
    """Open a rollout in which every wave has a delay; that of the first one is over."""
    rollout_id = fleet.promote("web.1", *hosts, members={"delay_seconds": 60, **members})
    with pytest.raises(WaveNotReached, match="starts at"):
        fleet.order(rollout_id, "w0-0")
    fleet.clock.now += MINUTE
    return rollout_id


def start_due(fleet: MemoryFleet, rollout_id: str) -> None:
    due_at = fleet.tally(rollout_id).due_at
    assert due_at is not None
    fleet.execute(start_due_wave, StartDueWave(rollout_id=rollout_id, due_at=due_at))


def test_waits_for_the_delay_of_the_next_wave_and_then_starts_it_by_a_timer(
    fleet: MemoryFleet,
) -> None:
    rollout_id = promote_later(fleet, 1, 1)
    fleet.reach(rollout_id, "w0-0")
    tally = fleet.tally(rollout_id)
    done_at = tally.done_at
    assert done_at is not None
    assert (tally.state, tally.current_wave, tally.due_at) == ("Converging", 0, done_at + MINUTE)

    start_due(fleet, rollout_id)  # too early
    assert fleet.tally(rollout_id).current_wave == 0
    fleet.clock.now = done_at + MINUTE
    start_due(fleet, rollout_id)

    tally = fleet.tally(rollout_id)
    assert (tally.current_wave, tally.due_at, tally.done_at) == (1, None, None)
    fleet.reach(rollout_id, "w1-0")
    assert fleet.tally(rollout_id).outcome is Outcome.SUCCEEDED


def test_starts_no_wave_by_its_timer_while_it_is_paused(fleet: MemoryFleet) -> None:
    rollout_id = promote_later(fleet, 1, 1)
    fleet.reach(rollout_id, "w0-0")
    said: dict[str, Any] = {"rollout_id": rollout_id, **BY}
    fleet.execute(pause_rollout, PauseRollout(**said))
    assert fleet.tally(rollout_id).due_at is None
    fleet.clock.now += MINUTE * 2
    fleet.execute(resume_rollout, ResumeRollout(**said))
    assert fleet.tally(rollout_id).current_wave == 1, "its time came meanwhile"


def test_restarts_the_delay_when_a_host_is_no_longer_done() -> None:
    tally = after(
        opened(2, 1, members={"delay_seconds": 60}),
        *events_to_converged(),
        joins(host_id="b"),
        moves(HostState.PENDING, HostState.ACTIVATING, host_id="b"),
        moves(HostState.ACTIVATING, HostState.DEFERRED, host_id="b"),
    )
    assert tally.done_at == T0
    back = runs(
        moves(HostState.DEFERRED, HostState.SOAKING, host_id="b", retaken=True),
        tally,
        T0 + MINUTE / 2,
    )
    assert (back.done_at, back.due_at) == (None, None)
    again = runs(moves(HostState.SOAKING, HostState.CONVERGED, host_id="b"), back, T0 + MINUTE)
    assert (again.done_at, again.due_at) == (T0 + MINUTE, T0 + 2 * MINUTE)


def test_refuses_a_wave_before_its_time() -> None:
    tally = after(opened(1, 1, members={"delay_seconds": 60}), *events_to_converged())
    advanced = WaveAdvanced(rollout_id=ROLLOUT, at=T0, from_wave=0, to_wave=1)
    with pytest.raises(RolloutInvariant, match="may not start yet"):
        step(tally, advanced, T0 + MINUTE - timedelta(seconds=1))
    assert step(tally, advanced, T0 + MINUTE)[0].current_wave == 1


# ── a manual wave ─────────────────────────────────────────────────────────────────────────────────

BY_HAND: dict[str, Any] = {"members": {"manual": True}}


def go_on(fleet: MemoryFleet, rollout_id: str) -> None:
    fleet.execute(continue_rollout, ContinueRollout(rollout_id=rollout_id, operator="user_1"))


@pytest.mark.req("OP-9", **pure)
def test_orders_no_host_of_a_manual_wave_before_it_is_continued(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 1, 1, **BY_HAND)
    with pytest.raises(WaveNotReached):
        fleet.order(rollout_id, "w0-0")
    go_on(fleet, rollout_id)
    fleet.reach(rollout_id, "w0-0")
    assert (fleet.state(rollout_id), fleet.tally(rollout_id).current_wave) == ("Converging", 0)

    go_on(fleet, rollout_id)
    go_on(fleet, rollout_id)  # a repeat has no effect
    assert fleet.tally(rollout_id).current_wave == 1
    assert len(fleet.events(WaveContinued)) == 2
    fleet.reach(rollout_id, "w1-0")
    assert fleet.state(rollout_id) is RolloutState.TERMINAL


def test_may_be_continued_before_the_wave_before_it_is_done(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 1, 1, **BY_HAND)
    go_on(fleet, rollout_id)
    fleet.start(rollout_id, "w0-0")
    go_on(fleet, rollout_id)
    assert fleet.tally(rollout_id).current_wave == 0
    finish(fleet, rollout_id, "w0-0")
    assert fleet.tally(rollout_id).current_wave == 1


def test_cannot_continue_an_automatic_wave_or_a_halted_rollout(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 1, 1)
    with pytest.raises(NothingToContinue, match=r"no wave of .* waits to be continued"):
        go_on(fleet, rollout_id)
    fleet.start(rollout_id, "w0-0")
    fleet.fail(rollout_id, "w0-0")
    with pytest.raises(IllegalTransition, match="halted"):
        go_on(fleet, rollout_id)


# ── waves that an operator passes ─────────────────────────────────────────────────────────────────


def skip(fleet: MemoryFleet, rollout_id: str, wave: str) -> None:
    fleet.execute(skip_wave, SkipWave(rollout_id=rollout_id, wave=wave, **BY))


@pytest.mark.req("OP-9", "RO-12", **pure)
def test_starts_the_next_wave_once_when_a_tolerated_failure_follows_its_delay(
    fleet: MemoryFleet,
) -> None:
    """Seed 3860 of the walks: the failure and its skip each advanced the wave."""
    rollout_id = fleet.promote("web.1", 1, 1, members={"delay_seconds": 60}, failures_max=1)
    fleet.clock.now += timedelta(seconds=61)
    fleet.start(rollout_id, "w0-0")
    skip(fleet, rollout_id, "w0")
    fleet.clock.now += timedelta(seconds=61)
    fleet.fail(rollout_id, "w0-0")

    assert [(f.from_wave, f.to_wave) for f in fleet.events(WaveAdvanced)] == [(0, 1)]
    assert fleet.tally(rollout_id).current_wave == 1


@pytest.mark.req("OP-9", **pure)
def test_the_delay_starts_again_when_a_deferred_host_fails_within_it() -> None:
    failed = moves(DEFERRED, FAILED)
    tally = after(
        opened(2, 1, members={"delay_seconds": 3600}, failures_max=1),
        *(joins(), moves(PENDING, ACTIVATING), moves(ACTIVATING, DEFERRED)),
        *events_to_converged(host_id="b"),
        now=T0,
    )
    assert tally.done_at == T0
    later = T0 + timedelta(minutes=30)

    tally = runs(failed, tally, later)

    assert tally.done_at == later
    assert tally.due_at == later + timedelta(hours=1)


@pytest.mark.req("OP-9", **pure)
def test_continues_without_a_wave_that_an_operator_skips(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 3, 1, 1)
    fleet.start(rollout_id, "w0-0")
    fleet.order(rollout_id, "w0-1")
    skip(fleet, rollout_id, "w0")
    skip(fleet, rollout_id, "1")  # the same wave by its number: a repeat has no effect

    tally = fleet.tally(rollout_id)
    assert (tally.state, tally.current_wave, tally.waves[0].left) == ("Active", 1, 1)
    assert len(fleet.events(WaveSkipped)) == 1
    with pytest.raises(WaveNotReached, match=r"wave w0 of .* was skipped"):
        fleet.order(rollout_id, "w0-2")
    fleet.skip_by_hand(rollout_id, "w0-2")  # it was skipped already
    fleet.cancel(rollout_id, "w0-1")  # a cancelled order does not come again
    assert fleet.tally(rollout_id).waves[0].left == 2
    fleet.reach(rollout_id, "w1-0")
    fleet.reach(rollout_id, "w2-0")
    assert fleet.state(rollout_id) == "Active", "w0-0 is still under way"
    finish(fleet, rollout_id, "w0-0")
    assert fleet.tally(rollout_id).outcome is Outcome.SUCCEEDED


def test_skipping_a_later_wave_also_skips_its_delay_and_its_manual_start(
    fleet: MemoryFleet,
) -> None:
    rollout_id = fleet.promote("web.1", 1, 1, 1, members={"delay_seconds": 60, "manual": True})
    fleet.clock.now += MINUTE
    go_on(fleet, rollout_id)
    skip(fleet, rollout_id, "w1")
    fleet.reach(rollout_id, "w0-0")
    assert fleet.tally(rollout_id).current_wave == 1, "it passes the skipped wave"
    skip(fleet, rollout_id, "w2")
    assert fleet.tally(rollout_id).outcome is Outcome.SUCCEEDED


def test_cannot_skip_a_missing_or_started_wave(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 1, 1)
    with pytest.raises(WaveNotFound, match="has no wave early; its waves are w0, w1"):
        skip(fleet, rollout_id, "early")
    for none in ("0", "3"):  # waves are numbered from 1 for people
        with pytest.raises(WaveNotFound):
            skip(fleet, rollout_id, none)
    fleet.reach(rollout_id, "w0-0")
    with pytest.raises(WavePassed, match="is at wave w1, so wave w0 can't be skipped"):
        skip(fleet, rollout_id, "w0")


def test_explains_why_a_verb_is_not_possible(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 1, 1)
    fleet.reach(rollout_id, "w0-0")
    fleet.reach(rollout_id, "w1-0")

    with pytest.raises(IllegalTransition) as refused:
        skip(fleet, rollout_id, "w1")

    assert refused.value.detail == f"{rollout_id} has succeeded, so you can't skip a wave of it"


def test_ends_without_a_success_when_every_wave_is_skipped(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 2, 1)
    skip(fleet, rollout_id, "w1")
    skip(fleet, rollout_id, "w0")
    assert fleet.tally(rollout_id).outcome is Outcome.EMPTY


def force(fleet: MemoryFleet, rollout_id: str) -> None:
    fleet.execute(promote_all, PromoteAll(rollout_id=rollout_id, **BY))


@pytest.mark.req("OP-9", **pure)
def test_starts_every_wave_at_once_and_still_counts_their_hosts(fleet: MemoryFleet) -> None:
    members = {"delay_seconds": 60, "manual": True}
    rollout_id = fleet.promote("web.1", 1, 1, 2, members=members)
    fleet.clock.now += MINUTE
    force(fleet, rollout_id)
    force(fleet, rollout_id)

    facts = [(fact.from_wave, fact.to_wave, fact.forced) for fact in fleet.events(WaveAdvanced)]
    assert facts == [(0, 1, True), (1, 2, True)]
    assert (fleet.state(rollout_id), fleet.rollout(rollout_id).current_wave) == ("Opening", 2)
    fleet.reach(rollout_id, "w2-0", "w2-1", "w1-0")
    assert fleet.state(rollout_id) == "Active", "w0-0 still counts"
    fleet.start(rollout_id, "w0-0")
    fleet.fail(rollout_id, "w0-0")
    assert fleet.tally(rollout_id).halted_at is not None
    with pytest.raises(IllegalTransition, match="halted"):
        force(fleet, rollout_id)


def test_starts_the_only_wave_that_waits_for_a_person(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 1, **BY_HAND)
    force(fleet, rollout_id)
    fleet.reach(rollout_id, "w0-0")
    assert fleet.tally(rollout_id).outcome is Outcome.SUCCEEDED


def test_forces_past_a_wave_that_was_skipped(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 1, 1, 1)
    skip(fleet, rollout_id, "w1")
    force(fleet, rollout_id)
    cursors = [(fact.from_wave, fact.to_wave) for fact in fleet.events(WaveAdvanced)]
    assert cursors == [(0, 1), (1, 2)]
    assert fleet.rollout(rollout_id).current_wave == 2


@pytest.mark.req("OP-9", **pure)
@pytest.mark.parametrize("began", [True, False], ids=["failed", "skipped without an order"])
def test_forces_past_a_skipped_wave_if_the_wave_before_it_lacks_its_minimum(
    fleet: MemoryFleet, began: bool
) -> None:
    rollout_id = fleet.promote("web.1", 1, 1, 1, failures_max=1)
    if began:
        fleet.order(rollout_id, "w0-0")
        fleet.reject(rollout_id, "w0-0")
    else:
        fleet.skip_by_hand(rollout_id, "w0-0")
    skip(fleet, rollout_id, "w1")
    assert fleet.rollout(rollout_id).current_wave == 0, "the first wave lacks a converged host"

    force(fleet, rollout_id)

    assert fleet.rollout(rollout_id).current_wave == 2
    fleet.reach(rollout_id, "w2-0")
    assert fleet.tally(rollout_id).outcome is Outcome.SUCCEEDED
