"""The rollout's machine alone: every pair of state and event, each guard, and each effect."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import Struct
from msgspec.structs import replace

import tidegate
from tests.domain.rollout_events import (
    ABORTED,
    ACTIVATING,
    CONVERGED,
    DAY,
    DEFERRED,
    EXPIRED,
    FAILED,
    FAILS,
    GOES_BACK,
    IS_LOST,
    OVERRIDDEN,
    PAUSED,
    PENDING,
    RESUMED,
    REVERTED,
    ROLLOUT,
    SITUATIONS,
    SOAKING,
    STARTS,
    SUCCESSOR,
    T0,
    TERMINAL,
    _two,
    after,
    clears,
    concludes,
    events_to_converged,
    joins,
    moves,
    opened,
    runs,
    skips,
    skips_wave,
)
from tidegate.domain.channels.rows import QUARANTINE
from tidegate.domain.hosts.facts import HostJoined, HostRegressed, HostStateChanged
from tidegate.domain.hosts.orders import WAIVED
from tidegate.domain.hosts.refusals import RolloutIsPruned
from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts.effects import (
    InsertQuarantineFromRollout,
    RecordRolloutTransition,
    SchedulePruning,
    UpdateCurrentWave,
)
from tidegate.domain.rollouts.facts import (
    ClearedHost,
    GateChanged,
    HostCounts,
    OperatorClearance,
    RetentionExpired,
    RolloutConcluded,
    RolloutHalted,
    RolloutOpened,
    RolloutTerminal,
    RolloutTransitioned,
    SuccessorOpened,
    WaveAdvanced,
    WaveContinued,
)
from tidegate.domain.rollouts.folds import step_gates, step_rollout, step_tally
from tidegate.domain.rollouts.history import histories, render
from tidegate.domain.rollouts.host_steps import TOLERATED
from tidegate.domain.rollouts.machine import step
from tidegate.domain.rollouts.names import channel_of, check_rollout_id, ref_of, rollout_id
from tidegate.domain.rollouts.refusals import RollbackRunning, RolloutInvariant
from tidegate.domain.rollouts.rows import GATES, ROLLOUTS, TALLIES, RolloutGates, RolloutTally
from tidegate.domain.rollouts.slices import (
    AbortRollout,
    ChangeGates,
    ExpireRetention,
    GateFinding,
    PauseRollout,
    ResumeRollout,
    abort_rollout,
    change_gates,
    expire_retention,
    pause_rollout,
    resume_rollout,
)
from tidegate.domain.rollouts.states import (
    CLEARABLE,
    DISPATCHABLE,
    OPEN,
    Cause,
    Clearance,
    Outcome,
    RolloutState,
)
from tidegate.domain.rollouts.transitions import TABLE, RolloutEvent
from tidegate.errors import IllegalTransition, InvalidInput, LimitExceeded, Refused, TidegateError
from tidegate.kernel import codec
from tidegate.kernel.collections import Nature, Writers
from tidegate.kernel.slices import Slice

pure = {"engines": None, "reason": "a pure function, before any engine"}


HALTED = RolloutHalted(rollout_id=ROLLOUT, at=T0, host_id="a", reason="the host failed")


def advances(from_wave: int, to_wave: int) -> WaveAdvanced:
    return WaveAdvanced(rollout_id=ROLLOUT, at=T0, from_wave=from_wave, to_wave=to_wave)


def continues(wave: int) -> WaveContinued:
    return WaveContinued(rollout_id=ROLLOUT, at=T0, wave=wave, operator="user_1")


# ── all pairs ─────────────────────────────────────────────────────────────────────────────────────


# No sequence of commands leads here, but the machine must handle it: a host of a wave that was done
# comes after all.
UNHEARD_OF = [
    (replace(after(opened(2), *events_to_converged()), state=RolloutState.CONVERGING), HostJoined),
]
EVENTS: list[RolloutEvent] = [
    opened(1),
    joins(),
    joins(1),
    joins(late=True),
    *(moves(a, b) for a, b in product(HostState, HostState)),
    *(moves(a, FAILED, rollback_failed=True) for a in HostState),
    moves(FAILED, REVERTED, left=True),
    moves(PENDING, ACTIVATING, late=True),
    *(skips(state) for state in (None, *HostState)),
    skips(FAILED, TOLERATED),
    skips(FAILED, late=True),
    skips(FAILED, WAIVED),
    HostRegressed(rollout_id=ROLLOUT, host_id="a", at=T0, reason="drift"),
    advances(0, 1),
    advances(0, 0),
    replace(advances(0, 1), forced=True),
    *(continues(wave) for wave in (0, 1)),
    *(skips_wave(wave) for wave in (0, 1)),
    TERMINAL,
    HALTED,
    PAUSED,
    RESUMED,
    OVERRIDDEN,
    ABORTED,
    SUCCESSOR,
    EXPIRED,
    *map(concludes, Outcome),
    clears(Clearance.RESUME),
    clears(Clearance.ABANDON),
    clears(Clearance.WAIVE, ClearedHost("a", 0, REVERTED)),
    clears(Clearance.WAIVE, ClearedHost("a", 0, FAILED)),
    clears(Clearance.WAIVE, ClearedHost("a", 0, FAILED, rollback_failed=True)),
    clears(
        Clearance.WAIVE,
        ClearedHost("a", 0, FAILED, rollback_failed=True),
        ClearedHost("b", 0, REVERTED),
    ),
    clears(Clearance.WAIVE, ClearedHost("b", 0, PENDING)),
]


def test_covers_every_state_and_every_event() -> None:
    assert {tally.state for tally in SITUATIONS} == set(RolloutState)
    missing = set(get_args(RolloutEvent)) - {type(event) for event in EVENTS}
    assert not missing, "add an example of each to EVENTS"
    assert set(TABLE) == set(RolloutState)
    assert {event for row in TABLE.values() for event in row} == set(get_args(RolloutEvent))


@pytest.mark.req("RO-2", **pure)
@pytest.mark.parametrize(("state", "kind"), list(product(RolloutState, get_args(RolloutEvent))))
def test_accepts_exactly_the_pairs_of_its_table(state: RolloutState, kind: type[Struct]) -> None:
    """Outside the table every event is refused with a typed error. Inside, the machine reaches only
    the states that the table names, and each of them on some occasion; a guard may still refuse.
    """
    reached: set[RolloutState] = set()
    refused: list[TidegateError] = []
    unheard_of = [tally for tally, only in UNHEARD_OF if only is kind]
    for tally, event in product((*SITUATIONS, *unheard_of), EVENTS):
        if tally.state is state and type(event) is kind:
            try:
                reached.add(step(tally, event, T0 + timedelta(days=1))[0].state)
            except TidegateError as error:
                refused.append(error)

    if kind in TABLE[state]:
        assert reached == TABLE[state][kind]
    else:
        assert reached == set()
        assert {type(error) for error in refused} == {IllegalTransition}
        assert {error.facts["state"] for error in refused} == {state}


@pytest.mark.req("RO-2", **pure)
@pytest.mark.parametrize("kind", get_args(RolloutEvent))
def test_begins_with_its_opening_and_nothing_else(kind: type[Struct]) -> None:
    for event in EVENTS:
        if type(event) is kind and kind is not RolloutOpened:
            with pytest.raises(IllegalTransition, match="absent"):
                step(None, event, T0)


def test_accepts_the_same_opening_twice_and_no_other_under_one_id() -> None:
    tally = after(opened(1))

    assert step(tally, opened(1), T0) == (tally, ())
    for other in ("target_closure", "plan_digest", "target_ref"):
        with pytest.raises(RolloutInvariant):
            step(tally, replace(opened(1), **{other: "another"}), T0)


@pytest.mark.req("RO-1", **pure)
def test_is_a_function_of_tally_event_and_time() -> None:
    for tally, event in product(SITUATIONS, EVENTS):
        outcomes = []
        for _ in range(2):
            try:
                outcomes.append(repr(step(tally, event, T0)))
            except Refused as refusal:
                outcomes.append(repr(refusal))
            except InvalidInput as refusal:
                outcomes.append(repr(refusal))
        assert outcomes[0] == outcomes[1]


# ── invariants that the step itself holds ─────────────────────────────────────────────────────────


@pytest.mark.req("RO-3", **pure)
@pytest.mark.parametrize(
    "tally", [t for t in SITUATIONS if t.state in (RolloutState.ACTIVE, RolloutState.CONVERGING)]
)
def test_refuses_an_end_that_not_every_host_reached(tally: RolloutTally) -> None:
    if all(wave.count(CONVERGED) + wave.left == wave.hosts for wave in tally.waves):
        assert step(tally, TERMINAL, T0)[0].state is RolloutState.TERMINAL
    else:
        with pytest.raises((RolloutInvariant, IllegalTransition)):
            step(tally, TERMINAL, T0)


@pytest.mark.req("RO-3", **pure)
def test_becomes_reverted_only_when_no_sibling_is_still_on_the_target() -> None:
    both = (opened(2), *_two)
    tally = after(*both, moves(ACTIVATING, FAILED), moves(FAILED, REVERTED))
    assert (tally.state, tally.halted_at) == (RolloutState.ACTIVE, T0)

    for to in (SOAKING, CONVERGED):
        tally = runs(moves(ACTIVATING if to is SOAKING else SOAKING, to), tally, T0)
        expected = RolloutState.ACTIVE if to is SOAKING else RolloutState.REVERTED
        assert tally.state is expected

    with pytest.raises(TidegateError):
        step(after(opened(2), joins(host_id="b"), *GOES_BACK), moves(PENDING, ACTIVATING), T0)


def test_does_not_wait_for_a_deferred_sibling_once_it_is_halted() -> None:
    tally = after(
        opened(2), *_two, moves(ACTIVATING, DEFERRED), moves(ACTIVATING, FAILED),
        moves(FAILED, REVERTED),
    )  # fmt: skip
    assert tally.state is RolloutState.REVERTED

    taken_back = runs(moves(DEFERRED, PENDING), tally, T0)
    assert taken_back.waves[0].states == {REVERTED: 1}
    for after_it in (taken_back, runs(skips(DEFERRED), tally, T0)):
        assert after_it.state is RolloutState.REVERTED


def test_fails_when_a_rollback_fails_and_never_recovers_by_itself() -> None:
    tally = after(opened(2), *_two, moves(ACTIVATING, FAILED), moves(FAILED, REVERTED))
    tally = runs(moves(ACTIVATING, FAILED), tally, T0)
    tally = runs(moves(FAILED, FAILED, rollback_failed=True), tally, T0)
    assert tally.state is RolloutState.FAILED

    late = runs(moves(FAILED, REVERTED, rollback_failed=True), tally, T0)
    assert (late.state, late.rollback_failed) == (RolloutState.FAILED, 0)


def test_changes_from_reverted_to_failed_when_a_host_is_lost() -> None:
    tally = after(opened(2), joins(host_id="b"), *GOES_BACK)
    assert tally.state is RolloutState.REVERTED

    tally = runs(moves(PENDING, FAILED, rollback_failed=True), tally, T0)
    assert tally.state is RolloutState.FAILED


@pytest.mark.parametrize("event", [joins(), advances(0, 1), moves(PENDING, ACTIVATING)])
def test_starts_no_host_while_it_is_halted(event: RolloutEvent) -> None:
    tally = after(opened(3, 1), joins(host_id="b"), *FAILS)
    assert tally.halted_at == T0

    with pytest.raises(IllegalTransition, match="halted"):
        step(tally, event, T0)


def test_counts_a_tolerated_failure_and_halts_at_the_next() -> None:
    tally = after(opened(3, failures_max=1), *FAILS)
    assert (tally.state, tally.halted_at) == (RolloutState.ACTIVE, None)
    assert (tally.waves[0].left, tally.waves[0].tolerated) == (1, 1)

    # The later result of the skipped host does not count.
    tally = runs(moves(FAILED, REVERTED, left=True), tally, T0)
    assert tally.waves[0].states == {}

    tally = after(opened(3, failures_max=1), *FAILS, *FAILS)
    assert tally.halted_at == T0


def test_tolerates_a_host_that_cannot_roll_back_without_counting_it_as_lost() -> None:
    rejected = (joins(), moves(PENDING, FAILED, rollback_failed=True))
    tally = after(opened(2, failures_max=1), *rejected)

    assert (tally.rollback_failed, tally.state) == (0, RolloutState.ACTIVE)
    assert runs(rejected[0], tally, T0).waves[0].states == {PENDING: 1}


def test_refuses_hosts_of_a_wave_that_may_not_start_and_more_hosts_than_planned() -> None:
    with pytest.raises(RolloutInvariant, match="wave 1"):
        step(after(opened(1, 1)), joins(1), T0)
    with pytest.raises(RolloutInvariant, match="all 1 hosts"):
        step(after(opened(1), joins()), joins(), T0)
    with pytest.raises(RolloutInvariant, match="no wave 7"):
        step(after(opened(1), joins()), moves(PENDING, ACTIVATING, 7), T0)
    with pytest.raises(RolloutInvariant, match="has not completed"):
        step(replace(after(opened(1)), state=RolloutState.SUPERSEDED), joins(late=True), T0)


def test_skips_hosts_that_are_due_and_waives_those_that_failed() -> None:
    with pytest.raises(RolloutInvariant, match="waived"):
        step(after(opened(1), *FAILS), skips(FAILED), T0)
    with pytest.raises(RolloutInvariant, match="wave 1"):
        step(after(opened(1, 1)), skips(None, wave=1), T0)
    with pytest.raises(RolloutInvariant):
        step(after(opened(1), joins()), skips(None), T0)

    assert after(opened(1, 1, converged_min=0), skips(None)).current_wave == 1
    assert after(opened(1), skips(None)).state is RolloutState.TERMINAL


# ── waves, pause, late hosts ──────────────────────────────────────────────────────────────────────


def test_advances_its_cursor_one_wave_at_a_time() -> None:
    tally = after(opened(1, 1, 1), *events_to_converged())
    assert (tally.state, tally.current_wave) == (RolloutState.ACTIVE, 1)

    assert step(tally, advances(0, 1), T0) == (tally, ())  # it moved on already
    for event in (advances(1, 2), advances(1, 3), advances(0, 2)):
        with pytest.raises(RolloutInvariant):
            step(tally, event, T0)
    assert (
        after(
            opened(1, 1, 1), *events_to_converged(), *events_to_converged(1), joins(2)
        ).current_wave
        == 2
    )


def test_holds_the_next_wave_while_it_is_paused_and_starts_it_when_resumed() -> None:
    tally = after(opened(1, 1), joins(), PAUSED, *events_to_converged()[1:])
    assert (tally.state, tally.current_wave) == (RolloutState.CONVERGING, 0)
    with pytest.raises(IllegalTransition, match="paused"):
        step(after(opened(1), PAUSED), joins(), T0)

    tally = runs(RESUMED, tally, T0)
    assert (tally.state, tally.current_wave) == (RolloutState.ACTIVE, 1)


def test_ends_although_it_is_paused_when_every_host_converged() -> None:
    tally = after(opened(1), joins(), PAUSED, *events_to_converged()[1:])

    assert (tally.state, tally.paused_at) == (RolloutState.TERMINAL, None)


def test_stays_converging_while_a_host_waits_for_its_reboot() -> None:
    tally = after(opened(1, converged_min=0), *STARTS, moves(ACTIVATING, DEFERRED))
    assert tally.state is RolloutState.CONVERGING

    tally = runs(moves(DEFERRED, SOAKING), tally, T0)
    assert tally.state is RolloutState.ACTIVE
    assert runs(moves(SOAKING, CONVERGED), tally, T0).state is RolloutState.TERMINAL


def test_counts_late_hosts_separately_and_is_degraded_by_their_failure() -> None:
    terminal = after(opened(1), *events_to_converged())
    tally = runs(joins(late=True, host_id="b"), terminal, T0)
    assert (tally.state, tally.late) == (RolloutState.TERMINAL, {PENDING: 1})

    tally = runs(moves(PENDING, ACTIVATING, late=True), tally, T0)
    tally = runs(moves(ACTIVATING, FAILED, late=True), tally, T0)
    assert (tally.state, tally.late, tally.degraded) == (RolloutState.TERMINAL, {FAILED: 1}, True)
    assert tally.waves == terminal.waves


def test_opens_and_ends_at_once_without_a_host() -> None:
    stepped, caused = step_tally(None, opened(), T0)

    assert caused == (RolloutTerminal(rollout_id=ROLLOUT, at=T0, reason="empty_plan"),)
    assert runs(caused[0], stepped, T0).state is RolloutState.TERMINAL
    with pytest.raises(RolloutInvariant):
        step(None, opened(1, 0), T0)


# ── clearance and retention ───────────────────────────────────────────────────────────────────────


@pytest.mark.req("RO-18", **pure)
@pytest.mark.parametrize("said", [{"operator": ""}, {"reason": " "}, {"operator": " \t"}])
def test_a_clearance_requires_an_actor_and_a_reason(said: dict[str, str]) -> None:
    for tally in (after(opened(1), *GOES_BACK), after(opened(1), *IS_LOST)):
        for mode in Clearance:
            with pytest.raises(InvalidInput):
                step(tally, clears(mode, ClearedHost("a", 0, REVERTED), **said), T0)
    with pytest.raises(InvalidInput):
        step(after(opened(1)), replace(ABORTED, **said), T0)


@pytest.mark.req("RO-18", **pure)
def test_resumes_with_another_attempt_once_no_host_is_rolling_back() -> None:
    tally = after(opened(1), *GOES_BACK, clears(Clearance.RESUME))
    assert (tally.state, tally.attempt, tally.halted_at) == (RolloutState.ACTIVE, 2, None)

    # the next attempt removes the host from its old count and counts it as Pending
    tally = runs(joins(), runs(moves(REVERTED, PENDING), tally, T0), T0)
    assert tally.waves[0].states == {PENDING: 1}

    both = (opened(2), *_two, moves(ACTIVATING, FAILED), moves(ACTIVATING, FAILED))
    tally = after(*both, moves(FAILED, FAILED, rollback_failed=True))
    with pytest.raises(RollbackRunning):
        step(tally, clears(Clearance.RESUME), T0)


@pytest.mark.req("RO-18", **pure)
def test_stays_halted_until_the_last_host_that_failed_is_waived() -> None:
    a, b = ClearedHost("a", 0, REVERTED), ClearedHost("b", 0, FAILED, rollback_failed=True)
    tally = after(opened(2), *_two, moves(ACTIVATING, FAILED), moves(FAILED, REVERTED))
    tally = runs(moves(ACTIVATING, FAILED), tally, T0)
    tally = runs(moves(FAILED, FAILED, rollback_failed=True), tally, T0)
    assert tally.state is RolloutState.FAILED

    partly = runs(clears(Clearance.WAIVE, b), tally, T0)
    assert (partly.state, partly.halted_at) == (RolloutState.REVERTED, T0)
    assert runs(clears(Clearance.WAIVE, a), partly, T0).state is RolloutState.TERMINAL
    assert runs(clears(Clearance.WAIVE, a, b), tally, T0).state is RolloutState.TERMINAL
    with pytest.raises(InvalidInput):
        step(tally, clears(Clearance.WAIVE), T0)
    with pytest.raises(RolloutInvariant):
        step(tally, clears(Clearance.WAIVE, replace(a, rollback_failed=True), b), T0)


def test_is_pruned_when_its_retention_is_over_and_no_host_is_under_way() -> None:
    day = timedelta(seconds=DAY)
    tally = after(opened(1), *events_to_converged())
    assert tally.due_at == T0 + day

    with pytest.raises(RolloutInvariant, match="not over"):
        step(tally, EXPIRED, T0 + day - timedelta(microseconds=1))
    late = runs(joins(late=True), tally, T0)
    with pytest.raises(RolloutInvariant, match="under way"):
        step(late, EXPIRED, T0 + day)
    assert step(tally, EXPIRED, T0 + day)[0].state is RolloutState.PRUNED

    # superseded later, it is kept from then on
    superseded = runs(SUCCESSOR, tally, T0 + timedelta(hours=5))
    assert superseded.due_at == T0 + timedelta(hours=5) + day


# ── effects and rows ──────────────────────────────────────────────────────────────────────────────


def effects(tally: RolloutTally, event: RolloutEvent, now: datetime = T0) -> list[Struct]:
    return list(step(tally, event, now)[1])


@pytest.mark.req("RO-6", **pure)
def test_emits_the_four_effects_of_the_seed_by_its_names() -> None:
    assert effects(after(opened(1)), joins()) == [
        RecordRolloutTransition(ROLLOUT, RolloutState.OPENING, RolloutState.ACTIVE, T0)
    ]
    assert effects(after(opened(1), *FAILS), moves(FAILED, REVERTED)) == [
        RecordRolloutTransition(ROLLOUT, RolloutState.ACTIVE, RolloutState.REVERTED, T0),
        InsertQuarantineFromRollout("web-stable", "sha256:3", None),
    ]
    assert effects(after(opened(1)), SUCCESSOR) == [
        RecordRolloutTransition(ROLLOUT, RolloutState.OPENING, RolloutState.SUPERSEDED, T0),
        SchedulePruning(ROLLOUT, timedelta(seconds=DAY)),
        replace(
            concludes(Outcome.REPLACED),
            cause=Cause.SUCCESSOR,
            cause_id="web-stable@web.4",
            counts=HostCounts(hosts=1),
        ),
    ]
    paused = after(opened(1, 1), joins(), PAUSED, *events_to_converged()[1:])
    assert effects(replace(paused, paused_at=None), advances(0, 1)) == [
        RecordRolloutTransition(ROLLOUT, RolloutState.CONVERGING, RolloutState.ACTIVE, T0),
        UpdateCurrentWave(ROLLOUT, 1),
    ]
    members = {
        RecordRolloutTransition: ("rollout_id", "from_", "to", "at"),
        UpdateCurrentWave: ("rollout_id", "wave"),
        InsertQuarantineFromRollout: ("channel", "closure_hash", "triggering_event_log_seq"),
        SchedulePruning: ("rollout_id", "delay"),
    }
    assert {kind: kind.__struct_fields__ for kind in members} == members


@pytest.mark.req("RO-6", **pure)
@pytest.mark.parametrize(
    ("kind", "members"),
    [
        (RolloutOpened, {"rollout_id", "channel", "target_ref", "at"}),
        (HostJoined, {"rollout_id", "host_id", "wave", "at"}),
        (HostStateChanged, {"rollout_id", "host_id", "from", "to", "at"}),
        (WaveAdvanced, {"rollout_id", "from_wave", "to_wave", "at"}),
        (RolloutTerminal, {"rollout_id", "at"}),
        (SuccessorOpened, {"superseded_rollout_id", "successor_rollout_id", "at"}),
        (RetentionExpired, {"rollout_id", "at"}),
        (OperatorClearance, {"rollout_id", "operator", "reason", "at"}),
    ],
)
def test_names_the_members_of_the_seeds_events_as_the_seed_does(
    kind: type[Struct], members: set[str]
) -> None:
    assert members <= set(kind.__struct_encode_fields__)


def test_records_a_transition_exactly_where_the_state_changed() -> None:
    """R5, over every occasion."""
    seen = 0
    for tally, event in product(SITUATIONS, EVENTS):
        try:
            stepped, caused = step(tally, event, T0 + timedelta(days=1))
        except TidegateError:
            continue
        recorded = [(e.from_, e.to) for e in caused if isinstance(e, RecordRolloutTransition)]
        changed = [(tally.state, stepped.state)] if stepped.state is not tally.state else []
        assert recorded == changed
        seen += len(changed)
    assert seen > len(RolloutState)


@pytest.mark.req("RO-15", **pure)
def test_only_openings_and_transitions_change_its_row() -> None:
    row = step_rollout(None, opened(1), T0)
    assert (row.state, row.current_wave, row.in_flight) == (RolloutState.OPENING, 0, "Opening")
    assert b'"current_wave":0' in codec.encode(row), "it shows in its column"

    for to, stamp in {
        RolloutState.TERMINAL: "terminal_at",
        RolloutState.REVERTED: "reverted_at",
        RolloutState.FAILED: "failed_at",
        RolloutState.SUPERSEDED: "superseded_at",
        RolloutState.PRUNED: "pruned_at",
    }.items():
        at = T0 + timedelta(hours=1)
        fact = RolloutTransitioned(
            rollout_id=ROLLOUT, at=at, from_=RolloutState.OPENING, to=to, current_wave=2
        )
        moved = step_rollout(row, fact, T0)
        assert (moved.state, moved.current_wave, getattr(moved, stamp)) == (to, 2, at)
        assert moved.in_flight == (to if to in OPEN else None)
        with pytest.raises(IllegalTransition):
            step_rollout(moved, fact, T0)
        with pytest.raises(IllegalTransition, match="absent"):
            step_rollout(None, fact, T0)


def test_keeps_who_opened_it_and_why_in_its_row_and_its_history() -> None:
    opening = opened(1, operator="user_1", reason="the checkout was slow")
    row = step_rollout(None, opening, T0)
    row = step_rollout(
        row,
        RolloutTransitioned(
            rollout_id=ROLLOUT, at=T0, from_=row.state, to=RolloutState.ACTIVE, current_wave=0
        ),
        T0,
    )
    assert (row.opened_by, row.opened_reason) == ("user_1", "the checkout was slow")

    body = codec.encode(opening).decode()
    line = f'{{"position": 1, "type": "RolloutOpened", "body": {body}}}'
    (told,) = render(histories([line.encode()]))
    assert told.endswith("  Opening  the checkout was slow")


@pytest.mark.req("RO-15", "RO-16", **pure)
def test_declares_its_tables_with_their_columns_class_and_indexes() -> None:
    assert {*ROLLOUTS.columns} >= {
        *("rollout_id", "channel", "target_ref", "state", "current_wave", "opened_at"),
        *("terminal_at", "superseded_at", "in_flight"),
    }
    assert ROLLOUTS.allowed["state"] == {str(state) for state in RolloutState}
    assert {index.columns for index in ROLLOUTS.indexes} >= {("channel", "state"), ("in_flight",)}
    assert {*QUARANTINE.columns} >= {"channel", "closure_hash", "quarantined_at"}
    assert ("channel",) in {index.columns for index in QUARANTINE.indexes}
    natures = {item.name: item.nature for item in (ROLLOUTS, QUARANTINE, GATES, TALLIES)}
    assert natures == {
        "rollouts": Nature.DERIVED,
        "quarantined_closures": Nature.DERIVED,
        "rollout_gates": Nature.DERIVED,
        "rollout_tallies": Nature.CACHE,
    }
    assert {item.writers for item in (ROLLOUTS, QUARANTINE, GATES)} == {Writers.FOLDED}


# ── identity ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RO-9", "RO-22", **pure)
def test_names_a_rollout_by_channel_ref_and_from_the_second_time_on_its_number() -> None:
    assert rollout_id("web-stable", "web.3") == "web-stable@web.3"
    assert rollout_id("web-stable", "web.3", 2) == "web-stable@web.3~2"
    assert rollout_id("web-stable", "web.3") != rollout_id("web-canary", "web.3")
    assert channel_of("web-stable@web.3~2") == "web-stable"
    assert ref_of("web-stable@web.3~2") == "web.3"


@pytest.mark.req("RO-9", **pure)
@pytest.mark.parametrize(
    "text",
    ["", "web", "web@", "@3", "Web@web.3", "a@b@c", "a@b~", "a@../b", "a@b/c", "a@B", "x" * 400],
)
def test_refuses_any_other_text_as_a_rollout_id(text: str) -> None:
    with pytest.raises(InvalidInput):
        check_rollout_id(text)


@pytest.mark.req("RO-9", **pure)
def test_is_named_in_one_place_of_the_source_only() -> None:
    """No other module joins a channel and a release with an @."""
    source = Path(tidegate.__file__).parent
    glued = re.compile(r"""f["'][^"'<\n]*\}@\{""")  # <…@…> is a mail address

    found = [path.name for path in source.rglob("*.py") if glued.search(path.read_text())]
    assert found == ["names.py"]


# ── slices ────────────────────────────────────────────────────────────────────────────────────────


def operator(kind: Any, **changes: Any) -> Any:
    return kind(**({"rollout_id": ROLLOUT, "operator": "user_1", "reason": "lunch"} | changes))


def test_pauses_a_running_rollout_and_resumes_a_paused_one() -> None:
    tally = after(opened(1))
    (fact,) = pause_rollout.decide((tally, None), operator(PauseRollout), T0)
    assert fact == PAUSED
    assert pause_rollout.decide((runs(PAUSED, tally, T0), None), operator(PauseRollout), T0) == ()
    with pytest.raises(IllegalTransition):
        pause_rollout.decide(
            (after(opened(1), *events_to_converged()), None), operator(PauseRollout), T0
        )

    (fact,) = resume_rollout.decide(
        (runs(PAUSED, tally, T0), None), operator(ResumeRollout, reason="lunch is over"), T0
    )
    assert fact == RESUMED
    assert resume_rollout.decide((tally, None), operator(ResumeRollout), T0) == ()
    with pytest.raises(IllegalTransition):
        resume_rollout.decide((after(opened(1), SUCCESSOR), None), operator(ResumeRollout), T0)


@pytest.mark.parametrize("said", [{"operator": " "}, {"reason": ""}, {"rollout_id": "nonsense"}])
@pytest.mark.parametrize("item", [pause_rollout, resume_rollout, abort_rollout])
def test_requires_an_actor_and_a_reason_before_it_reads_anything(
    item: Slice, said: dict[str, str]
) -> None:
    assert item.rows is not None
    with pytest.raises(InvalidInput):
        item.rows(operator(item.command, **said))


def test_aborts_running_and_stopped_rollouts_and_refuses_finished_ones() -> None:
    command = operator(AbortRollout, reason="not this one")
    given_up = clears(Clearance.ABANDON, reason="not this one")
    for tally in SITUATIONS:
        if tally.state in DISPATCHABLE:
            assert abort_rollout.decide((tally, None), command, T0) == (ABORTED,)
        elif tally.state in CLEARABLE:
            assert abort_rollout.decide((tally, None), command, T0) == (given_up,)
        else:
            with pytest.raises(TidegateError) as refused:
                abort_rollout.decide((tally, None), command, T0)
            assert isinstance(refused.value, IllegalTransition | RolloutIsPruned)


def test_records_why_it_was_aborted_and_ends_its_pause() -> None:
    paused = after(opened(2), *STARTS, PAUSED)
    tally, (moved, concluded) = step_tally(paused, ABORTED, T0)

    assert isinstance(moved, RolloutTransitioned)
    assert (moved.to, moved.reason) == (RolloutState.SUPERSEDED, "aborted: not this one")
    assert moved.successor_rollout_id is None
    assert isinstance(concluded, RolloutConcluded)
    assert (concluded.cause, concluded.cause_id) == (Cause.OPERATOR, "user_1")
    assert (tally.paused_at, tally.paused_by) == (None, None)
    assert tally.due_at == T0 + timedelta(seconds=DAY)
    # the report of the switching host is still recorded
    assert runs(moves(ACTIVATING, SOAKING), tally, T0).waves[0].states == {SOAKING: 1}


def test_refuses_a_prune_whose_retention_was_extended_meanwhile() -> None:
    day = timedelta(seconds=DAY)
    tally = after(opened(1), *events_to_converged())
    command = ExpireRetention(rollout_id=ROLLOUT, due_at=T0 + day)

    (fact,) = expire_retention.decide((tally,), command, T0 + day)
    assert isinstance(fact, RetentionExpired)
    for row, now in (
        (tally, T0),
        (runs(SUCCESSOR, tally, T0 + timedelta(hours=1)), T0 + day),
        (runs(joins(late=True), tally, T0), T0 + day),
        (runs(EXPIRED, tally, T0 + day), T0 + day),
        (after(opened(1)), T0 + day),
    ):
        assert expire_retention.decide((row,), command, now) == ()


def findings(*found: GateFinding) -> ChangeGates:
    return ChangeGates(rollout_id=ROLLOUT, findings=found)


def test_records_only_changes_of_gates() -> None:
    """Defect D16: a decision was logged for every blocked host at every tick."""
    tally: RolloutTally = after(opened(1))
    gates: RolloutGates | None = None
    facts: Any
    blocked = GateFinding("freeze", True, "until Monday")
    decided = []
    for _ in range(3):
        facts = change_gates.decide((tally, gates), findings(blocked), T0)
        decided.append(len(facts))
        for fact in facts:
            gates = step_gates(gates or RolloutGates(ROLLOUT), fact, T0)
    assert decided == [1, 0, 0]
    assert gates is not None
    assert [(gate.gate, gate.reason) for gate in gates.blocked] == [("freeze", "until Monday")]

    facts = change_gates.decide((tally, gates), findings(replace(blocked, reason="longer")), T0)
    assert [fact.reason for fact in facts] == ["longer"]
    (fact,) = change_gates.decide((tally, gates), findings(GateFinding("freeze", False)), T0)
    assert isinstance(fact, GateChanged)
    assert step_gates(gates, fact, T0) is None
    assert change_gates.decide((tally, None), findings(GateFinding("freeze", False)), T0) == ()
    assert change_gates.decide((after(opened(1), SUCCESSOR), None), findings(blocked), T0) == ()


def test_refuses_duplicate_gates_and_too_many_gates() -> None:
    assert change_gates.rows is not None
    with pytest.raises(InvalidInput):
        change_gates.rows(findings(GateFinding("a", True), GateFinding("a", False)))
    with pytest.raises(LimitExceeded):
        change_gates.rows(findings(*(GateFinding(f"g{n}", True) for n in range(33))))
