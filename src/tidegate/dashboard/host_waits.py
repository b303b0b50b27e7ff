"""Why a host has no order: an answer for each of its channels, and the answer of each gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidegate.clock import Clock
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries.log_reader import LogReader
from tidegate.control.queries.people import PeopleNames
from tidegate.control.queries.reads import Reads
from tidegate.control.queries.rollout_waits import explain_host
from tidegate.dashboard import components, state_labels
from tidegate.dashboard.view_models import host_screens, rollout_screens
from tidegate.domain.channels import rows as channel_rows
from tidegate.domain.fleet import rows as fleet_rows
from tidegate.domain.fleet.claims import claims
from tidegate.domain.gates import whom_to_ask
from tidegate.domain.gates.inputs import Explanation
from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts import rows as rollout_rows

HOSTS_MAX: Final = 2_000  # of rollouts that are evaluated with the page


@dataclass(frozen=True)
class HostWaits:
    """Explains what a host waits for."""

    reads: Reads
    fleet_reader: FleetReader
    clock: Clock
    log: LogReader
    people_names: PeopleNames

    def list_for(self, host: fleet_rows.Host) -> tuple[host_screens.HostWait, ...]:
        """Explain the host in the open rollout of each of its channels."""
        fleet = self.reads.find(fleet_rows.fleet_key(), fleet_rows.Fleet)
        if host.status != "enrolled" or fleet is None:
            return (_sentence(f"It is {host.status}: it gets no orders."),)
        names = sorted(claims(fleet.row.channels, host.host_id, host.labels))
        rows = self.reads.find_all(
            *((channel_rows.channel_key(name), channel_rows.Channel) for name in names)
        )
        channels: list[channel_rows.Channel] = [found.row for found in rows if found is not None]
        if not channels:
            return (_sentence("It gets no orders: no channel's selector matches its labels."),)
        open_ids = [row.active_rollout_id for row in channels if row.active_rollout_id]
        small = [rollout_id for rollout_id in open_ids if self._count(rollout_id) <= HOSTS_MAX]
        found = self._explain(host.host_id, small)
        idle = [row.channel for row in channels if not row.active_rollout_id]
        waits = [
            found.get(rollout_id)
            or host_screens.HostWait(
                rollout_id=rollout_id,
                verdict="The rollout is large. Its page says why its hosts wait.",
                tone="idle",
            )
            for rollout_id in open_ids
        ]
        if idle:
            waits.append(_sentence(f"Nothing is rolling out on {', '.join(idle)}."))
        return tuple(waits)

    def _count(self, rollout_id: str) -> int:
        key = rollout_rows.tally_key(rollout_id)
        tally = self.reads.find(key, rollout_rows.RolloutTally)
        return 0 if tally is None else sum(wave.hosts for wave in tally.row.waves)

    def _explain(
        self, host_id: str, rollout_ids: Sequence[str]
    ) -> dict[str, host_screens.HostWait]:
        if not rollout_ids:
            return {}
        state = self.fleet_reader.state(rollout_ids, self.clock(), late=True)
        found = [explain_host(self.log, state, rollout_id, host_id) for rollout_id in rollout_ids]
        return {
            item.rollout_id: _wait(
                self.people_names.name_in_explanation(
                    whom_to_ask.leave_out(item, whom_to_ask.list_all(item))  # pages have buttons
                )
            )
            for item in found
        }


def _wait(found: Explanation) -> host_screens.HostWait:
    lines = tuple(
        rollout_screens.GateLine(
            gate=item.gate,
            passed=item.passed,
            reason=item.reason,
            evidence="" if item.evidence is None else f"#{item.evidence.position}",
        )
        for item in found.verdicts
    )
    chip = components.Chip("pause", "warn", "")
    if found.host_state is not None:
        chip = state_labels.HOSTS[found.host_state]
    elif all(line.passed for line in lines):
        chip = components.Chip("play", "info", "")
    return host_screens.HostWait(
        rollout_id=found.rollout_id,
        verdict=f"{found.answer[:1].upper()}{found.answer[1:]}.",
        tone=chip.tone,
        icon=chip.icon,
        lines=() if found.host_state is HostState.CONVERGED else lines,
    )


def _sentence(text: str) -> host_screens.HostWait:
    return host_screens.HostWait(rollout_id="", verdict=text, tone="idle")
