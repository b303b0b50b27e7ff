"""Abusive clients: `python -m bench.abuse.attacks CASE PORT SECONDS`, the token on standard input.

Each is bounded in connections, bytes and time, connects to loopback only, and ends by itself. They
connect from 127.0.0.2, so that the server counts them apart from everyone else.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

HOST = "127.0.0.1"
SOURCE = "127.0.0.2"
SILENT = 500  # connections
DRIPPING = 50
BODIES_PER_SECOND = 15
BODY_BYTES = 220_000
NESTED_BYTES = 60_000
UPLOAD_BYTES = 33_000_000
CONNECTIONS_PER_SECOND = 10
CONNECTION_BYTES_MAX = 1_000_000_000
ANSWER_SECONDS_MAX = 60.0
UNFINISHED_BYTES_MAX = 16_000_000  # of one request; far more than the buffers of both ends hold

_CHUNKED = (
    b"POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\n"
    b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n"
)


def _connected(deadline: float) -> socket.socket:
    left = max(0.1, deadline - time.monotonic())
    return socket.create_connection((HOST, PORT[0]), timeout=left, source_address=(SOURCE, 0))


PORT = [0]  # the server's; each process makes one attack


# Requests whose head or trailers never end: the beginning, and the part that repeats.
ENDLESS: Mapping[str, tuple[bytes, bytes]] = {
    "endless headers": (b"GET /livez HTTP/1.1\r\n", b"a: b\r\n" * 1_000),
    "endless header value": (b"GET /livez HTTP/1.1\r\na: ", b"b" * 65_536),
    "endless URL": (b"GET /", b"b" * 65_536),
    "endless trailers": (_CHUNKED + b"0\r\n", b"a: b\r\n" * 1_000),
}


def is_endless_taken(name: str, port: int) -> bool:
    """Whether the server reads an endless request for as long as bytes arrive.

    The result does not depend on the server's speed, only on when it closes the connection.

    Raises:
        TimeoutError: it neither reads nor closes the connection.
    """
    begin, again = ENDLESS[name]
    with socket.create_connection((HOST, port), source_address=(SOURCE, 0)) as connection:
        connection.settimeout(ANSWER_SECONDS_MAX)
        try:
            connection.sendall(begin)
            for _ in range(UNFINISHED_BYTES_MAX // len(again)):
                connection.sendall(again)
        except ConnectionError:
            return False
    return True


def _endless(begin: bytes, again: bytes) -> Callable[[float, str], None]:
    """Send without end; open a new connection whenever the server closes one."""

    def attack(deadline: float, token: str) -> None:
        while time.monotonic() < deadline:
            with suppress(OSError), _connected(deadline) as connection:
                connection.sendall(begin)
                for _ in range(CONNECTION_BYTES_MAX // len(again)):
                    if time.monotonic() > deadline:
                        return
                    connection.sendall(again)
            time.sleep(1 / CONNECTIONS_PER_SECOND)

    return attack


def _held(count: int, drips: bool) -> Callable[[float, str], None]:
    """Hold this many connections, and replace those that the server closes."""

    def attack(deadline: float, token: str) -> None:
        held: list[socket.socket] = []
        while time.monotonic() < deadline:
            while len(held) < count and time.monotonic() < deadline:
                with suppress(OSError):
                    held.append(_connected(deadline))
                    held[-1].setblocking(False)
            alive = [connection for connection in held if _is_open(connection, drips)]
            for connection in set(held) - set(alive):
                connection.close()
            held = alive
            time.sleep(1.0)
        for connection in held:
            connection.close()

    return attack


def _is_open(connection: socket.socket, drips: bool) -> bool:
    try:
        if drips:
            connection.send(b"G")
        return connection.recv(4_096) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _bodies(deadline: float, token: str) -> None:
    """Send bodies with unknown members to a route that needs no sign-in."""
    members = ",".join(f'"m{number:06}":{number}' for number in range(BODY_BYTES // 16))
    _post(deadline, b"{%b}" % members.encode())


def _nested(deadline: float, token: str) -> None:
    """Send JSON that is nested as deep as its size allows."""
    _post(deadline, b"[" * NESTED_BYTES)


def _post(deadline: float, body: bytes) -> None:
    """Send this many requests a second, each on a new connection."""
    head = (
        f"POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    turn = time.monotonic()
    while turn < deadline:
        with suppress(OSError), _connected(deadline) as connection:
            connection.sendall(head.encode() + body)
            while connection.recv(65_536):
                pass
        turn += 1 / BODIES_PER_SECOND
        time.sleep(max(0.0, turn - time.monotonic()))


def _upload(deadline: float, token: str) -> None:
    """Send one large upload as an author; its last file is invalid, so all of it is decoded."""
    file = b'{"path":"f","base64":"' + b"QUJD" * 800 + b'"},'
    files = file * (UPLOAD_BYTES // len(file))
    body = (
        b'{"repository":"default","packageName":"web","workspaceName":"abuse","files":['
        + files
        + b'{"path":5}]}'
    )
    head = (
        f"POST /v1/revisions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {token}\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    with _connected(time.monotonic() + ANSWER_SECONDS_MAX) as connection:
        connection.sendall(head.encode() + body)
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 400 "), answer[:200]
    time.sleep(max(0.0, deadline - time.monotonic()))


ATTACKS: Mapping[str, Callable[[float, str], None]] = {
    **{name: _endless(*parts) for name, parts in ENDLESS.items()},
    "silent connections": _held(SILENT, drips=False),
    "one byte per second": _held(DRIPPING, drips=True),
    "bodies of unknown members": _bodies,
    "nested JSON": _nested,
    "one faulty upload": _upload,
}


def main() -> None:
    name, port, seconds = sys.argv[1:]
    PORT[0] = int(port)
    ATTACKS[name](time.monotonic() + float(seconds), sys.stdin.readline().strip())


if __name__ == "__main__":
    main()
