"""An agent that was written from docs/agent-protocol.md alone works with a real server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client import CollectorRegistry

from tests.agent.second_agent import Refused, SecondAgent, Untrusted
from tests.api.served_fleet import ServedFleet, serve_fleet
from tidegate.control.worker import make_manifests_loop
from tidegate.control.worker_loops import Counters

CHANNEL = "second-stable"
SOAK_SECONDS = 30
SUSTAINED_SECONDS = 5
ACKNOWLEDGEMENT_SECONDS = 900  # defaults of the policy
ACTIVATION_SECONDS = 600
CONVERGENCE_SECONDS = 900


class Tampering(httpx2.HTTPTransport):
    """A network that changes the bodies of some responses."""

    def __init__(self, part: str, change: Callable[[bytes], bytes]) -> None:
        super().__init__()
        self.part, self.change = part, change

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        response = super().handle_request(request)
        if self.part not in request.url.path:
            return response
        changed = self.change(response.read())
        response.close()
        return httpx2.Response(response.status_code, content=changed)


class Losing(httpx2.HTTPTransport):
    """A network that loses the responses of some requests."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self.part = part

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        response = super().handle_request(request)
        if self.part in request.url.path:
            response.close()
            raise httpx2.ReadError("lost", request=request)
        return response


class SecondFleet:
    """A served fleet with a channel of hosts that run the second agent: a canary and the rest."""

    def __init__(self, fleet: ServedFleet, place: Path) -> None:
        self.fleet, self.place = fleet, place
        self.clients: list[httpx2.Client] = []
        self.manifests = make_manifests_loop(fleet.installation, Counters(CollectorRegistry()))
        waves = [
            {"name": "canary", "selector": "tier=canary", "soak_seconds": SOAK_SECONDS},
            {"name": "all", "soak_seconds": SOAK_SECONDS},
        ]
        channel = {
            "channel": CHANNEL,
            "package": "default/web",
            "selector": "app=second",
            "policy": {"waves": waves, "sustained_failure_seconds": SUSTAINED_SECONDS},
        }
        created = fleet.manager.post("/v1/channels", json=channel)
        assert created.status_code == 201, created.text

    def host(self, host_id: str, tier: str, **how: Any) -> SecondAgent:
        """Enroll a host and let it send its first heartbeat."""
        http = self.fleet.served.client()
        agent = SecondAgent(http, self.place / host_id, self.fleet.clock, **how)
        agent.enroll(self.fleet.token(host_id, tier=tier, app="second"))
        agent.step()
        return agent

    def promote(self, release_id: str) -> None:
        path = f"/v1/channels/{CHANNEL}/promote"
        promoted = self.fleet.manager.post(path, json={"release_id": release_id})
        assert promoted.status_code == 200, promoted.text
        self.work()

    def work(self) -> None:
        """Run one round of the server's worker."""
        self.manifests.round()
        self.fleet.dispatch(thorough=True)
        self.fleet.tick()
        self.fleet.installation.nudge()

    def wait(self, seconds: int) -> None:
        self.fleet.wait(seconds)
        self.work()

    def converge(self, agent: SecondAgent) -> None:
        assert agent.step() == "soaking"
        self.wait(SOAK_SECONDS)
        assert agent.step() == ""
        self.work()

    def client(self, transport: httpx2.BaseTransport) -> httpx2.Client:
        """A client of the server on another network."""
        client = httpx2.Client(base_url=self.fleet.served.url, transport=transport)
        self.clients.append(client)
        return client

    def roll_out_web_2(self, canary: SecondAgent, rest: SecondAgent) -> None:
        self.promote("web.2")
        self.converge(canary)
        self.converge(rest)

    def publish_web_3(self) -> None:
        self.fleet.draft("v3", tasks=[{"type": "edit", "source": "default.web.v2"}])
        self.fleet.push("default.web.v3", a_txt="3")
        self.fleet.publish("default.web.v3")

    def read(self, path: str) -> dict[str, Any]:
        found = self.fleet.viewer.get(path)
        assert found.status_code == 200, found.text
        body: dict[str, Any] = found.json()
        return body

    def rollout(self, release_id: str) -> dict[str, Any]:
        return self.read(f"/v1/rollouts/{CHANNEL}@{release_id}")

    def hosts(self, release_id: str) -> dict[str, str]:
        """The state of each host in a rollout."""
        rows = self.read(f"/v1/rollouts/{CHANNEL}@{release_id}/hosts")["items"]
        return {row["host_id"]: row["state"] for row in rows}

    def reports(self, release_id: str, host_id: str) -> list[str]:
        """The kinds of a host's reports in a rollout."""
        rows = self.read(f"/v1/rollouts/{CHANNEL}@{release_id}/events?limit=200")["items"]
        return [
            row["type"].removeprefix("tidegate.")
            for row in rows
            if row["kind"] == "agent_event" and row["data"]["host_id"] == host_id
        ]


@pytest.fixture
def second(tmp_path: Path) -> Iterator[SecondFleet]:
    with serve_fleet(tmp_path / "data") as fleet:
        second = SecondFleet(fleet, tmp_path)
        yield second
        for client in second.clients:
            client.close()


def files_of(agent: SecondAgent) -> dict[str, str]:
    """The files that the channel's link on a host leads to."""
    link = agent.root / CHANNEL
    return {path.name: path.read_text() for path in link.iterdir()} if link.exists() else {}


def test_two_hosts_carry_a_release_through_two_waves(second: SecondFleet) -> None:
    canary, rest = second.host("app-01", "canary"), second.host("app-02", "rest")
    second.promote("web.2")

    assert rest.step() == ""  # its wave has not started
    second.converge(canary)
    assert second.hosts("web.2")["app-01"] == "Converged"
    second.converge(rest)

    assert second.hosts("web.2") == {"app-01": "Converged", "app-02": "Converged"}
    assert second.rollout("web.2")["outcome"] == "succeeded"
    assert files_of(canary) == files_of(rest) == {"a.txt": "2"}
    assert second.reports("web.2", "app-02") == [
        "DispatchAck",
        "ActivationCompleted",
        "ProbeTopologyDeclared",
        "ProbeResult",
        "Converged",
    ]


def test_a_release_without_files_is_an_empty_directory(second: SecondFleet) -> None:
    canary = second.host("app-01", "canary")
    second.promote("web.1")

    second.converge(canary)

    assert second.hosts("web.1")["app-01"] == "Converged"
    assert list((canary.root / CHANNEL).iterdir()) == []


def test_a_host_whose_activation_fails_rolls_back_and_the_rollout_halts(
    second: SecondFleet,
) -> None:
    def activate(link: Path) -> int:
        return 7 if (link / "a.txt").read_text() == "3" else 0

    canary = second.host("app-01", "canary", activate=activate)
    rest = second.host("app-02", "rest")
    second.roll_out_web_2(canary, rest)
    second.publish_web_3()
    second.promote("web.3")

    assert canary.step() == ""
    second.work()

    assert second.reports("web.3", "app-01") == [
        "DispatchAck",
        "ActivationFailed",
        "RollbackComplete",
    ]
    assert second.hosts("web.3")["app-01"] == "Reverted"
    assert second.rollout("web.3")["halted_by"] == "app-01"
    assert rest.step() == ""  # a halted rollout has no order
    assert files_of(canary) == files_of(rest) == {"a.txt": "2"}


def test_a_halted_rollout_refuses_the_acknowledgement_of_another_host(
    second: SecondFleet,
) -> None:
    failing = second.host("app-01", "canary", activate=lambda _: 7)
    other = second.host("app-02", "canary")
    tampering = Tampering("/manifest/", lambda data: data.replace(b"web.2", b"web.9"))
    untouched, other.http = other.http, second.client(tampering)
    second.promote("web.2")
    assert other.step() == "waiting"

    assert failing.step() == ""
    other.http = untouched

    assert other.step() == ""  # the agent drops the order
    assert second.reports("web.2", "app-02") == []
    assert files_of(other) == {}


def test_a_host_whose_probe_keeps_failing_rolls_back(second: SecondFleet) -> None:
    def is_healthy(link: Path) -> bool:
        return (link / "a.txt").read_text() == "2"

    canary = second.host("app-01", "canary", is_healthy=is_healthy)
    rest = second.host("app-02", "rest")
    second.roll_out_web_2(canary, rest)
    second.publish_web_3()
    second.promote("web.3")

    assert canary.step() == "soaking"
    assert files_of(canary) == {"a.txt": "3"}
    second.wait(SUSTAINED_SECONDS)
    assert canary.step() == ""
    second.work()

    assert second.reports("web.3", "app-01")[-3:] == ["ProbeResult", "Failed", "RollbackComplete"]
    assert second.rollout("web.3")["halted_by"] == "app-01"
    assert rest.step() == ""
    assert files_of(canary) == files_of(rest) == {"a.txt": "2"}


@pytest.mark.parametrize("late", ["Converged", "ActivationFailed"])
def test_a_host_whose_deadline_passed_rolls_back(second: SecondFleet, late: str) -> None:
    def activate(link: Path) -> int:
        if late == "ActivationFailed" and (link / "a.txt").read_text() == "3":
            second.wait(ACTIVATION_SECONDS + 1)  # this switch takes too long
            return 7
        return 0

    canary = second.host("app-01", "canary", activate=activate)
    second.roll_out_web_2(canary, second.host("app-02", "rest"))
    second.publish_web_3()
    second.promote("web.3")

    if late == "Converged":
        assert canary.step() == "soaking"
        second.wait(SOAK_SECONDS + CONVERGENCE_SECONDS + 1)
        assert second.hosts("web.3")["app-01"] == "Failed"
    assert canary.step() == ""

    assert late not in second.reports("web.3", "app-01")
    assert second.reports("web.3", "app-01")[-1] == "RollbackComplete"
    assert second.hosts("web.3")["app-01"] == "Reverted"
    assert files_of(canary) == {"a.txt": "2"}


def test_a_late_acknowledgement_is_accepted(second: SecondFleet) -> None:
    canary = second.host("app-01", "canary")
    tampering = Tampering("/manifest/", lambda data: data.replace(b"web.2", b"web.9"))
    untouched, canary.http = canary.http, second.client(tampering)
    second.promote("web.2")
    assert canary.step() == "waiting"

    second.wait(ACKNOWLEDGEMENT_SECONDS + 1)
    assert second.hosts("web.2")["app-01"] == "Pending"
    canary.http = untouched

    assert canary.step() == "soaking"
    assert second.reports("web.2", "app-01")[0] == "DispatchAck"


@pytest.mark.parametrize(
    "change",
    [lambda data: b"x", lambda data: data + b"x", lambda data: b""],
    ids=["other", "longer", "shorter"],
)
def test_a_tampered_file_is_refused(second: SecondFleet, change: Callable[[bytes], bytes]) -> None:
    canary = second.host("app-01", "canary")
    canary.http = second.client(Tampering("/blobs/", change))
    second.promote("web.2")

    assert canary.step() == ""
    second.work()

    assert second.reports("web.2", "app-01") == ["DispatchAck", "ActivationFailed"]
    assert second.rollout("web.2")["halted_by"] == "app-01"
    assert not (canary.root / CHANNEL).exists()


def test_a_tampered_list_of_files_is_refused(second: SecondFleet) -> None:
    canary = second.host("app-01", "canary")
    listing = Tampering("/v1/agent/releases/web.2", lambda data: data.replace(b"a.txt", b"b.txt"))
    canary.http = second.client(listing)
    second.promote("web.2")

    assert canary.step() == ""

    assert second.reports("web.2", "app-01") == ["DispatchAck", "ActivationFailed"]
    assert not (canary.root / CHANNEL).exists()


def test_an_order_waits_until_its_manifest_verifies(second: SecondFleet) -> None:
    canary = second.host("app-01", "canary")
    tampering = Tampering("/manifest/", lambda data: data.replace(b"web.2", b"web.9"))
    untouched, canary.http = canary.http, second.client(tampering)
    second.promote("web.2")

    assert canary.step() == "waiting"
    assert second.reports("web.2", "app-01") == []
    canary.http = untouched
    second.wait(31)  # the lease of the order ends

    second.converge(canary)
    assert second.hosts("web.2")["app-01"] == "Converged"


def test_an_old_or_expired_manifest_is_refused(second: SecondFleet) -> None:
    canary, rest = second.host("app-01", "canary"), second.host("app-02", "rest")
    second.promote("web.1")
    old = canary.send(f"/v1/agent/manifest/{CHANNEL}")
    second.converge(canary)
    second.converge(rest)
    second.promote("web.2")
    untouched = canary.http
    canary.read_manifest(CHANNEL)

    canary.http = second.client(Tampering("/manifest/", lambda _: old))
    with pytest.raises(Untrusted, match="old"):
        canary.read_manifest(CHANNEL)
    canary.http = untouched
    second.fleet.wait(24 * 60 * 60 + 1)
    with pytest.raises(Untrusted, match="expired"):
        canary.read_manifest(CHANNEL)


def test_a_report_whose_answer_was_lost_is_accepted_again(second: SecondFleet) -> None:
    canary = second.host("app-01", "canary")
    untouched, canary.http = canary.http, second.client(Losing("/v1/agent/events"))
    second.promote("web.2")

    assert canary.step() == "answering"
    assert second.reports("web.2", "app-01") == ["DispatchAck"]
    assert not (canary.root / CHANNEL).exists()  # it waits for the response
    sent = canary.state["outbox"]
    canary.http = untouched
    second.converge(canary)
    again = json.loads(canary.send("/v1/agent/events", {"reports": sent}))

    assert [(one["status"], one["accepted_through"]) for one in again["answers"]] == [(200, 1)]
    assert second.reports("web.2", "app-01").count("DispatchAck") == 1


def test_an_agent_that_restarts_in_the_soak_continues(second: SecondFleet) -> None:
    canary = second.host("app-01", "canary")
    second.promote("web.2")
    assert canary.step() == "soaking"

    restarted = SecondAgent(canary.http, canary.root, canary.clock)
    second.wait(SOAK_SECONDS)

    assert restarted.step() == ""
    assert second.reports("web.2", "app-01") == [
        "DispatchAck",
        "ActivationCompleted",
        "ProbeTopologyDeclared",
        "ProbeResult",
        "Converged",
    ]


def test_a_heartbeat_returns_the_number_of_the_last_report(second: SecondFleet) -> None:
    canary = second.host("app-01", "canary")
    second.promote("web.2")
    canary.step()

    assert canary.beat()["last_accepted_seq"] == {f"{CHANNEL}@web.2": 4}


def test_a_token_enrolls_one_agent(second: SecondFleet, tmp_path: Path) -> None:
    token = second.fleet.token("app-01", app="second")
    first, late = (
        SecondAgent(second.fleet.served.client(), tmp_path / name, second.fleet.clock)
        for name in ("first", "late")
    )

    first.enroll(token)

    with pytest.raises(Refused) as refused:
        late.enroll(token)
    assert refused.value.code == "token_replayed"
