"""Channels: the map of all, and one channel with its pin, evidence, policy and history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from msgspec import Meta, structs

from tidegate.clock import Clock
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.operations.automation import AutomationOperations
from tidegate.control.operations.protection import ProtectionGuard
from tidegate.control.queries import fleet_picture, pin_history
from tidegate.control.queries.edges import edge_of
from tidegate.control.queries.ladder import read_ladder
from tidegate.control.queries.people import PeopleNames
from tidegate.control.queries.reads import Found, Reads
from tidegate.dashboard import (
    channel_map,
    channel_verbs,
    components,
    fleet_lines,
    layout as dashboard_layout,
    protected_verbs,
    request_lines,
    rollout_lines,
    sorting,
    state_labels,
    window_lines,
)
from tidegate.dashboard.html import counted, seconds
from tidegate.dashboard.pages.overview import quarantine
from tidegate.dashboard.view_models import channel_screens, rollout_screens
from tidegate.domain.access import roles, scopes, steps
from tidegate.domain.channels import facts, refusals, rows as channel_rows
from tidegate.domain.channels.ladder import JudgedRung
from tidegate.domain.gates.automation import Automation
from tidegate.domain.packages.names import DEFAULT_REPOSITORY
from tidegate.domain.releases import rows as release_rows
from tidegate.domain.rollouts import rows as rollout_rows, states
from tidegate.domain.windows.evaluation import covers_channel
from tidegate.web import inputs, routing

CHANNELS_MAX = 500
ROLLOUTS_SHOWN = 6
HISTORY_MAX = 500
HISTORY_SHOWN = 30
BY_ITSELF = {
    states.PolicyAction.AUTO_PROMOTE: "Promotes by itself",
    states.PolicyAction.AUTO_ROLLBACK: "Rolls back by itself",
}
BECAUSE = {  # the reasons in `provenance.py`
    "operator_command_authority": "an operator promoted it",
    "unique_factory_manifest_match": "one factory manifest names it",
    "codepipeline_execution_authority": "a pipeline execution built it",
    "unique_submodule_pin_match": "one submodule pin names it",
    "succeeded_on_required_channels": "it succeeded on the channels before",
}
NO_ROLLOUT = components.Chip("ring", "none", "No rollout")
MOVES: Final[Mapping[pin_history.PinMove, components.Chip]] = {
    pin_history.PinMove.PROMOTED: components.Chip("arrow", "info", "Promoted"),
    pin_history.PinMove.ROLLED_BACK: components.Chip("undo", "back", "Rolled back"),
    pin_history.PinMove.CONFIRMED: components.Chip("check", "good", "Confirmed"),
    pin_history.PinMove.RETIRED: components.Chip("moon", "gone", "Retired"),
}

COLUMNS: Final[sorting.SortColumns[channel_screens.ChannelLine]] = sorting.SortColumns(
    "name",
    sorting.SortColumn(label="Channel", name="name", key=lambda it: it.channel),
    sorting.SortColumn(label="Wanted release", name="release", key=lambda it: it.release or None),
    sorting.SortColumn(label="Evidence", classes="optional"),
    sorting.SortColumn(label="Rollout", name="state", key=lambda it: it.state.word),
    sorting.SortColumn(
        label="Waits for", name="waits", key=lambda it: it.waits or None, classes="optional"
    ),
    sorting.SortColumn(
        label="Changed",
        name="changed",
        key=lambda it: it.updated_at,
        newest_first=True,
        classes="right optional",
    ),
)

ChannelName = Annotated[str, Meta(min_length=1, max_length=63, pattern="^[a-z0-9][a-z0-9-]*$")]


class ChannelsQuery(dashboard_layout.PageQuery, frozen=True, kw_only=True):
    sort: dashboard_layout.SortWish = ""


class ChannelPagePath(inputs.Input, frozen=True):
    channel: ChannelName


Asked = routing.Request[ChannelPagePath, dashboard_layout.PageQuery, Any]


def scope_of(request: Asked) -> str:
    return scopes.channel_scope(request.path.channel)


# ── the map ───────────────────────────────────────────────────────────────────────────────────────


def index(
    request: routing.Request[inputs.Nothing, ChannelsQuery, inputs.Nothing],
    reads: Reads,
    fleet_reader: FleetReader,
    clock: Clock,
    people_names: PeopleNames,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """List every channel, with its edges and what they block."""
    rows = [
        item.row
        for item in reads.range(channel_rows.CHANNELS, limit=CHANNELS_MAX)
        if request.principal.may(roles.Verb.READ, scopes.channel_scope(item.row.channel))
    ]
    pins = {
        item.row.scope: item.row for item in reads.range(release_rows.ACTUAL, limit=CHANNELS_MAX)
    }
    freezes = [item.row for item in reads.range(channel_rows.FREEZES, limit=CHANNELS_MAX)]
    named = people_names.name_in
    edges = [
        (edge.channel, row.channel, named(edge_block(reads, fleet_reader, clock, row, edge)))
        for row in rows
        for edge in row.policy.edges
    ]
    newest = {row.channel: _newest_line(reads, row) for row in rows}
    lines = tuple(
        _line(row, pins.get(row.channel), freezes, edges, state_of(newest[row.channel]))
        for row in rows
    )
    hosts = {name: _count_hosts(line) for name, line in newest.items()}
    order = COLUMNS.order(request.query.sort)
    listed = sorting.list_page(lines, order, lambda it: it.channel, "", CHANNELS_MAX)
    create = components.LinkButton(
        id="create",
        label="New channel",
        icon="plus",
        href="/new/channel",
        why=dashboard_layout.why_nowhere(request.principal, steps.CREATE_CHANNEL),
        first=True,
    )
    view = structs.replace(
        channel_map.lay_out(lines, edges, hosts),
        channels=listed.rows,
        headings=COLUMNS.headings(order, "/channels"),
        create=create,
    )
    page = dashboard_layout.PageView(
        template="channels.html", title="Channels", here="/channels", view=view
    )
    return layout.answer(request, page)


def edge_block(
    reads: Reads,
    fleet_reader: FleetReader,
    clock: Clock,
    row: channel_rows.Channel,
    edge: facts.ChannelEdge,
) -> str:
    """Why an edge holds the channel's orders; empty: it does not."""
    pin = reads.find(release_rows.actual_key(row.channel), release_rows.Actual)
    found = edge_of(fleet_reader, row, pin, edge, clock())
    return "" if found.passed else found.reason


def _line(
    row: channel_rows.Channel,
    pin: release_rows.Actual | None,
    freezes: Sequence[channel_rows.Freeze],
    edges: Sequence[tuple[str, str, str]],
    state: components.Chip,
) -> channel_screens.ChannelLine:
    waits = [f"{first}: {why}" for first, then, why in edges if then == row.channel and why]
    return channel_screens.ChannelLine(
        channel=row.channel,
        package=row.package.removeprefix(f"{DEFAULT_REPOSITORY}/"),
        release="" if pin is None else pin.pinned_release_id,
        evidence=None if pin is None else _evidence_chip(pin),
        state=state,
        also=_marks(row, freezes),
        rollout_id=row.newest_rollout_id or "",
        selector=row.selector,
        waits="; ".join(waits),
        updated_at=row.created_at if pin is None else pin.updated_at,
    )


def state_of(newest: rollout_screens.RolloutLine | None) -> components.Chip:
    """What the newest rollout of a channel does, or how it ended."""
    return NO_ROLLOUT if newest is None else newest.state


def _marks(
    row: channel_rows.Channel, freezes: Sequence[channel_rows.Freeze]
) -> tuple[components.Chip, ...]:
    found: list[components.Chip] = []
    if row.held_at is not None:
        found.append(state_labels.HELD)
    if any(not freeze.channels or row.channel in freeze.channels for freeze in freezes):
        found.append(state_labels.FROZEN)
    return tuple(found)


def _newest_line(reads: Reads, row: channel_rows.Channel) -> rollout_screens.RolloutLine | None:
    if row.newest_rollout_id is None:
        return None
    (line,) = rollout_lines.summaries(reads, _rollouts(reads, [row.newest_rollout_id])) or (None,)
    return line


def _count_hosts(newest: rollout_screens.RolloutLine | None) -> str:
    """How many hosts the newest rollout had: counted by the rollout, without reading the fleet."""
    return "" if newest is None else counted(newest.hosts, "host")


def _rollouts(reads: Reads, ids: Sequence[str]) -> list[rollout_rows.Rollout]:
    found = reads.find_all(*((rollout_rows.rollout_key(id), rollout_rows.Rollout) for id in ids))
    return [item.row for item in found if item is not None]


# ── one channel ───────────────────────────────────────────────────────────────────────────────────


def show(
    request: routing.Request[ChannelPagePath, dashboard_layout.PageQuery, inputs.Nothing],
    pages: ChannelPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Show one channel."""
    return layout.answer(request, pages.page_of(request))


@dataclass(frozen=True)
class ChannelPages:
    """Builds the page of one channel."""

    reads: Reads
    fleet_reader: FleetReader
    layout: dashboard_layout.Layout
    clock: Clock
    pictures: fleet_picture.FleetPictures
    guard: ProtectionGuard
    automation: AutomationOperations
    people_names: PeopleNames

    def page_of(self, request: Asked) -> dashboard_layout.PageView:
        """Build the page. Raises: ChannelNotFound."""
        name = request.path.channel
        found = self.reads.find(channel_rows.channel_key(name), channel_rows.Channel)
        if found is None:
            raise refusals.ChannelNotFound(name)
        row = found.row
        people = self.layout.names(request)
        pin = self.reads.find(release_rows.actual_key(name), release_rows.Actual)
        kept = _quarantine(self.reads, name)
        freezes = [item.row for item in self.reads.range(channel_rows.FREEZES, limit=CHANNELS_MAX)]
        ladder = read_ladder(self.fleet_reader, name)
        verbs = channel_verbs.verbs_of(request, self.reads, row, pin, kept, ladder)
        history = _history(self.reads, name, people)
        known = None
        if pin is not None:
            known = self.reads.find(
                release_rows.known_key(pin.row.pinned_release_id), release_rows.KnownRelease
            )
        view = channel_screens.ChannelPage(
            channel=name,
            package=row.package.removeprefix(f"{DEFAULT_REPOSITORY}/"),
            selector=row.selector,
            state=state_of(_newest_line(self.reads, row)),
            also=_marks(row, freezes),
            release="" if pin is None else pin.row.pinned_release_id,
            release_name="" if known is None else known.row.revision,
            digest="" if pin is None else pin.row.digest,
            previous="" if pin is None else pin.row.previous_release_id or "",
            since=None if pin is None else pin.row.updated_at,
            running=next(
                iter(
                    fleet_lines.channel_lines(
                        self.reads, self.pictures.look(), lambda it: it == name
                    )
                ),
                None,
            ),
            evidence_chip=None if pin is None else _evidence_chip(pin.row, "Evidence: "),
            by=history[0].by if history else "",
            by_reason=history[0].reason if history else "",
            reasons="" if pin is None else "; ".join(map(_reason, pin.row.confidence.reasons)),
            reason_codes="" if pin is None else ", ".join(pin.row.confidence.reasons),
            evidence=() if pin is None else _evidence(pin.row),
            version=None if pin is None else pin.row.version,
            waits=_waits(self.reads, row, freezes, people),
            rollouts=_newest(self.reads, row),
            waves=tuple(map(describe_wave, row.policy.waves)),
            edges=tuple(self._edge(row, pin, edge) for edge in row.policy.edges),
            on_failure=str(row.policy.on_failure),
            history=history,
            quarantine=kept,
            overrides=_overrides(self.reads, row, people),
            ladder=tuple(_rung(item, people) for item in ladder.rungs),
            windows=window_lines.list_lines(
                self.reads, self.clock(), lambda it: covers_channel(it, name, row.package)
            ),
            verbs=verbs,
            bar=components.arrange(verbs, channel_verbs.sensible_verbs(row)),
            automation=tuple(map(self._automation, self.automation.show(row))),
            protection=""
            if row.protection is None
            else protected_verbs.describe_protection(row.protection),
            requests=self._requests(request, people, name),
            edit=components.LinkButton(
                id="edit",
                label="Edit",
                icon="pencil",
                href=f"/channels/{name}/edit",
                why=request.caller.why_not(steps.EDIT_CHANNEL, scopes.channel_scope(name)),
            ),
        )
        return dashboard_layout.PageView(
            template="channel.html",
            address=f"/channels/{name}",
            title=name,
            here="/channels",
            view=view,
            crumbs=(components.Link("Channels", "/channels"), components.Link(name)),
            verbs=verbs,
        )

    def _edge(
        self,
        row: channel_rows.Channel,
        pin: Found[release_rows.Actual] | None,
        edge: facts.ChannelEdge,
    ) -> channel_screens.EdgeLine:
        found = edge_of(self.fleet_reader, row, pin, edge, self.clock())
        asks = "asks that it is idle"
        if edge.require is facts.EdgeRequires.SUCCEEDED:
            asks = "asks for success"
        if edge.soak_seconds:
            asks = f"{asks}, soak {seconds(edge.soak_seconds)}"
        reason = self.people_names.name_in(found.reason)
        return channel_screens.EdgeLine(
            channel=edge.channel, asks=asks, passed=found.passed, reason=reason
        )

    def _automation(self, found: Automation) -> channel_screens.AutomationLine:
        acts = found.release_id is not None
        return channel_screens.AutomationLine(
            chip=components.Chip(
                *(("play", "info") if acts else ("pause", "idle")), BY_ITSELF[found.action]
            ),
            text=self.people_names.name_in(found.sentence),
            until=found.until,
        )

    def _requests(
        self, request: Asked, people: dashboard_layout.UserDirectory, name: str
    ) -> tuple[channel_screens.ChannelRequestLine, ...]:
        lines = request_lines.RequestLines(
            self.reads, self.guard, request.caller, people, self.clock()
        )
        waiting = (*lines.list_to_review(), *lines.list_open())
        return tuple(line for line in waiting if line.channel == name)


def _reason(code: str) -> str:
    return BECAUSE.get(code, code.replace("_", " "))


def describe_wave(wave: facts.WaveSpec) -> str:
    size = "all the rest"
    if wave.percent is not None:
        size = f"{wave.percent} %"
    elif wave.count is not None:
        size = f"{wave.count} host{'' if wave.count == 1 else 's'}"
    among = "" if wave.selector == "*" else f" of {wave.selector}"
    parts = [f"{wave.name or 'wave'}: {size}{among}"]
    if wave.soak_seconds:
        parts.append(f"soak {seconds(wave.soak_seconds)}")
    if wave.success_percent < 100:
        parts.append(f"done at {wave.success_percent} %")
    if wave.delay_seconds:
        parts.append(f"after {seconds(wave.delay_seconds)}")
    if wave.manual:
        parts.append("started by hand")
    return ", ".join(parts)


def _newest(reads: Reads, row: channel_rows.Channel) -> tuple[Any, ...]:
    found: list[rollout_rows.Rollout] = []
    for state in sorted(states.OPEN | states.ORDERED):
        rows = reads.range(
            rollout_rows.ROLLOUTS,
            index="channel_state",
            of=(row.channel, str(state)),
            limit=CHANNELS_MAX,
        )
        found += [item.row for item in rows]
    newest = sorted(found, key=lambda item: item.opened_at, reverse=True)[:ROLLOUTS_SHOWN]
    return rollout_lines.summaries(reads, newest)


def _evidence_chip(pin: release_rows.Actual, label: str = "") -> components.Chip:
    found = state_labels.evidence(pin.provenance.kind, pin.confidence.level)
    return structs.replace(found, word=label + found.word)


def _evidence(pin: release_rows.Actual) -> tuple[channel_screens.EvidenceLine, ...]:
    return tuple(
        channel_screens.EvidenceLine(
            kind=item.kind,
            source=item.source,
            ref=item.ref,
            digest=item.digest or "",
            at=item.observed_at[:19].replace("T", " ") + " UTC",
        )
        for item in pin.provenance.evidence
    )


def _waits(
    reads: Reads,
    row: channel_rows.Channel,
    freezes: Sequence[channel_rows.Freeze],
    people: dashboard_layout.UserDirectory,
) -> tuple[rollout_screens.GateLine, ...]:
    lines: list[rollout_screens.GateLine] = []
    if row.held_at is not None:
        lines.append(
            rollout_screens.GateLine(
                gate="hold",
                passed=False,
                reason=f"{people(row.held_by or '')}: {row.held_reason}",
                at=row.held_at,
            )
        )
    lines += [
        rollout_screens.GateLine(
            gate="freeze",
            passed=False,
            reason=f"{people(freeze.operator)}: {freeze.reason}",
            at=freeze.started_at,
        )
        for freeze in freezes
        if not freeze.channels or row.channel in freeze.channels
    ]
    if row.active_rollout_id is not None:
        gates, tally = reads.find_all(
            (rollout_rows.gates_key(row.active_rollout_id), rollout_rows.RolloutGates),
            (rollout_rows.tally_key(row.active_rollout_id), rollout_rows.RolloutTally),
        )
        if tally is not None and tally.row.halted_at is not None:
            parts = f"{tally.row.halted_by or 'a host'} failed and halted {row.active_rollout_id}"
            lines.append(rollout_screens.GateLine(gate="halted", passed=False, reason=parts))
        lines += [
            rollout_screens.GateLine(gate=item.gate, passed=False, reason=item.reason)
            for item in (() if gates is None else gates.row.blocked)
            if item.gate not in ("halted", "hold", "freeze")
        ]
    return tuple(lines)


def _history(
    reads: Reads, name: str, people: dashboard_layout.UserDirectory
) -> tuple[channel_screens.PinChange, ...]:
    rows = reads.range(
        release_rows.EVENTS, prefix=release_rows.row_id(name, "EVENT#"), limit=HISTORY_MAX
    )
    changes: list[release_rows.ReleaseEvent] = [item.row for item in rows[-HISTORY_SHOWN:]][::-1]
    return tuple(
        channel_screens.PinChange(
            release=change.release_id,
            previous=change.previous_release_id or "",
            by=people(change.by),
            at=change.recorded_at,
            reason=change.reason or "",
            chip=MOVES[move],
        )
        for change, move in zip(changes, pin_history.pin_moves(reads, name, changes), strict=True)
    )


def _overrides(
    reads: Reads, row: channel_rows.Channel, people: dashboard_layout.UserDirectory
) -> tuple[channel_screens.OverrideLine, ...]:
    """The gates of the channel's newest rollout that people have overridden."""
    if row.newest_rollout_id is None:
        return ()
    tally = reads.find(rollout_rows.tally_key(row.newest_rollout_id), rollout_rows.RolloutTally)
    found = () if tally is None else tally.row.overrides
    return tuple(
        channel_screens.OverrideLine(item.gate.value, people(item.operator), item.at, item.reason)
        for item in found
    )


def _rung(item: JudgedRung, people: dashboard_layout.UserDirectory) -> channel_screens.RungLine:
    rung = item.rung
    skipped = item.skipped
    if rung.left_by:
        skipped = skipped.replace(rung.left_by, people(rung.left_by))
    return channel_screens.RungLine(rung.release_id, rung.succeeded_at, rung.hosts, skipped)


def _quarantine(reads: Reads, name: str) -> tuple[channel_screens.Quarantine, ...]:
    rows = reads.range(channel_rows.QUARANTINE, index="by_channel", of=(name,), limit=CHANNELS_MAX)
    return tuple(quarantine(item.row) for item in rows)


ROUTES = (
    dashboard_layout.page_route("/channels", index, routing.requires_somewhere(roles.Verb.READ)),
    dashboard_layout.page_route(
        "/channels/{channel}", show, routing.requires(roles.Verb.READ, scope_of)
    ),
)
