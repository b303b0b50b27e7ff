"""The installation on one screen: each channel, what is in progress, and what needs a person."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

from msgspec import Struct, structs

from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries import fleet_picture, remedy_offers, rollout_waits
from tidegate.control.queries.people import PeopleNames
from tidegate.control.queries.reads import Reads
from tidegate.domain.access import callers, roles, steps
from tidegate.domain.access.scopes import channel_scope, repository_scope
from tidegate.domain.channels.rows import CHANNELS, FREEZES, QUARANTINE, Channel, Freeze
from tidegate.domain.fleet.agent_versions import OLD_AGENTS_COMMAND, old_agents_text
from tidegate.domain.gates import inputs, overrides, remedies, whom_to_ask
from tidegate.domain.packages import (
    revision_commands,
    rows as package_rows,
    states as package_states,
)
from tidegate.domain.requests import rows as request_rows, states as request_states
from tidegate.domain.requests.words import describe_request
from tidegate.domain.rollouts import rows as rollout_rows, states as rollout_states, tallies
from tidegate.domain.rollouts.progress import RolloutProgress
from tidegate.domain.times import describe_end, describe_time

PROPOSED_MAX: Final = 200  # counted
REQUESTS_MAX: Final = 200  # read per state
NAMED_MAX: Final = 5  # proposals that are named one by one
SILENT_SHARE: Final = 0.05  # of a channel's hosts; a larger share of silent ones needs a person


class Attention(Struct, frozen=True, kw_only=True):
    """Something that needs a person, and the first command to run."""

    channel: str | None
    says: str
    since: datetime | None
    next: str
    ask: str = ""  # whom to ask for the command that helps; empty: the caller may run it


class NoticeKind(StrEnum):
    FREEZE = "freeze"
    HOLD = "hold"
    OVERRIDE = "override"
    REQUEST = "request"
    GATE = "gate"
    SKIPPED = "skipped"


class StatusNotice(Struct, frozen=True, kw_only=True):
    """Something worth knowing that does not need the caller."""

    kind: NoticeKind
    channel: str | None
    says: str
    until: datetime | None = None
    next: str
    ask: str = ""


class ChannelStatus(Struct, frozen=True, kw_only=True):
    channel: str
    wanted: str | None  # the release that was promoted last
    hosts: int
    on_wanted: int  # hosts that report it
    silent: int
    rollout_id: str | None  # the newest one
    state: str | None  # of that rollout
    outcome: rollout_states.Outcome | None  # None: it is open
    wave: int  # the current one, counted from 1
    waves: int
    held_by: str | None
    is_frozen: bool = False  # its open rollout waits for a freeze
    progress: RolloutProgress | None = None  # of an open rollout; None: stopped or paused


class StatusReport(Struct, frozen=True, kw_only=True):
    at: datetime
    is_well: bool  # nothing needs a person
    channels: tuple[ChannelStatus, ...]
    attention: tuple[Attention, ...]
    notices: tuple[StatusNotice, ...]
    open_rollouts: int
    approvals_waiting: int
    quarantined: int


# A remedy, or the command to look at its cause and whom to ask.
Choose = Callable[[inputs.Remedy, str], tuple[str, str]]


class Findings(NamedTuple):
    """What one part adds to the report."""

    attention: list[Attention]
    notices: list[StatusNotice]


class StatusReader:
    """Makes the status report."""

    def __init__(
        self,
        reads: Reads,
        fleet: FleetReader,
        pictures: fleet_picture.FleetPictures,
        people: PeopleNames,
        offers: remedy_offers.RemedyOffers,
    ) -> None:
        self._offers = offers
        self._reads = reads
        self._fleet = fleet
        self._pictures = pictures
        self._people = people

    def report(self, caller: callers.Caller) -> StatusReport:
        """Report on the channels that the caller may read, and on what needs them."""
        picture = self._pictures.look()
        drawn = {item.channel: item for item in picture.channels}
        shown: list[ChannelStatus] = []
        found = self._requests(caller, picture.taken_at)
        freezes = self._list_freezes(picture.taken_at)
        found.notices[:0] = self._freezes(caller, freezes)
        proposals, waiting = self._proposals(caller)
        under_way = 0
        for item in self._reads.iterate(CHANNELS):
            channel: Channel = item.row
            if not _reads_channel(caller, channel.channel):
                continue
            pictured = drawn.get(channel.channel) or fleet_picture.ChannelPicture(
                channel=channel.channel
            )
            rollout_id = channel.newest_rollout_id
            tally, gates = (None, None)
            if rollout_id is not None:
                tally, gates = self._reads.find_all(
                    (rollout_rows.tally_key(rollout_id), rollout_rows.RolloutTally),
                    (rollout_rows.gates_key(rollout_id), rollout_rows.RolloutGates),
                )
            newest: rollout_rows.RolloutTally | None = None if tally is None else tally.row
            is_open = newest is not None and newest.outcome is None
            under_way += is_open
            known: rollout_rows.RolloutGates | None = None if gates is None else gates.row
            progress = (
                None if newest is None else rollout_waits.find_progress(self._reads, newest, known)
            )
            frozen = _frozen_by(freezes, newest, picture.taken_at)
            shown.append(
                structs.replace(
                    _channel(channel, pictured, newest),
                    progress=progress,
                    is_frozen=frozen is not None,
                )
            )
            shut: tuple[rollout_waits.GateShown, ...] = ()
            if newest is not None and is_open:
                shut = rollout_waits.list_gates(self._fleet, newest, known)
            if newest is not None:
                found.notices.extend(_overrides(newest, picture.taken_at))
                found.notices.extend(_skipped(newest, pictured))
            choose = partial(self._choose, caller)
            part = _describe(channel, pictured, newest, shut, frozen, choose)
            found.attention.extend(part.attention)
            found.notices.extend(part.notices)
        kept = sum(
            _reads_channel(caller, item.row.channel) for item in self._reads.iterate(QUARANTINE)
        )
        found.attention.extend(proposals)
        if picture.old_agents and caller.principal.may(roles.Verb.READ, roles.EVERYWHERE):
            found.attention.append(_old_agents(picture.old_agents))
        name_in = self._people.name_in
        return StatusReport(
            at=picture.taken_at,
            is_well=not found.attention,
            channels=tuple(shown),
            attention=tuple(
                structs.replace(one, says=name_in(one.says)) for one in found.attention
            ),
            notices=tuple(structs.replace(one, says=name_in(one.says)) for one in found.notices),
            open_rollouts=under_way,
            approvals_waiting=waiting,
            quarantined=kept,
        )

    def _choose(self, caller: callers.Caller, remedy: inputs.Remedy, look: str) -> tuple[str, str]:
        """Return the remedy's command; or the command to ``look``, and whom to ask."""
        if whom_to_ask.may_use(remedy, caller.principal):
            return remedy.command, ""
        return look, self._offers.describe(remedy, caller.principal)

    def _list_freezes(self, now: datetime) -> list[Freeze]:
        """List the freezes that are active."""
        rows: list[Freeze] = [item.row for item in self._reads.iterate(FREEZES)]
        return [row for row in rows if row.until is None or now < row.until]

    def _freezes(self, caller: callers.Caller, freezes: list[Freeze]) -> list[StatusNotice]:
        notices: list[StatusNotice] = []
        for row in freezes:
            seen = [name for name in row.channels if _reads_channel(caller, name)]
            if row.channels and not seen:
                continue
            what = ", ".join(seen) or "every channel"
            until = describe_end(row.until) or " until it is ended"
            command, ask = self._choose(caller, remedies.end_freeze(row), "tidegate freeze list")
            notices.append(
                StatusNotice(
                    kind=NoticeKind.FREEZE,
                    channel=None,
                    says=f"{what} frozen by {row.operator}{until}: {row.reason}",
                    until=row.until,
                    next=command,
                    ask=ask,
                )
            )
        return notices

    def _requests(self, caller: callers.Caller, now: datetime) -> Findings:
        """Find open requests on protected channels, for the caller or for others."""
        found = Findings([], [])
        for state in (
            request_states.RequestState.WAITING,
            request_states.RequestState.APPROVED,
            request_states.RequestState.TO_REVIEW,
        ):
            page = self._reads.newest(
                request_rows.REQUESTS, "by_state", of=(str(state),), limit=REQUESTS_MAX
            )
            for item in page:
                row: request_rows.ChannelRequest = item.row
                expired = row.expires_at is not None and row.expires_at <= now
                if _reads_channel(caller, row.channel) and not expired:
                    _add_request(found, row, caller)
        return found

    def _proposals(self, caller: callers.Caller) -> tuple[list[Attention], int]:
        """Find proposals that the caller may approve, and count those that they may read."""
        page = self._reads.range(
            package_rows.REVISIONS,
            index="by_lifecycle",
            of=(str(package_states.Lifecycle.PROPOSED),),
            limit=PROPOSED_MAX,
        )
        found: list[Attention] = []
        quorums: dict[str, int] = {}
        waiting, more = 0, 0
        for item in page:
            row: package_rows.Revision = item.row
            scope = repository_scope(row.repository)
            if not caller.principal.may(roles.Verb.READ, scope):
                continue
            waiting += 1
            if row.repository not in quorums:
                owner = self._reads.find(
                    package_rows.repository_key(row.repository), package_rows.Repository
                )
                quorums[row.repository] = 1 if owner is None else owner.row.quorum
            if not _may_approve(caller, row, quorums[row.repository]):
                continue
            if len(found) == NAMED_MAX:
                more += 1
                continue
            by = row.proposed_by or row.created_by
            found.append(
                Attention(
                    channel=None,
                    says=f"{row.name} of {by} waits for your approval",
                    since=row.proposed_at,
                    next=f"tidegate rev approve {row.name}",
                )
            )
        if more:
            found.append(
                Attention(
                    channel=None,
                    says=f"{more} more {'proposal waits' if more == 1 else 'proposals wait'} "
                    "for your approval",
                    since=None,
                    next="tidegate rev list --lifecycle Proposed",
                )
            )
        return found, waiting


def _frozen_by(
    freezes: list[Freeze], tally: rollout_rows.RolloutTally | None, now: datetime
) -> Freeze | None:
    """Find the freeze that hosts of an open rollout wait for; of several, the one that ends last.
    None if every host has begun.
    """
    if tally is None or tally.outcome is not None:
        return None
    if rollout_states.OverridableGate.FREEZE in tallies.list_passed(tally, now):
        return None
    if not tallies.has_hosts_to_start(tally):
        return None
    found = [row for row in freezes if not row.channels or tally.channel in row.channels]
    return max(found, key=lambda row: (row.until is None, row.until or now), default=None)


def _reads_channel(caller: callers.Caller, channel: str) -> bool:
    return caller.principal.may(roles.Verb.READ, channel_scope(channel))


def _may_approve(caller: callers.Caller, row: package_rows.Revision, quorum: int) -> bool:
    """Whether the caller's approval of the proposal would count now."""
    own = quorum > 0 and caller.id in (row.proposed_by, *row.editors)
    barred = caller.principal.approvals_barred_until is not None
    if own or barred or caller.id in row.approvals or revision_commands.list_unmet(row):
        return False
    return caller.may(steps.APPROVE_REVISION, repository_scope(row.repository))


def _add_request(found: Findings, row: request_rows.ChannelRequest, caller: callers.Caller) -> None:
    """Add a request: as needing the caller, or else with the people that it waits for."""
    what = describe_request(row.kind, row.channel, row.command)
    show = f"tidegate request show {row.request_id}"
    scopes = [channel_scope(name) for name in row.channels]
    own = caller.id == row.by
    mine = "your request" if own else "request"
    by = "" if own else f" of {row.by}"
    barred = caller.principal.approvals_barred_until is not None
    match row.state:
        case request_states.RequestState.APPROVED:
            step, done, words = steps.RUN_REQUEST, False, "is approved and not carried out"
            waits = f"{words} yet"
        case request_states.RequestState.TO_REVIEW:
            step, done = steps.REVIEW_REQUEST, own or barred
            words = "went past the approval with break-glass and waits for your review"
            waits = "went past the approval with break-glass and waits for a review by others"
        case _:
            step, done = steps.APPROVE_REQUEST, own or barred or caller.id in row.approvals
            words, waits = "waits for your approval", "waits for the approval of others"
    if not done and all(caller.may(step, scope) for scope in scopes):
        says = f"{mine} {row.request_id}{by} {words}: {what}"
        found.attention.append(
            Attention(channel=row.channel, says=says, since=row.made_at, next=show)
        )
        return
    says = f"{mine} {row.request_id}{by} {waits}: {what}"
    found.notices.append(
        StatusNotice(
            kind=NoticeKind.REQUEST, channel=row.channel, says=says, until=row.expires_at, next=show
        )
    )


def _overrides(tally: rollout_rows.RolloutTally, now: datetime) -> Iterator[StatusNotice]:
    """Yield the gates that a person allowed the rollout to pass."""
    for says, until in overrides.list_overrides(tally, now):
        yield StatusNotice(
            kind=NoticeKind.OVERRIDE,
            channel=tally.channel,
            says=says,
            until=until,
            next=f"tidegate rollout explain {tally.channel}",
        )


def _skipped(
    tally: rollout_rows.RolloutTally, pictured: fleet_picture.ChannelPicture
) -> Iterator[StatusNotice]:
    """Yield a notice if the channel's newest rollout ended without hosts that do not run its
    release.
    """
    count = min(tallies.count_skipped(tally), pictured.hosts - pictured.on_wanted)
    if tally.outcome is None or count <= 0:
        return
    yield StatusNotice(
        kind=NoticeKind.SKIPPED,
        channel=tally.channel,
        says=f"{count} {'host was' if count == 1 else 'hosts were'} skipped and "
        f"{'does' if count == 1 else 'do'} not run {tally.target_ref}",
        next=f"tidegate rollout show {tally.channel} --hosts",
    )


def _old_agents(host_ids: tuple[str, ...]) -> Attention:
    return Attention(
        channel=None, says=old_agents_text(host_ids), since=None, next=OLD_AGENTS_COMMAND
    )


def _channel(
    channel: Channel,
    pictured: fleet_picture.ChannelPicture,
    tally: rollout_rows.RolloutTally | None,
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


def _describe(
    channel: Channel,
    pictured: fleet_picture.ChannelPicture,
    tally: rollout_rows.RolloutTally | None,
    shut: tuple[rollout_waits.GateShown, ...],
    frozen: Freeze | None,
    choose: Choose,
) -> Findings:
    """Find what needs a person on a channel, and what else is worth knowing."""
    name = channel.channel
    found = Findings([], [])

    def needs(says: str, since: datetime | None, command: str, ask: str = "") -> None:
        found.attention.append(
            Attention(channel=name, says=says, since=since, next=command, ask=ask)
        )

    def notes(kind: NoticeKind, says: str, command: str, ask: str = "") -> None:
        found.notices.append(
            StatusNotice(kind=kind, channel=name, says=says, next=command, ask=ask)
        )

    why = f"tidegate rollout explain {name}"
    is_open = tally is not None and tally.outcome is None
    if tally is not None and is_open:
        if tally.halted_at is not None:
            says = f"{tally.target_ref} stopped: {tally.halted_by or 'a host'} failed"
            needs(says, tally.halted_at, why)
        elif tally.paused_at is not None:
            reason = f": {tally.paused_reason}" if tally.paused_reason else ""
            says = f"{tally.target_ref} is paused by {tally.paused_by or 'an operator'}{reason}"
            needs(says, tally.paused_at, *choose(remedies.resume(tally.rollout_id, name), why))
        else:
            is_rollback = tallies.may_hasten(tally)
            what = f"the rollback to {tally.target_ref}" if is_rollback else tally.target_ref
            hasten = choose(remedies.hasten(tally), why) if is_rollback else (why, "")
            if frozen is not None:
                until = describe_end(frozen.until) or " until it is ended"
                by = f"freeze {frozen.freeze_id} of {frozen.operator}{until}: {frozen.reason}"
                says = f"{what} waits for {by}"
                if is_rollback:
                    needs(says, max(frozen.started_at, tally.opened_at), *hasten)
                else:
                    notes(NoticeKind.GATE, says, why)
            for gate in _choose_gates(shut):
                reason, _, _ = gate.reason.partition(": tidegate ")  # explain shows commands
                says = f"{what} waits: {reason}"
                if is_rollback and gate.gate == "window":
                    needs(says, gate.since, *hasten)
                elif gate.needs_person:
                    needs(says, gate.since, why)
                else:
                    notes(NoticeKind.GATE, says, why)
    elif tally is not None and tally.outcome in rollout_states.BAD:
        words = "failed" if tally.outcome is rollout_states.Outcome.FAILED else "was rolled back"
        needs(
            f"{tally.target_ref} {words}, and nothing followed",
            tally.outcome_at,
            *choose(remedies.list_next(tally)[0], why),
        )
    if channel.held_at is not None:
        says = f"held by {channel.held_by} since {describe_time(channel.held_at)}"
        says = f"{says}: {channel.held_reason or 'no reason given'}"
        release = choose(remedies.end_hold(name), f"tidegate channel show {name}")
        if is_open:
            needs(says, channel.held_at, *release)
        else:
            notes(NoticeKind.HOLD, says, *release)
    if pictured.hosts and pictured.silent > SILENT_SHARE * pictured.hosts:
        says = f"{pictured.silent} of {pictured.hosts} hosts are silent"
        needs(says, None, "tidegate host list")
    return found


def _choose_gates(shut: tuple[rollout_waits.GateShown, ...]) -> list[rollout_waits.GateShown]:
    """Return the first gate that needs a person; without one, the gates that are not shown
    elsewhere. Holds and freezes have their own lines, and a wave in progress is progress.
    """
    rest = [item for item in shut if item.gate not in ("freeze", "hold")]
    urgent = [item for item in rest if item.needs_person]
    return urgent[:1] or [item for item in rest if item.gate != "wave-promotion"]
