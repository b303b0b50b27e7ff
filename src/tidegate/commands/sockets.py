"""Binds the sockets of a server, before it prints its address."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, start_http_server

from tidegate import config, errors

LOOPBACK: Final = "127.0.0.1"
_WHY: Final = {
    errno.EADDRINUSE: "is taken by another process; stop that one, or choose another port",
    errno.EACCES: "is not for this user; choose a port from 1024 on",
    errno.EADDRNOTAVAIL: "cannot be used: the host is no address of this machine; choose another",
}


class AddressUnusable(errors.Unavailable):
    """The server cannot listen on this port: it is taken, or not permitted."""

    code = "address_unusable"

    def __init__(
        self,
        host: str,
        port: int,
        why: str,
        settings: str = "--host and --port, or TIDEGATE_HOST and TIDEGATE_PORT",
    ) -> None:
        message = f"port {port} on {host} {why}: {settings}"
        super().__init__(message, host=host, port=port)


@contextmanager
def serve_worker_metrics(settings: config.Settings, registry: CollectorRegistry) -> Iterator[None]:
    """If a port is set, serve the metrics of a worker on loopback inside the block.

    Raises:
        AddressUnusable.
    """
    port = settings.worker_metrics_port
    if not port:
        yield
        return
    try:
        server, thread = start_http_server(port, LOOPBACK, registry)
    except OSError as error:
        why = _WHY.get(error.errno or 0, f"cannot be used ({error.strerror}); choose another")
        raise AddressUnusable(LOOPBACK, port, why, "the setting worker_metrics_port") from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def bind_sockets(settings: config.Settings) -> Iterator[list[socket.socket]]:
    """Bind a socket for each address of the host, and close them after the block.

    Raises:
        AddressUnusable: one of them cannot be bound.
    """
    host, port = settings.host, settings.port
    with ExitStack() as stack:
        sockets: list[socket.socket] = []
        try:
            for family, *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                sockets.append(stack.enter_context(_bind(family, address)))
        except OSError as error:
            why = _WHY.get(error.errno or 0, f"cannot be used ({error.strerror}); choose another")
            raise AddressUnusable(host, port, why) from None
        yield sockets


def _bind(family: int, address: object) -> socket.socket:
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        found.bind(address)  # type: ignore[arg-type]
    except OSError:
        found.close()
        raise
    return found
