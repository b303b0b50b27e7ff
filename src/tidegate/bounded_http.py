"""HTTP with one end for a whole exchange: connect, TLS, head and body, redirects too.

httpx2 bounds each wait on its own, so a place that sends a byte now and then could be listened to
for ever. Here every wait is told how much is left of all of them together.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import httpcore2
import httpx2

CONNECTIONS_MAX: Final = 1  # an exchange is one request after another


class ExchangeDeadline:
    """The end of an exchange, so many seconds from now."""

    def __init__(self, seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._monotonic = monotonic
        self._at = monotonic() + seconds

    @property
    def is_over(self) -> bool:
        return self._monotonic() >= self._at

    def left(self, timeout: float | None) -> float:
        """How long one wait may be. Raises: httpcore2.ReadTimeout: no longer at all."""
        seconds = self._at - self._monotonic()
        if seconds <= 0:
            raise httpcore2.ReadTimeout("the exchange took too long")
        return seconds if timeout is None else min(seconds, timeout)


class BoundedBackend(httpcore2.NetworkBackend):
    """Opens connections whose every wait ends at the deadline."""

    def __init__(self, deadline: ExchangeDeadline) -> None:
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
    """httpx2's own transport, over connections that a backend of ours opens.

    It offers no public place for a network backend, so its pool is replaced; an httpx2 that takes
    one would make this class unnecessary.
    """

    def __init__(self, backend: BoundedBackend, trust: ssl.SSLContext) -> None:
        super().__init__(trust_env=False, verify=trust)
        self._pool.close()
        self._pool = httpcore2.ConnectionPool(
            ssl_context=trust, max_connections=CONNECTIONS_MAX, network_backend=backend
        )


class _BoundedStream(httpcore2.NetworkStream):
    def __init__(self, stream: httpcore2.NetworkStream, deadline: ExchangeDeadline) -> None:
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
