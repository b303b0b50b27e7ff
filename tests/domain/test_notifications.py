"""Messages to people: each event once per cause and scope, however many hosts are affected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from msgspec import Struct, structs

from tests.domain import golden_messages
from tests.domain.memory_fleet import CHANNEL, MemoryFleet
from tests.quick import more
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.leaders import Leader
from tidegate.control.notifications.notifier import Notifier, whole_commits
from tidegate.control.storage.blobs import Blobs
from tidegate.domain.channels.facts import ChannelDeleted, ChannelHeld, FreezeEnded, FreezeStarted
from tidegate.domain.channels.slices import HoldChannel, hold_channel
from tidegate.domain.composition import SCHEMA
from tidegate.domain.fleet.facts import HostHeard, HostSilent
from tidegate.domain.fleet.rows import HOSTS, ChannelScope, Fleet, Host, fleet_key, host_key
from tidegate.domain.fleet.slices import (
    EnrollHost,
    NoteHeard,
    NoteSilence,
    enroll_host,
    note_heard,
    note_silence,
)
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
from tidegate.domain.notifications.slices import (
    LEADER,
    CreateSubscription,
    DeleteSubscription,
    EditSubscription,
    create_subscription,
    delete_subscription,
    edit_subscription,
)
from tidegate.domain.notifications.states import Severity, TargetKind
from tidegate.domain.notifications.stored_bursts import fit
from tidegate.domain.notifications.texts import duration_text, sentences_of, title_of
from tidegate.domain.packages.facts import RevisionProposed
from tidegate.domain.requests.facts import EmergencyUnreviewed, EmergencyUsed, RequestReviewed
from tidegate.domain.requests.rows import ChannelRequest, request_key
from tidegate.domain.requests.states import RequestState
from tidegate.domain.rollouts.facts import (
    GateChanged,
    GateOverridden,
    HostCounts,
    RolloutConcluded,
    RolloutOpened,
    WaveAdvanced,
    WaveSkipped,
)
from tidegate.domain.rollouts.slices import ChangeGates, GateFinding, change_gates
from tidegate.domain.rollouts.states import Cause, Clearance, Outcome, OverridableGate
from tidegate.domain.rollouts.wave_slices import SkipWave, skip_wave
from tidegate.engines.memory import MemoryStore
from tidegate.kernel.leases import Leases
from tidegate.kernel.model import NO_META, ROW_BYTES_MAX, Event, EventPage, Key
from tidegate.kernel.replay import differences
from tidegate.kernel.store import Store
from tidegate.simulate.control_plane import MemoryBlobs

T0 = datetime(2026, 4, 24, 20, 0, tzinfo=UTC)
PURE: dict[str, Any] = {"engines": None, "reason": "pure"}
ROLLOUT = "prod@web.4"
HALTS = ("rollout.halted",)


class InterruptedStore(MemoryStore):
    """A store in which others commit just before the log, or its end, is read."""

    interrupt: Callable[[], object] | None = None

    def _interrupt(self) -> None:
        interrupt, self.interrupt = self.interrupt, None
        if interrupt is not None:
            interrupt()

    def feed(self, *, after: int, limit: int) -> EventPage:
        self._interrupt()
        return super().feed(after=after, limit=limit)

    def head(self) -> int:
        self._interrupt()
        return super().head()


class SubscribedFleet(MemoryFleet):
    """A fleet with one subscription to everything, and a notifier."""

    def __init__(self, *, store: Store | None = None, **policy: Any) -> None:
        super().__init__(store=store, **policy)
        self.subscribe("ops")
        self.restart()

    def restart(self) -> None:
        """Let another process become the notifier."""
        self.clock.advance(timedelta(minutes=1))
        leader = Leader(Leases(self.store), LEADER, self.clock, monotonic=lambda: 0.0)
        blobs = cast(Blobs, MemoryBlobs())
        self.notifier = Notifier(self.sample.control, leader, FleetReader(self.store, blobs))

    def subscribe(self, name: str) -> None:
        command = CreateSubscription(
            name=name,
            operator="user_1",
            kind=TargetKind.WEBHOOK,
            events=(),
            min_severity=Severity.INFO,
            scopes=("*",),
            address_id="a",
        )
        self.execute(create_subscription, command)

    def unsubscribe(self, name: str) -> None:
        self.execute(delete_subscription, DeleteSubscription(name=name, operator="user_1"))

    def hold(self) -> None:
        self.execute(hold_channel, HoldChannel(channel=CHANNEL, operator="user_1", reason="x"))

    def reported_to(self, name: str) -> list[str]:
        self.reported_events()
        queued = self.events(NoticeQueued)
        return [fact.notice.event for fact in queued if fact.subscription == name]

    def reported_events(self) -> list[str]:
        """Return the events of all notices so far, after the notifier has read the log."""
        while self.notifier.round():
            pass
        return [fact.notice.event for fact in self.events(NoticeQueued)]

    def notices(self) -> list[Notice]:
        self.reported_events()
        return [fact.notice for fact in self.events(NoticeQueued)]


@pytest.mark.parametrize("others", [("ops",), ()])
def test_a_subscription_gets_what_happens_right_after_its_creation(others: tuple[str, ...]) -> None:
    """Wrong version: the notifier listed the subscriptions before it read the log. What happened
    in between reached only those that it had listed."""
    store = InterruptedStore(SCHEMA)
    fleet = SubscribedFleet(store=store)
    if not others:
        fleet.unsubscribe("ops")
    fleet.reported_events()

    def subscribe_and_hold() -> None:
        fleet.subscribe("new")
        fleet.hold()

    store.interrupt = subscribe_and_hold

    assert fleet.reported_to("new") == ["channel.held"]


def test_a_new_subscription_gets_what_is_due_although_nothing_happened_since() -> None:
    fleet = SubscribedFleet()
    rollout = fleet.promote("web.1", 1)
    findings = (GateFinding("freeze", blocked=True, reason="holidays"),)
    fleet.execute(change_gates, ChangeGates(rollout_id=rollout, findings=findings))
    fleet.reported_events()
    fleet.unsubscribe("ops")
    fleet.subscribe("new")

    fleet.clock.advance(timedelta(hours=1))

    assert fleet.reported_to("new") == ["rollout.waiting"]


def test_hosts_that_reported_while_there_was_no_subscription_are_not_silent() -> None:
    fleet = SubscribedFleet()
    key = "ab" * 32
    enroll = EnrollHost(host_id="h-1", public_key=key, labels={"channel": CHANNEL}, operator="u")
    fleet.execute(enroll_host, enroll)
    fleet.execute(note_silence, NoteSilence(host_id="h-1", last_seen_at=fleet.clock()))
    assert fleet.reported_events() == []
    fleet.unsubscribe("ops")
    fleet.reported_events()
    fleet.execute(note_heard, NoteHeard(host_id="h-1"))
    fleet.reported_events()

    fleet.subscribe("new")
    for _ in range(7):  # in small steps, so that the notifier keeps its lease
        fleet.clock.advance(timedelta(seconds=10))
        fleet.reported_events()

    assert fleet.reported_to("new") == []


@pytest.mark.req("NT-1", **PURE)
def test_one_person_does_not_silence_a_receiver_unnoticed() -> None:
    """The other subscriptions to everything get a message about who edited or deleted one."""
    fleet = SubscribedFleet()
    fleet.subscribe("team")
    edit = EditSubscription(
        name="team",
        operator="user_eve",
        kind=TargetKind.WEBHOOK,
        events=("rollout.empty",),
        min_severity=Severity.CRITICAL,
        scopes=("channel:dev",),
        address_id="a",
    )

    fleet.execute(edit_subscription, edit)
    fleet.unsubscribe("team")
    fleet.execute(hold_channel, HoldChannel(channel=CHANNEL, operator="user_eve", reason="x"))

    assert fleet.reported_to("ops") == ["notify.changed", "notify.changed", "channel.held"]
    edited, deleted, _ = fleet.notices()
    assert [title_of(notice) for notice in (edited, deleted)] == [
        "! the subscription team was edited",
        "! the subscription team was deleted",
    ]
    assert sentences_of(edited, "Eve") == ("By Eve.",)
    assert not is_wanted(subscription(scopes=("channel:dev",)), edited)


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


def opened_by_bob(rollout_id: str, **more: Any) -> RolloutOpened:
    return RolloutOpened(
        rollout_id=rollout_id,
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
        **more,
    )


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


def test_a_promotion_that_overrides_a_gate_resumes_nothing() -> None:
    override = GateOverridden(
        rollout_id=ROLLOUT,
        at=T0,
        gate=OverridableGate.EDGES,
        operator="user_bob",
        reason="hotfix",
    )

    found = notices_of([followed(opened_by_bob(ROLLOUT), 7), followed(override, 8)], {})

    assert [item.event for item in found] == ["rollout.opened", "emergency.used"]


def test_bypassing_a_wave_is_one_emergency() -> None:
    """Wrong version: only overrides of a gate were reported."""
    by = {"rollout_id": ROLLOUT, "operator": "user_bob", "reason": "hotfix"}
    skipped = WaveSkipped(**by, at=T0, wave=0)
    later = T0 + timedelta(seconds=1)
    all_at_once = [
        WaveAdvanced(**by, at=later, from_wave=wave, to_wave=wave + 1, forced=True)
        for wave in range(2)
    ]
    by_itself = WaveAdvanced(rollout_id=ROLLOUT, at=T0, from_wave=0, to_wave=1)

    found = notices_of(
        [
            followed(skipped, 7),
            followed(by_itself, 8),
            *(followed(fact, 9 + number, later) for number, fact in enumerate(all_at_once)),
        ],
        {},
    )

    assert [(item.event, item.gate, item.position) for item in found] == [
        ("emergency.used", "wave-promotion", 7),
        ("emergency.used", "wave-promotion", 9),
    ]
    assert title_of(found[0]) == "! prod: web.4 passes the gate wave-promotion"
    assert "By Bob: hotfix." in sentences_of(found[0], "Bob")


def test_a_skipped_wave_reaches_the_subscribers() -> None:
    fleet = SubscribedFleet()
    rollout = fleet.promote("web.1", 1, 2)
    command = SkipWave(rollout_id=rollout, wave="1", operator="user_bob", reason="hotfix")

    fleet.execute(skip_wave, command)

    assert "emergency.used" in fleet.reported_events()
    assert fleet.notices()[-1].reason == "hotfix"


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
    opened = opened_by_bob("prod@web.4~2", emergency=True, rollback_of="web.5")
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

    def due(self, seconds: float, stuck: Mapping[str, str] | None = None) -> list[Notice]:
        now = T0 + timedelta(seconds=seconds)
        self.state, notices = bursts.tell(self.state, now, self.position, stuck)
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


def test_a_second_burst_is_reported_although_one_host_of_the_first_stays_silent() -> None:
    """Wrong version: growth was counted from the most hosts that were ever silent at once."""
    hosts = [f"h-{number}" for number in range(200)]
    found = Followed(rows_of(hosts, "prod"))
    found.say(*map(silent, hosts[:100]))
    assert found.events(60) == ["hosts.silent"]
    found.say(*(HostHeard(host_id=host_id, at=T0) for host_id in hosts[1:100]))
    assert found.events(3_600) == []

    found.say(*map(silent, hosts[1:80]))

    (notice,) = found.due(7_200)
    assert notice.event == "hosts.silent"
    assert notice.hosts is not None
    assert notice.hosts.count == 80


def test_a_deleted_channel_has_no_lost_hosts() -> None:
    found = Followed(rows_of(["h-1"], "prod"))
    found.say(silent("h-1"))
    assert found.events(60) == ["hosts.silent"]

    found.say(ChannelDeleted(channel="prod", operator="user_ann", at=T0, reason="unused"))

    assert found.events(2 * 86_400) == []


def test_an_outage_of_many_channels_is_reported_once_although_the_worker_restarts() -> None:
    """Wrong version: the names of the silent hosts were more than a row may hold, so the state was
    not stored."""
    channels = [f"channel-{number}" for number in range(20)]
    found = Followed(rows_of([f"{'h' * 40}-{number}" for number in range(20_000)], *channels))
    found.say(*map(silent, (key.id for key in found.rows if key.collection == HOSTS.name)))
    found.say(*(gate_of(f"prod@web.{number}", "freeze", "x" * 1_000) for number in range(500)))
    fleet = SubscribedFleet()
    fleet.reported_events()
    fleet.notifier._bursts = found.state
    assert fleet.reported_events().count("hosts.silent") == len(channels)

    fleet.restart()

    assert fleet.reported_events().count("hosts.silent") == len(channels)
    counts = {name: item.count for name, item in fleet.notifier._bursts.silent.items()}
    assert counts == dict.fromkeys(channels, 1_000)
    assert len(fleet.notifier._bursts.gates) > 100


def test_a_state_that_fits_is_stored_whole() -> None:
    found = Followed(rows_of(["h-1", "h-2"], "prod"))
    found.say(silent("h-1"), silent("h-2"), gate("freeze"))

    assert fit(found.state, ROW_BYTES_MAX) == found.state
    assert fit(found.state, 0).silent["prod"].count == 2


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


def gate_of(rollout_id: str, name: str, reason: str) -> GateChanged:
    return GateChanged(rollout_id=rollout_id, at=T0, gate=name, blocked=True, reason=reason)


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


def test_a_gate_that_needs_a_person_for_less_than_a_minute_is_not_reported() -> None:
    key = f"{ROLLOUT} wave-promotion"
    found = Followed()
    found.say(gate("wave-promotion"))

    assert found.due(0, {key: "wave rest waits"}) == []
    assert found.due(30, {}) == []
    assert found.due(40, {key: "wave last waits"}) == []
    assert found.due(99, None) == []  # it was not looked at again
    (notice,) = found.due(100, {key: "wave last waits"})
    assert (notice.gate, notice.reason) == ("wave-promotion", "wave last waits")
    assert found.due(200, {}) == []
    assert found.due(300, {key: "wave last waits"}) == []
    assert found.due(400, {key: "wave last waits"}) == []


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


@pytest.mark.parametrize("terms", [{"min_severity": Severity.CRITICAL}, {"events": HALTS}])
def test_pagerduty_gets_what_resolves_its_alerts(terms: dict[str, Any]) -> None:
    """Wrong version: a severity of critical filtered what ends an alert, so it never ended."""
    halted, succeeded, *_ = golden_messages.NOTICES

    pager = subscription(kind=TargetKind.PAGERDUTY, **terms)
    chat = subscription(kind=TargetKind.SLACK, **terms)

    assert [is_wanted(pager, notice) for notice in (halted, succeeded)] == [True, True]
    assert [is_wanted(chat, notice) for notice in (halted, succeeded)] == [True, False]
    elsewhere = structs.replace(succeeded, scopes=("channel:dev",))
    assert not is_wanted(structs.replace(pager, scopes=("channel:prod",)), elsewhere)
    edited = structs.replace(succeeded, event="channel.edited")
    assert not is_wanted(pager, edited)


def test_a_successor_resolves_the_alert_of_the_rollout_that_failed() -> None:
    """A rollout that failed at its end has no further event of its own."""
    fleet = SubscribedFleet()
    first = fleet.promote("web.1", 1, failures_max=1)
    fleet.start(first, "w0-0")
    fleet.fail(first, "w0-0")
    fleet.revert(first, "w0-0")
    fleet.reported_events()
    second = fleet.promote("web.2", 1)
    here = InstallationRef("example.com", "", "5bf0c2")

    notices = {notice.event: notice for notice in fleet.notices()}
    sent = [
        renderings.render_pagerduty(to_message(notices[event], "ops", here, lambda id: None), "key")
        for event in ("rollout.failed", "rollout.opened")
    ]

    assert notices["rollout.opened"].rollout_id == second
    assert [item and (item["event_action"], item["dedup_key"]) for item in sent] == [
        ("trigger", f"tidegate/5bf0c2/{first}"),
        ("resolve", f"tidegate/5bf0c2/{first}"),
    ]


def test_a_review_resolves_the_alert_of_its_break_glass() -> None:
    used = EmergencyUsed(
        request_id="R-1",
        channel="prod",
        by="user_bob",
        at=T0,
        kind="channel.promote",
        command={"release_id": "web.4"},
        reason="it burns",
        also=("shop",),
    )
    unreviewed = EmergencyUnreviewed(request_id="R-1", channel="prod", by="worker", at=T0)
    reviewed = RequestReviewed(
        request_id="R-1", channel="prod", by="user_ann", at=T0, accepted=False, reason="a test"
    )
    row = ChannelRequest(
        request_id="R-1",
        channel="prod",
        kind=used.kind,
        command=used.command,
        by=used.by,
        reason=used.reason,
        made_at=T0,
        state=RequestState.REVIEWED,
        also=used.also,
    )
    rows = {request_key("R-1"): row}

    found = notices_of([followed(fact) for fact in (used, unreviewed, reviewed)], rows)
    here = InstallationRef("example.com", "", "5bf0c2")
    sent = [
        renderings.render_pagerduty(to_message(notice, "ops", here, lambda id: "Ann"), "key")
        for notice in found
    ]

    assert [(item.event, item.scopes) for item in found] == [
        (event, ("channel:prod", "channel:shop"))
        for event in ("emergency.used", "emergency.unreviewed", "emergency.reviewed")
    ]
    assert [item and item["event_action"] for item in sent] == ["trigger", "trigger", "resolve"]
    assert {item and item["dedup_key"] for item in sent} == {"tidegate/5bf0c2/R-1"}
    assert title_of(found[2]) == "✔ prod: promote web.4, done with break-glass, was disputed"
    assert sentences_of(found[2], "Ann") == ("By Ann: a test.",)


def test_an_erased_person_is_a_former_user() -> None:
    held = golden_messages.messages()[4]

    assert held.payload.sentences == ("By a former user: outage.",)
