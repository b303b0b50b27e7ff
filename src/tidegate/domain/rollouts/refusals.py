"""The errors of rollouts. A pair that the table lacks raises ``IllegalTransition`` instead."""

from __future__ import annotations

from typing import Final

from tidegate.domain.rollouts import rows, states
from tidegate.errors import Formatted, IllegalTransition, NotFound, Refused

_ENDED: Final = {
    states.Outcome.SUCCEEDED: "has succeeded",
    states.Outcome.EMPTY: "ended without a host",
    states.Outcome.FAILED: "has failed",
    states.Outcome.ROLLED_BACK: "was rolled back",
    states.Outcome.ABORTED: "was aborted",
    states.Outcome.REPLACED: "was replaced",
}


class RolloutInvariant(Formatted, Refused):
    """The event contradicts the state of the rollout's hosts."""

    code = "rollout_invariant"
    message = "{rollout_id} in state {state}: {broken}"
    rollout_id: str
    state: str
    broken: str


class RollbackRunning(Formatted, Refused):
    """Hosts are still rolling back; wait for their reports or their deadlines."""

    code = "rollback_running"
    message = "{hosts} of the hosts of {rollout_id} still roll back"
    rollout_id: str
    hosts: int


class NothingToContinue(Refused):
    """No wave of the rollout waits for a person now."""

    code = "nothing_to_continue"

    def __init__(self, rollout_id: str, later: str | None) -> None:
        more = "" if later is None else f"; wave {later} will, when the wave before it goes"
        super().__init__(
            f"no wave of {rollout_id} waits to be continued{more}",
            rollout_id=rollout_id,
            wave=later,
        )


class WaveNotFound(NotFound):
    """The rollout has no wave with this name."""

    code = "wave_not_found"

    def __init__(self, rollout_id: str, wave: str, waves: tuple[str, ...]) -> None:
        known = ", ".join(waves) or "none"
        super().__init__(
            f"{rollout_id} has no wave {wave}; its waves are {known}",
            rollout_id=rollout_id,
            wave=wave,
        )


class WavePassed(Formatted, Refused):
    """The rollout has already passed this wave, so there is nothing to skip."""

    code = "wave_passed"
    message = "{rollout_id} is at wave {current}, so wave {wave} can't be skipped any more"
    rollout_id: str
    wave: str
    current: str


def refuse_verb(tally: rows.RolloutTally, verb: str, what: str = "") -> IllegalTransition:
    """Build the refusal of an operator's verb. ``what``: the verb as it is used in a sentence."""
    if tally.outcome is not None:
        why = _ENDED[tally.outcome]
    elif tally.halted_at is not None:
        why = "is halted"
    else:
        why = states.describe_rollout_state(tally.state)
    state = f"{tally.state}, halted" if tally.halted_at is not None else str(tally.state)
    detail = f"{tally.rollout_id} {why}, so you can't {what or f'{verb} it'}"
    return IllegalTransition("rollout", state, verb, detail)
