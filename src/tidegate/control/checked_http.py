"""HTTP requests to checked addresses, with limits on time and size.

Redirects are not followed, cookies are not kept, and proxies of the environment are not used. The
whole exchange has one deadline, even if the response arrives slowly.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import httpcore2
import httpx2

from tidegate import bounded_http, public_addresses

TIMEOUT_SECONDS = 10.0
ANSWER_BYTES_MAX = 64 * 1024

Monotonic = Callable[[], float]


class CheckedClient:
    """An HTTP client for one URL. ``allowed``: exact ``host:port`` texts that may be private.

    Raises:
        DestinationRefused: the URL may not be a webhook's.
    """

    def __init__(
        self,
        url: str,
        *,
        allowed: Collection[str] = (),
        timeout_seconds: float = TIMEOUT_SECONDS,
        monotonic: Monotonic = time.monotonic,
        resolve: public_addresses.Resolve = public_addresses.system_resolve,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._destination = public_addresses.parse_destination(url, allowed)
        self._timeout_seconds = timeout_seconds
        self._monotonic = monotonic
        self._resolve = resolve
        self._trust = trust

    def exchange(self, method: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Send a request; return the status and the beginning of the response.

        Raises:
            DestinationRefused, OSError, httpx2.HTTPError.
        """
        addresses = public_addresses.resolve_destination(self._destination, self._resolve)
        deadline = bounded_http.ExchangeDeadline(self._timeout_seconds, self._monotonic)
        trust = self._trust or bounded_http.trusted_roots()
        with (
            httpx2.Client(
                transport=bounded_http.BoundedTransport(
                    _CheckedBackend(addresses, deadline), trust
                ),
                follow_redirects=False,
                trust_env=False,
                timeout=self._timeout_seconds,
            ) as client,
            client.stream(
                method, self._destination.url, headers=dict(headers), content=body
            ) as response,
        ):
            return response.status_code, _beginning(response)


def _beginning(response: httpx2.Response) -> bytes:
    """Read the beginning of the response; the rest is not read."""
    answer = b""
    for chunk in response.iter_raw():
        answer += chunk
        if len(answer) > ANSWER_BYTES_MAX:
            break
    return answer[:ANSWER_BYTES_MAX]


class _CheckedBackend(bounded_http.BoundedBackend):
    """Connects to the checked addresses, whatever host name is requested."""

    def __init__(self, addresses: tuple[str, ...], deadline: bounded_http.ExchangeDeadline) -> None:
        super().__init__(deadline)
        self._addresses = addresses

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        del host  # its addresses were already resolved and checked
        failure: httpcore2.ConnectError | httpcore2.ConnectTimeout | None = None
        for address in self._addresses:
            try:
                return super().connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        assert failure is not None, "there was no address to try"
        raise failure
