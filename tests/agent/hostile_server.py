"""A raw-socket server that answers every request with a response that a client must not accept."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from threading import Event, Thread
from zlib import compressobj

PIECE = bytes(64 * 1024)
BODY_BYTES_MAX = 2 * 1024**3  # an endless body ends here, so that a failing test ends too
WBITS_GZIP = 31

Send = Callable[[bytes], None]
Behaviour = Callable[[Send, Event], None]


def endless(send: Send, stopped: Event) -> None:
    """Send a body without a length that never ends."""
    send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
    for _ in range(BODY_BYTES_MAX // len(PIECE)):
        if stopped.is_set():
            return
        send(PIECE)


def announced(send: Send, stopped: Event) -> None:
    """Announce a body of one terabyte, and send as much as the client takes."""
    send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n")
    for _ in range(BODY_BYTES_MAX // len(PIECE)):
        if stopped.is_set():
            return
        send(PIECE)


def gzip_bomb(send: Send, stopped: Event) -> None:
    """Send a small body that unpacks to a huge one."""
    body = _bomb()
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {len(body)}\r\n\r\n"
    send(head.encode() + body)


def drip(send: Send, stopped: Event) -> None:
    """Send one byte of the body every 0.2 s, so that no single read times out."""
    send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
    while not stopped.wait(0.2):
        send(b"x")


def drip_head(send: Send, stopped: Event) -> None:
    """Send a head that never ends, one byte every 0.2 s."""
    send(b"HTTP/1.1 200 OK\r\nx-slow: ")
    while not stopped.wait(0.2):
        send(b"x")


def one_more(send: Send, stopped: Event) -> None:
    """Send 1,001 bytes: one more than the file's listed size."""
    send(b"HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n" + bytes(1_001))


@cache
def _bomb() -> bytes:
    """Compress 256 MiB of zeros to 256 KiB."""
    packer = compressobj(wbits=WBITS_GZIP)
    return b"".join(packer.compress(PIECE) for _ in range(256 * 16)) + packer.flush()


@contextmanager
def serve_hostile(behaviour: Behaviour) -> Iterator[str]:
    """Serve this behaviour on loopback until the block ends, and yield the URL."""
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
