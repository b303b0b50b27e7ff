"""The errors of requests about releases."""

from __future__ import annotations

from tidegate.errors import ConditionFailed, Conflict, Forbidden, Formatted, Refused


class DuplicateEvent(Formatted, ConditionFailed):
    """The key of an event or of evidence is already used for something else."""

    code = "duplicate_event"
    message = "{row} exists already with other content"
    row: str


class ReleaseNotPinnable(Refused):
    """Only a published release can be pinned; this one was deleted or is being deleted."""

    code = "release_not_pinnable"


class ReleaseTaken(Formatted, Conflict):
    """Another revision is this release already; publish under another package path."""

    code = "release_taken"
    message = "{release_id} is {revision} already"
    release_id: str
    revision: str


class StillPinned(Forbidden):
    """A channel is pinned to the release; promote another release there first."""

    code = "still_pinned"

    def __init__(
        self,
        release_id: str,
        pins: int,
        channels: tuple[str, ...],
        *,
        proposed: bool,
        hosts: tuple[str, ...] = (),  # the first hosts that run it
        host_count: int = 0,
    ) -> None:
        self.release_id, self.pins, self.channels = release_id, pins, channels
        self.proposed = proposed
        end = "proposed for deletion" if proposed else "deleted"
        want = "wants" if pins == 1 else "want"
        run = "runs" if host_count == 1 else "run"
        running = f", and {_named(hosts, host_count)} {run} it" if hosts else ""
        there = channels[0] if pins == 1 and channels else "CHANNEL"
        super().__init__(
            f"{release_id} can't be {end}: it is what {_named(channels, pins)} {want}{running}. "
            f"Promote another release there first: tidegate channel promote {there} RELEASE",
            release_id=release_id,
            pins=pins,
            channels=channels,
            hosts=hosts,
            host_count=host_count,
        )


class StillRollbackTarget(Forbidden):
    """A channel keeps the last three releases that it could roll back to; this is one of them."""

    code = "still_rollback_target"

    def __init__(
        self, release_id: str, count: int, channels: tuple[str, ...], *, proposed: bool
    ) -> None:
        end = "proposed for deletion" if proposed else "deleted"
        super().__init__(
            f"{release_id} can't be {end}: {_named(channels, count)} would roll back to it",
            release_id=release_id,
            channels=channels,
        )


def _named(names: tuple[str, ...], count: int) -> str:
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return f"{', '.join(names)}{more}"
