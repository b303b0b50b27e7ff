"""The worker's loops on a real installation: what they do, and how they end."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.api.serving import Served, serving
from tests.browser.dashboard_fleet import DashboardFleet
from tests.contract.webhook_receiver import SECRET
from tests.operations.worker_loops import QUICK, until
from tidegate.clock import system_clock
from tidegate.config import InvalidSetting, check_settings
from tidegate.control.lanes import LaneBusy
from tidegate.control.outbox.targets.configured import configure_targets
from tidegate.control.secrets import hash_secret
from tidegate.control.worker import Worker, WorkerLoop, make_policies_loop
from tidegate.domain.access.erasable_rows import SESSIONS, Session
from tidegate.domain.access.roles import Role
from tidegate.domain.channels.facts import ChannelEdge
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.gates.inputs import Versioned
from tidegate.domain.hosts.rows import DISPATCH_QUEUE
from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts.rows import Rollout, rollout_key
from tidegate.errors import InvalidInput, LeaseLost, NotFound, StoreUnavailable, TidegateError
from tidegate.kernel.model import Key, Meta
from tidegate.kernel.slices import Alongside


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data") as served:
        yield served


@pytest.fixture
def fleet(server: Served) -> DashboardFleet:
    """A channel with hosts whose promotions write a file, and a published release."""
    fleet = DashboardFleet(server)
    fleet.channel("web-stable", operations=("record",))
    fleet.enroll("web-stable", "web-1", "web-2", "web-3")
    fleet.publish("v1", {"index.html": "<h1>hello</h1>\n"})
    return fleet


def test_carries_out_what_a_promotion_requires(fleet: DashboardFleet, tmp_path: Path) -> None:
    """Orders for the hosts, the effect outside, the signed manifest."""
    place = tmp_path / "effects"
    place.mkdir()
    settings = check_settings(
        {"data": "x", "targets": {"record": {"kind": "file", "directory": str(place)}}}
    )
    installation = fleet.installation
    registry = CollectorRegistry()
    woken: list[str] = []
    worker = Worker(
        installation,
        targets=configure_targets(settings, system_clock),
        pace=QUICK,
        registry=registry,
        wake=woken.extend,
    )

    with worker:
        rollout_id = fleet.promote("web-stable", "web.1")
        until(lambda: len(fleet.records(rollout_id, HostState.PENDING)) == 3)
        effect = place / "web-stable" / "record.json"
        until(effect.exists)
        until(lambda: installation.publisher.read("web-stable"))

    assert sorted(woken) == ["web-1", "web-2", "web-3"]
    assert json.loads(effect.read_bytes())["effect"]["releaseId"] == "web.1"
    assert b"web.1" in installation.manifests.get("web-stable").body
    assert installation.health.differences() == []
    counted = generate_latest(registry)
    for loop in ("orders", "timers", "outbox", "policies", "manifests", "reconcile"):
        assert f'rounds_total{{loop="{loop}",outcome="done"}}'.encode() in counted
    assert b'outcome="failed"' not in counted


def test_acts_for_channels_whose_policy_allows_it(fleet: DashboardFleet) -> None:
    """One worker leads. It promotes what succeeded before, and rolls back what failed."""
    edges = (ChannelEdge("web-stable"),)
    fleet.channel(
        "web-next",
        edges=edges,
        sustained_failure_seconds=0,
        auto_promote=True,
        auto_rollback=True,
    )
    fleet.enroll("web-next", "next-1")
    fleet.publish("v2", {"index.html": "<h1>again</h1>\n"})
    installation = fleet.installation
    with Worker(installation, pace=QUICK), Worker(installation, pace=QUICK):
        _converge(fleet, fleet.promote("web-stable", "web.1"))
        until(lambda: _newest(fleet) == "web-next@web.1")
        _converge(fleet, "web-next@web.1")
        _converge(fleet, fleet.promote("web-stable", "web.2"))
        until(lambda: _newest(fleet) == "web-next@web.2")
        until(lambda: fleet.records("web-next@web.2", HostState.PENDING))
        fleet.activate("web-next@web.2", "next-1")
        fleet.fail("web-next@web.2", "next-1")
        until(lambda: _newest(fleet) == "web-next@web.1~2")

    shown = fleet.served.as_role(Role.VIEWER).get("/v1/channels/web-next").json()
    assert [item["action"] for item in shown["automation"]] == ["auto_promote", "auto_rollback"]
    assert "is off since web-next was rolled back from web.2" in shown["automation"][0]["sentence"]
    opened = installation.reads.demand(
        rollout_key("web-next@web.1~2"), Rollout, NotFound("no such rollout")
    )
    assert opened.row.automatic == "auto_rollback"
    assert installation.health.differences() == []


def test_a_failing_channel_does_not_delay_the_others(
    fleet: DashboardFleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("web-a", "web-b", "web-c"):
        fleet.channel(name, edges=(ChannelEdge("web-stable"),), auto_promote=True)
    installation = fleet.installation
    loop = make_policies_loop(installation)
    errors: dict[str, TidegateError] = {
        "web-a": LaneBusy("web-a@web.1", 5),
        "web-b": InvalidInput("its policy cannot be carried out"),
    }
    asked = []

    def act(seen: Versioned[Channel], alongside: Alongside | None = None) -> None:
        asked.append(seen.row.channel)
        if seen.row.channel in errors:
            raise errors[seen.row.channel]

    monkeypatch.setattr(installation.automation, "act", act)
    loop.round()
    loop.round()

    assert asked == ["web-a", "web-b", "web-c"] * 2
    said = [record.getMessage() for record in caplog.records if "by itself" in record.getMessage()]
    assert len(said) == 2, "each once, although it continues"
    errors |= {name: LaneBusy("the fleet", 5) for name in ("web-a", "web-b", "web-c")}
    with pytest.raises(LaneBusy):
        loop.round()  # no channel could be handled: the loop waits longer
    errors["web-a"] = LeaseLost("another process acts")
    asked.clear()
    with pytest.raises(LeaseLost):
        loop.round()
    assert asked == ["web-a"]
    loop.close()


def _newest(fleet: DashboardFleet) -> str | None:
    missing = NotFound("no such channel")
    return fleet.installation.reads.demand(
        channel_key("web-next"), Channel, missing
    ).row.newest_rollout_id


def _converge(fleet: DashboardFleet, rollout_id: str) -> None:
    hosts = ("next-1",) if rollout_id.startswith("web-next") else ("web-1", "web-2", "web-3")
    until(lambda: len(fleet.records(rollout_id, HostState.PENDING)) == len(hosts))
    for host_id in hosts:
        fleet.activate(rollout_id, host_id)
        fleet.converge(rollout_id, host_id)


def test_publishes_a_manifest_once_for_each_pin(fleet: DashboardFleet) -> None:
    fleet.promote("web-stable", "web.1")
    publisher = fleet.installation.publisher
    with Worker(fleet.installation, pace=QUICK):
        until(lambda: publisher.read("web-stable"))
    with Worker(fleet.installation, pace=QUICK) as worker:  # it has no cache
        until(lambda: all(loop.rounds > 3 for loop in worker.loops))

    assert len(list(publisher.generations("web-stable"))) == 1


def test_queues_lost_orders_again(fleet: DashboardFleet) -> None:
    rollout_id = fleet.promote("web-stable", "web.1")
    fleet.dispatch()
    records = fleet.installation.records(Meta(actor="test"))
    for row in fleet.installation.reads.range(DISPATCH_QUEUE, limit=10):
        records.delete(DISPATCH_QUEUE.name, row.id)

    with Worker(fleet.installation, pace=QUICK):
        until(lambda: len(fleet.installation.reads.range(DISPATCH_QUEUE, limit=10)) == 3)

    assert {
        row.row.rollout_id for row in fleet.installation.reads.range(DISPATCH_QUEUE, limit=10)
    } == {rollout_id}


def test_removes_sessions_that_can_no_longer_be_used(server: Served) -> None:
    installation = server.installation
    now = installation.clock()
    records = installation.records(Meta(actor="test"))
    for name, age in (("old", timedelta(hours=13)), ("new", timedelta())):
        session = Session("user_x", now - age, now - age, 0)
        records.create(SESSIONS.name, hash_secret(name), session)

    with Worker(installation, pace=QUICK):
        until(
            lambda: installation.reads.find(Key(SESSIONS.name, hash_secret("old")), Session) is None
        )

    assert installation.reads.find(Key(SESSIONS.name, hash_secret("new")), Session) is not None


def test_retries_when_its_environment_fails(server: Served) -> None:
    worker = Worker(server.installation, pace=QUICK)
    rounds: list[int] = []

    def fails_at_first() -> bool:
        rounds.append(1)
        if len(rounds) < 3:
            raise StoreUnavailable("the disk is full")
        return False

    worker.loops = (WorkerLoop("rehearsal", 0.01, fails_at_first),)
    with worker:
        until(lambda: len(rounds) > 4)

    assert worker.failure is None
    assert worker.loops[0].troubles == 0, "the last one went well"


def test_stops_with_an_error_on_a_bug_of_its_own(
    server: Served, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []
    worker = Worker(server.installation, pace=QUICK, failed=lambda: told.append("failed"))

    def faulty() -> bool:
        raise KeyError("nobody thought of this")

    worker.loops = (*worker.loops, WorkerLoop("rehearsal", 0.01, faulty))
    with caplog.at_level(logging.CRITICAL):
        worker.start()
        until(lambda: told and not any(thread.is_alive() for thread in worker.threads))

    with pytest.raises(KeyError):
        worker.__exit__(None, None, None)
    assert told == ["failed"]
    assert "a fault in rehearsal" in caplog.text


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ({"kind": "webhook", "url": "http://127.0.0.1:9/x"}, "secret_file"),
        ({"kind": "file", "directory": "nowhere"}, "does not exist"),
        ({"kind": "command"}, "targets.record"),
    ],
)
def test_names_an_invalid_target(tmp_path: Path, target: dict[str, str], says: str) -> None:
    settings = check_settings({"data": str(tmp_path), "targets": {"record": target}})

    with pytest.raises(InvalidSetting, match=says):
        configure_targets(settings, system_clock)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a secret of an older form", r"targets\.notify: .*found 6"),
        ("0123456789-abcdef", r"targets\.notify: A webhook's secret is whsec_ and base64"),
        ("whsec_c2hvcnQ=", r"24 to 64 bytes, found 5"),
        ("", r"holds one secret.*found 0"),
        (f"{SECRET}\n" * 3, r"holds one secret.*found 3"),
        ("whsec_\xe9", r"whsec_ and base64"),
    ],
)
def test_explains_what_is_wrong_with_the_secret_of_a_webhook(
    tmp_path: Path, content: str, says: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(content, encoding="latin-1")
    secret.chmod(0o600)
    webhook = {"kind": "webhook", "url": "https://hooks.example.com", "secret_file": str(secret)}
    settings = check_settings({"data": "x", "targets": {"notify": webhook}})

    with pytest.raises(InvalidSetting, match=says):
        configure_targets(settings, system_clock)
    secret.write_text(f"{SECRET}\n{SECRET}\n")
    assert set(configure_targets(settings, system_clock)) == {"notify"}


def test_a_webhook_cannot_reach_loopback_addresses(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    secret.chmod(0o600)
    webhook = {"kind": "webhook", "url": "http://127.0.0.1:9/x", "secret_file": str(secret)}
    refused = check_settings({"data": "x", "targets": {"notify": webhook}})
    allowed = check_settings(
        {"data": "x", "targets": {"notify": {**webhook, "allowed": ["127.0.0.1:9"]}}}
    )

    with pytest.raises(InvalidSetting, match=r"unless 127\.0\.0\.1:9 is allowed"):
        configure_targets(refused, system_clock)
    assert set(configure_targets(allowed, system_clock)) == {"notify"}
