"""What a rollout says no with, beside ``IllegalTransition`` for a pair that is not in its table."""

from __future__ import annotations

from tidegate.errors import NotFound, Refused


class RolloutInvariant(Refused):
    """The event would make the rollout say what is not true of its hosts."""

    code = "rollout_invariant"

    def __init__(self, rollout_id: str, state: str, broken: str) -> None:
        super().__init__(
            f"{rollout_id} in state {state}: {broken}",
            rollout_id=rollout_id,
            state=state,
            broken=broken,
        )


class RollbackRunning(Refused):
    """Hosts still go back to what ran before; wait for their word, or for their deadline."""

    code = "rollback_running"

    def __init__(self, rollout_id: str, hosts: int) -> None:
        super().__init__(
            f"hosts of {rollout_id} that still roll back: {hosts}",
            rollout_id=rollout_id,
            hosts=hosts,
        )


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
    """The rollout has no wave of this name."""

    code = "wave_not_found"

    def __init__(self, rollout_id: str, wave: str, waves: tuple[str, ...]) -> None:
        known = ", ".join(waves) or "none"
        super().__init__(
            f"{rollout_id} has no wave {wave}; its waves are {known}",
            rollout_id=rollout_id,
            wave=wave,
        )


class WavePassed(Refused):
    """The rollout went on from this wave already, so there is nothing to skip."""

    code = "wave_passed"

    def __init__(self, rollout_id: str, wave: str, current: str) -> None:
        super().__init__(
            f"{rollout_id} is at wave {current}, so wave {wave} can't be skipped any more",
            rollout_id=rollout_id,
            wave=wave,
            current=current,
        )
