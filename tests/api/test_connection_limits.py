"""Room for new connections: the server closes an idle one, even if many older ones are busy."""

from __future__ import annotations

import time

import pytest

from tests.api.raw_connection import EVENTS, RawConnection
from tests.api.served_fleet import ServedFleet
from tests.api.serving import Served
from tidegate.web import exchange
from tidegate.web.connection_limits import ConnectionLimits

OLDER = 1_000


class FakePeer:
    """A connection that the test makes busy or idle."""

    server: tuple[str, int | None] | None = ("192.0.2.1", 80)

    def __init__(self, number: int, *, idle: bool) -> None:
        self.client: tuple[str, int] | None = (f"198.51.{number // 256}.{number % 256}", 1)
        self.idle = idle
        self.is_closed = False

    def is_idle(self) -> bool:
        return self.idle

    def hang_up(self) -> None:
        self.is_closed = True


def test_closes_the_one_idle_connection_among_older_busy_ones() -> None:
    limits = ConnectionLimits(OLDER + 1, OLDER + 1)
    busy = [FakePeer(number, idle=False) for number in range(OLDER)]
    idle = FakePeer(OLDER, idle=True)
    for peer in (*busy, idle):
        assert limits.admit(peer) is None
        limits.heard(peer)
        limits.rested(peer)  # each was idle once; some are busy again

    assert limits.admit(FakePeer(OLDER + 1, idle=False)) is None

    assert idle.is_closed
    assert not any(peer.is_closed for peer in busy)
    assert len(limits) == OLDER + 1


def test_a_connection_that_is_idle_again_is_found_again() -> None:
    limits = ConnectionLimits(at_most=1, per_address=1)
    peer = FakePeer(0, idle=False)
    assert limits.admit(peer) is None
    limits.heard(peer)
    limits.rested(peer)
    assert limits.admit(FakePeer(1, idle=False)) is not None, "it is busy"

    peer.idle = True
    limits.rested(peer)

    assert limits.admit(FakePeer(2, idle=False)) is None
    assert peer.is_closed


def test_an_idle_served_connection_makes_room(served: Served) -> None:
    limits = served.application.connections
    with served.client() as client:
        assert client.get("/livez").status_code == 200
        limits._at_most = len(limits)

        other = served.client().get("/livez")

    assert other.status_code == 200


def test_unauthenticated_body_bytes_are_limited_per_address(
    fleet: ServedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server reads an agent's body before it can check the MAC."""
    monkeypatch.setattr(exchange, "UNPROVEN_BYTES_MAX", 300 * 1024)
    head = (
        f"POST {EVENTS} HTTP/1.1\r\nhost: localhost\r\ntidegate-protocol: 2\r\n"
        "content-type: application/json\r\ncontent-length: 200000\r\n\r\n"
    ).encode()
    first, second, third = (RawConnection(fleet) for _ in range(3))
    try:
        first.send(head + b"x" * 190_000)
        wait_until_held(fleet, 150_000)
        second.send(head + b"x" * 190_000)
        refused, _, text = second.answer()
        first.send(b"x" * 10_000)
        unproven, _, _ = first.answer()
        wait_until_held(fleet, 0)
        third.send(head + b"x" * 200_000)
        again, _, _ = third.answer()
    finally:
        for wire in (first, second, third):
            wire.close()

    assert (refused, b"overloaded" in text) == (503, True)
    assert (unproven, again) == (401, 401)


def wait_until_held(fleet: ServedFleet, least: int) -> None:
    deadline = time.monotonic() + 60
    held = fleet.served.application.unproven
    while time.monotonic() < deadline:
        total = sum(held.values())
        if (total >= least) if least else not total:
            return
        time.sleep(0.01)
    raise AssertionError("the server did not read the body")
