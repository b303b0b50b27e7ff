"""Rollout states and events for the tests of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

from tidegate.domain.hosts.facts import HostJoined, HostSkipped, HostStateChanged
from tidegate.domain.hosts.states import HostState, OnFailure
from tidegate.domain.rollouts.facts import (
    ClearedHost,
    GateOverridden,
    HostCounts,
    OpenedWave,
    OperatorClearance,
    RetentionExpired,
    RolloutAborted,
    RolloutConcluded,
    RolloutOpened,
    RolloutPaused,
    RolloutResumed,
    RolloutTerminal,
    SuccessorOpened,
    WaveSkipped,
)
from tidegate.domain.rollouts.folds import step_tally
from tidegate.domain.rollouts.machine import step
from tidegate.domain.rollouts.rows import RolloutTally
from tidegate.domain.rollouts.states import Cause, Clearance, Outcome, OverridableGate
from tidegate.domain.rollouts.transitions import RolloutEvent

T0 = datetime(2026, 5, 1, 6, tzinfo=UTC)


ROLLOUT = "web-stable@web.3"


DAY = 86_400
PENDING, ACTIVATING, SOAKING = HostState.PENDING, HostState.ACTIVATING, HostState.SOAKING
CONVERGED, DEFERRED = HostState.CONVERGED, HostState.DEFERRED
FAILED, REVERTED = HostState.FAILED, HostState.REVERTED


def opened(
    *hosts: int, on_failure: OnFailure = OnFailure.ROLLBACK, **changes: Any
) -> RolloutOpened:
    failures_max = changes.pop("failures_max", 0)
    converged_min = changes.pop("converged_min", 1)
    members = changes.pop("members", {})  # of every wave
    said: dict[str, Any] = {
        "rollout_id": ROLLOUT,
        "at": T0,
        "channel": "web-stable",
        "target_ref": "web.3",
        "target_closure": "sha256:3",
        "plan_digest": "sha256:plan",
        "waves": tuple(
            OpenedWave(
                name=f"w{n}",
                hosts=count,
                failures_max=failures_max,
                converged_min=converged_min,
                **members,
            )
            for n, count in enumerate(hosts)
        ),
        "on_failure": on_failure,
        "retention_seconds": DAY,
    }
    return RolloutOpened(**(said | changes))


def joins(wave: int = 0, *, late: bool = False, host_id: str = "a") -> HostJoined:
    return HostJoined(rollout_id=ROLLOUT, host_id=host_id, at=T0, wave=wave, late=late)


def moves(
    from_: HostState, to: HostState, wave: int = 0, *, host_id: str = "a", **changes: Any
) -> HostStateChanged:
    # A host whose rollback failed had finished its order then.
    lost = bool(changes.get("rollback_failed"))
    freed = to is HostState.CONVERGED or (to is HostState.FAILED if lost else to is REVERTED)
    said: dict[str, Any] = {"rollout_id": ROLLOUT, "host_id": host_id, "at": T0, "wave": wave}
    return HostStateChanged(from_=from_, to=to, **(said | {"freed": freed} | changes))


def skips(
    state: HostState | None, reason: str = "offline", wave: int = 0, *, late: bool = False
) -> HostSkipped:
    return HostSkipped(
        rollout_id=ROLLOUT, host_id="a", at=T0, wave=wave, state=state, reason=reason, late=late
    )


def skips_wave(wave: int) -> WaveSkipped:
    return WaveSkipped(rollout_id=ROLLOUT, at=T0, wave=wave, operator="user_1", reason="broken")


def clears(mode: Clearance, *hosts: ClearedHost, **changes: Any) -> OperatorClearance:
    said: dict[str, Any] = {"rollout_id": ROLLOUT, "at": T0, "operator": "user_1", "reason": "ok"}
    return OperatorClearance(mode=mode, hosts=hosts, **(said | changes))


def runs(event: RolloutEvent, tally: RolloutTally | None, now: datetime) -> RolloutTally:
    """Return the tally after the event and all facts that follow from it, as the runtime steps
    it.
    """
    stepped, caused = step_tally(tally, event, now)
    for fact in caused:
        if isinstance(fact, get_args(RolloutEvent)):
            stepped = runs(fact, stepped, now)
    return stepped


def after(*events: RolloutEvent, now: datetime = T0) -> RolloutTally:
    tally: RolloutTally | None = None
    for event in events:
        tally = runs(event, tally, now)
    assert tally is not None
    return tally


def events_to_converged(wave: int = 0, host_id: str = "a") -> Sequence[RolloutEvent]:
    """Take a host of the wave from its order to Converged."""
    return (
        joins(wave, host_id=host_id),
        moves(PENDING, ACTIVATING, wave, host_id=host_id),
        moves(ACTIVATING, SOAKING, wave, host_id=host_id),
        moves(SOAKING, CONVERGED, wave, host_id=host_id),
    )


STARTS = (joins(), moves(PENDING, ACTIVATING))


FAILS = (*STARTS, moves(ACTIVATING, FAILED))


GOES_BACK = (*FAILS, moves(FAILED, REVERTED))


IS_LOST = (*FAILS, moves(FAILED, FAILED, rollback_failed=True))


SUCCESSOR = SuccessorOpened(
    superseded_rollout_id=ROLLOUT, successor_rollout_id="web-stable@web.4", at=T0
)


PAUSED = RolloutPaused(rollout_id=ROLLOUT, at=T0, operator="user_1", reason="lunch")


RESUMED = RolloutResumed(rollout_id=ROLLOUT, at=T0, operator="user_1", reason="lunch is over")


OVERRIDDEN = GateOverridden(
    rollout_id=ROLLOUT, at=T0, gate=OverridableGate.FREEZE, operator="user_1", reason="hotfix"
)


ABORTED = RolloutAborted(rollout_id=ROLLOUT, at=T0, operator="user_1", reason="not this one")


TERMINAL = RolloutTerminal(rollout_id=ROLLOUT, at=T0)


EXPIRED = RetentionExpired(rollout_id=ROLLOUT, at=T0)


def concludes(outcome: Outcome) -> RolloutConcluded:
    return RolloutConcluded(
        rollout_id=ROLLOUT,
        at=T0,
        channel="web-stable",
        outcome=outcome,
        target_ref="web.3",
        target_closure="sha256:3",
        cause=Cause.PLAN,
        cause_id="sha256:plan",
        counts=HostCounts(),
        opened_at=T0,
    )


def settling(*hosts: int) -> RolloutTally:
    """Complete wave 0, without stepping the facts that follow from it."""
    *before, last = events_to_converged()
    return step(after(opened(*hosts), *before), last, T0)[0]


_converging = after(opened(1, 1), PAUSED, RESUMED, joins(), PAUSED, *events_to_converged()[1:])


_two = (joins(), joins(host_id="b"), moves(PENDING, ACTIVATING), moves(PENDING, ACTIVATING))


_both_back: tuple[RolloutEvent, ...] = (
    *_two,
    *(moves(ACTIVATING, FAILED, host_id=host) for host in "ab"),
    *(moves(FAILED, REVERTED, host_id=host) for host in "ab"),
)
_one_lost: tuple[RolloutEvent, ...] = (
    *_both_back[:-1],
    moves(FAILED, FAILED, host_id="b", rollback_failed=True),
)


# Rollouts as they occur, more than one in each state, so that every transition is covered.
SITUATIONS: list[RolloutTally] = [
    after(
        opened(2, 1, members={"success_percent": 50, "delay_seconds": 60}), *events_to_converged()
    ),
    after(opened(1, 1, members={"manual": True})),
    after(opened(2, 1, members={"manual": True}), *events_to_converged()),
    after(opened(1)),
    after(opened(2, 1)),
    step(None, opened(), T0)[0],
    after(opened(1), *STARTS),
    after(opened(2, 1), *STARTS),
    after(opened(1, 1), *events_to_converged()),
    after(opened(1), *STARTS, moves(ACTIVATING, SOAKING)),
    after(opened(1, on_failure=OnFailure.HALT), *STARTS),
    after(opened(2), *_two, moves(ACTIVATING, DEFERRED), moves(ACTIVATING, FAILED)),
    after(
        opened(2),
        *_two,
        moves(ACTIVATING, DEFERRED),
        moves(ACTIVATING, FAILED),
        moves(FAILED, REVERTED),
    ),
    after(opened(1), *FAILS),
    _converging,
    settling(1),
    settling(1, 1),
    after(opened(1, converged_min=0), *STARTS, moves(ACTIVATING, DEFERRED)),
    after(opened(2), *STARTS, moves(ACTIVATING, DEFERRED), *events_to_converged(host_id="b")),
    after(
        opened(1, on_failure=OnFailure.HALT, converged_min=0), *STARTS, moves(ACTIVATING, DEFERRED)
    ),
    after(opened()),
    after(opened(1), *events_to_converged()),
    after(
        opened(1),
        *events_to_converged(host_id="b"),
        joins(late=True),
        moves(PENDING, ACTIVATING, late=True),
        moves(ACTIVATING, FAILED, late=True),
    ),
    after(opened(1), *GOES_BACK),
    after(opened(2), joins(host_id="b"), *GOES_BACK),
    after(opened(2, 1), *events_to_converged(host_id="b"), *GOES_BACK),
    after(opened(1), *IS_LOST),
    after(opened(2), *events_to_converged(host_id="b"), *IS_LOST),
    after(
        opened(2),
        *_two,
        moves(ACTIVATING, FAILED),
        moves(FAILED, REVERTED),
        moves(ACTIVATING, FAILED),
        moves(FAILED, FAILED, rollback_failed=True),
    ),
    after(opened(1, on_failure=OnFailure.HALT), *FAILS),
    # The first wave lacks its minimum, and the next one is skipped.
    after(opened(1, 1, 1), skips(None), skips_wave(1)),
    after(
        opened(1, 1, 1, failures_max=1),
        joins(),
        moves(PENDING, FAILED, rollback_failed=True),
        skips_wave(1),
    ),
    after(opened(2), *_both_back, clears(Clearance.RESUME, ClearedHost("a", 0, REVERTED))),
    after(opened(2), *_one_lost, clears(Clearance.RESUME, ClearedHost("a", 0, REVERTED))),
    after(opened(1), SUCCESSOR),
    after(opened(1), *events_to_converged(), SUCCESSOR),
    after(opened(1), *STARTS, SUCCESSOR),
    after(opened(2), *STARTS, ABORTED),
    runs(EXPIRED, after(opened(1), *events_to_converged()), T0 + timedelta(days=1)),
]
