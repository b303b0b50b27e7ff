"""How a rollout ends, and what that means for its release: each state with each event that ends it,
the common sequences, and the standing of the release on the channel.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.domain.rollout_events import (
    ABORTED,
    ACTIVATING,
    EXPIRED,
    FAILED,
    FAILS,
    GOES_BACK,
    IS_LOST,
    PENDING,
    REVERTED,
    ROLLOUT,
    SITUATIONS,
    STARTS,
    SUCCESSOR,
    T0,
    TERMINAL,
    after,
    clears,
    concludes,
    events_to_converged,
    joins,
    moves,
    opened,
    runs,
    skips,
)
from tidegate.domain.hosts.states import OnFailure
from tidegate.domain.rollouts.facts import (
    ClearedHost,
    HostCounts,
    RolloutConcluded,
    RolloutHalted,
    RolloutOpened,
    RolloutTransitioned,
)
from tidegate.domain.rollouts.folds import Said, release_standings, step_standing, step_tally
from tidegate.domain.rollouts.refusals import RolloutInvariant
from tidegate.domain.rollouts.rows import ReleaseStanding, RolloutTally
from tidegate.domain.rollouts.states import Cause, Clearance, Outcome, RolloutState, Word
from tidegate.domain.rollouts.transitions import RolloutEvent
from tidegate.errors import IllegalTransition

pure = {"engines": None, "reason": "a pure function, before any engine"}

ABANDON = clears(Clearance.ABANDON)
HALT = OnFailure.HALT
ACTIVE = after(opened(2), *STARTS)
HALTED_ACTIVE = after(opened(2), *FAILS)
WENT_BACK = after(opened(1), *GOES_BACK)
LOST = after(opened(1), *IS_LOST)


def ending(tally: RolloutTally, event: RolloutEvent) -> tuple[Outcome | None, list[Struct]]:
    """Return the outcome after the event, and the fact that records it."""
    stepped, caused = step_tally(tally, event, T0)
    return stepped.outcome, [fact for fact in caused if isinstance(fact, RolloutConcluded)]


@pytest.mark.req("OP-1", **pure)
@pytest.mark.parametrize(
    ("tally", "event", "outcome"),
    [
        (after(opened(1)), ABORTED, Outcome.ABORTED),
        (after(opened(1)), SUCCESSOR, Outcome.REPLACED),
        (ACTIVE, ABORTED, Outcome.ABORTED),
        (ACTIVE, SUCCESSOR, Outcome.REPLACED),
        (HALTED_ACTIVE, ABORTED, Outcome.FAILED),
        (HALTED_ACTIVE, SUCCESSOR, Outcome.FAILED),
        (WENT_BACK, ABANDON, Outcome.ROLLED_BACK),
        (WENT_BACK, SUCCESSOR, Outcome.ROLLED_BACK),
        (LOST, ABANDON, Outcome.FAILED),
        (LOST, SUCCESSOR, Outcome.FAILED),
        (step_tally(None, opened(), T0)[0], TERMINAL, Outcome.EMPTY),
    ],
)
def test_the_outcome_follows_from_the_state_and_the_event_that_ended_it(
    tally: RolloutTally, event: RolloutEvent, outcome: Outcome
) -> None:
    found, said = ending(tally, event)

    assert found is outcome
    assert [fact.outcome for fact in said if isinstance(fact, RolloutConcluded)] == [outcome]


@pytest.mark.req("OP-1", **pure)
@pytest.mark.parametrize(
    ("tally", "tried_again"),
    [
        (WENT_BACK, moves(REVERTED, PENDING)),
        (LOST, moves(FAILED, PENDING, rollback_failed=True)),
    ],
    ids=["Reverted", "Failed"],
)
def test_has_no_outcome_while_a_clearance_may_still_lead_to_success(
    tally: RolloutTally, tried_again: RolloutEvent
) -> None:
    """Reverted and Failed are stops, not ends."""
    assert tally.outcome is None
    assert ending(tally, TERMINAL) == (None, [])

    for event in (clears(Clearance.RESUME), tried_again, *events_to_converged()):
        assert tally.outcome is None
        tally = runs(event, tally, T0)
    assert tally.outcome is Outcome.SUCCEEDED


@pytest.mark.req("OP-1", **pure)
def test_never_changes_its_outcome_later() -> None:
    late = (joins(late=True, host_id="z"), moves(PENDING, ACTIVATING, late=True))
    tally = after(opened(1), *events_to_converged())
    assert (tally.outcome, tally.outcome_at) == (Outcome.SUCCEEDED, T0)

    for event in (*late, moves(ACTIVATING, FAILED, late=True), moves(FAILED, REVERTED, late=True)):
        tally = runs(event, tally, T0)
    assert tally.degraded
    tally = runs(SUCCESSOR, tally, T0 + timedelta(hours=1))
    assert ending(after(opened(1), *events_to_converged()), SUCCESSOR) == (Outcome.SUCCEEDED, [])
    assert (tally.outcome, tally.outcome_at) == (Outcome.SUCCEEDED, T0)
    gone = runs(EXPIRED, replace(tally, busy=0, late={}), T0 + timedelta(days=2))
    assert (gone.state, gone.outcome) == (RolloutState.PRUNED, Outcome.SUCCEEDED)


WAIVES = clears(Clearance.WAIVE, ClearedHost("a", 0, REVERTED))


@pytest.mark.req("OP-1", **pure)
@pytest.mark.parametrize(
    ("outcome", "tally"),
    [
        (Outcome.SUCCEEDED, after(opened(2), *events_to_converged(), skips(None))),
        (
            Outcome.SUCCEEDED,
            after(opened(2), *events_to_converged(host_id="b"), *GOES_BACK, WAIVES),
        ),
        (Outcome.EMPTY, after(opened())),
        (Outcome.EMPTY, after(opened(1), skips(None))),
        (Outcome.FAILED, after(opened(1, failures_max=1), *FAILS)),
        (Outcome.FAILED, after(opened(1), *GOES_BACK, WAIVES)),
    ],
    ids=["one skipped", "one waived", "no hosts", "all skipped", "all failed", "all waived"],
)
def test_ends_by_what_its_planned_hosts_did(outcome: Outcome, tally: RolloutTally) -> None:
    assert (tally.state, tally.outcome) == (RolloutState.TERMINAL, outcome)


@pytest.mark.req("OP-1", **pure)
def test_records_its_outcome_and_what_ended_it() -> None:
    tally = after(
        opened(4, failures_max=1), *events_to_converged(host_id="b"), *STARTS, skips(None)
    )
    tally = runs(moves(ACTIVATING, FAILED), tally, T0)
    assert tally.waves[0].tolerated == 1

    _, (_, said) = step_tally(tally, SUCCESSOR, T0)

    assert said == replace(
        concludes(Outcome.REPLACED),
        cause=Cause.SUCCESSOR,
        cause_id="web-stable@web.4",
        counts=HostCounts(hosts=4, converged=1, tolerated=1, skipped=1),
    )
    _, (_, stopped) = step_tally(WENT_BACK, ABANDON, T0)
    assert isinstance(stopped, RolloutConcluded)
    assert (stopped.cause, stopped.cause_id) == (Cause.HOST, "a")


def test_refuses_an_outcome_other_than_its_own() -> None:
    for tally in SITUATIONS:
        for outcome in Outcome:
            if tally.outcome is None:
                with pytest.raises(IllegalTransition):
                    step_tally(tally, concludes(outcome), T0)
            elif tally.state is not RolloutState.PRUNED and outcome is not tally.outcome:
                with pytest.raises(RolloutInvariant):
                    step_tally(tally, concludes(outcome), T0)


@pytest.mark.req("OP-1", **pure)
@pytest.mark.parametrize(
    ("before", "event"),
    [
        (after(opened(1, on_failure=HALT), *STARTS), moves(ACTIVATING, FAILED)),
        (after(opened(1), *STARTS), moves(ACTIVATING, FAILED)),
        (after(opened(1), *STARTS), moves(ACTIVATING, FAILED, rollback_failed=True)),
    ],
    ids=["halt", "rollback-and-halt", "the rollback failed at once"],
)
def test_records_that_it_is_halted_under_every_policy(
    before: RolloutTally, event: RolloutEvent
) -> None:
    stepped, caused = step_tally(before, event, T0)

    assert stepped.halted_by == "a"
    assert [fact for fact in caused if isinstance(fact, RolloutHalted)] == [
        RolloutHalted(rollout_id=ROLLOUT, at=T0, host_id="a", reason="the host failed")
    ]
    for fact in caused:
        if isinstance(fact, RolloutHalted):
            assert step_tally(stepped, fact, T0) == (stepped, ()), (
                "recorded once, and nothing follows"
            )


# ── the word on a release ─────────────────────────────────────────────────────────────────────────

UNKNOWN = ReleaseStanding(channel="web-stable", release_id="web.3", rollout_id=ROLLOUT)
GOOD = step_standing(UNKNOWN, concludes(Outcome.SUCCEEDED), T0)
BAD = step_standing(
    UNKNOWN, RolloutHalted(rollout_id=ROLLOUT, at=T0, host_id="a", reason="the host failed"), T0
)
NEXT = replace(opened(1), rollout_id="web-stable@web.4", target_ref="web.4", previous_ref="web.3")
HOUR = timedelta(hours=1)


def goes(to: RolloutState) -> RolloutTransitioned:
    return RolloutTransitioned(
        rollout_id=ROLLOUT, at=T0, from_=RolloutState.ACTIVE, to=to, current_wave=0
    )


def later(fact: Said, span: timedelta) -> Said:
    return replace(fact, at=T0 + span)


@pytest.mark.req("OP-2", **pure)
@pytest.mark.parametrize(
    ("fact", "unknown", "good", "bad"),
    [
        (concludes(Outcome.SUCCEEDED), Word.GOOD, Word.GOOD, Word.GOOD),
        (
            RolloutHalted(rollout_id=ROLLOUT, at=T0, host_id="a", reason="the host failed"),
            *(Word.BAD, Word.BAD, Word.BAD),
        ),
        (goes(RolloutState.REVERTED), Word.BAD, Word.BAD, Word.BAD),
        (goes(RolloutState.FAILED), Word.BAD, Word.BAD, Word.BAD),
        (concludes(Outcome.ROLLED_BACK), Word.BAD, Word.BAD, Word.BAD),
        (concludes(Outcome.FAILED), Word.BAD, Word.BAD, Word.BAD),
        (replace(NEXT, rollback_of="web.3"), Word.BAD, Word.BAD, Word.BAD),
        (NEXT, None, Word.GOOD, Word.BAD),
        (concludes(Outcome.ABORTED), None, Word.GOOD, Word.BAD),
        (concludes(Outcome.REPLACED), None, Word.GOOD, Word.BAD),
        (concludes(Outcome.EMPTY), None, Word.GOOD, Word.BAD),
        (goes(RolloutState.SUPERSEDED), None, Word.GOOD, Word.BAD),
        (
            replace(opened(1), rollout_id=f"{ROLLOUT}~2", previous_ref="web.4"),
            *(None, Word.GOOD, Word.BAD),
        ),
    ],
)
def test_a_success_marks_a_release_good_and_a_halt_a_bad_outcome_or_a_rollback_bad(
    fact: Said, unknown: Word | None, good: Word, bad: Word
) -> None:
    assert "web-stable/web.3" in release_standings.ids(fact)
    found = [step_standing(row, fact, T0).word for row in (UNKNOWN, GOOD, BAD)]

    assert found == [unknown, good, bad]


@pytest.mark.req("OP-2", **pure)
def test_a_second_success_keeps_the_time_of_the_first() -> None:
    again = step_standing(GOOD, later(concludes(Outcome.SUCCEEDED), HOUR), T0)

    assert (again.said_at, again.running_since) == (T0, T0)


@pytest.mark.req("OP-2", **pure)
def test_counts_how_long_a_release_was_the_newest_success_until_it_was_marked_bad() -> None:
    moved_on = step_standing(GOOD, later(NEXT, HOUR), T0)
    assert (moved_on.running_since, moved_on.soaked_seconds) == (None, 3_600)
    assert moved_on.followed_by == "web.4"

    back = step_standing(moved_on, later(concludes(Outcome.SUCCEEDED), 2 * HOUR), T0)
    short = step_standing(back, later(NEXT, 2 * HOUR + timedelta(seconds=5)), T0)
    assert short.soaked_seconds == 3_600, "the longest stretch counts"

    rolled_back = replace(NEXT, rollback_of="web.3", operator="user_1", reason="memory leak")
    left = step_standing(back, later(rolled_back, 3 * HOUR), T0)
    assert (left.word, left.soaked_seconds, left.running_since) == (Word.BAD, 0, None)
    assert (left.operator, left.reason) == ("user_1", "memory leak")


@pytest.mark.req("OP-2", **pure)
def test_ends_that_period_although_the_rollout_was_pruned_before_the_next_one() -> None:
    """A pruned rollout is superseded by none: the next opening shows that the channel moved on."""
    opening = later(NEXT, HOUR)
    assert isinstance(opening, RolloutOpened)

    assert release_standings.ids(opening) == ("web-stable/web.4", "web-stable/web.3")
    assert step_standing(GOOD, opening, T0).running_since is None


def test_a_tolerated_failure_does_not_mark_the_release() -> None:
    tally = after(opened(2, failures_max=1), *events_to_converged(host_id="b"), *STARTS)
    _, caused = step_tally(tally, moves(ACTIVATING, FAILED), T0)

    assert [type(fact).__name__ for fact in caused] == ["HostSkipped"]
    assert runs(moves(ACTIVATING, FAILED), tally, T0).outcome is Outcome.SUCCEEDED
