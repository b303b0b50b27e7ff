"""What a rollout says no with, beside ``IllegalTransition`` for a pair that is not in its table."""

from __future__ import annotations

from tidegate.errors import Refused


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
