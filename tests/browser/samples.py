"""Sample views of every screen, so that people can judge the design without a server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import Struct, structs

from tidegate.control.operations.protection import Alternative
from tidegate.control.queries.first_steps import FirstSteps
from tidegate.control.queries.forecasts import (
    Forecast,
    HeldBy,
    HeldStretch,
    Moment,
    Spread,
    Stopped,
    WaveForecast,
)
from tidegate.control.queries.request_changes import RequestChange
from tidegate.dashboard import event_rate, state_labels
from tidegate.dashboard.channel_map import lay_out
from tidegate.dashboard.checklist import checklist
from tidegate.dashboard.components import (
    Chip,
    Field,
    FormError,
    Frame,
    Link,
    LinkButton,
    Option,
    TimelineEntry,
    VerbButton,
    arrange,
    bar,
    navigation,
)
from tidegate.dashboard.fleet_lines import EndedRollout, RunningLine, RunningPart
from tidegate.dashboard.pages import (
    channels as channel_pages,
    hosts,
    joins,
    outbox,
    releases,
    repository_forms,
    rollouts,
)
from tidegate.dashboard.policy_text import describe_members, example_text
from tidegate.dashboard.rollout_lines import bar_place, is_done
from tidegate.dashboard.simulation import part_of
from tidegate.dashboard.view_models import (
    channel_screens,
    form_screens,
    host_screens,
    log_screens,
    overview_screen,
    plan_screens,
    release_screens,
    rollout_screens,
    settings_screens,
)
from tidegate.domain.hosts.states import HostState
from tidegate.domain.outbox.states import IntentState
from tidegate.domain.requests.states import RequestState
from tidegate.domain.rollouts.states import Outcome, RolloutState

NOW = datetime.now(UTC)


def before(**spans: float) -> datetime:
    return NOW - timedelta(**spans)


HOSTS = state_labels.HOSTS
ROLLOUTS = state_labels.ROLLOUTS


def _parts(**counts: int) -> list[tuple[str, str, int]]:
    chips = {str(state).lower(): chip for state, chip in HOSTS.items()}
    return [(chips[name].tone, chips[name].word, count) for name, count in counts.items()]


WAVES: tuple[tuple[list[tuple[str, str, int]], int, str], ...] = (
    ([*_parts(converged=12)], 12, "canary"),
    ([*_parts(converged=21, soaking=9, activating=7, pending=3)], 60, "ten-percent"),
    ([], 120, "half"),
    ([], 108, "rest"),
)
OPEN = rollout_screens.RolloutLine(
    rollout_id="web-stable@web.7",
    channel="web-stable",
    target_ref="web.7",
    state=ROLLOUTS[RolloutState.ACTIVE],
    also=(),
    opened_at=before(minutes=18),
    bar=bar(*(wave[0] for wave in WAVES), of=[wave[1] for wave in WAVES]),
    summary="33 of 300 hosts done, wave 2 of 4",
    hosts=300,
    settled=33,
    failed=0,
    wave_name="ten-percent",
    wave_number=1,
    wave_count=4,
    waits="soak of wave 2",
)
REVERTED = rollout_screens.RolloutLine(
    rollout_id="api-canary@api.12",
    channel="api-canary",
    target_ref="api.12",
    state=ROLLOUTS[RolloutState.REVERTED],
    also=(),
    opened_at=before(hours=2),
    bar=bar(_parts(converged=3, reverted=2), [], of=[8, 40]),
    summary="3 of 48 hosts done",
    hosts=48,
    settled=3,
    failed=2,
    wave_name="canary",
    wave_number=0,
    wave_count=2,
    waits="clearance by an operator",
)
PAUSED = rollout_screens.RolloutLine(
    rollout_id="edge-eu@edge.3~2",
    channel="edge-eu",
    target_ref="edge.3",
    state=ROLLOUTS[RolloutState.CONVERGING],
    also=(state_labels.PAUSED,),
    opened_at=before(hours=5),
    bar=bar(_parts(converged=40), _parts(converged=180, deferred=20), [], of=[40, 200, 160]),
    summary="240 of 400 hosts done",
    hosts=400,
    settled=240,
    failed=0,
    wave_name="region",
    wave_number=1,
    wave_count=3,
)
WAITING = (
    release_screens.PendingApproval(
        name="default.web.main",
        package="web",
        number=8,
        by="The author",
        at=before(minutes=34),
        approvals=0,
        quorum=1,
    ),
    release_screens.PendingApproval(
        name="default.edge.eu-tuning",
        package="edge",
        number=4,
        by="you",
        at=before(hours=3),
        approvals=1,
        quorum=2,
        why="you proposed it",
    ),
)


def _decide(name: str, label: str, *, first: bool = False, why: str = "") -> VerbButton:
    return VerbButton(
        id=f"{name}-{label}",
        label=label,
        icon="check" if first else "cross",
        action="/x",
        title=f"{label} {name}?",
        why=why,
        first=first,
        danger=not first,
    )


ASKED = channel_screens.ChannelRequestLine(
    request_id="R-751b1faa75",
    channel="web-stable",
    title="Promote web.8 on web-stable",
    chip=state_labels.REQUESTS[RequestState.WAITING],
    by="The author",
    at=before(minutes=3),
    expires_at=NOW + timedelta(hours=23, minutes=57),
    reason="hotfix for the login page",
    changes=(
        RequestChange("release", "web.7", "web.8"),
        RequestChange("gate freeze", "holds the rollout", "passed"),
    ),
    approvals="0 of 1 approval",
    approvers="The approver, The administrator",
    links=(
        Link("Channel web-stable", "/channels/web-stable"),
        Link("What web.8 changes", "/revisions/default.web.v8"),
        Link("Current plan", "/plan?channel=web-stable&release=web.8"),
    ),
    digest="9f2c41b7d5e60a88" * 4,
    command='{\n  "release_id": "web.8",\n  "overrides": ["freeze", "window"]\n}',
    verbs=(_decide("R-751b", "Approve", first=True), _decide("R-751b", "Reject")),
)
EDIT_ASKED = channel_screens.ChannelRequestLine(
    request_id="R-22d90c3b1e",
    channel="edge-eu",
    title="Edit edge-eu",
    chip=state_labels.REQUESTS[RequestState.WAITING],
    by="you",
    at=before(hours=4),
    expires_at=NOW + timedelta(hours=20),
    reason="",
    changes=(
        RequestChange("hosts", "region=eu", "region in (eu,uk)"),
        RequestChange("wave canary", "1 host, soak_seconds 300", "none"),
        RequestChange("offline_grace_seconds", "900", "none"),
    ),
    approvals="1 of 2 approvals: The approver",
    approvers="The administrator",
    links=(Link("Channel edge-eu", "/channels/edge-eu"),),
    digest="22d9" * 16,
    command="{}",
    verbs=(
        _decide(
            "R-22d9",
            "Approve",
            first=True,
            why="You made this request; another person must approve it.",
        ),
        _decide("R-22d9", "Withdraw"),
    ),
)
TO_REVIEW = channel_screens.ChannelRequestLine(
    request_id="R-0aa41f9d20",
    channel="api-canary",
    title="Roll api-canary back now",
    chip=state_labels.REQUESTS[RequestState.TO_REVIEW],
    by="The on-call engineer",
    at=before(hours=9),
    reason="checkout is down",
    changes=(
        RequestChange("release", "api.12", "api.11"),
        RequestChange("waves and soaks", "as the policy says", "all hosts at once"),
    ),
    approvals="",
    approvers="The approver",
    links=(Link("Channel api-canary", "/channels/api-canary"),),
    digest="",
    command='{\n  "now": true\n}',
    verbs=(_decide("R-0aa4", "Accept", first=True), _decide("R-0aa4", "Dispute")),
)
QUARANTINE = (
    channel_screens.Quarantine(
        channel="api-canary",
        closure_hash="sha256:9f2c41b7d5e60a8812",
        release="api.12",
        at=before(minutes=52),
        host_id="api-03",
        rollout_id="api-canary@api.12",
        reason="a host rolled back from it",
    ),
)


def told(
    icon: str, tone: str, title: str, sub: str = "", *, ago: float, position: int
) -> TimelineEntry:
    return TimelineEntry(icon, tone, title, sub, before(minutes=ago), position)


OUTBOX = (
    log_screens.OutboxLine(
        id="RELEASE#web-stable/OUTBOX#webhook:deploys#web.7",
        scope="web-stable",
        operation="webhook:deploys",
        release="web.7",
        state=state_labels.OUTBOX[IntentState.PENDING],
        attempts=4,
        next_at=NOW + timedelta(seconds=42),
        updated_at=before(minutes=1),
        error="connection refused",
        key="web-stable/webhook:deploys/web.7/3",
        redrive=None,
    ),
    log_screens.OutboxLine(
        id="RELEASE#api-canary/OUTBOX#pager#api.12",
        scope="api-canary",
        operation="webhook:pager",
        release="api.12",
        state=state_labels.OUTBOX[IntentState.DEAD],
        attempts=12,
        next_at=None,
        updated_at=before(minutes=50),
        error="answered 503",
        key="api-canary/pager/api.12/2",
        redrive=VerbButton(
            id="redrive-1",
            label="Redrive",
            icon="retry",
            action="/outbox/redrive",
            title="Try it again?",
            text="Its attempts are forgiven, and the worker takes it up at once.",
            fields=(
                Field(name="id", kind="hidden", value="x"),
                Field(name="reason", label="Reason", kind="long", required=True),
            ),
        ),
    ),
)
RUNNING = tuple(
    RunningLine(
        channel=channel,
        wanted=wanted,
        hosts=sum(hosts for _, hosts, _ in parts),
        silent=silent,
        bar=bar(
            [(tone, name, hosts) for name, hosts, tone in parts],
            of=[sum(hosts for _, hosts, _ in parts)],
        ),
        parts=tuple(RunningPart(*part) for part in parts),
        is_whole=len(parts) == 1,
    )
    for channel, wanted, silent, parts in (
        ("prod", "web.4", 2, (("web.4", 11, "good"), ("web.3", 29, "calm"))),
        ("dev", "web.5", 0, (("web.5", 20, "good"),)),
        (
            "edge",
            "api.9",
            1,
            (("api.9", 40, "good"), ("api.8", 6, "calm"), ("not known", 2, "none")),
        ),
    )
)
ENDED = tuple(
    EndedRollout(f"prod@web.{number}", state_labels.OUTCOMES[outcome], NOW - timedelta(hours=hours))
    for number, hours, outcome in (
        (1, 20, Outcome.SUCCEEDED),
        (2, 16, Outcome.ROLLED_BACK),
        (3, 9, Outcome.SUCCEEDED),
        (4, 3, Outcome.ABORTED),
        (5, 1, Outcome.FAILED),
    )
)
OVERVIEW = overview_screen.Overview(
    counts=overview_screen.OverviewCounts(
        rollouts=3, waiting=3, failed=14, silent=1, quarantined=1, outbox=2
    ),
    channels=RUNNING,
    taken_at=NOW - timedelta(seconds=8),
    ended=ENDED,
    ended_summary="2 succeeded, 1 rolled back, 1 aborted, 1 failed",
    is_in_use=True,
    tiles=(
        overview_screen.Tile(
            label="Open rollouts",
            figure=3,
            icon="rollouts",
            tone="bad",
            href="/rollouts",
            note="1 stopped, 1 paused",
        ),
        overview_screen.Tile(
            label="Waiting for approval",
            figure=3,
            icon="clock",
            tone="warn",
            href="/releases?tab=waiting",
            note="oldest 3 h ago, 1 to review",
        ),
        overview_screen.Tile(
            label="Failed hosts", figure=14, icon="cross", tone="bad", href="/rollouts"
        ),
        overview_screen.Tile(
            label="Silent hosts", figure=1, icon="silent", tone="warn", href="/hosts"
        ),
        overview_screen.Tile(
            label="Quarantined", figure=1, icon="ban", tone="bad", href="/channels"
        ),
        overview_screen.Tile(
            label="Outbox backlog",
            figure=2,
            icon="outbox",
            tone="warn",
            href="/outbox",
            note="1 dead letter",
        ),
    ),
    rollouts=(OPEN, REVERTED, PAUSED),
    waiting=WAITING,
    requests=(ASKED,),
    reviews=(TO_REVIEW,),
    troubles=(
        overview_screen.Trouble(
            host_id="api-03",
            chip=HOSTS[HostState.REVERTED],
            text="failed its probe http: answered 503, in api-canary@api.12; runs api.11 again",
            at=before(minutes=52),
            href="/hosts/api-03",
        ),
        overview_screen.Trouble(
            host_id="api-05",
            chip=HOSTS[HostState.FAILED],
            text="activation exited with 1",
            at=before(minutes=54),
            href="/hosts/api-05",
        ),
        overview_screen.Trouble(
            host_id="edge-eu-114",
            chip=state_labels.SILENT,
            text="does not report",
            at=before(minutes=43),
            href="/hosts/edge-eu-114",
        ),
    ),
    quarantine=QUARANTINE,
    outbox=OUTBOX,
    news=(
        told("wave", "info", "Wave 2 of web-stable@web.7 began", ago=4, position=48211),
        told(
            "pause",
            "warn",
            "edge-eu@edge.3~2 was paused",
            "by The approver",
            ago=31,
            position=48102,
        ),
        told(
            "undo",
            "back",
            "api-canary@api.12: stopped",
            "hosts failed and rolled back: you decide what is next",
            ago=52,
            position=47711,
        ),
        told("check", "good", "web revision 7 was published", ago=58, position=47640),
    ),
)

REASON = Field(
    name="reason", label="Reason", kind="long", required=True, placeholder="Why, for the log"
)


def verbs(why_clear: str = "it is not halted") -> tuple[VerbButton, ...]:
    return (
        VerbButton(
            id="pause",
            label="Pause",
            icon="pause",
            action="/rollouts/x/pause",
            title="Pause web-stable@web.7?",
            text="Hosts that are switching finish. No order is sent and no wave begins.",
            fields=(REASON,),
        ),
        VerbButton(
            id="resume",
            label="Resume",
            icon="play",
            action="/r",
            title="",
            why="It is not paused.",
        ),
        VerbButton(
            id="clear",
            label="Clear",
            icon="check",
            action="/r",
            title="Clear the rollout that stopped",
            why=why_clear,
            fields=(
                Field(
                    name="mode",
                    label="How",
                    kind="choice",
                    value="resume",
                    options=(
                        Option("resume", "Resume", "Try the hosts named below again."),
                        Option("waive", "Waive", "Continue without the hosts named below."),
                        Option("abandon", "Abandon", "End the rollout, as Abort does."),
                    ),
                ),
                REASON,
            ),
        ),
        VerbButton(
            id="abort",
            label="Abort",
            icon="stop",
            action="/r",
            title="Abort?",
            danger=True,
            fields=(REASON,),
        ),
    )


def rollout_page() -> rollout_screens.RolloutPage:
    statuses = (
        Chip("check", "good", "done"),
        Chip("hourglass", "soak", "soaking"),
        Chip("ring", "idle", "after wave 2"),
        Chip("ring", "idle", "after wave 3"),
    )
    return rollout_screens.RolloutPage(
        rollout_id="web-stable@web.7",
        display_name="Faster checkout",
        channel="web-stable",
        target_ref="web.7",
        target_closure="sha256:5c1e99d0b1a24f7c88e2",
        previous_ref="web.6",
        state=ROLLOUTS[RolloutState.ACTIVE],
        also=(),
        opened_at=before(minutes=18),
        opened_by="The approver",
        opened_reason="the checkout was slow",
        on_failure="rollback-and-halt",
        hosts=300,
        settled=33,
        waves=tuple(
            rollout_screens.WaveView(
                name=name,
                number=number,
                phase=("done", "current", "waiting", "waiting")[number],
                hosts=hosts,
                settled=(12, 21, 0, 0)[number],
                bar=bar(parts, of=[hosts]),
                status=statuses[number],
                soak_seconds=(900, 600, 600, 0)[number],
                failures_max=(0, 1, 2, 2)[number],
                soaking=(0, 9, 0, 0)[number],
            )
            for number, (parts, hosts, name) in enumerate(WAVES)
        ),
        gates=rollout_screens.GatePanel(
            verdict="Wave 2 soaks. The next one starts when every host of it is done.",
            tone="warn",
            lines=(
                rollout_screens.GateLine(gate="halted", passed=True, reason="no host failed"),
                rollout_screens.GateLine(gate="freeze", passed=True, reason="no freeze"),
                rollout_screens.GateLine(gate="quarantine", passed=True, reason=""),
                rollout_screens.GateLine(gate="channel-edges", passed=True, reason=""),
                rollout_screens.GateLine(
                    gate="wave-promotion",
                    passed=False,
                    reason="39 hosts of wave ten-percent are not done; its soak ends at 14:11 UTC",
                    hosts=228,
                    sample=("web-073", "web-074", "web-075"),
                    href="/rollouts/x/held?gate=wave-promotion",
                ),
                rollout_screens.GateLine(
                    gate="disruption-budget",
                    passed=False,
                    reason="budget zone-a: 10 of 10 slots are taken",
                    hosts=14,
                ),
                rollout_screens.GateLine(gate="host-silent", passed=True, reason=""),
            ),
        ),
        legend=tuple(
            rollout_screens.Legend(name, chip, count, bar_place(name), is_done(name))
            for (name, chip), count in zip(
                state_labels.GRID, (248, 3, 7, 9, 33, 0, 0, 0, 0), strict=True
            )
        ),
        troubled=(
            rollout_screens.HostLine(
                host_id="web-117",
                state=HOSTS[HostState.SOAKING],
                wave="2 · ten-percent",
                text="probe http fails since 20 s",
                at=before(seconds=20),
            ),
        ),
        timeline=(
            told(
                "wave",
                "info",
                "Wave 2 began",
                "12 of 12 hosts of wave 1 done",
                ago=4,
                position=48211,
            ),
            told(
                "pause",
                "warn",
                "Gate disruption-budget blocks",
                "zone-a: 10 of 10 taken",
                ago=9,
                position=48180,
            ),
            told("play", "info", "web-stable@web.7: rolling out", ago=17, position=48051),
            told(
                "rollouts",
                "info",
                "Opened by The approver",
                "4 waves, 300 hosts",
                ago=18,
                position=48040,
            ),
        ),
        verbs=verbs("It is rolling out. Only a rollout that stopped is cleared."),
        bar=arrange(
            verbs("It is rolling out. Only a rollout that stopped is cleared."), ("pause",)
        ),
        attempt=1,
        late=2,
        plan_digest="sha256:77aa01f3c9bb2d4471",
        current_wave=1,
        version=48211,
    )


def stopped_page() -> rollout_screens.RolloutPage:
    """A rollout whose canary failed, and what an operator can do about it."""
    back = VerbButton(
        id="rollback",
        label="Roll back to web.6",
        icon="undo",
        action="/channels/web-stable/rollback",
        title="Roll web-stable back?",
        danger=True,
        fields=(REASON,),
    )
    retry = VerbButton(
        id="retry", label="Retry", icon="retry", action="/r", title="Try again?", fields=(REASON,)
    )
    listed = (back, retry, *verbs(""))
    page = rollout_page()
    canary = structs.replace(
        page.waves[0],
        phase="current",
        settled=10,
        bar=bar(_parts(converged=10, reverted=2), of=[12]),
        status=Chip("cross", "bad", "2 failed or rolled back"),
    )
    later = tuple(
        structs.replace(
            wave,
            phase="waiting",
            settled=0,
            bar=bar([], of=[wave.hosts]),
            status=Chip("ring", "idle", f"after wave {wave.number}"),
        )
        for wave in page.waves[1:]
    )
    return structs.replace(
        page,
        state=structs.replace(
            ROLLOUTS[RolloutState.REVERTED], word="Stopped: web-01.eu.example.com rolled back"
        ),
        waves=(canary, *later),
        settled=10,
        current_wave=0,
        gates=rollout_screens.GatePanel(
            verdict="Stopped: web-01.eu.example.com rolled back. Roll back, retry, clear or abort "
            "it.",
            tone="bad",
            lines=(rollout_screens.GateLine(gate="halted", passed=False, reason="web-01 failed"),),
        ),
        troubled=(
            rollout_screens.HostLine(
                host_id="web-01.eu.example.com",
                state=HOSTS[HostState.REVERTED],
                wave="wave 1 · canary",
                text="failed its probe http: answered 500, in web-stable@web.7; runs web.6 again",
                at=before(minutes=3),
            ),
        ),
        verbs=listed,
        bar=arrange(listed, ("rollback", "retry", "clear", "abort")),
    )


def channels() -> channel_screens.Channels:
    lines = (
        ("web-canary", "web", "web.7", RolloutState.TERMINAL, (), "", "8 hosts"),
        ("web-stable", "web", "web.7", RolloutState.ACTIVE, (), "", "300 hosts"),
        ("web-eu", "web", "web.6", None, (state_labels.HELD,), "web-stable: web.7", "120 hosts"),
        (
            *("api-canary", "api", "api.12", RolloutState.REVERTED, ()),
            *("", "48 hosts"),
        ),
        ("api-stable", "api", "api.11", RolloutState.TERMINAL, (), "api.12", "400 hosts"),
        ("edge-eu", "edge", "", None, (), "", "0 hosts"),
    )  # fmt: skip
    edges = (
        ("web-canary", "web-stable", ""),
        ("web-stable", "web-eu", "web.7 is still rolling out on web-stable"),
        ("api-canary", "api-stable", "api.12 stopped on api-canary"),
    )
    states = {
        name: (ROLLOUTS[s] if s else Chip("ring", "none", "No rollout"))
        for name, _, _, s, *_ in lines
    }
    laid_out = lay_out(
        tuple(
            channel_screens.ChannelLine(
                channel=name,
                package=package,
                release=release,
                evidence=state_labels.evidence("operator_command", "high") if release else None,
                state=states[name],
                also=also,
                rollout_id="",
                selector="env=prod",
                waits=waits,
                updated_at=before(hours=2),
            )
            for name, package, release, _, also, waits, _ in lines
        ),
        edges,
        {name: hosts for name, *_, hosts in lines},
    )
    columns = channel_pages.COLUMNS
    return structs.replace(laid_out, headings=columns.headings(columns.order(""), "/channels"))


CHANNEL_VERBS = (
    VerbButton(
        id="promote",
        label="Promote",
        icon="arrow",
        action="/x",
        title="Promote to web-stable",
        first=True,
        fields=(
            Field(
                name="release",
                label="Release",
                kind="select",
                options=(
                    Option("web.8", "web.8 · published 2 h ago"),
                    Option("web.7", "web.7"),
                ),
            ),
            REASON,
        ),
    ),
    VerbButton(
        id="hold",
        label="Hold",
        icon="lock",
        action="/x",
        title="Hold web-stable?",
        fields=(REASON,),
    ),
)
CHANNEL = channel_screens.ChannelPage(
    running=structs.replace(
        RUNNING[0],
        channel="web-stable",
        wanted="web.7",
        hosts=300,
        bar=bar([("good", "web.7", 33), ("calm", "web.6", 267)], of=[300]),
        parts=(RunningPart("web.7", 33, "good"), RunningPart("web.6", 267, "calm")),
    ),
    channel="web-stable",
    package="web",
    selector="env=prod,role=web",
    state=ROLLOUTS[RolloutState.ACTIVE],
    also=(),
    release="web.7",
    release_name="default.web.v7",
    digest="sha256:5c1e99d0b1a24f7c88e2",
    previous="web.6",
    since=before(minutes=18),
    evidence_chip=Chip("shield", "idle", "Evidence: operator command, complete"),
    by="The approver",
    by_reason="the checkout was slow",
    reasons="an operator promoted it",
    evidence=(
        channel_screens.EvidenceLine(
            kind="operator_command",
            source="release-control-plane",
            ref="operator://deploy/web-stable/web.7",
            digest="",
            at="2026-11-16 13:47:02 UTC",
        ),
    ),
    version=6,
    waits=(
        rollout_screens.GateLine(
            gate="wave-promotion", passed=False, reason="wave ten-percent is not done"
        ),
    ),
    rollouts=(OPEN,),
    overrides=(
        channel_screens.OverrideLine("freeze", "Bob", before(minutes=17), "hotfix for INC-7"),
    ),
    ladder=(
        channel_screens.RungLine("web.6", before(days=6), 240, ""),
        channel_screens.RungLine(
            "web.5", before(days=9), 238, "Ann rolled back from web.5 at 2026-11-10 09:12 UTC"
        ),
        channel_screens.RungLine("web.4", before(days=20), 236, ""),
    ),
    waves=("canary: 12 hosts, soak 15 min", "ten-percent: 20 %, soak 10 min", "half: 50 %", "rest"),
    edges=(
        channel_screens.EdgeLine(
            channel="web-canary",
            asks="asks for success, soak 1 h",
            passed=True,
            reason="web.7 succeeded on web-canary at 13:02 UTC",
        ),
    ),
    on_failure="rollback-and-halt",
    history=(
        channel_screens.PinChange(
            release="web.7",
            previous="web.6",
            by="The approver",
            at=before(minutes=18),
            reason="the checkout was slow",
            chip=Chip("arrow", "info", "Promoted"),
        ),
        channel_screens.PinChange(
            release="web.6",
            previous="web.5",
            by="The approver",
            at=before(days=6),
            reason="memory leak",
            chip=Chip("undo", "back", "Rolled back"),
        ),
    ),
    quarantine=QUARANTINE,
    verbs=CHANNEL_VERBS,
    bar=arrange(CHANNEL_VERBS, ("promote",)),
    automation=(
        channel_screens.AutomationLine(
            chip=Chip("play", "info", "Promotes by itself"),
            text="web.8 succeeded on web-canary; it is promoted with the worker's next look. "
            "Switched on by Dana Okafor.",
        ),
        channel_screens.AutomationLine(
            chip=Chip("pause", "idle", "Rolls back by itself"),
            text="Nothing failed in web-stable@web.7. Switched on by Dana Okafor.",
        ),
    ),
)
REVISIONS = tuple(
    release_screens.RevisionLine(
        name=name,
        title=f"{package}.{number}" if number else package,
        package=package,
        repository="default",
        workspace=workspace,
        lifecycle=state_labels.lifecycle(state),
        number=number,
        by=by,
        at=before(hours=hours),
        files=files,
        bytes=files * 1733,
        digest=f"sha256:{name.encode().hex()}0011",
    )
    for name, package, workspace, state, number, by, hours, files in (
        ("default.web.main", "web", "main", "Proposed", 0, "The author", 0.6, 14),
        ("default.web.v7", "web", "v7", "Published", 7, "The author", 1, 14),
        ("default.edge.eu-tuning", "edge", "eu-tuning", "Draft", 0, "The approver", 3, 5),
        ("default.api.v11", "api", "v11", "DeletionProposed", 11, "Another author", 70, 33),
    )
)
RELEASE_TABS = (
    Option("waiting", "Waiting for approval", "2"),
    Option("published", "Published"),
    Option("drafts", "Drafts"),
    Option("all", "All"),
)
REFERENCE = "https://artifacts.example/models/recommendations/2026-11-16/model.bin?generation=7"
REVISION = release_screens.RevisionPage(
    line=REVISIONS[0],
    against="revision 7",
    files=(
        release_screens.FileDiff(
            path="service.toml",
            change=Chip("pencil", "info", "Changed"),
            added=3,
            removed=2,
            lines=(
                release_screens.DiffLine("hunk", "", "", "@@ −12,6 +12,7 @@"),
                release_screens.DiffLine("same", "12", "12", "[server]"),
                release_screens.DiffLine("same", "13", "13", 'listen = "127.0.0.1:8080"'),
                release_screens.DiffLine("del", "14", "", "workers = 4"),
                release_screens.DiffLine("del", "15", "", "timeout_seconds = 30"),
                release_screens.DiffLine("add", "", "14", "workers = 8"),
                release_screens.DiffLine("add", "", "15", "timeout_seconds = 20"),
                release_screens.DiffLine("add", "", "16", "keep_alive_seconds = 75"),
                release_screens.DiffLine("same", "16", "17", ""),
                release_screens.DiffLine("same", "17", "18", "[checkout]"),
            ),
        ),
        release_screens.FileDiff(
            path="bin/web",
            change=Chip("pencil", "info", "Changed"),
            added=0,
            removed=0,
            lines=(),
            note="Binary: 8.1 MiB → 8.3 MiB",
        ),
        release_screens.FileDiff(
            path="data/model.bin",
            change=Chip("pencil", "info", "Changed"),
            added=0,
            removed=0,
            lines=(
                release_screens.DiffLine("del", "", "", "kept here"),
                release_screens.DiffLine("del", "", "", f"sha256:{'7' * 64} 7.9 MiB"),
                release_screens.DiffLine("add", "", "", f"by reference {REFERENCE}"),
                release_screens.DiffLine("add", "", "", f"sha256:{'8' * 64} 8.0 MiB"),
            ),
        ),
        release_screens.FileDiff(
            path="probes/http.json",
            change=Chip("plus", "good", "Added"),
            added=2,
            removed=0,
            lines=(
                release_screens.DiffLine("hunk", "", "", "@@ −0,0 +1,2 @@"),
                release_screens.DiffLine("add", "", "1", '{"kind": "http", "path": "/livez",'),
                release_screens.DiffLine("add", "", "2", ' "mode": "enforce"}'),
            ),
        ),
    ),
    added=5,
    removed=2,
    cut=0,
    created_by="The author",
    proposed_by="The author",
    published_by="",
    self_approved=False,
    editors="The author, Another author",
    approvals=(),
    quorum=1,
    gates=(),
    tasks=("init", "push"),
    version=48190,
    verbs=(
        VerbButton(
            id="approve",
            label="Approve",
            icon="check",
            action="/x",
            title="Approve web?",
            first=True,
            text="You approve the content 5c1e99d0b1a2. It becomes revision 8, immutable.",
            fields=(Field(name="remark", label="Remark", kind="long"),),
        ),
        VerbButton(
            id="reject",
            label="Reject",
            icon="cross",
            action="/x",
            title="Reject?",
            danger=True,
            fields=(REASON,),
        ),
    ),
    history=(
        told("clock", "warn", "Proposed by The author", ago=34, position=48190),
        told("file", "info", "Content replaced", "14 files, 24.3 KiB", ago=40, position=48166),
        told("pencil", "idle", "Drafted by The author", ago=95, position=47902),
    ),
    pinned=(Link("web-stable", "/channels/web-stable"), Link("elsewhere")),
    references=(
        release_screens.ReferenceLine(
            path="data/model.bin", uri=REFERENCE, digest=f"sha256:{'8' * 64}", bytes=8_388_608
        ),
        release_screens.ReferenceLine(
            path="assets/" + "deep/" * 12 + "fonts.tar",
            uri="file:///mnt/releases/fonts.tar",
            digest=f"sha256:{'9' * 64}",
            bytes=1_024,
        ),
    ),
    references_cut=2,
)
PLAN = plan_screens.PlanPage(
    channels=(Option("web-stable", "web-stable"), Option("api-canary", "api-canary")),
    channel="web-stable",
    releases=(Option("web.8", "web.8"), Option("web.7", "web.7")),
    release="web.8",
    luck="usual",
    lucks=(Option("none", "Nothing fails"), Option("usual", "Typical failures")),
    failing="",
    seed=7,
    start_at="",
    history="Of 300 hosts in the last 7 rollouts here 0.7 % failed their probes. "
    "A switch took 2 s to 9 s.",
    waves=tuple(
        plan_screens.PlanWaveLine(
            number=number,
            name=name,
            hosts=hosts,
            soak=("15 min", "10 min", "10 min", "none")[number],
            failures_max=(0, 1, 2, 2)[number],
            sample=(f"web-{number}01", f"web-{number}02", f"web-{number}03"),
            bar=bar([("info", "hosts", hosts)], of=[120]),
        )
        for number, (_, hosts, name) in enumerate(WAVES)
    ),
    unstaged=0,
    hosts=300,
    findings=(
        plan_screens.PlanFinding(
            chip=Chip("warning", "warn", "It takes over from web-stable@web.7"),
            text="It is rolling out, 33 of 300 hosts done.",
        ),
    ),
    forecast="/plan/forecast?channel=web-stable",
)


def _run(seed: int, *ends: int, stop: str = "", lasted: int = 0) -> Forecast:
    """A simulated run whose waves ended at these seconds, and that then succeeded or halted."""
    waves = tuple(
        WaveForecast(
            name=name,
            hosts=hosts,
            ended=int(number < len(ends)),
            seconds=Spread(*[ends[number]] * 3) if number < len(ends) else None,
        )
        for number, (_, hosts, name) in enumerate(WAVES)
    )
    state = "Reverted" if stop else "Terminal"
    seconds = lasted or ends[-1]
    return Forecast(
        channel="web-stable",
        hosts=300,
        runs=1,
        seed=seed,
        stands_for=2,
        state=state,
        seconds=seconds,
        waits_seconds=600,
        held=(
            HeldStretch(by=HeldBy.FREEZE, begins=0, ends=600, hosts=300),
            HeldStretch(by=HeldBy.WINDOW, window_id="nightly", begins=2_900, ends=3_300, hosts=120),
        ),
        timeline=(
            Moment(0, "opened, 150 hosts simulated"),
            *(Moment(at, f"wave {number + 1} is done") for number, at in enumerate(ends)),
            Moment(seconds, "the rollout was rolled back" if stop else "the rollout succeeded"),
        ),
        waves=waves,
        failed=Spread(*[int(bool(stop))] * 3),
        ends={state: 1},
        stops=(Stopped(stop, 1),) if stop else (),
    )


FORECAST = part_of(
    (
        _run(7, 1_100, 2_300, 3_700, 4_300),
        _run(8, 1_160, 2_500, 4_100, 4_900),
        _run(9, 1_090, 2_280, 3_650, 4_210),
        _run(10, 1_240, 2_700, stop="a host failed: probes", lasted=3_500),
        _run(11, 1_120, 2_400, 3_800, 4_400),
    ),
    "",
)
HOST_ROWS = tuple(
    host_screens.HostRow(
        host_id=f"web-{number:03}",
        status=state_labels.SILENT if number == 4 else state_labels.HOST_STATUS["enrolled"],
        labels=("env=prod", "role=web", f"zone={'abc'[number % 3]}"),
        seen_at=before(seconds=11 * number),
        agent="0.2.0",
        runs="web.7",
        busy="web-stable@web.7" if number in (2, 5) else "",
    )
    for number in range(1, 15)
)
HOST_VERBS = (
    VerbButton(
        id="revoke",
        label="Revoke key",
        icon="key",
        action="/x",
        title="Revoke?",
        danger=True,
        fields=(REASON,),
    ),
)
HOST = host_screens.HostPage(
    row=HOST_ROWS[1],
    enrolled_at=before(days=40),
    public_key="7d0a" * 16,
    silent_since=None,
    releases=(Option("sha256:5c1e99d0b1a2", "web-stable", "runs web.6, wants web.7"),),
    facts=(
        Option("debian 12", "System"),
        Option("6.1.0-18-amd64", "Kernel"),
        Option("x86_64", "Architecture"),
        Option("10.0.4.17, 2001:db8::17", "Addresses"),
    ),
    rollouts=(
        host_screens.HostRolloutLine(
            rollout_id="web-stable@web.7",
            state=HOSTS[HostState.SOAKING],
            wave="2 · ten-percent",
            text="soaks until 14:11 UTC",
            at=before(minutes=4),
            attempt=1,
        ),
        host_screens.HostRolloutLine(
            rollout_id="web-stable@web.6",
            state=HOSTS[HostState.CONVERGED],
            wave="2 · half",
            text="",
            at=before(days=6),
            attempt=2,
        ),
    ),
    probes=(
        host_screens.ProbeLine(
            name="http",
            mode="enforce",
            chip=Chip("check", "good", "Pass"),
            text="",
            at=before(seconds=20),
        ),
        host_screens.ProbeLine(
            name="disk",
            mode="observe",
            chip=Chip("cross", "bad", "Fail"),
            text="91 % full",
            at=before(seconds=22),
        ),
    ),
    waits=(
        host_screens.HostWait(
            rollout_id="web-stable@web.7",
            verdict="The host had its order and is soaking: its soak ends at 14:11 UTC.",
            tone="soak",
            icon="hourglass",
        ),
    ),
    verbs=HOST_VERBS,
    bar=arrange(HOST_VERBS, ()),
)


def rate() -> log_screens.EventRate:
    """An hour in which a rollout began."""
    counts = [(n % 3, 2 + n % 5 + (n > 30) * (n % 11) * 3, n % 4 == 0) for n in range(60)]
    most = max(map(sum, counts))
    tones = ("info", "good", "soak")

    def parts(found: tuple[int, int, bool]) -> tuple[log_screens.RatePart, ...]:
        heights = [count * 100 / most for count in found]
        return tuple(
            log_screens.RatePart(tone, 100 - sum(heights[: number + 1]), heights[number])
            for number, tone in enumerate(tones)
        )

    return log_screens.EventRate(
        unit="minute",
        bars=tuple(
            log_screens.RateBar(
                x=n * 100 / 60, width=1.37, parts=parts(found), href="/events", title=f"{n}"
            )
            for n, found in enumerate(counts)
        ),
        kinds=tuple(
            rollout_screens.Legend(
                name, event_rate.KINDS[name], sum(found[number] for found in counts)
            )
            for number, name in enumerate(("Rollouts", "Hosts", "Releases"))
        ),
        total=sum(map(sum, counts)),
        most=most,
        start=before(hours=1),
        end=NOW,
    )


EVENTS = log_screens.Events(
    events=tuple(
        log_screens.EventLine(
            position=48211 - number,
            at=before(seconds=17 * number),
            type=kind,
            kind="rollout_event",
            icon=icon,
            tone=tone,
            title=text,
            actor="user_grace",
            tags=("rollout_id:web-stable@web.7", "host_id:web-117"),
            body='{\n  "rollout_id": "web-stable@web.7",\n  "from_wave": 0,\n  "to_wave": 1\n}',
            request="9f12ab",
            open=number == 1,
        )
        for number, (kind, icon, tone, text) in enumerate(
            (
                ("WaveAdvanced", "wave", "info", "Wave 2 of web-stable@web.7 began"),
                ("HostStateChanged", "check", "good", "web-117: Soaking → Converged"),
                ("Converged", "check", "good", "web-117 runs 5c1e99d0b1a2"),
                ("ProbeResult", "eye", "info", "web-117: http passes"),
                ("RevisionProposed", "clock", "warn", "web proposed by The author"),
                ("GateChanged", "pause", "warn", "disruption-budget blocks web-stable@web.7"),
            )
        )
    ),
    types=("Converged", "GateChanged", "WaveAdvanced"),
    type="",
    tag="",
    at=48211,
    head=48211,
    following=True,
    older="/events?at=48205",
    newer="",
    back="/events",
    rate=rate(),
    new=log_screens.NewEvents(ask="/events/new?after=48211", count=12, href="/events"),
    at_time=before(seconds=3),
)
OUTBOX_PAGE = log_screens.Outbox(
    tab="open",
    tabs=(
        Option("open", "Pending and dead", "2"),
        Option("done", "Done"),
        Option("other", "Replaced or cancelled"),
    ),
    intents=OUTBOX,
    headings=outbox.COLUMNS.headings(outbox.COLUMNS.order(""), "/outbox"),
    drifts=(
        log_screens.DriftLine(
            scope="web-stable",
            subject="webhook:deploys",
            chip=Chip("warning", "warn", "Open"),
            finding="the receiver reports web.6",
            at=before(minutes=12),
        ),
    ),
    oldest=before(minutes=52),
)
SETTINGS = settings_screens.SettingsPage(
    me="user_grace",
    new_repository=LinkButton(
        id="new-repository", label="New repository", icon="plus", href="/new/repository"
    ),
    subscriptions=(
        settings_screens.SubscriptionLine(
            name="team",
            kind="slack",
            chip=Chip("check", "good", "Works"),
            text="events of severity warning or higher · everywhere",
        ),
        settings_screens.SubscriptionLine(
            name="ops",
            kind="webhook",
            chip=Chip("warning", "bad", "Failing"),
            text="rollout.halted · channel:prod · 37 waiting · 2 given up · status 503",
        ),
    ),
    users=(
        settings_screens.UserLine(
            user_id="user_ada",
            name="The author",
            chip=Chip("check", "good", "Enabled"),
            grants=("author", "viewer"),
            tokens=1,
            added_at=before(days=80),
            verbs=(
                VerbButton(
                    id="grant-1", label="Grant", icon="plus", action="/x", title="Grant a role"
                ),
            ),
        ),
        settings_screens.UserLine(
            user_id="user_grace",
            name="The approver",
            chip=Chip("check", "good", "Enabled"),
            grants=("release-manager", "fleet-operator", "approver on repository:default"),
            tokens=2,
            added_at=before(days=90),
        ),
        settings_screens.UserLine(
            user_id="user_gone",
            name="(erased)",
            chip=Chip("trash", "gone", "Erased"),
            grants=(),
            tokens=0,
            added_at=before(days=200),
        ),
    ),
    tokens=(
        settings_screens.TokenLine(
            token_id="a1b2c3d4e5",
            owner="user_grace",
            chip=Chip("check", "good", "Valid"),
            created_at=before(days=3),
            expires_at=NOW + timedelta(days=27),
            grants="the same as yours",
        ),
    ),
    repositories=(
        settings_screens.RepositoryLine(
            name="default",
            text="1 approval by another person · proposals are protected",
            edit=LinkButton(
                id="edit-repository-0",
                label="Edit",
                icon="pencil",
                href="/repositories/default/edit",
            ),
            delete=VerbButton(
                id="delete-repository-0",
                label="Delete",
                icon="trash",
                action="/x",
                title="Delete the repository default?",
                danger=True,
            ),
        ),
    ),
    verbs=(
        VerbButton(
            id="token",
            label="New token",
            icon="key",
            action="/x",
            title="New API token",
            first=True,
        ),
    ),
    secret="tg_a1b2c3d4e5_3f9a2c77d0e14b8c95aa",
    facts=(
        Option("0.2.0", "Version"),
        Option("SQLite", "Log"),
        Option("4be1…", "Log id"),
    ),
)
DOOR = form_screens.SignInPage(
    action="/signin",
    fields=(
        Field(name="login", label="Sign-in name", required=True, completes="username"),
        Field(
            name="password",
            label="Password",
            kind="password",
            required=True,
            completes="current-password",
        ),
    ),
    label="Sign in",
    fault=FormError("The sign-in name or the password is wrong", "", "wrong_credentials"),
)
SETUP = form_screens.SignInPage(
    action="/setup",
    note="This is the first start. The server printed a one-time code where it was started.",
    fields=(
        Field(name="code", label="One-time code", required=True),
        Field(name="login", label="Sign-in name", required=True),
        Field(name="name", label="Your name", required=True),
        Field(
            name="password",
            label="Password",
            kind="password",
            required=True,
            hint="At least 12 characters.",
        ),
        Field(
            name="alone",
            label="Approval",
            kind="choice",
            value="false",
            options=(
                Option("false", "A team", "Another person approves each proposal."),
                Option("true", "I work alone", "Publications say that they are self-approved."),
            ),
        ),
    ),
    label="Set up Tidegate",
)
LOST = form_screens.ErrorPage(
    title="There is nothing here",
    text="There is no rollout web@9",
    icon="search",
    code="rollout_not_found",
    links=(Option("/", "Overview", "overview"), Option("/rollouts", "Rollouts", "rollouts")),
)
FOUND = form_screens.ErrorPage(
    title="3 results begin with “web”",
    text="",
    icon="search",
    links=(
        Option("/channels/web-stable", "web-stable", "channels"),
        Option("/revisions/default.web.v7", "web.7", "releases"),
        Option("/hosts/web-001", "web-001", "hosts"),
    ),
)

APPROVALS = channel_screens.Approvals(
    tab="open",
    tabs=(Option("open", "Open", "5"), Option("decided", "Decided")),
    requests=(ASKED, EDIT_ASKED),
    reviews=(TO_REVIEW,),
    waiting=WAITING,
    ended=(),
)

OPENINGS = tuple(
    form_screens.OpeningLine(
        starts=f"{day} 02:00 CET",
        ends="04:00 CET",
        at=NOW + timedelta(hours=9 + 24 * number),
        lasts="2 h",
        tone="good",
        x=15.0 + 40 * number,
        width=4.0,
    )
    for number, day in enumerate(("Tue 17 Nov", "Wed 18 Nov", "Thu 19 Nov"))
)


def _link(label: str, icon: str, why: str = "") -> LinkButton:
    return LinkButton(
        id=label.replace(" ", "-").lower(), label=label, icon=icon, href="/x", why=why
    )


MAINTENANCE = settings_screens.Maintenance(
    windows=(
        settings_screens.WindowLine(
            window_id="nightly",
            chip=Chip("check", "good", "Allow"),
            text="web-stable, edge-eu for 2 h, every day, Europe/Berlin",
            reason="nights are quiet",
            openings=OPENINGS,
            edit=_link("Edit nightly", "pencil"),
            delete=_decide("nightly", "Delete"),
        ),
        settings_screens.WindowLine(
            window_id="month-end",
            chip=Chip("ban", "bad", "Deny"),
            text="all channels for 3 d, FREQ=MONTHLY;BYMONTHDAY=-1, label:tz",
            reason="closing of the books",
            openings=(),
            edit=_link("Edit month-end", "pencil"),
            delete=_decide("month-end", "Delete", why="This needs the role fleet-operator."),
        ),
    ),
    freezes=(
        settings_screens.FreezeLine(
            freeze_id="sale",
            channels="web-stable, api-canary",
            by="The approver",
            reason="Black Friday",
            at=before(hours=3),
            until=NOW + timedelta(days=2),
            end=_decide("sale", "End"),
        ),
    ),
    budgets=(
        settings_screens.BudgetLine(
            budget_id="web-hosts",
            selector="app=web,env=prod",
            limit="At most 5 hosts or 10 % in flight at once, whichever is less",
            in_flight=3,
            edit=_link("Edit web-hosts", "pencil"),
            remove=_decide("web-hosts", "Delete"),
        ),
    ),
    create=(
        _link("Freeze", "snow"),
        _link("New window", "clock"),
        _link("New budget", "plus", "This needs the role fleet-operator."),
    ),
)
NOTIFICATIONS = settings_screens.Notifications(
    lines=(
        settings_screens.NotificationLine(
            name="team-chat",
            kind="slack",
            chip=Chip("check", "good", "Works"),
            text="events of severity warning or higher · everywhere",
            queue="412 sent · 0 waiting · 0 given up",
            error="",
            dead=(),
            edit=_link("Edit chat", "pencil"),
            verbs=(_decide("chat", "Delete"),),
        ),
        settings_screens.NotificationLine(
            name="ops",
            kind="webhook",
            chip=Chip("warning", "bad", "Failing"),
            text="rollout.halted, hosts.lost · channel:prod",
            queue="17 sent · 37 waiting · 2 given up",
            error="status 503",
            dead=("rollout.halted: the receiver refused it three times",),
            edit=_link("Edit ops", "pencil"),
            verbs=(_decide("ops", "Replay", first=True), _decide("ops", "Delete")),
        ),
    ),
    create=_link("New subscription", "plus"),
    secret="whsec_QUFBQUFBQUFBQUFB",
    test_response="team-chat accepted the test message: 200",
)
POLICY_FORM = form_screens.FormPage(
    title="Edit web-stable",
    text="Rollouts that are open keep their plan. The next one follows what you save.",
    action="/x",
    back="/channels",
    asks="web-stable is protected. This makes a request, which another person must approve.",
    version=17,
    fields=(
        Field(
            name="selector",
            label="Hosts",
            value="app=",
            required=True,
            fault="A selector is key=value; found 'app='.",
        ),
        Field(name="policy", label="Rollout policy", kind="code", value=example_text()),
        Field(name="reason", label="Reason", kind="long", placeholder="Why"),
    ),
    submits=(
        Option("save", "Save", "check"),
        Option("check", "Check and compare", "eye"),
        Option("example", "Insert the example", "pencil"),
    ),
    found="It would change 2 members",
    findings=(
        plan_screens.PlanFinding(
            chip=Chip("warning", "warn", "Warning"),
            text="waves[0].converged_min is 9, and the wave has 1 host: all of it must converge.",
        ),
    ),
    changes=(
        RequestChange("waves[0].soak_seconds", "300", "60"),
        RequestChange("offline_grace_seconds", "900", "none"),
    ),
    members=describe_members(),
)
WINDOW_FORM = form_screens.FormPage(
    title="New window",
    text="A maintenance window says when hosts may get orders, or may not.",
    action="/x",
    back="/maintenance",
    fields=(
        Field(name="window_id", label="Name", value="nightly", required=True),
        Field(
            name="kind",
            label="Kind",
            kind="choice",
            value="allow",
            options=(
                Option("allow", "Allow", "Hosts get orders only while it is open."),
                Option("deny", "Deny", "Hosts get no order while it lasts."),
            ),
        ),
        Field(name="start", label="First start", kind="datetime-local", value="2026-11-17T02:00"),
        Field(name="zone", label="Time zone", value="Mars/Base", fault="It is not a time zone."),
        Field(
            name="channels",
            label="Channels",
            kind="many",
            values=("web-stable",),
            options=tuple(Option(name, name) for name in ("web-stable", "edge-eu", "api-canary")),
            hint="Tick none for all channels.",
        ),
    ),
    submits=(Option("save", "Create", "check"), Option("check", "Show the next openings", "eye")),
    found="Opens next",
    openings=OPENINGS,
)

PAST = tuple(
    structs.replace(
        PAUSED,
        rollout_id=f"web-stable@web.{6 - number}",
        state=state_labels.OUTCOMES[outcome],
        also=(),
        opened_at=before(days=2 * number + 1),
        failed=int(outcome in (Outcome.FAILED, Outcome.ROLLED_BACK)),
        opened_by="The approver",
        took_seconds=1_380 + 700 * number,
    )
    for number, outcome in enumerate(Outcome)
)


def _revoke(number: int) -> VerbButton:
    return VerbButton(
        id=f"delete-join-{number}",
        label="Revoke",
        icon="trash",
        action="/x",
        title="Revoke it?",
        danger=True,
    )


JOINS = host_screens.Joins(
    lines=(
        host_screens.JoinLine(
            join_id="join-3f9a1c2b7d",
            chip=joins.USABLE,
            labels=("app=web", "env=prod"),
            enrolled=12,
            limit=40,
            until=NOW + timedelta(days=2),
            by="you",
            delete=_revoke(0),
        ),
        host_screens.JoinLine(
            join_id="join-99b0e1d4aa",
            chip=joins.USED_UP,
            labels=(),
            enrolled=5,
            limit=5,
            until=NOW + timedelta(hours=3),
            by="Dana Okafor",
            delete=_revoke(1),
        ),
    ),
    create=LinkButton(
        id="create", label="New join token", icon="plus", href="/new/join", first=True
    ),
    secret="tgj_join-3f9a1c2b7d_0c1d2e3f4a5b6c7d8e9f0a1b2c3d4e5f",
    made="join-3f9a1c2b7d",
)

SCREENS: dict[str, tuple[str, str, Struct]] = {
    "overview": ("overview.html", "/", OVERVIEW),
    "overview-empty": (
        "overview.html",
        "/",
        overview_screen.Overview(
            checklist=checklist(
                FirstSteps(
                    repository=True,
                    revision=True,
                    channel=False,
                    host=False,
                    rollout=False,
                    subscription=False,
                    second_person=True,
                )
            ),
            counts=overview_screen.OverviewCounts(),
            tiles=tuple(structs.replace(tile, figure=0, note="") for tile in OVERVIEW.tiles),
            channels=(),
            taken_at=NOW,
            ended=(),
            ended_summary="",
            is_in_use=False,
            rollouts=(),
            waiting=(),
            troubles=(),
            quarantine=(),
            outbox=(),
            news=(),
        ),
    ),
    "rollouts": (
        "rollouts.html",
        "/rollouts",
        rollout_screens.Rollouts(
            open=(OPEN, REVERTED),
            past=PAST,
            headings=rollouts.COLUMNS.headings(rollouts.COLUMNS.order(""), "/rollouts"),
            outcomes=tuple(Option(value, label) for value, label in rollouts.OUTCOME_FILTERS),
        ),
    ),
    "rollout": ("rollout.html", "/rollouts", rollout_page()),
    "repository-form": ("form.html", "/settings", repository_forms.new_form()),
    "rollout-stopped": ("rollout.html", "/rollouts", stopped_page()),
    "joins": ("joins.html", "/hosts", JOINS),
    "joins-empty": ("joins.html", "/hosts", host_screens.Joins(lines=(), create=JOINS.create)),
    "channels": ("channels.html", "/channels", channels()),
    "channel": ("channel.html", "/channels", CHANNEL),
    "releases": (
        "releases.html",
        "/releases",
        release_screens.Releases(tab="waiting", tabs=RELEASE_TABS, waiting=WAITING, revisions=()),
    ),
    "releases-all": (
        "releases.html",
        "/releases",
        release_screens.Releases(
            tab="all",
            tabs=RELEASE_TABS,
            waiting=(),
            revisions=REVISIONS,
            headings=releases.COLUMNS.headings(releases.COLUMNS.order(""), "/releases"),
        ),
    ),
    "revision": ("revision.html", "/releases", REVISION),
    "approvals": ("approvals.html", "/approvals", APPROVALS),
    "request": (
        "request.html",
        "/approvals",
        channel_screens.RequestPage(
            request=ASKED,
            note="prod is held.",
            alternatives=(
                Alternative(
                    "A rollback in waves, which freezes and windows hold, needs no second person",
                    "tidegate channel rollback web-stable --to web.6 --reason …",
                ),
            ),
        ),
    ),
    "maintenance": ("maintenance.html", "/maintenance", MAINTENANCE),
    "notifications": ("notifications.html", "/notifications", NOTIFICATIONS),
    "policy-form": ("form.html", "/channels", POLICY_FORM),
    "window-form": ("form.html", "/maintenance", WINDOW_FORM),
    "plan": ("plan.html", "/plan", PLAN),
    "hosts": (
        "hosts.html",
        "/hosts",
        host_screens.Hosts(
            total=868,
            hosts=HOST_ROWS,
            headings=hosts.COLUMNS.headings(hosts.COLUMNS.order(""), "/hosts"),
            filter="all",
            selector="",
            next="/hosts?next=x",
        ),
    ),
    "host": ("host.html", "/hosts", HOST),
    "events": ("events.html", "/events", EVENTS),
    "outbox": ("outbox.html", "/outbox", OUTBOX_PAGE),
    "settings": ("settings.html", "/settings", SETTINGS),
    "signin": ("sign_in.html", "", DOOR),
    "setup": ("sign_in.html", "", SETUP),
    "lost": ("error.html", "", LOST),
    "found": ("error.html", "", FOUND),
}
TITLES = {"signin": "Sign in", "setup": "First start"}


def frame(name: str) -> Frame:
    _, here, view = SCREENS[name]
    listed = tuple(getattr(view, "verbs", ()))
    if isinstance(view, channel_screens.Approvals):
        listed = tuple(verb for line in (*view.requests, *view.reviews) for verb in line.verbs)
    return Frame(
        title=TITLES.get(name, name.capitalize()),
        url=here,
        now=NOW,
        head=48211,
        nav=navigation(here),
        crumbs=(Link("Rollouts", "/rollouts"), Link("web-stable@web.7"))
        if name == "rollout"
        else (Link(name.capitalize()),),
        user="The approver",
        user_id="user_grace",
        roles="release-manager, fleet-operator",
        csrf="token",
        verbs=listed,
        done="The rollout was paused." if name == "rollouts" else "",
    )
