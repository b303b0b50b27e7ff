"""Plan: the waves that a promotion would freeze now, and what to know before it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from tidegate.clock import Clock
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.operations.promotion_planning import PlannedPromotion, Promotions
from tidegate.control.queries.forecasts import Forecaster, no_forecast, read_history
from tidegate.control.queries.reads import Reads
from tidegate.dashboard import (
    channel_verbs,
    components,
    layout as dashboard_layout,
    rollout_lines,
    simulation,
    state_labels,
)
from tidegate.dashboard.html import counted, seconds
from tidegate.dashboard.view_models import plan_screens
from tidegate.domain.access import roles, scopes
from tidegate.domain.channels import facts, rows as channel_rows
from tidegate.domain.gates.edges import WaitingRelease, judge_edge
from tidegate.domain.releases.rows import KnownRelease, known_key
from tidegate.domain.rollouts import rows as rollout_rows, states
from tidegate.errors import TidegateError
from tidegate.web import inputs, routing

CHANNELS_MAX = 500
SAMPLE = 3
NO_PLAN = "There is no plan that could be played."
NO_SIMULATION = "This process has no simulator."


class PlanQuery(dashboard_layout.PageQuery, frozen=True, kw_only=True):
    channel: Annotated[str, Meta(max_length=63)] = ""
    release: Annotated[str, Meta(max_length=200)] = ""
    luck: Annotated[str, Meta(max_length=16)] = "none"
    failing: Annotated[str, Meta(max_length=2_000)] = ""
    seed: Annotated[int, Meta(ge=0, le=999_999)] = 1
    start_at: Annotated[str, Meta(max_length=40)] = ""
    simulate: bool = False


Asked = routing.Request[inputs.Nothing, PlanQuery, inputs.Nothing]


def show(
    request: Asked,
    reads: Reads,
    forecast: Forecaster,
    fleet_reader: FleetReader,
    clock: Clock,
    promotions: Promotions,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Show what a promotion would do, without doing it."""
    query = request.query
    channels = [
        item.row
        for item in reads.range(channel_rows.CHANNELS, limit=CHANNELS_MAX)
        if request.principal.may(roles.Verb.READ, scopes.channel_scope(item.row.channel))
    ]
    chosen = next((row for row in channels if row.channel == query.channel), None)
    if chosen is None and channels:
        chosen = channels[0]
    releases = () if chosen is None else channel_verbs.list_publishable(reads, chosen.package)
    release = query.release if any(item.value == query.release for item in releases) else ""
    release = release or (releases[0].value if releases else "")
    planned: PlannedPromotion | None = None
    why = ""
    if chosen is not None:
        try:
            planned = promotions.plan(chosen.channel)
        except TidegateError as error:
            why = error.detail
    waves = () if planned is None else _waves(planned)
    if planned is not None and not waves:
        why = "No enrolled host matches the channel's selector."
    cannot = NO_PLAN if not waves else ""
    if forecast is no_forecast:
        cannot = NO_SIMULATION
    history = None if chosen is None else read_history(reads, chosen.channel)
    lucks = {name: label for name, (label, _) in simulation.LUCK.items()}
    if history is not None and history.hosts:
        lucks = {"none": lucks["none"], simulation.HISTORY: "As in its last rollouts", **lucks}
    luck = query.luck if query.luck in lucks else "none"
    asked = simulation.address(
        simulation.ForecastQuery(
            channel="" if chosen is None else chosen.channel,
            luck=luck,
            failing=query.failing,
            seed=query.seed,
            start_at=query.start_at,
        )
    )
    view = plan_screens.PlanPage(
        channels=tuple(components.Option(row.channel, row.channel) for row in channels),
        channel="" if chosen is None else chosen.channel,
        releases=releases,
        release=release,
        luck=luck,
        lucks=tuple(components.Option(name, label) for name, label in lucks.items()),
        failing=query.failing,
        seed=query.seed,
        start_at=query.start_at,
        history="" if history is None else simulation.describe_history(history),
        waves=waves,
        unstaged=0 if planned is None else len(planned.plan.unstaged),
        hosts=sum(wave.hosts for wave in waves),
        findings=()
        if chosen is None
        else (
            *_findings(reads, fleet_reader, clock, chosen, planned, release),
            *(() if planned is None else _windows(promotions, planned, clock())),
        ),
        forecast=asked if query.simulate and not cannot else "",
        no_simulation=cannot,
        why=why,
    )
    page = dashboard_layout.PageView(
        template="plan.html", title="Plan", here="/plan", view=view, still=True
    )
    return layout.answer(request, page)


def _waves(planned: PlannedPromotion) -> tuple[plan_screens.PlanWaveLine, ...]:
    waves = planned.plan.waves
    most = max((len(wave.hosts) for wave in waves), default=1)
    return tuple(
        plan_screens.PlanWaveLine(
            number=number,
            name=wave.name,
            hosts=len(wave.hosts),
            soak=seconds(wave.soak_seconds) if wave.soak_seconds else "none",
            failures_max=wave.failures_max,
            sample=wave.hosts[:SAMPLE],
            bar=components.bar([("info", "planned", len(wave.hosts))], of=[most]),
        )
        for number, wave in enumerate(waves)
    )


def _findings(
    reads: Reads,
    fleet_reader: FleetReader,
    clock: Clock,
    row: channel_rows.Channel,
    planned: PlannedPromotion | None,
    release: str,
) -> tuple[plan_screens.PlanFinding, ...]:
    """What would stop a promotion, or what it would end."""
    found: list[plan_screens.PlanFinding] = []

    def say(icon: str, tone: str, word: str, text: str) -> None:
        found.append(plan_screens.PlanFinding(chip=components.Chip(icon, tone, word), text=text))

    if row.held_at is not None:
        say("lock", "bad", "The channel is held", row.held_reason or "")
    known = reads.find(known_key(release), KnownRelease) if release else None
    if known is not None:
        key = channel_rows.quarantine_key(row.channel, known.row.digest)
        kept = reads.find(key, channel_rows.Quarantined)
        if kept is not None:
            say("ban", "bad", f"{release} is quarantined here", kept.row.reason)
    elif not release:
        say("info", "warn", "There is nothing to promote", f"Publish a revision of {row.package}.")
    if planned is not None and planned.supersedes:
        tally = reads.find(rollout_rows.tally_key(planned.supersedes), rollout_rows.RolloutTally)
        if tally is not None:
            done = sum(map(rollout_lines.count_settled, tally.row.waves))
            hosts = sum(wave.hosts for wave in tally.row.waves)
            word = state_labels.ROLLOUTS[tally.row.state].word.lower()
            text = f"It is {word}, {done:,} of {counted(hosts, 'host')} done."
            under_way = tally.row.state in states.OPEN
            look = ("warning", "warn") if under_way else ("info", "info")
            say(*look, f"It takes over from {planned.supersedes}", text)
    if planned is not None and planned.plan.unstaged:
        some = ", ".join(planned.plan.unstaged[:SAMPLE])
        count = len(planned.plan.unstaged)
        word = f"{counted(count, 'host')} {'is' if count == 1 else 'are'} in no wave"
        more = " …" if count > SAMPLE else ""
        say("warning", "warn", word, f"No order for {some}{more}.")
    for name in () if planned is None else planned.plan.empty_waves:
        say("warning", "warn", f"Wave {name} takes no host now", "It is left out.")
    for edge in row.policy.edges:
        if not release and edge.require is facts.EdgeRequires.SUCCEEDED:
            continue
        digest = "" if known is None else known.row.digest
        seen = fleet_reader.preceding(edge, release, digest)
        judged = judge_edge(edge, WaitingRelease(row.channel, release), seen, clock())
        look = ("check", "good") if judged.passed else ("channels", "warn")
        word = "is open" if judged.passed else "holds its orders back"
        say(*look, f"The edge to {edge.channel} {word}", judged.reason)
    return tuple(found)


def _windows(
    promotions: Promotions, planned: PlannedPromotion, now: datetime
) -> tuple[plan_screens.PlanFinding, ...]:
    """Which waves wait for a maintenance window. This does not block a promotion."""
    return tuple(
        plan_screens.PlanFinding(
            chip=components.Chip(
                "clock", "warn" if start.at else "bad", f"Wave {start.wave} will wait"
            ),
            text=start.sentence,
        )
        for start in promotions.list_earliest(planned.plan, now)
        if start.sentence
    )


ROUTES = (dashboard_layout.page_route("/plan", show, routing.requires_somewhere(roles.Verb.READ)),)
