"""What each change of a channel's pin was, in the words that the API, the CLI and pages share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from tidegate.control.queries.reads import Reads
from tidegate.domain.releases.rows import EventType, ReleaseEvent
from tidegate.domain.rollouts import names, rows

ROLLBACKS_MAX: Final = 100  # rollouts of one release on a channel that are looked through


class PinMove(StrEnum):
    """What a change of a pin was."""

    PROMOTED = "promoted"
    ROLLED_BACK = "rolled back"
    CONFIRMED = "confirmed"  # the pin stayed; status or evidence are new
    RETIRED = "retired"


_MOVES: Final = {
    EventType.REGISTERED: PinMove.PROMOTED,  # the first release of the channel
    EventType.PROMOTED: PinMove.PROMOTED,
    EventType.CONFIRMED: PinMove.CONFIRMED,
    EventType.RETIRED: PinMove.RETIRED,
}


def pin_moves(reads: Reads, scope: str, events: Sequence[ReleaseEvent]) -> tuple[PinMove, ...]:
    """What each of these changes was, in their order."""
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
    """When the channel went back to one of these releases. Such a rollout is not the first of its
    release there, so its id has a number: prod@web.1~2.
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
