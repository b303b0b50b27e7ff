"""A server on raw sockets that answers every request with something a client must not swallow."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from threading import Event, Thread
from zlib import compressobj

PIECE = bytes(64 * 1024)
BODY_BYTES_MAX = 2 * 1024**3  # an endless body ends here, so that a failing test ends, too
WBITS_GZIP = 31

Send = Callable[[bytes], None]
Behaviour = Callable[[Send, Event], None]


def endless(send: Send, stopped: Event) -> None:
    """A body without a length that goes on and on."""
    send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
    for _ in range(BODY_BYTES_MAX // len(PIECE)):
        if stopped.is_set():
            return
        send(PIECE)


def announced(send: Send, stopped: Event) -> None:
    """A length of a terabyte, and a body to it."""
    send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n")
    for _ in range(BODY_BYTES_MAX // len(PIECE)):
        if stopped.is_set():
            return
        send(PIECE)


def gzip_bomb(send: Send, stopped: Event) -> None:
    """Much in little."""
    body = _bomb()
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {len(body)}\r\n\r\n"
    send(head.encode() + body)


def drip(send: Send, stopped: Event) -> None:
    """A byte now and then: no single wait is long."""
    send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
    while not stopped.wait(0.2):
        send(b"x")


def drip_head(send: Send, stopped: Event) -> None:
    """A head that never ends, a byte now and then."""
    send(b"HTTP/1.1 200 OK\r\nx-slow: ")
    while not stopped.wait(0.2):
        send(b"x")


def one_more(send: Send, stopped: Event) -> None:
    """1,001 bytes."""
    send(b"HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n" + bytes(1_001))


@cache
def _bomb() -> bytes:
    """256 MiB of zeros in 256 KiB."""
    packer = compressobj(wbits=WBITS_GZIP)
    return b"".join(packer.compress(PIECE) for _ in range(256 * 16)) + packer.flush()


@contextmanager
def serve_hostile(behaviour: Behaviour) -> Iterator[str]:
    """Serve it on loopback until the block ends; gives the address."""
    stopped = Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(64 * 1024)
            behaviour(connection.sendall, stopped)

    def accept() -> None:
        with suppress(OSError):
            while not stopped.is_set():
                connection, _ = listener.accept()
                Thread(target=answer, args=(connection,), daemon=True).start()

    Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stopped.set()
        listener.close()
