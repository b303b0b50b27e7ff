"""Channels: the map of them, and one with its pin, its evidence, its policy and its history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from msgspec import Meta, structs

from tidegate.clock import Clock
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.operations.automation import AutomationOperations
from tidegate.control.operations.protection import ProtectionGuard
from tidegate.control.queries.edges import edge_of
from tidegate.control.queries.fleet_picture import FleetPictures
from tidegate.control.queries.ladder import read_ladder
from tidegate.control.queries.people import PeopleNames
from tidegate.control.queries.reads import Reads
from tidegate.dashboard import state_labels
from tidegate.dashboard.channel_map import lay_out
from tidegate.dashboard.channel_verbs import sensible_verbs, verbs_of
from tidegate.dashboard.components import Chip, Link, LinkButton, arrange
from tidegate.dashboard.fleet_lines import channel_lines
from tidegate.dashboard.html import seconds
from tidegate.dashboard.layout import (
    Layout,
    PageQuery,
    PageView,
    SortWish,
    UserDirectory,
    page_route,
    why_nowhere,
)
from tidegate.dashboard.pages.overview import quarantine
from tidegate.dashboard.protected_verbs import describe_protection
from tidegate.dashboard.request_lines import RequestLines
from tidegate.dashboard.rollout_lines import summaries
from tidegate.dashboard.sorting import SortColumn, SortColumns, list_page
from tidegate.dashboard.view_models import (
    AutomationLine,
    ChannelLine,
    ChannelPage,
    ChannelRequestLine,
    EvidenceLine,
    GateLine,
    OverrideLine,
    PinChange,
    Quarantine,
    RungLine,
)
from tidegate.dashboard.window_lines import list_lines
from tidegate.domain.access.roles import Verb as Right
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.access.steps import CREATE_CHANNEL, EDIT_CHANNEL
from tidegate.domain.channels.facts import ChannelEdge, WaveSpec
from tidegate.domain.channels.ladder import JudgedRung
from tidegate.domain.channels.refusals import ChannelNotFound
from tidegate.domain.channels.rows import (
    CHANNELS,
    FREEZES,
    QUARANTINE,
    Channel,
    Freeze,
    channel_key,
)
from tidegate.domain.gates.automation import Automation
from tidegate.domain.packages.names import DEFAULT_REPOSITORY
from tidegate.domain.releases.rows import (
    ACTUAL,
    EVENTS,
    Actual,
    EventType,
    KnownRelease,
    actual_key,
    known_key,
    row_id,
)
from tidegate.domain.rollouts.rows import (
    ROLLOUTS,
    Rollout,
    RolloutGates,
    RolloutTally,
    gates_key,
    rollout_key,
    tally_key,
)
from tidegate.domain.rollouts.states import OPEN, ORDERED, PolicyAction, RolloutState
from tidegate.domain.windows.evaluation import covers_channel
from tidegate.web.inputs import Input, Nothing
from tidegate.web.routing import Request, Response, requires, requires_somewhere

CHANNELS_MAX = 500
ROLLOUTS_SHOWN = 6
HISTORY_MAX = 500
HISTORY_SHOWN = 30
BY_ITSELF = {
    PolicyAction.AUTO_PROMOTE: "Promotes by itself",
    PolicyAction.AUTO_ROLLBACK: "Rolls back by itself",
}
BECAUSE = {  # the reasons of `provenance.py`
    "operator_command_authority": "an operator promoted it",
    "unique_factory_manifest_match": "one factory manifest names it",
    "codepipeline_execution_authority": "a pipeline execution built it",
    "unique_submodule_pin_match": "one submodule pin names it",
    "succeeded_on_required_channels": "it succeeded on the channels before",
}
NO_ROLLOUT = Chip("ring", "none", "No rollout")
STEPS = {
    EventType.REGISTERED: Chip("plus", "good", "Registered"),
    EventType.PROMOTED: Chip("arrow", "info", "Promoted"),
    EventType.CONFIRMED: Chip("check", "good", "Confirmed"),
    EventType.RETIRED: Chip("moon", "gone", "Retired"),
}

COLUMNS: Final[SortColumns[ChannelLine]] = SortColumns(
    "name",
    SortColumn(label="Channel", name="name", key=lambda it: it.channel),
    SortColumn(label="Wanted release", name="release", key=lambda it: it.release or None),
    SortColumn(label="Evidence", classes="optional"),
    SortColumn(label="Rollout", name="state", key=lambda it: it.state.word),
    SortColumn(
        label="Waits for", name="waits", key=lambda it: it.waits or None, classes="optional"
    ),
    SortColumn(
        label="Changed",
        name="changed",
        key=lambda it: it.updated_at,
        newest_first=True,
        classes="right optional",
    ),
)

ChannelName = Annotated[str, Meta(min_length=1, max_length=63, pattern="^[a-z0-9][a-z0-9-]*$")]


class ChannelsQuery(PageQuery, frozen=True, kw_only=True):
    sort: SortWish = ""


class ChannelPagePath(Input, frozen=True):
    channel: ChannelName


Asked = Request[ChannelPagePath, PageQuery, Any]


def scope_of(request: Asked) -> str:
    return channel_scope(request.path.channel)


# ── the map ───────────────────────────────────────────────────────────────────────────────────────


def index(
    request: Request[Nothing, ChannelsQuery, Nothing],
    reads: Reads,
    fleet_reader: FleetReader,
    clock: Clock,
    people_names: PeopleNames,
    layout: Layout,
) -> Response:
    """Every channel, and what waits for what."""
    rows = [
        item.row
        for item in reads.range(CHANNELS, limit=CHANNELS_MAX)
        if request.principal.may(Right.READ, channel_scope(item.row.channel))
    ]
    pins = {item.row.scope: item.row for item in reads.range(ACTUAL, limit=CHANNELS_MAX)}
    freezes = [item.row for item in reads.range(FREEZES, limit=CHANNELS_MAX)]
    named = people_names.name_in
    edges = [
        (edge.channel, row.channel, named(edge_block(reads, fleet_reader, clock, row, edge)))
        for row in rows
        for edge in row.policy.edges
    ]
    lines = tuple(_line(row, pins.get(row.channel), freezes, edges) for row in rows)
    hosts = {row.channel: _hosts(reads, row) for row in rows}
    order = COLUMNS.order(request.query.sort)
    listed = list_page(lines, order, lambda it: it.channel, "", CHANNELS_MAX)
    create = LinkButton(
        id="create",
        label="New channel",
        icon="plus",
        href="/new/channel",
        why=why_nowhere(request.principal, CREATE_CHANNEL),
        first=True,
    )
    view = structs.replace(
        lay_out(lines, edges, hosts),
        channels=listed.rows,
        headings=COLUMNS.headings(order, "/channels"),
        create=create,
    )
    page = PageView(template="channels.html", title="Channels", here="/channels", view=view)
    return layout.answer(request, page)


def edge_block(
    reads: Reads, fleet_reader: FleetReader, clock: Clock, row: Channel, edge: ChannelEdge
) -> str:
    """Why an edge holds orders of the channel back; empty: it does not."""
    pin = reads.find(actual_key(row.channel), Actual)
    found = edge_of(fleet_reader, row, pin, edge, clock())
    return "" if found.passed else found.reason


def _line(
    row: Channel,
    pin: Actual | None,
    freezes: Sequence[Freeze],
    edges: Sequence[tuple[str, str, str]],
) -> ChannelLine:
    waits = [f"{first}: {why}" for first, then, why in edges if then == row.channel and why]
    return ChannelLine(
        channel=row.channel,
        package=row.package.removeprefix(f"{DEFAULT_REPOSITORY}/"),
        release="" if pin is None else pin.pinned_release_id,
        confidence=None if pin is None else state_labels.confidence(pin.confidence.level),
        state=state_of(row),
        also=_marks(row, freezes),
        rollout_id=row.newest_rollout_id or "",
        selector=row.selector,
        waits="; ".join(waits),
        updated_at=row.created_at if pin is None else pin.updated_at,
    )


def state_of(row: Channel) -> Chip:
    if row.newest_state is None:
        return NO_ROLLOUT
    return state_labels.ROLLOUTS[RolloutState(row.newest_state)]


def _marks(row: Channel, freezes: Sequence[Freeze]) -> tuple[Chip, ...]:
    found: list[Chip] = []
    if row.held_at is not None:
        found.append(state_labels.HELD)
    if any(not freeze.channels or row.channel in freeze.channels for freeze in freezes):
        found.append(state_labels.FROZEN)
    return tuple(found)


def _hosts(reads: Reads, row: Channel) -> str:
    """How many hosts its newest rollout had: counted once, never by looking at the fleet."""
    if row.newest_rollout_id is None:
        return ""
    (line,) = summaries(reads, _rollouts(reads, [row.newest_rollout_id])) or (None,)
    return "" if line is None else f"{line.hosts:,} host{'' if line.hosts == 1 else 's'}"


def _rollouts(reads: Reads, ids: Sequence[str]) -> list[Rollout]:
    found = reads.find_all(*((rollout_key(id), Rollout) for id in ids))
    return [item.row for item in found if item is not None]


# ── one channel ───────────────────────────────────────────────────────────────────────────────────


def show(
    request: Request[ChannelPagePath, PageQuery, Nothing], pages: ChannelPages, layout: Layout
) -> Response:
    """One channel."""
    return layout.answer(
        request,
        pages.page_of(
            request,
        ),
    )


@dataclass(frozen=True)
class ChannelPages:
    """The page of one channel."""

    reads: Reads
    fleet_reader: FleetReader
    layout: Layout
    clock: Clock
    pictures: FleetPictures
    guard: ProtectionGuard
    automation: AutomationOperations
    people_names: PeopleNames

    def page_of(
        self,
        request: Asked,
    ) -> PageView:
        """Raises: ChannelNotFound."""
        name = request.path.channel
        found = self.reads.find(channel_key(name), Channel)
        if found is None:
            raise ChannelNotFound(name)
        row = found.row
        people = self.layout.names(request)
        pin = self.reads.find(actual_key(name), Actual)
        kept = _quarantine(self.reads, name)
        freezes = [item.row for item in self.reads.range(FREEZES, limit=CHANNELS_MAX)]
        ladder = read_ladder(self.fleet_reader, name)
        verbs = verbs_of(request, self.reads, row, pin, kept, ladder)
        known = None
        if pin is not None:
            known = self.reads.find(known_key(pin.row.pinned_release_id), KnownRelease)
        view = ChannelPage(
            channel=name,
            package=row.package.removeprefix(f"{DEFAULT_REPOSITORY}/"),
            selector=row.selector,
            state=state_of(row),
            also=_marks(row, freezes),
            release="" if pin is None else pin.row.pinned_release_id,
            release_name="" if known is None else known.row.revision,
            digest="" if pin is None else pin.row.digest,
            previous="" if pin is None else pin.row.previous_release_id or "",
            since=None if pin is None else pin.row.updated_at,
            running=next(
                iter(channel_lines(self.reads, self.pictures.look(), lambda it: it == name)), None
            ),
            confidence=None if pin is None else state_labels.confidence(pin.row.confidence.level),
            reasons="" if pin is None else "; ".join(map(_reason, pin.row.confidence.reasons)),
            reason_codes="" if pin is None else ", ".join(pin.row.confidence.reasons),
            evidence=() if pin is None else _evidence(pin.row),
            version=None if pin is None else pin.row.version,
            waits=_waits(self.reads, row, freezes),
            rollouts=_newest(self.reads, row),
            waves=tuple(map(describe_wave, row.policy.waves)),
            edges=tuple(edge.channel for edge in row.policy.edges),
            on_failure=str(row.policy.on_failure),
            history=_history(self.reads, name, people),
            quarantine=kept,
            overrides=_overrides(self.reads, row, people),
            ladder=tuple(_rung(item, people) for item in ladder.rungs),
            windows=list_lines(
                self.reads, self.clock(), lambda it: covers_channel(it, name, row.package)
            ),
            verbs=verbs,
            bar=arrange(verbs, sensible_verbs(row)),
            automation=tuple(map(self._automation, self.automation.show(row))),
            protection="" if row.protection is None else describe_protection(row.protection),
            requests=self._requests(request, people, name),
            edit=LinkButton(
                id="edit",
                label="Edit",
                icon="pencil",
                href=f"/channels/{name}/edit",
                why=request.caller.why_not(EDIT_CHANNEL, channel_scope(name)),
            ),
        )
        return PageView(
            template="channel.html",
            title=name,
            here="/channels",
            view=view,
            crumbs=(Link("Channels", "/channels"), Link(name)),
            verbs=verbs,
        )

    def _automation(self, found: Automation) -> AutomationLine:
        acts = found.release_id is not None
        return AutomationLine(
            chip=Chip(*(("play", "info") if acts else ("pause", "idle")), BY_ITSELF[found.action]),
            text=self.people_names.name_in(found.sentence),
            until=found.until,
        )

    def _requests(
        self, request: Asked, people: UserDirectory, name: str
    ) -> tuple[ChannelRequestLine, ...]:
        lines = RequestLines(self.reads, self.guard, request.caller, people, self.clock())
        waiting = (*lines.list_to_review(), *lines.list_open())
        return tuple(line for line in waiting if line.channel == name)


def _reason(code: str) -> str:
    return BECAUSE.get(code, code.replace("_", " "))


def describe_wave(wave: WaveSpec) -> str:
    size = "all the rest"
    if wave.percent is not None:
        size = f"{wave.percent} %"
    elif wave.count is not None:
        size = f"{wave.count} host{'' if wave.count == 1 else 's'}"
    among = "" if wave.selector == "*" else f" of {wave.selector}"
    said = [f"{wave.name or 'wave'}: {size}{among}"]
    if wave.soak_seconds:
        said.append(f"soak {seconds(wave.soak_seconds)}")
    if wave.success_percent < 100:
        said.append(f"done at {wave.success_percent} %")
    if wave.delay_seconds:
        said.append(f"after {seconds(wave.delay_seconds)}")
    if wave.manual:
        said.append("started by hand")
    return ", ".join(said)


def _newest(reads: Reads, row: Channel) -> tuple[Any, ...]:
    found: list[Rollout] = []
    for state in sorted(OPEN | ORDERED):
        rows = reads.range(
            ROLLOUTS, index="channel_state", of=(row.channel, str(state)), limit=CHANNELS_MAX
        )
        found += [item.row for item in rows]
    newest = sorted(found, key=lambda item: item.opened_at, reverse=True)[:ROLLOUTS_SHOWN]
    return summaries(reads, newest)


def _evidence(pin: Actual) -> tuple[EvidenceLine, ...]:
    return tuple(
        EvidenceLine(
            kind=item.kind,
            source=item.source,
            ref=item.ref,
            digest=item.digest or "",
            at=item.observed_at[:19].replace("T", " ") + " UTC",
        )
        for item in pin.provenance.evidence
    )


def _waits(reads: Reads, row: Channel, freezes: Sequence[Freeze]) -> tuple[GateLine, ...]:
    lines: list[GateLine] = []
    if row.held_at is not None:
        lines.append(GateLine(gate="hold", passed=False, reason=row.held_reason or ""))
    lines += [
        GateLine(gate="freeze", passed=False, reason=freeze.reason)
        for freeze in freezes
        if not freeze.channels or row.channel in freeze.channels
    ]
    if row.active_rollout_id is not None:
        gates, tally = reads.find_all(
            (gates_key(row.active_rollout_id), RolloutGates),
            (tally_key(row.active_rollout_id), RolloutTally),
        )
        if tally is not None and tally.row.halted_at is not None:
            said = f"{tally.row.halted_by or 'a host'} failed and halted {row.active_rollout_id}"
            lines.append(GateLine(gate="halted", passed=False, reason=said))
        lines += [
            GateLine(gate=item.gate, passed=False, reason=item.reason)
            for item in (() if gates is None else gates.row.blocked)
            if item.gate not in ("halted", "hold", "freeze")
        ]
    return tuple(lines)


def _history(reads: Reads, name: str, people: UserDirectory) -> tuple[PinChange, ...]:
    rows = reads.range(EVENTS, prefix=row_id(name, "EVENT#"), limit=HISTORY_MAX)
    return tuple(
        PinChange(
            release=item.row.release_id,
            previous=item.row.previous_release_id or "",
            event=str(item.row.event_type),
            by=people(item.row.by),
            at=item.row.recorded_at,
            reason=item.row.reason or "",
            chip=STEPS[item.row.event_type],
        )
        for item in reversed(rows[-HISTORY_SHOWN:])
    )


def _overrides(reads: Reads, row: Channel, people: UserDirectory) -> tuple[OverrideLine, ...]:
    """What people let the channel's newest rollout pass."""
    if row.newest_rollout_id is None:
        return ()
    tally = reads.find(tally_key(row.newest_rollout_id), RolloutTally)
    found = () if tally is None else tally.row.overrides
    return tuple(
        OverrideLine(item.gate.value, people(item.operator), item.at, item.reason) for item in found
    )


def _rung(item: JudgedRung, people: UserDirectory) -> RungLine:
    rung = item.rung
    skipped = item.skipped
    if rung.left_by:
        skipped = skipped.replace(rung.left_by, people(rung.left_by))
    return RungLine(rung.release_id, rung.succeeded_at, rung.hosts, skipped)


def _quarantine(reads: Reads, name: str) -> tuple[Quarantine, ...]:
    rows = reads.range(QUARANTINE, index="by_channel", of=(name,), limit=CHANNELS_MAX)
    return tuple(quarantine(item.row) for item in rows)


ROUTES = (
    page_route("/channels", index, requires_somewhere(Right.READ)),
    page_route("/channels/{channel}", show, requires(Right.READ, scope_of)),
)
