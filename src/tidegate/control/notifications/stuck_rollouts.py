"""Find the gates that stay shut until a person does something, for people to be notified."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from tidegate.control.fleet.reader import FleetReader
from tidegate.domain.gates import attention
from tidegate.domain.gates.edges import WaitingRelease, judge_edge
from tidegate.domain.rollouts import rows as rollout_rows

EDGES, WAVES = "channel-edges", "wave-promotion"
ROWS_MAX = 50  # read at once


def find_stuck(reader: FleetReader, keys: Iterable[str], now: datetime) -> dict[str, str]:
    """Return why these gates need a person now, by key: the rollout, a space, and the gate. Gates
    that open by themselves are left out.
    """
    wanted: dict[str, list[str]] = {}
    for key in keys:
        rollout_id, _, gate = key.partition(" ")
        if gate in (EDGES, WAVES):
            wanted.setdefault(rollout_id, []).append(gate)
    found: dict[str, str] = {}
    ids = list(wanted)
    for start in range(0, len(ids), ROWS_MAX):
        some = ids[start : start + ROWS_MAX]
        tallies = reader.many(
            *((rollout_rows.tally_key(id), rollout_rows.RolloutTally) for id in some)
        )
        for rollout_id, seen in zip(some, tallies, strict=True):
            if seen is None or seen.row.outcome is not None:
                continue
            for gate in wanted[rollout_id]:
                reason = _describe(reader, gate, seen.row, now)
                if reason:
                    found[f"{rollout_id} {gate}"] = reason
    return found


def _describe(
    reader: FleetReader, gate: str, tally: rollout_rows.RolloutTally, now: datetime
) -> str:
    if gate == WAVES:
        return attention.describe_stuck_wave(tally)
    edges = [
        (edge, reader.preceding(edge, tally.target_ref, tally.target_closure))
        for edge in tally.edges
    ]
    if not attention.needs_person(gate, tally, edges):
        return ""
    waits = WaitingRelease(tally.channel, tally.target_ref)
    verdicts = (judge_edge(edge, waits, seen, now) for edge, seen in edges)
    shut = sorted((item for item in verdicts if not item.passed), key=lambda item: not item.concern)
    return shut[0].reason if shut else ""
