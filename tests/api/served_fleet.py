"""A server with hosts: operators who set it up, agents that report, and a dispatcher.

Its clock moves only by ``wait``, or is the system's. The test dispatches orders, runs timers and
publishes manifests itself, or lets a thread do so (``working``). Agents are driven by the test
(``WireAgent``) or are processes.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from tempfile import mkdtemp
from threading import Event, Thread
from typing import Any

import httpx2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from prometheus_client import CollectorRegistry

from tests.api.people import People
from tests.api.registry_people import RegistryPeople
from tests.api.serving import ADMIN, Served, copied, serving
from tidegate.api.routes import ROUTES
from tidegate.clock import ManualClock
from tidegate.control.fleet.dispatch import Dispatcher, DispatchResult
from tidegate.control.fleet.timers import Timers, TimersResult
from tidegate.control.worker import make_manifests_loop
from tidegate.control.worker_loops import Counters
from tidegate.domain.access.roles import Role
from tidegate.domain.hosts.protocol import (
    PROTOCOL,
    PROTOCOL_HEADER,
    authorization,
    enrollment_message,
    session_message,
)
from tidegate.kernel.model import Meta
from tidegate.web.routing import Route

T0 = datetime(2026, 4, 24, 20, 0, tzinfo=UTC)
CHANNEL = "web-stable"
ROLLOUT = "web-stable@web.1"
HOSTS = ("web-01", "web-02")
WORK_SECONDS = 0.05  # between two rounds of the worker
PROTOCOL_HEADERS = {PROTOCOL_HEADER: str(PROTOCOL)}
WAVES = [
    {"name": "canary", "selector": "tier=canary", "soak_seconds": 30},
    {"name": "all", "soak_seconds": 30},
]


@cache
def _prepared() -> tuple[Path, dict[str, Ed25519PrivateKey]]:
    """A data directory with two releases and two hosts, and the keys of these hosts."""
    place = Path(mkdtemp(prefix="tidegate-crew-"))
    atexit.register(rmtree, place, ignore_errors=True)
    with serving(place / "data", clock=ManualClock(T0)) as served:
        RegistryPeople(served)
        fleet = ServedFleet(served)
        for name in HOSTS:
            fleet.enroll(name, tier="canary" if name == HOSTS[0] else "rest", app="web")
        keys = {name: agent.key for name, agent in fleet.agents.items()}
    return place / "data", keys


@contextmanager
def serve_fleet(
    data: Path, routes: Sequence[Route] = ROUTES, **settings: Any
) -> Iterator[ServedFleet]:
    """Serve a data directory with releases, hosts and their agents."""
    prepared, keys = _prepared()
    copied(prepared, data)
    with serving(data, routes=routes, is_set_up=False, clock=ManualClock(T0), **settings) as served:
        served.skip_names()
        fleet = ServedFleet(served)
        for name, key in keys.items():
            agent = fleet.agents[name] = WireAgent(served, name, fleet.clock)
            agent.key = key
        fleet.reopen()
        yield fleet


class ServedFleet(People):
    """web.1 and web.2 are published; web-stable delivers to two hosts in two waves."""

    def __init__(self, served: Served) -> None:
        super().__init__(served)
        self.manager = served.as_role(Role.RELEASE_MANAGER)
        self.operator = served.as_role(Role.FLEET_OPERATOR)
        self.served = served
        self.installation = served.installation
        self.agents: dict[str, WireAgent] = {}
        self.dispatcher = Dispatcher(
            self.installation.lanes, self.installation.fleet_reader, self.installation.clock
        )
        self.due = Timers(
            self.installation.store,
            self.installation.control,
            self.installation.lanes,
            self.installation.clock,
        )

    @property
    def clock(self) -> ManualClock:
        clock = self.installation.clock
        assert isinstance(clock, ManualClock)
        return clock

    @contextmanager
    def working(self) -> Iterator[None]:
        """Dispatch orders, run timers and publish manifests in a thread, as the worker does."""
        manifests = make_manifests_loop(self.installation, Counters(CollectorRegistry()))
        done = Event()

        def work() -> None:
            while not done.wait(WORK_SECONDS):
                manifests.round()
                self.dispatch(thorough=True)
                self.tick()
                self.installation.nudge()

        thread = Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def create(self, **policy: Any) -> httpx2.Response:
        """Create the channel."""
        made = self.manager.post(
            "/v1/channels",
            json={
                "channel": CHANNEL,
                "package": "default/web",
                "selector": "app=web",
                "policy": {"waves": WAVES, "sustained_failure_seconds": 5, **policy},
            },
        )
        assert made.status_code == 201, made.text
        return made

    def promote(self, release_id: str = "web.1", **headers: str) -> httpx2.Response:
        return self.manager.post(
            f"/v1/channels/{CHANNEL}/promote", json={"release_id": release_id}, headers=headers
        )

    def sail(self, **policy: Any) -> None:
        """Create the channel, promote web.1, and dispatch the first wave's orders."""
        self.create(**policy)
        promoted = self.promote()
        assert promoted.status_code == 200, promoted.text
        self.dispatch()

    def dispatch(self, *, thorough: bool = False) -> DispatchResult:
        done = self.dispatcher.run_pass(thorough=thorough)
        self.installation.nudge()
        return done

    def tick(self) -> TimersResult:
        return self.due.tick()

    def token(self, host_id: str, **labels: str) -> str:
        made = self.installation.enrollment.make_token(
            f"t{host_id.replace('-', '').replace('.', '')}{time.monotonic_ns()}",
            host_id,
            labels or None,
            Meta(actor=ADMIN),
        )
        return made.token

    def enroll(self, host_id: str, **labels: str) -> WireAgent:
        agent = WireAgent(self.served, host_id, self.clock)
        enrolled = agent.enroll(self.token(host_id, **labels))
        assert enrolled.status_code == 200, enrolled.text
        agent.open()
        self.agents[host_id] = agent
        return agent

    def reopen(self) -> None:
        """Open new sessions for all agents, after the clock has moved on."""
        for agent in self.agents.values():
            agent.open()

    def wait(self, seconds: int) -> None:
        self.clock.advance(timedelta(seconds=seconds))
        self.reopen()

    def converge(self, *host_ids: str) -> None:
        """Let these hosts take their orders and converge."""
        for host_id in host_ids:
            order = self.agents[host_id].order()
            assert order is not None, f"{host_id} has no order"
            self.agents[host_id].activate(order)
        self.wait(31)
        for host_id in host_ids:
            assert self.agents[host_id].say("Converged", current_closure=None).status_code == 200

    def succeed(self) -> None:
        """Let the open rollout reach its hosts, wave by wave."""
        for host_id in ("web-01", "web-02"):
            self.dispatch()
            self.converge(host_id)

    def fail(self, host_id: str) -> None:
        """Let this host fail its probe and roll back."""
        agent = self.agents[host_id]
        order = agent.order()
        assert order is not None
        agent.activate(order, status="fail")
        self.wait(10)
        failed = agent.say(
            "Failed",
            sustained_duration_secs=10,
            failing_probes=["http"],
            policy_applied="rollback-and-halt",
        )
        assert failed.status_code == 200, failed.text
        back = agent.say("RollbackComplete", reverted_to_closure="sha256:old")
        assert back.status_code == 200, back.text


class WireAgent:
    """An agent's requests, sent by the test."""

    def __init__(self, served: Served, host_id: str, clock: ManualClock) -> None:
        self.host_id = host_id
        self.clock = clock
        self.client = served.client(None, **PROTOCOL_HEADERS)
        self.key = Ed25519PrivateKey.generate()
        self.session = ""
        self.mac_key = b""
        self.seqs: dict[str, int] = {}  # the last report's number, per rollout
        self.current: dict[str, Any] = {}

    @property
    def public_key(self) -> str:
        return self.key.public_key().public_bytes_raw().hex()

    def enroll(self, token: str) -> httpx2.Response:
        proof = self.key.sign(enrollment_message(token, self.public_key)).hex()
        body = {"token": token, "public_key": self.public_key, "proof": proof}
        return self.client.post("/v1/agent/enroll", json=body)

    def open(self, *, skew: int = 0) -> httpx2.Response:
        time = int(self.clock().timestamp()) + skew
        nonce = token_hex(16)
        proof = self.key.sign(session_message(self.host_id, time, nonce)).hex()
        body = {"host_id": self.host_id, "time": time, "nonce": nonce, "proof": proof}
        answer = self.client.post("/v1/agent/session", json=body)
        if answer.status_code == 200:
            self.session = answer.json()["session"]
            self.mac_key = bytes.fromhex(answer.json()["mac_key"])
        return answer

    def send(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: dict[str, Any] | None = None,
        skew: int = 0,
        headers: dict[str, str] | None = None,
    ) -> httpx2.Response:
        request = self.client.build_request(method, path, json=json, params=params)
        request.headers["authorization"] = self.authorization(request, skew)
        request.headers.update(headers or {})
        return self.client.send(request)

    def authorization(self, request: httpx2.Request, skew: int = 0) -> str:
        path, _, query = request.url.raw_path.partition(b"?")
        return authorization(
            self.session,
            self.mac_key,
            request.method,
            path,
            query,
            request.content,
            int(self.clock().timestamp()) + skew,
        )

    def poll(self, wait: int = 0) -> httpx2.Response:
        return self.send("GET", "/v1/agent/dispatch", params={"wait": wait})

    def order(self) -> dict[str, Any] | None:
        answer = self.poll()
        if answer.status_code == 204:
            return None
        assert answer.status_code == 200, answer.text
        self.current = answer.json()
        return self.current

    def report(self, kind: str, seq: int, rollout_id: str = "", **members: Any) -> dict[str, Any]:
        """Build a report as agents send it."""
        return {
            "kind": kind,
            "rollout_id": rollout_id or self.current.get("rollout_id", ROLLOUT),
            "host_id": self.host_id,
            "at": self.clock().isoformat().replace("+00:00", "Z"),
            "seq": seq,
            **members,
        }

    def say(self, kind: str, **members: Any) -> httpx2.Response:
        """Send the next report; if it is refused, its number is used again."""
        if "current_closure" in members and members["current_closure"] is None:
            members["current_closure"] = self.current["target_closure"]
        rollout_id = self.current["rollout_id"]
        seq = self.seqs.get(rollout_id, 0) + 1
        body = {"report": self.report(kind, seq, **members)}
        answer = self.send("POST", "/v1/agent/events", json=body)
        if answer.status_code == 200:
            self.seqs[rollout_id] = seq
        return answer

    def acknowledge(self, order: dict[str, Any]) -> httpx2.Response:
        return self.say(
            "DispatchAck",
            target_closure=order["target_closure"],
            current_closure_at_dispatch="sha256:old",
        )

    def activate(self, order: dict[str, Any], status: str = "pass") -> None:
        """Acknowledge an order, switch, and report the probe's result."""
        closure = order["target_closure"]
        said = [
            self.acknowledge(order),
            self.say("ActivationStarted"),
            self.say("ActivationCompleted", observed_current_closure=closure),
            self.say(
                "ProbeTopologyDeclared",
                probes=[{"probe_name": "http", "kind": "http", "mode": "enforce"}],
            ),
            self.say("ProbeResult", probe_name="http", mode="enforce", status=status),
        ]
        assert [answer.status_code for answer in said] == [200] * len(said), said[-1].text

    def beat(self, **closures: str) -> httpx2.Response:
        body = {"agent_version": "1.0", "current_closures": closures}
        return self.send("POST", "/v1/agent/heartbeat", json=body)
