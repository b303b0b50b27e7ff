"""Heads that are known are read without the parser; anything else in them goes through it."""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests.api.raw_connection import EVENTS, POLL, SECONDS_MAX, RawConnection, acknowledgement, raw
from tests.api.served_fleet import PROTOCOL_HEADERS, ServedFleet, serve_fleet
from tidegate.api.agents.routes import ROUTES
from tidegate.api.feed import tail
from tidegate.control.fleet.request_macs import KEY_BYTES_MAX, RequestMacs
from tidegate.web import heads
from tidegate.web.fast_protocol import FastConnection
from tidegate.web.heads import Heads
from tidegate.web.routing import Route

ROUTE = {route.path: route for route in ROUTES}
PROOF = "Tidegate web-01:99:ab 1700000000 " + "0a" * 32


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ServedFleet]:
    with serve_fleet(tmp_path / "data") as fleet:
        yield fleet


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The requests that the parser read, by their paths."""
    read: list[bytes] = []
    on_headers_complete = FastConnection.on_headers_complete

    def noted(self: FastConnection) -> None:
        read.append(self.url)
        on_headers_complete(self)

    monkeypatch.setattr(FastConnection, "on_headers_complete", noted)
    return read


def test_reads_what_agents_send_by_its_head_once_it_is_known(
    fleet: ServedFleet, parsed: list[bytes]
) -> None:
    fleet.sail()
    agent, other = fleet.agents["web-01"], fleet.agents["web-02"]
    agent.current = agent.send("GET", POLL).json()
    parsed.clear()
    answers: list[list[tuple[int, str | None]]] = [[], []]
    with closing(RawConnection(fleet)) as wire:
        for told in answers:
            for request in (
                raw(agent, "POST", EVENTS, acknowledgement(agent)),
                raw(other, "GET", POLL),
                raw(agent, "POST", EVENTS, {"report": agent.report("ActivationStarted", 5)}),
            ):
                wire.send(request)
                status, _, body = wire.answer()
                told.append((status, json.loads(body or b"{}").get("code")))

    assert answers[0] == answers[1]
    assert [status for status, _ in answers[0]] == [200, 204, 409]
    assert parsed.count(EVENTS.encode()) == 1
    assert parsed.count(POLL.encode()) <= 1


CHANGES = {
    "a header more": (b"host: ", b"x-way: whole\r\nhost: "),
    "a header twice": (b"host: ", b"host: x\r\nhost: "),
    "a body in chunks": (b"content-length: ", b"transfer-encoding: chunked\r\ncontent-length: "),
    "another protocol": (b"tidegate-protocol: 2", b"tidegate-protocol: 1"),
    "another answer": (b"accept: */*", b"accept: text/html"),
    "another type": (b"application/json", b"text/plain"),
    "its last request": (b"connection: keep-alive", b"connection: close"),
    "another version": (b"HTTP/1.1", b"HTTP/1.0"),
    "another method": (b"POST /", b"PUT /"),
    "another path": (b"/v1/agent/events ", b"/v1/agent/events? "),
    "a bare line feed": (b"\r\naccept", b"\naccept"),
    "a folded line": (b"user-agent: ", b"user-agent:\r\n "),
    "a nul": (b"user-agent: ", b"user-agent: \0"),
    "a bell": (b"user-agent: ", b"user-agent: \a"),
    "a wrong MAC": (b"sha256:old", b"sha256:new"),
    "another time": (b":old", b":old"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_answers_what_is_not_as_it_was_as_if_no_head_were_known(
    fleet: ServedFleet, change: str
) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]
    agent.current = agent.send("GET", POLL).json()
    good = raw(agent, "POST", EVENTS, acknowledgement(agent))
    old, new = CHANGES[change]
    assert old in good
    changed = good.replace(old, new, 1)
    if change == "another time":
        fleet.wait(120)
    said = []
    for _ in range(2):
        with closing(RawConnection(fleet)) as wire:
            wire.send(changed)
            status, headers, body = wire.answer()
            closes = headers.get("connection") == "close" and wire.is_closed()
        code = json.loads(body).get("code") if body.startswith(b"{") else body
        said.append((status, code, closes))
        if change != "another time":
            with closing(RawConnection(fleet)) as wire:
                wire.send(good)
                assert wire.answer()[0] == 200

    assert said[0] == said[1]


def test_refuses_a_revoked_key_behind_a_head_that_is_known(
    fleet: ServedFleet, parsed: list[bytes]
) -> None:
    agent = fleet.agents["web-01"]
    with closing(RawConnection(fleet)) as wire:
        for _ in range(3):
            wire.send(raw(agent, "GET", POLL))
            assert wire.answer()[0] == 204
        fleet.operator.post("/v1/hosts/web-01/revoke", json={"reason": "lost"})
        parsed.clear()
        wire.send(raw(agent, "GET", POLL))
        status, _, body = wire.answer()

    assert (status, json.loads(body)["code"]) == (401, "key_refused")
    assert parsed == [POLL.encode()]  # which has words for it


# ── what is learnt ────────────────────────────────────────────────────────────────────────────────


def written(route: Route, body: bytes = b"", **headers: str) -> bytes:
    named = {"host": "a", "authorization": PROOF, **headers}
    if body:
        named["content-length"] = str(len(body))
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"{route.method} {route.path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def test_tells_proof_and_body_apart_wherever_they_stand() -> None:
    known = Heads()
    known.learn(ROUTE[EVENTS], written(ROUTE[EVENTS], b"{}"))
    known.learn(ROUTE[POLL], written(ROUTE[POLL]))

    found = known.find(written(ROUTE[EVENTS], b'{"a": 1}', host="b.example:1"))

    assert found is not None
    assert found.route is ROUTE[EVENTS]
    assert (found.arrived.path, found.arrived.body) == (EVENTS.encode(), b'{"a": 1}')
    assert found.proof == (b"web-01:99:ab", b"1700000000", b"0a" * 32)
    assert known.find(written(ROUTE[EVENTS], b"{}") + b"x") is None
    assert known.find(written(ROUTE[EVENTS], b"{}")[:-1]) is None
    assert known.find(written(ROUTE[POLL]) * 2) is None
    assert known.find(written(ROUTE[POLL], accept="*/*")) is None


def test_learns_nothing_from_bytes_that_are_not_one_request_for_the_route() -> None:
    poll, events = ROUTE[POLL], ROUTE[EVENTS]
    known = Heads()
    for route, data in (
        (events, written(events, b"{}") * 2),
        (poll, b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n" + written(poll)),
        (poll, written(events, b"{}")),
        (events, written(events, b"{}")[:-1]),
        (poll, written(poll, authorization="Bearer x")),
        (poll, written(poll).replace(b"\r\n\r\n", b"\r\n")),
    ):
        known.learn(route, data)
        assert known.find(data) is None
        assert known.find(written(poll)) is None
        assert known.find(written(events, b"{}")) is None


def test_learns_nothing_from_a_body_that_reads_like_a_request(
    fleet: ServedFleet, pieces: SimpleQueue[int]
) -> None:
    """A poll whose head came alone, then a body that nobody reads: no parser saw a head in it."""
    agent = fleet.agents["web-01"]
    fake = written(ROUTE[POLL], expect="100-continue")
    request = agent.client.build_request("GET", POLL, content=fake)
    proof = agent.authorization(request)
    said = {**PROTOCOL_HEADERS, "authorization": proof, "content-type": "application/json"}
    poll = written(ROUTE[POLL], fake, **said)

    with closing(RawConnection(fleet)) as wire:
        wire.send(poll[: -len(fake)])
        while pieces.get(timeout=SECONDS_MAX) != len(poll) - len(fake):
            pass  # of an earlier request
        wire.send(fake)
        assert wire.answer()[0] == 204

    assert fleet.served.application.heads.find(fake) is None


def test_knows_so_many_heads_and_no_more() -> None:
    known = Heads()
    sent = [written(ROUTE[POLL], accept=f"a/{n}") for n in range(heads.HEADS_MAX + 1)]
    for data in sent:
        known.learn(ROUTE[POLL], data)

    found = [known.find(data) is not None for data in sent]
    assert found == [False] + [True] * heads.HEADS_MAX, "the oldest is forgotten"


@pytest.mark.parametrize("size", [0, 1, 32, KEY_BYTES_MAX])
def test_makes_the_macs_that_the_library_makes(size: int) -> None:
    key = bytes(range(size))
    macs = RequestMacs(key)

    for message in (b"", b"poll", b"x" * 5_000):
        assert macs.mac(message) == hmac.digest(key, message, "sha256")


# ── reports that nobody waits for ─────────────────────────────────────────────────────────────────


def test_finds_reports_that_nobody_waited_for_when_somebody_asks(
    fleet: ServedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "LEISURE_SECONDS", 3_600.0)
    fleet.sail()
    agent = fleet.agents["web-01"]
    order = agent.order()
    assert order is not None
    followed = fleet.served.application.server.tail
    assert agent.acknowledge(order).status_code == 200
    head = fleet.served.installation.log.head()

    answer = fleet.operator.get("/v1/hosts", params={"min_position": head})

    assert answer.status_code == 200
    assert followed.position >= head
