"""A connection costs the server no more than the client, with and without the fast path."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import httpx2
import pytest

from tests.api.server_process import start_server
from tests.api.serving import Served, serving
from tests.servers.process import free_port, speaks_http, until
from tidegate.api.agents.fast_path.protocol import FastConnection
from tidegate.web import connections, exchange
from tidegate.web.connections import HEAD_BYTES_MAX, PIPELINE_MAX, Connection

SECONDS_MAX = 60.0
SENT_BYTES_MAX = 32 * 1024 * 1024  # far more than the server may hold for a connection
LIVE = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
CHUNKED = (
    b"POST /v1/sessions HTTP/1.1\r\nhost: ::1\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n"
)
SOON = 0.2  # instead of the seconds that a client normally has


@pytest.fixture(params=[FastConnection, Connection], ids=["fast path", "plain"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data", protocol=request.param) as served:
        yield served


class Wire:
    """A connection on which the test sends and reads bytes."""

    def __init__(self, served: Served, source: str = "127.0.0.1") -> None:
        host, port = served.url.removeprefix("http://").split(":")
        self.socket = socket.create_connection(
            (host, int(port)), timeout=SECONDS_MAX, source_address=(source, 0)
        )
        self._file = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def heard(self) -> bytes:
        """All bytes until the server closes the connection."""
        parts = []
        with suppress(ConnectionResetError):
            while part := self._file.read1():
                parts.append(part)
        return b"".join(parts)

    def answer(self) -> bytes:
        """The next response."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self._file.readline()
            assert line, "the server closed the connection"
            head += line
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return head + self._file.read(length)

    def close(self) -> None:
        self._file.close()
        self.socket.close()


def sent_until_closed(wire: Wire, begin: bytes, again: bytes) -> int:
    """The number of bytes sent before the server closed the connection."""
    sent = 0
    try:
        wire.send(begin)
        while sent < SENT_BYTES_MAX:
            wire.send(again)
            sent += len(again)
    except (ConnectionResetError, BrokenPipeError):
        pass
    return sent


def problem(answer: bytes) -> tuple[int, str]:
    return int(answer.split()[1]), json.loads(answer.partition(b"\r\n\r\n")[2])["code"]


# ── bytes ─────────────────────────────────────────────────────────────────────────────────────────

ENDLESS = {
    "headers": (b"GET /livez HTTP/1.1\r\n", b"a: b\r\n" * 10_000),
    "a header value": (b"GET /livez HTTP/1.1\r\na: ", b"b" * 65_536),
    "a header name": (b"GET /livez HTTP/1.1\r\n", b"b" * 65_536),
    "a URL": (b"GET /", b"b" * 65_536),
    "trailers": (CHUNKED + b"0\r\n", b"a: b\r\n" * 10_000),
    "a trailer": (CHUNKED + b"0\r\na: ", b"b" * 65_536),
    "a chunk's extension": (CHUNKED + b"2;a=", b"b" * 65_536),
    "empty lines": (b"", b"\r\n" * 32_768),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_closes_a_connection_that_sends_an_endless(served: Served, what: str) -> None:
    begin, again = ENDLESS[what]

    with closing(Wire(served)) as wire:
        sent = sent_until_closed(wire, begin, again)

    assert sent < SENT_BYTES_MAX
    assert served.client().get("/livez").status_code == 200


@pytest.mark.parametrize(
    "begin", [b"GET /livez HTTP/1.1\r\na: ", b"GET /", CHUNKED + b"0\r\na: "], ids=str
)
def test_tells_the_client_why_it_closes_the_connection(served: Served, begin: bytes) -> None:
    with closing(Wire(served)) as wire:
        wire.send(begin + b"b" * (HEAD_BYTES_MAX + 1 - len(begin)))
        if begin.startswith(b"POST"):
            wire.send(b"b" * HEAD_BYTES_MAX)  # some of it arrived together with the body
        answer = wire.heard()

    assert problem(answer) == (431, "headers_too_large")
    assert b"connection: close" in answer


def test_limits_each_head_separately(served: Served) -> None:
    head = LIVE[:-2] + b"a: " + b"b" * 12_000 + b"\r\n\r\n"

    with closing(Wire(served)) as wire:
        for _ in range(8):
            for at in range(0, len(head), 4_000):
                wire.send(head[at : at + 4_000])
            assert wire.answer().startswith(b"HTTP/1.1 200")


def test_refuses_thousands_of_fields_that_it_would_have_to_join(served: Served) -> None:
    with closing(Wire(served)) as wire:
        wire.send(LIVE[:-2] + b"a:\r\n" * 16_000 + b"a: " + b"b" * 17_000 + b"\r\n\r\n")

        assert problem(wire.answer())[0] == 431


def test_closes_a_connection_with_too_many_requests_under_way(served: Served) -> None:
    with closing(Wire(served)) as wire:
        wire.send(LIVE * (PIPELINE_MAX // 2))
        for _ in range(PIPELINE_MAX // 2):
            assert wire.answer().startswith(b"HTTP/1.1 200")
        wire.send(LIVE * 1_000)
        answers = wire.heard()

    assert answers.count(b"HTTP/1.1 ") < 1_000


# ── time ──────────────────────────────────────────────────────────────────────────────────────────


def test_closes_a_connection_that_never_sends_a_whole_head(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS_MAX", SOON)
    with ExitStack() as stack:
        wires = [stack.enter_context(closing(Wire(served))) for _ in range(4)]
        silent, partial, blank, second = wires
        partial.send(LIVE[:-2])
        blank.send(b"\r\n")
        second.send(LIVE)
        first = second.answer()
        second.send(LIVE[:-2])

        assert first.startswith(b"HTTP/1.1 200")
        assert silent.heard() == b""
        for wire in (partial, blank, second):
            assert problem(wire.heard()) == (408, "request_too_slow")


def test_closes_a_connection_that_sends_a_byte_at_a_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS_MAX", SOON)
    with closing(Wire(served)) as wire:
        wire.send(LIVE[:-2] + b"a: ")
        wire.socket.settimeout(SOON / 20)
        for _ in range(int(SECONDS_MAX / SOON * 20)):
            try:
                wire.send(b"b")
                answer = wire.socket.recv(65_536)
                break
            except TimeoutError:
                continue
        else:
            raise AssertionError("the server reads bytes forever")

    assert problem(answer) == (408, "request_too_slow")


def test_keeps_an_idle_connection_longer_than_it_waits_for_a_head(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS_MAX", SOON)
    with closing(Wire(served)) as idle, closing(Wire(served)) as silent:
        idle.send(LIVE)
        idle.answer()
        assert silent.heard() == b""  # so that much time has passed
        with closing(Wire(served)) as later:
            assert later.heard() == b""
        idle.send(LIVE)

        assert idle.answer().startswith(b"HTTP/1.1 200")


def test_refuses_a_body_that_does_not_arrive_in_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "BODY_SECONDS_MAX", SOON)
    monkeypatch.setattr(connections, "REST_SECONDS_MAX", SOON)
    with closing(Wire(served)) as wire:
        wire.send(CHUNKED)

        assert problem(wire.answer()) == (408, "request_too_slow")
        assert wire.heard() == b"", "the server does not wait forever for the rest of the body"


def test_closes_a_connection_whose_answered_request_never_ends(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REST_SECONDS_MAX", SOON)
    with closing(Wire(served)) as wire:
        wire.send(LIVE[:-2] + b"content-length: 100\r\n\r\n")
        answer = wire.answer()
        wire.send(b"b")

        assert answer.startswith(b"HTTP/1.1 200")
        assert wire.heard() == b""


def test_keeps_a_connection_whose_body_arrived_after_its_response(served: Served) -> None:
    with closing(Wire(served)) as wire:
        wire.send(LIVE[:-2] + b"content-length: 4\r\n\r\n")
        answers = [wire.answer()]
        wire.send(b"body" + LIVE)
        answers.append(wire.answer())

    assert [answer.split()[1] for answer in answers] == [b"200", b"200"]


def test_closes_a_connection_that_reads_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "UNREAD_SECONDS_MAX", SOON)
    open_before = len(served.application.connections)
    with closing(Wire(served)) as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        wire.send(b"GET /v1/openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * PIPELINE_MAX)

        assert wire.socket.recv(9) == b"HTTP/1.1 "
        assert until(
            lambda: len(served.application.connections) <= open_before, seconds_max=SECONDS_MAX
        )


# ── numbers ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("protocol", [FastConnection, Connection])
def test_limits_the_connections_of_an_address_and_accepts_others(
    tmp_path: Path, protocol: type[Connection]
) -> None:
    with (
        serving(tmp_path / "data", protocol=protocol, connections_per_address=3) as served,
        ExitStack() as stack,
    ):
        wires = [stack.enter_context(closing(Wire(served, "127.0.0.2"))) for _ in range(3)]
        for wire in wires:
            wire.send(LIVE)
            assert wire.answer().startswith(b"HTTP/1.1 200")
        with closing(Wire(served, "127.0.0.2")) as fourth:
            refused = fourth.heard()
        with closing(Wire(served, "127.0.0.3")) as other:
            other.send(LIVE)
            assert other.answer().startswith(b"HTTP/1.1 200")
        own = [stack.enter_context(closing(Wire(served))) for _ in range(5)]
        for wire in own:  # a proxy on this machine, or its operator
            wire.send(LIVE)
            assert wire.answer().startswith(b"HTTP/1.1 200")
        wires[0].close()

        assert problem(refused) == (503, "too_many_connections")
        assert b"127.0.0.2 has 3 connections" in refused
        assert b"retry-after" in refused
        assert until(lambda: _gets_in(served, "127.0.0.2"), seconds_max=SECONDS_MAX)


def test_only_connections_of_trusted_proxies_are_not_counted_by_address(tmp_path: Path) -> None:
    with (
        serving(
            tmp_path / "data",
            connections_per_address=1,
            behind_proxy=True,
            trusted_proxies="127.0.0.2, 127.0.1.0/24",
        ) as served,
        ExitStack() as stack,
    ):
        for proxy in ("127.0.0.2", "127.0.1.9"):
            for _ in range(3):
                wire = stack.enter_context(closing(Wire(served, proxy)))
                wire.send(LIVE)
                assert wire.answer().startswith(b"HTTP/1.1 200")
        wire = stack.enter_context(closing(Wire(served, "127.0.0.3")))
        wire.send(LIVE)
        assert wire.answer().startswith(b"HTTP/1.1 200")
        assert not _gets_in(served, "127.0.0.3")


def _gets_in(served: Served, source: str) -> bool:
    with closing(Wire(served, source)) as wire:
        with suppress(ConnectionResetError, BrokenPipeError, AssertionError):
            wire.send(LIVE)
            return wire.answer().startswith(b"HTTP/1.1 200")
        return False


FILES_MAX = 200


def test_silent_connections_never_take_all_descriptors(tmp_path: Path) -> None:
    """The server may open 200 files, and a client holds 400 connections."""
    port = free_port()
    words = ["-m", "tidegate", "serve", "--data", str(tmp_path / "data"), "--port", str(port)]
    log = tmp_path / "stderr"
    with log.open("wb") as errors:
        server = subprocess.Popen(
            [sys.executable, *words],
            stderr=errors,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_MAX, FILES_MAX)),
        )
    try:
        assert until(lambda: speaks_http(port), seconds_max=SECONDS_MAX), log.read_text()
        with ExitStack() as stack:
            for _ in range(2 * FILES_MAX):
                silent = socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)
                stack.enter_context(closing(silent))
            url = f"http://127.0.0.1:{port}"
            answers = [
                httpx2.get(f"{url}/livez", timeout=SECONDS_MAX),
                httpx2.get(f"{url}/readyz", timeout=SECONDS_MAX),
                httpx2.post(f"{url}/v1/sessions", json={}, timeout=SECONDS_MAX),
            ]
        assert [answer.status_code for answer in answers] == [200, 200, 400]
    finally:
        server.terminate()
        server.wait(SECONDS_MAX)


def test_a_process_reads_an_endless_head_without_growing(tmp_path: Path) -> None:
    with start_server(tmp_path / "data") as server:
        before = _private_bytes(server.process.pid)
        for begin, again in ENDLESS.values():
            with (
                socket.create_connection(("127.0.0.1", server.port), SECONDS_MAX) as wire,
                suppress(ConnectionResetError, BrokenPipeError),
            ):
                wire.sendall(begin)
                for _ in range(SENT_BYTES_MAX // len(again)):
                    wire.sendall(again)

        assert _private_bytes(server.process.pid) - before < 20_000_000


def _private_bytes(pid: int) -> int:
    resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    return (int(resident) - int(shared)) * resource.getpagesize()
