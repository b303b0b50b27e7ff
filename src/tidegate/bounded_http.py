"""HTTP with a deadline for a whole exchange (connect, TLS, head, body, redirects) and a size limit.

httpx2 limits each wait on its own, so a server that sends a byte now and then could hold a client
forever. Here every wait ends at the deadline of the exchange.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import local
from typing import Any, Final, Protocol

import httpcore2
import httpx2

CONNECTIONS_MAX: Final = 1  # an exchange is one request after another
KEEPALIVE_SECONDS: Final = 30.0
ENCODED: Final = frozenset({"", "identity"})


class BodyTooLong(httpx2.HTTPError):
    """The body has more bytes than the reader allows."""


class BodyEncoded(httpx2.HTTPError):
    """The body is compressed although the request asked for an uncompressed one."""


class WaitLimit(Protocol):
    """Decides how long the next wait may be."""

    def left(self, timeout: float | None) -> float:
        """Return the seconds of the next wait. Raises: httpcore2.ReadTimeout: no time is left."""
        ...


class ExchangeDeadline:
    """The end of an exchange, a number of seconds from now."""

    def __init__(self, seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._monotonic = monotonic
        self._at = monotonic() + seconds

    @property
    def is_over(self) -> bool:
        return self._monotonic() >= self._at

    def left(self, timeout: float | None) -> float:
        """Return the seconds of the next wait. Raises: httpcore2.ReadTimeout: no time is left."""
        seconds = self._at - self._monotonic()
        if seconds <= 0:
            raise httpcore2.ReadTimeout("the exchange took too long")
        return seconds if timeout is None else min(seconds, timeout)


class ThreadDeadline:
    """A deadline per thread, for a client that several threads share.

    Its connections live longer than one exchange. Outside of ``within`` there is no deadline.
    """

    def __init__(self) -> None:
        self._current = local()

    @contextmanager
    def within(self, seconds: float) -> Iterator[ExchangeDeadline]:
        """End every wait of this thread at most this many seconds from now."""
        self._current.deadline = ExchangeDeadline(seconds)
        try:
            yield self._current.deadline
        finally:
            del self._current.deadline

    def left(self, timeout: float | None) -> float:
        deadline: ExchangeDeadline | None = getattr(self._current, "deadline", None)
        if deadline is None:
            assert timeout is not None, "a wait outside of an exchange has a timeout of its own"
            return timeout
        return deadline.left(timeout)


class BoundedBackend(httpcore2.NetworkBackend):
    """Opens connections on which every wait ends at the deadline."""

    def __init__(self, deadline: WaitLimit) -> None:
        self._deadline = deadline
        self._sockets = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        left = self._deadline.left(timeout)
        stream = self._sockets.connect_tcp(host, port, left, local_address, socket_options)
        return _BoundedStream(stream, self._deadline)


class BoundedTransport(httpx2.HTTPTransport):
    """httpx2's own transport over connections that our backend opens.

    httpx2 has no public parameter for a network backend, so this class replaces the pool. It can
    be deleted when httpx2 accepts one.
    """

    def __init__(
        self, backend: BoundedBackend, trust: ssl.SSLContext, connections_max: int = CONNECTIONS_MAX
    ) -> None:
        super().__init__(trust_env=False, verify=trust)
        self._pool.close()
        self._pool = httpcore2.ConnectionPool(
            ssl_context=trust,
            max_connections=connections_max,
            keepalive_expiry=KEEPALIVE_SECONDS,
            network_backend=backend,
        )


def pieces_of(response: httpx2.Response, bytes_max: int) -> Iterator[bytes]:
    """Yield the body of a streamed response as it arrives.

    Raises:
        BodyTooLong: the body has, or its header announces, more bytes.
        BodyEncoded: the body is compressed.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ENCODED:
        raise BodyEncoded(f"the body is encoded as {encoding[:40]}")
    announced = response.headers.get("content-length", "")
    if announced.isdecimal() and len(announced) < 20 and int(announced) > bytes_max:
        raise BodyTooLong(f"the body has {announced} bytes, allowed are {bytes_max}")
    size = 0
    for piece in response.iter_raw():
        size += len(piece)
        if size > bytes_max:
            raise BodyTooLong(f"the body has more than {bytes_max} bytes")
        yield piece


@cache
def trusted_roots() -> ssl.SSLContext:
    """The trusted root certificates. Loading them takes a tenth of a second, so it is done once."""
    return httpx2.create_ssl_context(trust_env=False)


class _BoundedStream(httpcore2.NetworkStream):
    def __init__(self, stream: httpcore2.NetworkStream, deadline: WaitLimit) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        left = self._deadline.left(timeout)
        secured = self._stream.start_tls(ssl_context, server_hostname, left)
        return _BoundedStream(secured, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
