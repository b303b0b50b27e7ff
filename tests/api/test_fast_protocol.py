"""The fast path answers simple agent requests at the socket, with the same responses."""

from __future__ import annotations

import hmac
import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from math import inf
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

import httpx2
import pytest

from tests.api.raw_connection import EVENTS, POLL, SECONDS_MAX, RawConnection, acknowledgement, raw
from tests.api.served_fleet import PROTOCOL_HEADERS, ROLLOUT, ServedFleet, serve_fleet
from tests.api.serving import serving
from tidegate.api.agents.fast_path.protocol import FastConnection
from tidegate.api.agents.order_waiters import OrderWaiters
from tidegate.api.feed import tail
from tidegate.api.feed.tail import Tail
from tidegate.api.metrics import Metrics
from tidegate.control.fleet.request_macs import KEY_BYTES_MAX, RequestMacs
from tidegate.errors import StoreUnavailable
from tidegate.kernel.model import Commit, Receipt
from tidegate.main import KEEP_ALIVE_SECONDS

WHOLE = {"x-way": "whole"}  # an unexpected header: the request takes the normal path
DEEP = json.loads("[" * 40 + "]" * 40)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ServedFleet]:
    with serve_fleet(tmp_path / "data", fast_path=True) as fleet:
        yield fleet


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of requests that were answered at the socket, in order."""
    told: list[str] = []
    send = FastConnection.send

    def noted(self: FastConnection, exchange: Any, status: int, parts: Any) -> None:
        told.append(exchange.id)
        send(self, exchange, status, parts)

    monkeypatch.setattr(FastConnection, "send", noted)
    return told


def shown(answer: httpx2.Response) -> tuple[int, dict[str, str], Any]:
    """The response without the parts that differ between requests."""
    headers = dict(answer.headers)
    request_id = headers.pop("x-request-id")
    headers.pop("date")
    return answer.status_code, headers, answer.text.replace(request_id, "<id>")


# ── the same responses ────────────────────────────────────────────────────────────────────────────


def test_answers_a_poll_and_reports_as_the_normal_path_does(
    fleet: ServedFleet, brief: list[str]
) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]
    asked: list[tuple[str, str, Any]] = [("GET", POLL, None)]
    first = agent.send("GET", POLL)
    agent.current = first.json()
    asked += [
        ("POST", EVENTS, acknowledgement(agent)),
        ("POST", EVENTS, acknowledgement(agent)),  # a repeat
        ("POST", EVENTS, {"report": agent.report("ActivationStarted", 5)}),  # a gap
        ("POST", EVENTS, {"report": agent.report("Converged", 2, current_closure="x")}),
        ("POST", EVENTS, {"report": agent.report("ActivationStarted", 1, "no-such@web.9")}),
        ("GET", POLL, None),
    ]

    answers = [agent.send(method, path, json=body) for method, path, body in asked]
    again = [agent.send(method, path, json=body, headers=WHOLE) for method, path, body in asked]

    assert first.status_code == 200
    assert [answer.status_code for answer in answers] == [204, 200, 200, 409, 409, 404, 204]
    assert [shown(answer) for answer in answers] == [shown(answer) for answer in again]
    assert brief == [answer.headers["x-request-id"] for answer in (first, *answers)]


@pytest.mark.parametrize(
    "body",
    [
        {"report": {"kind": "Nothing"}},
        {"report": {"kind": 5}},
        {"report": 7},
        {"reports": []},
        {"report": {"kind": "Converged"}, "more": 1},
        {"report": {"kind": "ActivationStarted", "deep": DEEP}},
        {"report": {"kind": "ActivationStarted", "seq": 0}},
        {"report": {"kind": "ActivationFailed", "exit_code": 1, "stderr_tail": "x" * 5_000}},
        {"report": {"kind": "ActivationStarted", "host_id": "web-02"}},
        {"report": {"kind": "ActivationStarted", "rollout_id": "?"}},
        {"report": {"kind": "ActivationStarted", "at": "yesterday"}},
    ],
)
def test_leaves_invalid_reports_to_the_normal_path(
    fleet: ServedFleet, brief: list[str], body: dict[str, Any]
) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]
    if isinstance(body.get("report"), dict):
        body = {**body, "report": {**agent.report("Converged", 1), **body["report"]}}

    answer = agent.send("POST", EVENTS, json=body)
    again = agent.send("POST", EVENTS, json=body, headers=WHOLE)

    assert shown(answer) == shown(again)
    assert brief == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"accept": "text/html"}, 406),
        ({"tidegate-protocol": "1"}, 426),
        ({"authorization": "Bearer x"}, 401),
        ({"x-request-id": "mine"}, 204),
        ({"cookie": "a=b"}, 204),
    ],
)
def test_leaves_requests_with_other_headers_to_the_normal_path(
    fleet: ServedFleet, brief: list[str], headers: dict[str, str], status: int
) -> None:
    agent = fleet.agents["web-01"]

    answer = agent.send("GET", POLL, headers=headers)

    assert answer.status_code == status
    assert answer.headers["x-request-id"] == headers.get(
        "x-request-id", answer.headers["x-request-id"]
    )
    assert brief == []


def test_refuses_a_changed_body_and_a_revoked_key_at_once(
    fleet: ServedFleet, brief: list[str]
) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]
    assert agent.order() is not None
    good = raw(agent, "POST", EVENTS, acknowledgement(agent))
    with closing(RawConnection(fleet)) as wire:
        wire.send(good.replace(b"sha256:old", b"sha256:new"))
        changed = wire.answer()
        fleet.operator.post("/v1/hosts/web-01/revoke", json={"reason": "lost"})
        wire.send(good)
        revoked = wire.answer()

    assert (changed[0], json.loads(changed[2])["code"]) == (401, "bad_mac")
    assert (revoked[0], json.loads(revoked[2])["code"]) == (401, "key_refused")
    assert brief == []


# ── bytes as they come ────────────────────────────────────────────────────────────────────────────


def test_takes_a_head_that_arrives_in_pieces_on_the_normal_path(
    fleet: ServedFleet, brief: list[str], pieces: SimpleQueue[int]
) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]
    assert agent.send("GET", POLL).status_code == 200
    agent.current = {"rollout_id": ROLLOUT, "target_closure": "x"}
    report = raw(agent, "POST", EVENTS, acknowledgement(agent))
    brief.clear()

    body = report.index(b"\r\n\r\n") + 4
    for cut in (1, report.index(b"\r\n"), body - 1, body, len(report) - 1):
        with closing(RawConnection(fleet)) as wire:
            wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire.send(report[:cut])
            while pieces.get(timeout=SECONDS_MAX) != cut:
                pass  # from an earlier request
            wire.send(report[cut:])
            status, _, told = wire.answer()
            assert (status, json.loads(told)["code"]) == (409, "wrong_closure"), cut

    assert len(brief) == 2  # those whose head was complete


def test_leaves_a_slow_body_to_the_normal_path(
    fleet: ServedFleet, brief: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Event()
    lose_patience = FastConnection._lose_patience

    def noted(self: FastConnection) -> None:
        lose_patience(self)
        lost.set()

    monkeypatch.setattr(FastConnection, "_lose_patience", noted)
    monkeypatch.setattr("tidegate.api.agents.fast_path.protocol.PATIENCE_SECONDS", 0.05)
    fleet.sail()
    agent = fleet.agents["web-01"]
    assert agent.order() is not None
    report = raw(agent, "POST", EVENTS, acknowledgement(agent))
    brief.clear()
    with closing(RawConnection(fleet)) as wire:
        wire.send(report[:-9])
        assert lost.wait(SECONDS_MAX)
        wire.send(report[-9:])
        slow = wire.answer()
        monkeypatch.setattr("tidegate.api.agents.fast_path.protocol.PATIENCE_SECONDS", SECONDS_MAX)
        wire.send(report)
        quick = wire.answer()
    with closing(RawConnection(fleet)) as wire:  # a body that never completes gets no response
        wire.send(report[:-9])

    assert (slow[0], quick[0]) == (200, 200)
    assert slow[2] == quick[2]
    assert brief == [quick[1]["x-request-id"]]


def test_answers_pipelined_requests_in_order(fleet: ServedFleet) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]
    assert agent.order() is not None
    sent = [
        raw(agent, "POST", EVENTS, acknowledgement(agent)),
        raw(agent, "GET", POLL),
        raw(agent, "POST", EVENTS, {"report": agent.report("ActivationStarted", 2)}),
        b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n",
        raw(agent, "GET", POLL),
    ]

    with closing(RawConnection(fleet)) as wire:
        wire.send(b"".join(sent))
        answers = [wire.answer() for _ in sent]

    assert [status for status, _, _ in answers] == [200, 204, 200, 200, 204]
    assert [json.loads(body)["answers"][0]["seq"] for _, _, body in (answers[0], answers[2])] == [
        1,
        2,
    ]


def test_answers_non_http_bytes_once_and_closes(fleet: ServedFleet, brief: list[str]) -> None:
    agent = fleet.agents["web-01"]
    report = raw(agent, "POST", EVENTS, {"report": {}}).partition(b"\r\n\r\n")[0]

    for nonsense in (b"no http\r\n\r\n", report + b"\r\nbad header\r\n\r\n{}"):
        with closing(RawConnection(fleet)) as wire:
            wire.send(nonsense)
            assert wire.answer()[0] == 400
            assert wire.is_closed()

    assert brief == []


def test_closes_the_connection_if_the_client_asks_for_it(
    fleet: ServedFleet, brief: list[str]
) -> None:
    agent = fleet.agents["web-01"]

    with closing(RawConnection(fleet)) as wire:
        wire.send(raw(agent, "GET", POLL, connection="close"))
        status, headers, _ = wire.answer()
        assert wire.is_closed()

    assert (status, headers["connection"]) == (204, "close")
    assert brief == []


def test_takes_a_large_body_on_the_normal_path_and_refuses_too_large_a_one(
    fleet: ServedFleet, brief: list[str]
) -> None:
    agent = fleet.agents["web-01"]
    statuses = [
        agent.send("POST", EVENTS, json={"report": {"kind": "x" * size}}).status_code
        for size in (20_000, 300_000)
    ]

    assert statuses == [422, 413]
    assert brief == []


# ── while it waits ────────────────────────────────────────────────────────────────────────────────


class Holding:
    """A writer that holds all commits back until the test releases them."""

    def __init__(self, fleet: ServedFleet) -> None:
        self._lanes: Any = fleet.installation.lanes
        self._submit = self._lanes._submit
        self.came, self.go = Event(), Event()
        self._lanes._submit = self._held

    def _held(self, commit: Commit) -> Any:
        self.came.set()
        assert self.go.wait(SECONDS_MAX)
        return self._submit(commit)

    def end(self) -> None:
        self.go.set()
        self._lanes._submit = self._submit


def test_answers_nothing_before_the_report_is_durable(fleet: ServedFleet) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]
    assert agent.order() is not None
    holding = Holding(fleet)
    with closing(RawConnection(fleet)) as wire:
        wire.send(raw(agent, "POST", EVENTS, acknowledgement(agent)))
        assert holding.came.wait(SECONDS_MAX)
        assert fleet.viewer.get("/livez").status_code == 200  # so the event loop has run since
        wire.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            wire.socket.recv(1)
        wire.socket.settimeout(SECONDS_MAX)
        holding.end()

        status, _, _ = RawConnection.answer(wire)

    assert status == 200


def test_keeps_the_report_of_a_client_that_disconnected(fleet: ServedFleet) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]
    assert agent.order() is not None
    holding = Holding(fleet)
    with closing(RawConnection(fleet)) as wire:
        wire.send(raw(agent, "POST", EVENTS, acknowledgement(agent)))
        assert holding.came.wait(SECONDS_MAX)
    assert fleet.viewer.get("/livez").status_code == 200  # so the event loop has run since
    holding.end()

    again = agent.send("POST", EVENTS, json=acknowledgement(agent))

    assert again.json()["answers"][0]["accepted_through"] == 1
    assert fleet.installation.health.differences() == []


def test_finishes_a_waiting_report_when_the_server_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[tuple[int, dict[str, str], bytes]] = []
    told = Event()  # set when the connection knows that the server stops
    shutdown = FastConnection.shutdown

    def noted(self: FastConnection) -> None:
        shutdown(self)
        if not self.transport.is_closing():  # others have no request that waits
            told.set()

    monkeypatch.setattr(FastConnection, "shutdown", noted)
    with serve_fleet(tmp_path / "data") as fleet:
        fleet.sail()
        agent = fleet.agents["web-01"]
        assert agent.order() is not None
        holding = Holding(fleet)
        wire = RawConnection(fleet)
        wire.send(raw(agent, "POST", EVENTS, acknowledgement(agent)))
        assert holding.came.wait(SECONDS_MAX)

        def listen() -> None:
            answers.append(wire.answer())

        listening = Thread(target=listen)
        listening.start()
        Thread(target=_end_after, args=(holding, told)).start()
    listening.join(SECONDS_MAX)
    with closing(wire):
        assert wire.is_closed()

    ((status, headers, _),) = answers
    assert status == 200
    assert headers["connection"] == "close"


def _end_after(holding: Holding, told: Event) -> None:
    told.wait(SECONDS_MAX)
    holding.end()


def test_tells_an_agent_that_the_log_is_unavailable(fleet: ServedFleet, brief: list[str]) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]
    deliveries: Any = fleet.installation.deliveries
    submit = deliveries._submit

    def refuse(commit: Commit) -> Future[Receipt]:
        failed: Future[Receipt] = Future()
        failed.set_exception(StoreUnavailable("no disk"))
        return failed

    deliveries._submit = refuse
    away = agent.send("GET", POLL)
    again = agent.send("GET", POLL, headers=WHOLE)
    deliveries._submit = submit

    assert (away.status_code, away.json()["code"]) == (503, "store_unavailable")
    assert away.headers["retry-after"] == "1"
    assert shown(away) == shown(again)
    assert brief == [away.headers["x-request-id"]]
    assert agent.send("GET", POLL).status_code == 200


def test_answers_an_internal_error_with_500(
    fleet: ServedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = fleet.agents["web-01"]
    wakes: Any = fleet.served.application.parts[OrderWaiters]
    monkeypatch.setattr(wakes, "is_free", lambda *_: 1 / 0)

    fault = agent.send("GET", POLL)

    assert (fault.status_code, fault.json()["code"]) == (500, "internal_error")
    assert fault.json()["instance"] == f"/requests/{fault.headers['x-request-id']}"
    monkeypatch.undo()
    assert agent.send("GET", POLL).status_code == 204


# ── orders ────────────────────────────────────────────────────────────────────────────────────────


def test_sends_an_order_at_the_socket_with_its_lease(fleet: ServedFleet, brief: list[str]) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]

    first = agent.send("GET", POLL)
    leased = agent.send("GET", POLL)
    fleet.wait(31)
    again = agent.send("GET", POLL)

    assert [answer.status_code for answer in (first, leased, again)] == [200, 204, 200]
    assert first.json() == again.json()
    assert brief == [answer.headers["x-request-id"] for answer in (first, leased, again)]


def test_sends_an_order_to_one_of_two_simultaneous_polls(fleet: ServedFleet) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]
    poll = raw(agent, "GET", POLL)
    with closing(RawConnection(fleet)) as one, closing(RawConnection(fleet)) as other:
        one.send(poll)
        other.send(poll)
        statuses = sorted((one.answer()[0], other.answer()[0]))

    assert statuses == [200, 204]


def test_reserves_orders_in_several_commits_so_that_others_can_run(
    fleet: ServedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.control.fleet.dispatch.AT_ONCE", 1)
    fleet.create(waves=[{"name": "all", "soak_seconds": 30}])
    assert fleet.promote().status_code == 200
    lanes: Any = fleet.installation.lanes
    submit = lanes._submit
    reserved: list[int] = []

    def noted(commit: Commit) -> Any:
        reserved.append(sum(fact.type == "DispatchReserved" for fact in commit.facts))
        return submit(commit)

    monkeypatch.setattr(lanes, "_submit", noted)
    done = fleet.dispatch()

    assert done.ordered == 2
    assert [number for number in reserved if number] == [1, 1]
    assert all(agent.order() is not None for agent in fleet.agents.values())


# ── connections ───────────────────────────────────────────────────────────────────────────────────


class Timer:
    """A timer of a connection."""

    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at = at
        self.call = call

    def cancel(self) -> None:
        self.at = inf


class Hours:
    """The clock of all connections, moved by the test; everything else is the real event loop."""

    def __init__(self) -> None:
        self._now = 0.0
        self._timers: list[Timer] = []
        self._loop: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def of(self, loop: Any) -> Hours:
        self._loop = loop
        return self

    def time(self) -> float:
        return self._now

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        timer = Timer(self._now + seconds, call)
        self._timers.append(timer)
        return timer

    def go_on(self, seconds: float) -> None:
        """Advance the clock, and run the timers that are due."""
        done: Future[None] = Future()

        def turn() -> None:
            self._now += seconds
            due = [timer for timer in self._timers if timer.at <= self._now]
            self._timers = [timer for timer in self._timers if timer.at > self._now]
            for timer in due:
                timer.call()
            done.set_result(None)

        self._loop.call_soon_threadsafe(turn)
        done.result(SECONDS_MAX)


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Hours:
    hours = Hours()
    connection_made = FastConnection.connection_made

    def made(self: FastConnection, transport: Any) -> None:
        self.loop = hours.of(self.loop)  # type: ignore[assignment]
        connection_made(self, transport)

    monkeypatch.setattr(FastConnection, "connection_made", made)
    return hours


def test_closes_an_idle_connection_and_no_other(tmp_path: Path, hours: Hours) -> None:
    request = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with serving(tmp_path / "data") as served:
        host, port = served.url.removeprefix("http://").split(":")
        address = (host, int(port))
        with (
            closing(socket.create_connection(address, SECONDS_MAX)) as idle,
            closing(socket.create_connection(address, SECONDS_MAX)) as busy,
        ):
            idle.sendall(request)
            assert idle.recv(4096).startswith(b"HTTP/1.1 200")
            for part in (0.4, 0.4, 0.1):
                busy.sendall(request)
                assert busy.recv(4096).startswith(b"HTTP/1.1 200")
                hours.go_on(part * KEEP_ALIVE_SECONDS)
            idle.setblocking(False)
            with pytest.raises(BlockingIOError):
                idle.recv(1)  # connections may be idle a little longer
            idle.settimeout(SECONDS_MAX)

            hours.go_on(0.2 * KEEP_ALIVE_SECONDS)

            assert idle.recv(1) == b""
            busy.sendall(request)
            assert busy.recv(4096).startswith(b"HTTP/1.1 200")
            hours.go_on(1.1 * KEEP_ALIVE_SECONDS)
            assert busy.recv(1) == b"", "it was processed as well"


def test_counts_and_logs_what_is_answered_at_the_socket(fleet: ServedFleet) -> None:
    agent = fleet.agents["web-01"]
    assert agent.send("GET", POLL).status_code == 204

    text = fleet.served.application.parts[Metrics].text().decode()

    assert 'tidegate_http_requests_total{operation="agent.dispatch",status="204"} 1.0' in text


def test_answers_only_agents_at_the_socket(fleet: ServedFleet, brief: list[str]) -> None:
    assert fleet.operator.get(POLL, headers=PROTOCOL_HEADERS).status_code == 401
    assert fleet.operator.head(POLL, headers=PROTOCOL_HEADERS).status_code == 401
    assert fleet.operator.post(POLL, headers=PROTOCOL_HEADERS).status_code == 405
    assert brief == []


def test_shows_reports_to_a_reader_even_if_no_reader_waited(
    fleet: ServedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "LEISURE_SECONDS", 3_600.0)
    fleet.sail()
    agent = fleet.agents["web-01"]
    order = agent.order()
    assert order is not None
    followed = fleet.served.application.parts[Tail]
    assert agent.acknowledge(order).status_code == 200
    head = fleet.served.installation.log.head()

    answer = fleet.operator.get("/v1/hosts", params={"min_position": head})

    assert answer.status_code == 200
    assert followed.position >= head


@pytest.mark.parametrize("size", [0, 1, 32, KEY_BYTES_MAX])
def test_computes_the_same_macs_as_the_library(size: int) -> None:
    key = bytes(range(size))
    macs = RequestMacs(key)

    for message in (b"", b"poll", b"x" * 5_000):
        assert macs.mac(message) == hmac.digest(key, message, "sha256")


def test_refuses_a_key_that_was_revoked_between_two_polls(fleet: ServedFleet) -> None:
    agent = fleet.agents["web-01"]
    with closing(RawConnection(fleet)) as wire:
        for _ in range(3):
            wire.send(raw(agent, "GET", POLL))
            assert wire.answer()[0] == 204
        fleet.operator.post("/v1/hosts/web-01/revoke", json={"reason": "lost"})
        wire.send(raw(agent, "GET", POLL))
        status, _, body = wire.answer()

    assert (status, json.loads(body)["code"]) == (401, "key_refused")
