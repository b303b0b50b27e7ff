"""What an open rollout does now, and which of its closed gates need a person."""

from __future__ import annotations

from typing import Final

from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries.reads import Reads
from tidegate.domain.gates.attention import describe_stuck_wave, needs_person
from tidegate.domain.hosts import rows as host_rows, states
from tidegate.domain.rollouts import progress, rows as rollout_rows

RECORDS_MAX: Final = 500  # read to find the end of a soak; with more hosts no time is shown


class GateShown(rollout_rows.GateStatus, frozen=True, kw_only=True):
    """A closed gate, and whether it opens without a person."""

    needs_person: bool


def list_gates(
    fleet: FleetReader, tally: rollout_rows.RolloutTally, gates: rollout_rows.RolloutGates | None
) -> tuple[GateShown, ...]:
    """List the closed gates of an open rollout. Their reasons are from the time when they closed,
    except that of a wave that waits for a person, which is current.
    """
    if gates is None or not gates.blocked:
        return ()
    edges = [
        (edge, fleet.preceding(edge, tally.target_ref, tally.target_closure))
        for edge in tally.edges
    ]
    return tuple(
        GateShown(
            gate=item.gate,
            reason=(item.gate == "wave-promotion" and describe_stuck_wave(tally)) or item.reason,
            since=item.since,
            needs_person=needs_person(item.gate, tally, edges),
        )
        for item in gates.blocked
    )


def find_progress(
    reads: Reads, tally: rollout_rows.RolloutTally, gates: rollout_rows.RolloutGates | None
) -> progress.RolloutProgress | None:
    """Describe what the rollout does now; None: it is over, stopped or paused."""
    shut = [] if gates is None else [item.gate for item in gates.blocked]
    until = None
    if tally.outcome is None and any(wave.count(states.HostState.SOAKING) for wave in tally.waves):
        prefix = host_rows.record_id(tally.rollout_id, "")
        found = reads.range(host_rows.HOST_RECORDS, prefix=prefix, limit=RECORDS_MAX)
        rows: list[host_rows.HostRecord] = [item.row for item in found]
        ends = [
            row.soak_due_at
            for row in rows
            if row.state is states.HostState.SOAKING and row.soak_due_at is not None
        ]
        until = max(ends, default=None) if len(rows) < RECORDS_MAX else None
    return progress.describe_progress(tally, until, shut)
