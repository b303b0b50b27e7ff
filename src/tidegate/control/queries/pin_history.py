"""Classify the changes of a channel's pin, for the API, the CLI and the pages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from tidegate.control.queries.reads import Reads
from tidegate.domain.releases.rows import EventType, ReleaseEvent
from tidegate.domain.rollouts import names, rows

ROLLBACKS_MAX: Final = 100  # rollouts of one release on a channel that are read


class PinMove(StrEnum):
    """The kind of a change of a pin."""

    PROMOTED = "promoted"
    ROLLED_BACK = "rolled back"
    CONFIRMED = "confirmed"  # the same release, with a new status or evidence
    RETIRED = "retired"


_MOVES: Final = {
    EventType.REGISTERED: PinMove.PROMOTED,  # the first release of the channel
    EventType.PROMOTED: PinMove.PROMOTED,
    EventType.CONFIRMED: PinMove.CONFIRMED,
    EventType.RETIRED: PinMove.RETIRED,
}


def pin_moves(reads: Reads, scope: str, events: Sequence[ReleaseEvent]) -> tuple[PinMove, ...]:
    """Return the kind of each change, in the same order."""
    rollbacks = _rollbacks(reads, scope, events)
    return tuple(
        PinMove.ROLLED_BACK
        if (item.recorded_at, item.release_id) in rollbacks
        else _MOVES[item.event_type]
        for item in events
    )


def _rollbacks(
    reads: Reads, scope: str, events: Sequence[ReleaseEvent]
) -> set[tuple[datetime, str]]:
    """Find when the channel was rolled back to one of these releases. Such a rollout is not the
    first one of its release there, so its id has a number: prod@web.1~2.
    """
    moved = {
        item.release_id
        for item in events
        if item.event_type in (EventType.PROMOTED, EventType.CONFIRMED)
    }
    tallies: list[rows.RolloutTally] = [
        found.row
        for release_id in sorted(moved)
        for found in reads.range(
            rows.TALLIES, prefix=names.later_prefix(scope, release_id), limit=ROLLBACKS_MAX
        )
    ]
    return {
        (tally.opened_at, tally.target_ref) for tally in tallies if tally.rollback_of is not None
    }
