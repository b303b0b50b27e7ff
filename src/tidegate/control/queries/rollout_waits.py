"""What an open rollout does now, and which of its closed gates need a person."""

from __future__ import annotations

from typing import Final

from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries import log_reader
from tidegate.control.queries.reads import Reads
from tidegate.domain import times
from tidegate.domain.gates import explain, inputs
from tidegate.domain.gates.attention import describe_stuck_wave, needs_person
from tidegate.domain.hosts import facts, rows as host_rows, states
from tidegate.domain.rollouts import progress, rows as rollout_rows
from tidegate.kernel import model

RECORDS_MAX: Final = 500  # read to find the end of a soak; with more hosts no time is shown
SKIPS_MAX: Final = 100  # of one host in one rollout


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


def explain_host(
    log: log_reader.LogReader, state: inputs.FleetState, rollout_id: str, host_id: str
) -> inputs.Explanation:
    """Explain why a host waits. If it was skipped, the log tells by whom and why. Raises:
    NotFound.
    """
    rollout = state.rollouts.get(rollout_id)
    standing = None if rollout is None else rollout.standings.get(host_id)
    if standing is None or standing.row.left is None:
        return explain.explain(state, rollout_id, host_id)
    tags = frozenset({f"rollout_id:{rollout_id}", f"host_id:{host_id}"})
    query = model.Query((model.Clause(frozenset({facts.HostSkipped.__name__}), tags),))
    skipped = ""
    for event in log.events(query, limit=SKIPS_MAX):
        fact = log.value(event)
        assert isinstance(fact, facts.HostSkipped)
        by = f"by {fact.operator} " if fact.operator else ""
        skipped = f"{by}at {times.describe_time(fact.at)}: {fact.reason}"
    return explain.explain(state, rollout_id, host_id, skipped)


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
