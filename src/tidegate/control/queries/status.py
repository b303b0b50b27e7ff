"""The installation on one screen: each channel, what is under way, and what needs a person."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from msgspec import Struct

from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries.fleet_picture import ChannelPicture, FleetPictures
from tidegate.control.queries.reads import Reads
from tidegate.domain.access.roles import EVERYWHERE
from tidegate.domain.access.scopes import repository_scope
from tidegate.domain.channels.rows import CHANNELS, QUARANTINE, Channel
from tidegate.domain.fleet.agent_versions import OLD_AGENTS_COMMAND, old_agents_text
from tidegate.domain.packages.rows import REVISIONS
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.rollouts.rows import RolloutGates, RolloutTally, gates_key, tally_key
from tidegate.domain.rollouts.states import Outcome

PROPOSED_MAX: Final = 200  # counted
SILENT_SHARE: Final = 0.05  # of a channel's hosts: more of them need a person

Sees = Callable[[str], bool]  # a scope → whether the person may read it


class Attention(Struct, frozen=True, kw_only=True):
    """Something that needs a person, and the command to begin with."""

    channel: str | None
    says: str
    since: datetime | None
    next: str


class ChannelStatus(Struct, frozen=True, kw_only=True):
    channel: str
    wanted: str | None  # the release that was promoted last
    hosts: int
    on_wanted: int  # hosts that say they run it
    silent: int
    rollout_id: str | None  # the newest one
    state: str | None  # of that rollout
    outcome: Outcome | None  # None: it is open
    wave: int  # that it is in, counted from 1
    waves: int
    held_by: str | None


class StatusReport(Struct, frozen=True, kw_only=True):
    at: datetime
    is_well: bool  # nothing needs a person
    channels: tuple[ChannelStatus, ...]
    attention: tuple[Attention, ...]
    open_rollouts: int
    approvals_waiting: int
    quarantined: int


class StatusReader:
    """Reads the rows that the report shows."""

    def __init__(self, reads: Reads, fleet: FleetReader, pictures: FleetPictures) -> None:
        self._reads = reads
        self._fleet = fleet
        self._pictures = pictures

    def report(self, sees_channel: Sees, sees_scope: Sees) -> StatusReport:
        """What somebody who sees these channels and scopes is told."""
        picture = self._pictures.look()
        drawn = {item.channel: item for item in picture.channels}
        shown: list[ChannelStatus] = []
        attention: list[Attention] = []
        under_way = 0
        for found in self._reads.iterate(CHANNELS):
            channel: Channel = found.row
            if not sees_channel(channel.channel):
                continue
            pictured = drawn.get(channel.channel) or ChannelPicture(channel=channel.channel)
            rollout_id = channel.newest_rollout_id
            tally, gates = (None, None)
            if rollout_id is not None:
                tally, gates = self._reads.find_all(
                    (tally_key(rollout_id), RolloutTally), (gates_key(rollout_id), RolloutGates)
                )
            newest = None if tally is None else tally.row
            under_way += newest is not None and newest.outcome is None
            shown.append(_channel(channel, pictured, newest))
            attention += _needs(channel, pictured, newest, None if gates is None else gates.row)
        proposed = self._reads.range(
            REVISIONS, index="by_lifecycle", of=(str(Lifecycle.PROPOSED),), limit=PROPOSED_MAX
        )
        waiting = sum(sees_scope(repository_scope(item.row.repository)) for item in proposed)
        kept = sum(sees_channel(item.row.channel) for item in self._reads.iterate(QUARANTINE))
        if picture.old_agents and sees_scope(EVERYWHERE):
            attention.append(_old_agents(picture.old_agents))
        return StatusReport(
            at=picture.taken_at,
            is_well=not attention,
            channels=tuple(shown),
            attention=tuple(attention),
            open_rollouts=under_way,
            approvals_waiting=waiting,
            quarantined=kept,
        )


def _old_agents(host_ids: tuple[str, ...]) -> Attention:
    return Attention(
        channel=None, says=old_agents_text(host_ids), since=None, next=OLD_AGENTS_COMMAND
    )


def _channel(
    channel: Channel, pictured: ChannelPicture, tally: RolloutTally | None
) -> ChannelStatus:
    waves = 0 if tally is None else len(tally.waves)
    return ChannelStatus(
        channel=channel.channel,
        wanted=pictured.wanted,
        hosts=pictured.hosts,
        on_wanted=pictured.on_wanted,
        silent=pictured.silent,
        rollout_id=channel.newest_rollout_id,
        state=channel.newest_state,
        outcome=None if tally is None else tally.outcome,
        wave=0 if tally is None else min(tally.current_wave + 1, waves),
        waves=waves,
        held_by=channel.held_by,
    )


def _needs(
    channel: Channel,
    pictured: ChannelPicture,
    tally: RolloutTally | None,
    gates: RolloutGates | None,
) -> list[Attention]:
    """What of a channel needs a person."""
    name = channel.channel
    found: list[Attention] = []

    def needs(says: str, since: datetime | None, command: str) -> None:
        found.append(Attention(channel=name, says=says, since=since, next=command))

    if tally is not None and tally.outcome is None:
        if tally.halted_at is not None:
            says = f"{tally.target_ref} stopped: {tally.halted_by or 'a host'} failed"
            needs(says, tally.halted_at, f"tidegate rollout explain {name}")
        elif tally.paused_at is not None:
            says = f"{tally.target_ref} is paused"
            needs(says, tally.paused_at, f"tidegate rollout resume {name} --reason …")
        elif gates is not None and gates.blocked:
            gate = gates.blocked[0]
            needs(
                f"{tally.target_ref} waits: {gate.reason}",
                gate.since,
                f"tidegate rollout explain {name}",
            )
    elif tally is not None and tally.outcome in (Outcome.FAILED, Outcome.ROLLED_BACK):
        words = "failed" if tally.outcome is Outcome.FAILED else "was rolled back"
        needs(
            f"{tally.target_ref} {words}, and nothing followed",
            tally.outcome_at,
            f"tidegate channel rollback {name} --dry-run",
        )
    if channel.held_at is not None:
        says = f"held: {channel.held_reason or 'no reason given'}"
        needs(says, channel.held_at, f"tidegate channel release {name} --reason …")
    if pictured.hosts and pictured.silent > SILENT_SHARE * pictured.hosts:
        says = f"{pictured.silent} of {pictured.hosts} hosts are silent"
        needs(says, None, "tidegate host list")
    return found
