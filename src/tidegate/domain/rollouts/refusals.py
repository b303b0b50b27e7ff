"""What a rollout says no with, beside ``IllegalTransition`` for a pair that is not in its table."""

from __future__ import annotations

from datetime import datetime

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


class ChannelFrozen(Refused):
    """A freeze covers the channel: no order and no acknowledgement until it ends."""

    code = "channel_frozen"

    def __init__(self, channel: str, freeze_id: str, until: datetime | None) -> None:
        end = "" if until is None else f" until {until.isoformat()}"
        super().__init__(
            f"{channel} is frozen by {freeze_id}{end}",
            channel=channel,
            freeze_id=freeze_id,
            until=None if until is None else until.isoformat(),
        )


class ChannelOnHold(Refused):
    """Somebody holds the channel: no promotion, no order and no acknowledgement until the hold is
    released.
    """

    code = "channel_held"

    def __init__(self, channel: str, by: str | None, reason: str | None) -> None:
        super().__init__(
            f"{channel} is held by {by}: {reason}", channel=channel, held_by=by, reason=reason
        )
