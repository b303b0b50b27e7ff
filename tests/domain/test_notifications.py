"""Messages to people: each event once per cause and scope, however many hosts are affected."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import Struct, structs

from tests.domain import golden_messages
from tests.domain.memory_fleet import CHANNEL, MemoryFleet
from tests.quick import more
from tidegate.control.leaders import Leader
from tidegate.control.notifications.notifier import Notifier, whole_commits
from tidegate.domain.channels.facts import ChannelHeld, FreezeEnded, FreezeStarted
from tidegate.domain.fleet.facts import HostHeard, HostSilent
from tidegate.domain.fleet.rows import ChannelScope, Fleet, Host, fleet_key, host_key
from tidegate.domain.hosts.facts import HostRegressed, HostStateChanged
from tidegate.domain.hosts.states import HostState, OnFailure
from tidegate.domain.notifications import bursts, renderings
from tidegate.domain.notifications.bursts import BurstState
from tidegate.domain.notifications.events import EVENTS, TEST_EVENT, severity_of
from tidegate.domain.notifications.facts import NoticeDied, NoticeQueued
from tidegate.domain.notifications.from_facts import FollowedFact, Rows, notice_of, notices_of
from tidegate.domain.notifications.matching import is_wanted
from tidegate.domain.notifications.messages import InstallationRef, to_message
from tidegate.domain.notifications.notices import Notice, NoticeHosts
from tidegate.domain.notifications.rows import Subscription
from tidegate.domain.notifications.slices import LEADER, CreateSubscription, create_subscription
from tidegate.domain.notifications.states import Severity, TargetKind
from tidegate.domain.notifications.texts import duration_text, sentences_of, title_of
from tidegate.domain.packages.facts import RevisionProposed
from tidegate.domain.requests.facts import EmergencyUsed
from tidegate.domain.rollouts.facts import (
    GateChanged,
    GateOverridden,
    HostCounts,
    RolloutConcluded,
    RolloutOpened,
)
from tidegate.domain.rollouts.states import Cause, Clearance, Outcome, OverridableGate
from tidegate.kernel.leases import Leases
from tidegate.kernel.model import NO_META, Event, Key
from tidegate.kernel.replay import differences

T0 = datetime(2026, 4, 24, 20, 0, tzinfo=UTC)
PURE: dict[str, Any] = {"engines": None, "reason": "pure"}
ROLLOUT = "prod@web.4"


class SubscribedFleet(MemoryFleet):
    """A fleet with one subscription to everything, and a notifier."""

    def __init__(self, **policy: Any) -> None:
        super().__init__(**policy)
        command = CreateSubscription(
            name="ops",
            operator="user_1",
            kind=TargetKind.WEBHOOK,
            events=(),
            min_severity=Severity.INFO,
            scopes=("*",),
            address_id="a",
        )
        self.execute(create_subscription, command)
        leader = Leader(Leases(self.store), LEADER, self.clock, monotonic=lambda: 0.0)
        self.notifier = Notifier(self.sample.control, leader)

    def reported_events(self) -> list[str]:
        """Return the events of all notices so far, after the notifier has read the log."""
        while self.notifier.round():
            pass
        return [fact.notice.event for fact in self.events(NoticeQueued)]

    def notices(self) -> list[Notice]:
        self.reported_events()
        return [fact.notice for fact in self.events(NoticeQueued)]


# ── rollouts ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("NT-1", **PURE)
def test_a_whole_wave_of_failing_hosts_makes_two_messages() -> None:
    """Wrong version: one message per host. Right: one about the halt, one when all are back."""
    fleet = SubscribedFleet()
    hosts = [f"w0-{number}" for number in range(more(1_000, 5_000))]
    rollout = fleet.promote("web.1", len(hosts))
    fleet.start(rollout, *hosts)
    opened = fleet.reported_events()
    fleet.fail(rollout, *hosts)
    fleet.revert(rollout, *hosts)

    assert fleet.reported_events()[len(opened) :] == ["rollout.halted", "rollout.stopped"]
    stopped = fleet.notices()[-1]
    assert stopped.quarantined
    assert stopped.counts is not None
    assert stopped.counts.reverted == len(hosts)


@pytest.mark.req("NT-1", **PURE)
@pytest.mark.parametrize("on_failure", OnFailure)
def test_every_halt_is_reported_once_whatever_a_failing_host_does(on_failure: OnFailure) -> None:
    """Wrong version: under ``halt`` the machine wrote no RolloutHalted."""
    fleet = SubscribedFleet(on_failure=on_failure)
    rollout = fleet.promote("web.1", 2)
    fleet.start(rollout, "w0-0", "w0-1")
    fleet.fail(rollout, "w0-0")

    assert fleet.reported_events().count("rollout.halted") == 1
    assert (
        fleet.reported_events().count("rollout.stopped") == 0
    )  # the other host is still under way


def test_a_rollback_that_fails_is_a_halt_and_a_stop() -> None:
    fleet = SubscribedFleet()
    rollout = fleet.promote("web.1", 1)
    fleet.start(rollout, "w0-0")
    fleet.fail(rollout, "w0-0")
    fleet.lose(rollout, "w0-0")

    assert fleet.reported_events()[-2:] == ["rollout.halted", "rollout.stopped"]


def test_a_commit_that_halts_and_stops_is_one_message() -> None:
    fleet = SubscribedFleet(on_failure=OnFailure.HALT)
    rollout = fleet.promote("web.1", 1)
    fleet.start(rollout, "w0-0")
    fleet.fail(rollout, "w0-0")

    assert fleet.reported_events()[-1:] == ["rollout.halted"]


def test_a_halt_after_a_clearance_is_reported_again() -> None:
    fleet = SubscribedFleet()
    rollout = fleet.promote("web.1", 1)
    for _ in range(2):
        fleet.start(rollout, "w0-0")
        fleet.fail(rollout, "w0-0")
        fleet.clock.advance(timedelta(seconds=1))
        fleet.revert(rollout, "w0-0")
        fleet.reported_events()
        fleet.clear(rollout, Clearance.RESUME)

    told = [event for event in fleet.reported_events() if event.startswith("rollout")]
    episode = ["rollout.halted", "rollout.stopped", "rollout.resumed"]
    assert told == ["rollout.opened", *episode, *episode]


def test_a_whole_rollout_is_reported_as_opened_and_succeeded() -> None:
    fleet = SubscribedFleet()
    rollout = fleet.promote("web.1", 1)
    fleet.reach(rollout, "w0-0")

    assert fleet.reported_events() == ["rollout.opened", "rollout.succeeded"]
    succeeded = fleet.notices()[-1]
    assert title_of(succeeded).startswith(f"✔ {CHANNEL}: web.1 succeeded on 1 host")
    assert differences(fleet.store, fleet.sample.folds) == []


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_has_an_event_of_its_name(outcome: Outcome) -> None:
    fact = RolloutConcluded(
        rollout_id=ROLLOUT,
        at=T0,
        channel="prod",
        outcome=outcome,
        target_ref="web.4",
        target_closure="sha256:4",
        cause=Cause.OPERATOR,
        cause_id="user_ann",
        counts=HostCounts(hosts=40, converged=38, tolerated=1, skipped=1),
        opened_at=T0 - timedelta(minutes=23),
    )

    notice = notice_of(followed(fact), {})

    assert notice is not None
    assert notice.event == f"rollout.{outcome}"
    assert notice.actor == "user_ann"
    assert "38 of 40 hosts run web.4 · 1 failure allowed · 1 skipped." in sentences_of(
        notice, "Ann"
    )
    assert "By Ann." in sentences_of(notice, "Ann")


def test_an_override_is_reported_as_an_emergency_and_as_a_resume() -> None:
    fact = GateOverridden(
        rollout_id=ROLLOUT,
        at=T0,
        gate=OverridableGate.EDGES,
        operator="user_bob",
        reason="hotfix",
    )

    resumed, emergency = notices_of([followed(fact)], {})

    assert (resumed.event, emergency.event) == ("rollout.resumed", "emergency.used")
    assert emergency.severity is Severity.CRITICAL
    assert resumed.key != emergency.key
    assert title_of(emergency) == f"! prod: web.4 passes the gate {OverridableGate.EDGES}"
    assert "By Bob: hotfix." in sentences_of(emergency, "Bob")


def test_a_rollback_at_once_that_bypasses_the_approval_is_one_emergency() -> None:
    """Wrong version: one commit made two emergencies about the same rollback."""
    used = EmergencyUsed(
        request_id="R-1",
        channel="prod",
        by="user_bob",
        at=T0,
        kind="channel.rollback_now",
        command={"to": "web.4"},
        reason="it burns",
    )
    opened = RolloutOpened(
        rollout_id="prod@web.4~2",
        at=T0,
        channel="prod",
        target_ref="web.4",
        target_closure="sha256:4",
        plan_digest="sha256:p",
        waves=(),
        on_failure=OnFailure.HALT,
        retention_seconds=0,
        operator="user_bob",
        reason="it burns",
        emergency=True,
        rollback_of="web.5",
    )
    elsewhere = structs.replace(opened, rollout_id="dev@web.4~2", channel="dev")

    facts = [followed(used, 7), followed(opened, 8), followed(elsewhere, 9)]
    found = notices_of(facts, {})

    assert [(item.event, item.channel) for item in found] == [
        ("emergency.used", "prod"),
        ("rollout.opened", "prod"),
        ("rollout.opened", "dev"),
        ("emergency.used", "dev"),
    ]
    assert found[0].subject == "R-1"


def test_a_message_about_a_request_leads_to_its_page() -> None:
    here = InstallationRef("example.com", "https://example.com", "5bf0c2")
    about = Notice(
        event="request.made",
        severity=Severity.WARNING,
        at=T0,
        position=7,
        channel="prod",
        subject="R-1",
    )
    bypassed = structs.replace(about, event="emergency.used", gate="approval")
    frozen = structs.replace(about, event="freeze.started", channel="", subject="f-1")

    links = [to_message(it, "ops", here, lambda _: None).payload.links for it in (about, bypassed)]
    freeze = to_message(frozen, "ops", here, lambda _: None).payload.links

    assert [None if it is None else it.page for it in links] == [
        "https://example.com/approvals/R-1",
        "https://example.com/approvals/R-1",
    ]
    assert freeze is not None
    assert freeze.page == "https://example.com/maintenance"


# ── facts that are reported by themselves ─────────────────────────────────────────────────────────


def followed(fact: Struct, position: int = 7, at: datetime = T0) -> FollowedFact:
    return FollowedFact(position, at, "user_ann", fact)


def test_a_proposal_concerns_its_repository() -> None:
    fact = RevisionProposed("team/web.v3", "team/web", "u", "user_ann", "sha256:3", "please")

    notice = notice_of(followed(fact), {})

    assert notice is not None
    assert (notice.event, notice.scopes) == ("revision.proposed", ("repository:team",))
    assert title_of(notice) == "? team/web.v3 waits for approval"


def subscription(**terms: Any) -> Subscription:
    said: dict[str, Any] = {
        "name": "ops",
        "kind": TargetKind.WEBHOOK,
        "events": (),
        "min_severity": Severity.INFO,
        "scopes": ("*",),
        "address_id": "a",
        "created_by": "user_1",
        "created_at": T0,
    }
    return Subscription(**(said | terms))


def test_a_freeze_of_all_channels_concerns_each_of_them() -> None:
    everywhere = FreezeStarted(freeze_id="x", operator="user_ann", reason="sale", at=T0)
    one = FreezeEnded(freeze_id="x", operator="user_ann", reason="", at=T0, channels=("dev",))
    of_prod = subscription(scopes=("channel:prod",))
    of_repository = subscription(scopes=("repository:prod",))

    notice, other = notice_of(followed(everywhere), {}), notice_of(followed(one), {})

    assert notice is not None
    assert other is not None
    assert is_wanted(of_prod, notice)
    assert not is_wanted(of_repository, notice)
    assert not is_wanted(of_prod, other)


def test_a_subscription_gets_the_events_it_selects() -> None:
    notice = notice_of(
        followed(ChannelHeld(channel="prod", operator="user_ann", at=T0, reason="x")), {}
    )

    assert notice is not None
    assert is_wanted(subscription(), notice)
    assert is_wanted(subscription(scopes=("channel:prod",)), notice)
    assert is_wanted(subscription(events=("channel.held",)), notice)
    assert not is_wanted(subscription(scopes=("channel:dev",)), notice)
    assert not is_wanted(subscription(events=("channel.released",)), notice)
    assert not is_wanted(subscription(min_severity=Severity.WARNING), notice)
    assert not is_wanted(subscription(disabled_at=T0), notice)


# ── bursts ────────────────────────────────────────────────────────────────────────────────────────


class Followed:
    """A state that receives facts and time."""

    def __init__(self, rows: Rows | None = None) -> None:
        self.rows = rows or {}
        self.state = BurstState()
        self.position = 0

    def say(self, *facts: Struct, at: datetime = T0) -> None:
        found = []
        for fact in facts:
            self.position += 1
            found.append(FollowedFact(self.position, at, "", fact))
        self.state = bursts.advance(self.state, found, self.rows)

    def due(self, seconds: float) -> list[Notice]:
        now = T0 + timedelta(seconds=seconds)
        self.state, notices = bursts.tell(self.state, now, self.position)
        return list(notices)

    def events(self, seconds: float) -> list[str]:
        return [notice.event for notice in self.due(seconds)]


def rows_of(hosts: Sequence[str], *channels: str) -> dict[Key, Any]:
    """Assign the hosts to the channels in turn."""
    scopes = tuple(ChannelScope(name, "default/web", f"channel={name}") for name in channels)
    rows: dict[Key, Any] = {fleet_key(): Fleet(scopes)}
    for number, host_id in enumerate(hosts):
        labels = {"channel": channels[number % len(channels)]}
        rows[host_key(host_id)] = Host(
            host_id=host_id, enrolled_at=T0, public_key="", labels=labels
        )
    return rows


def silent(host_id: str, at: datetime = T0) -> HostSilent:
    return HostSilent(host_id=host_id, at=at, last_seen_at=at)


@pytest.mark.req("NT-1", **PURE)
def test_100000_silent_hosts_of_three_channels_are_three_messages() -> None:
    hosts = [f"h-{number}" for number in range(100_000)]
    found = Followed(rows_of(hosts, "dev", "qa", "prod"))
    for start in range(0, len(hosts), 1_000):
        found.say(*map(silent, hosts[start : start + 1_000]))

    assert found.events(59) == []
    notices = found.due(60)

    assert [(n.event, n.channel) for n in notices] == [
        ("hosts.silent", "dev"),
        ("hosts.silent", "qa"),
        ("hosts.silent", "prod"),
    ]
    assert [n.hosts.count for n in notices if n.hosts] == [33_334, 33_333, 33_333]
    assert all(len(n.hosts.some) == 10 for n in notices if n.hosts)
    assert len({n.key for n in notices}) == 3
    assert found.events(61) == []
    found.say(*(HostHeard(host_id=host_id, at=T0) for host_id in hosts))
    assert found.events(120) == ["hosts.heard"] * 3


def test_more_silent_hosts_are_reported_after_a_quarter_of_an_hour_and_only_if_many() -> None:
    hosts = [f"h-{number}" for number in range(200)]
    found = Followed(rows_of(hosts, "prod"))
    found.say(*map(silent, hosts[:100]))
    assert found.events(60) == ["hosts.silent"]
    found.say(*map(silent, hosts[100:105]))
    assert found.events(3_600) == []  # 5 more of 100
    found.say(*map(silent, hosts[105:120]))
    assert found.events(3_601) == ["hosts.silent"]
    found.say(*map(silent, hosts[120:200]))
    assert found.events(3_602) == []
    assert found.events(3_601 + 900) == ["hosts.silent"]


def test_hosts_that_are_silent_for_a_day_are_lost_once_a_day() -> None:
    found = Followed(rows_of(["h-1"], "prod"))
    found.say(silent("h-1"))
    assert found.events(60) == ["hosts.silent"]
    day = 86_400
    assert found.events(day - 1) == []
    assert found.events(day) == ["hosts.lost"]
    assert found.events(day + 3_600) == []
    assert found.events(2 * day) == ["hosts.lost"]


def test_a_host_that_was_silent_for_half_a_minute_is_not_reported() -> None:
    found = Followed(rows_of(["h-1"], "prod"))
    found.say(silent("h-1"))
    found.say(HostHeard(host_id="h-1", at=T0))

    assert found.events(3_600) == []


def gate(name: str, *, blocked: bool = True) -> GateChanged:
    return GateChanged(rollout_id=ROLLOUT, at=T0, gate=name, blocked=blocked, reason="it is old")


def test_a_wait_for_a_person_is_reported_once_after_a_minute() -> None:
    found = Followed()
    found.say(gate("freshness"))
    assert found.events(59) == []
    (notice,) = found.due(60)
    assert (notice.event, notice.gate) == ("rollout.waiting", "freshness")
    assert sentences_of(notice, "") == ("it is old.",)
    found.say(gate("freshness", blocked=False))
    found.say(gate("freshness"), at=T0 + timedelta(seconds=61))
    assert found.events(7_200) == []


def test_any_other_wait_is_reported_after_half_an_hour() -> None:
    found = Followed()
    found.say(gate("freeze"), gate("wave-promotion"), gate("halted"))

    assert found.events(1_799) == []
    assert [notice.gate for notice in found.due(1_800)] == ["freeze"]


def test_a_wait_that_ended_is_not_reported() -> None:
    found = Followed()
    found.say(gate("freeze"), gate("freeze", blocked=False))

    assert found.events(7_200) == []


def test_hosts_that_fail_late_or_drift_are_one_message_per_rollout() -> None:
    found = Followed()
    late = [
        HostStateChanged(
            rollout_id=ROLLOUT,
            host_id=f"h-{number}",
            at=T0,
            from_=HostState.SOAKING,
            to=HostState.FAILED,
            wave=0,
            late=True,
        )
        for number in range(30)
    ]
    found.say(*late, HostRegressed(rollout_id=ROLLOUT, host_id="h-0", at=T0, reason="drifted"))
    assert found.events(59) == []
    (notice,) = found.due(60)
    assert notice.event == "rollout.degraded"
    assert notice.hosts is not None
    assert notice.hosts.count == 30
    found.say(*late)
    assert found.events(3_600) == []


def test_dead_letters_are_reported_at_once_and_then_counted() -> None:
    died = NoticeDied(
        subscription="ops", at=T0, number=1, attempt=3, event="rollout.opened", reason="refused"
    )
    found = Followed()
    found.say(died)
    (first,) = found.due(0)
    assert (first.event, first.subject, first.count) == ("notify.dead", "ops", 1)
    found.say(died, died, died)
    assert found.events(299) == []
    (second,) = found.due(300)
    assert second.count == 3
    assert title_of(second) == "✘ 3 messages to ops given up"
    assert found.events(7_200) == []


@pytest.mark.parametrize("event", ["notify.dead", "target.disabled"])
def test_no_subscription_is_notified_of_its_own_failure(event: str) -> None:
    notice = Notice(
        event=event, severity=Severity.CRITICAL, at=T0, position=1, subject="ops", reason="x"
    )

    assert not is_wanted(subscription(name="ops"), notice)
    assert is_wanted(subscription(name="other"), notice)
    assert not is_wanted(subscription(name="other", scopes=("channel:prod",)), notice)


# ── texts ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("event", [*EVENTS, TEST_EVENT])
def test_every_event_has_a_title_that_begins_with_a_sign(event: str) -> None:
    notice = Notice(
        event=event,
        severity=severity_of(event),
        at=T0,
        position=1,
        channel="prod",
        release="web.4",
        revision="default/web.v4",
        subject="ops",
        hosts=NoticeHosts(2, ("h-1", "h-2")),
    )
    title = title_of(notice)

    assert title[0] in "▶✘✔↩■»○!?✎"
    assert "{" not in title
    assert all(sentence.endswith(".") for sentence in sentences_of(notice, "Ann"))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5, "5 s"), (1_380, "23 min"), (7_500, "2 h 5 min"), (100_000, "1 d 3 h"), (-5, "0 s")],
)
def test_a_duration_is_written_in_its_largest_units(seconds: int, text: str) -> None:
    assert duration_text(timedelta(seconds=seconds)) == text


def test_a_full_page_is_cut_at_the_beginning_of_a_commit() -> None:
    """Wrong version: events of the same time that come earlier are lost."""
    times = [1, 0, 2, 2]
    page = tuple(
        Event(number, T0 + timedelta(seconds=second), "k", "T", 1, (), NO_META, b"")
        for number, second in enumerate(times)
    )

    assert [event.position for event in whole_commits(page)] == [0, 1]
    assert whole_commits(page[2:]) == page[2:]
    assert [event.position for event in whole_commits((*page, page[0]))] == [0, 1, 2, 3]


@pytest.mark.req("NT-2", **PURE)
@pytest.mark.parametrize("kind", golden_messages.RENDERINGS)
def test_messages_to_each_target_equal_its_golden_file(kind: str) -> None:
    """Run ``python -m tests.domain.golden_messages`` after a change, and review the diff."""
    file = golden_messages.DIRECTORY / f"{kind}.json"

    assert golden_messages.golden(kind) == file.read_text()


def test_escapes_markup_in_text_from_users() -> None:
    """A reason that mentions everybody, and a name with a tag."""
    proposed = golden_messages.messages()[2]
    slack = str(renderings.render_slack(proposed))
    card = str(renderings.render_teams(proposed))

    assert "<!channel>" not in slack
    assert "&lt;!channel&gt;" in slack
    assert "[INC-7](" not in card


def test_an_alert_of_pagerduty_is_resolved_under_the_key_that_triggered_it() -> None:
    halted, succeeded, *_ = golden_messages.messages()
    triggered = renderings.render_pagerduty(halted, "key")
    resolved = renderings.render_pagerduty(succeeded, "key")

    assert triggered is not None
    assert resolved is not None
    assert triggered["event_action"] == "trigger"
    assert resolved["event_action"] == "resolve"
    assert triggered["dedup_key"] == resolved["dedup_key"] == "tidegate/5bf0c2/prod@web.4"


def test_an_erased_person_is_a_former_user() -> None:
    held = golden_messages.messages()[4]

    assert held.payload.sentences == ("By a former user: outage.",)
