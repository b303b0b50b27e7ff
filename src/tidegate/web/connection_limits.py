"""Limits on the number of connections, in total and per address."""

from __future__ import annotations

import resource
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Protocol

from tidegate.web.problems import TooManyConnections

DESCRIPTORS_RESERVED = 128  # for the log, blobs and outgoing requests; never for connections
CONNECTIONS_MAX = 200_000
CONNECTIONS_MIN = 16  # even where the limit on open files is too low


class Peer(Protocol):
    """One connection, as the limits see it."""

    client: tuple[str, int] | None
    server: tuple[str, int | None] | None

    def is_idle(self) -> bool:
        """Whether the connection only waits for a next request."""

    def hang_up(self) -> None:
        """Close the connection."""


class ConnectionLimits:
    """Counts the connections of each address and of the process. Used on the event loop only.

    Connections of a trusted proxy are not counted per address: it brings many clients. Those from
    the server's own address are not either. At the limit of the process, a new connection replaces
    one that has not sent a request yet, or an idle one.
    """

    def __init__(
        self, per_address: int, at_most: int, proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    ) -> None:
        self._per_address = per_address
        self._at_most = at_most
        self._proxies = proxies
        self._by_address: dict[str, int] = {}
        self._open: dict[Peer, str] = {}  # the address that each counts for; empty: none
        # Connections that never sent a whole head, oldest first.
        self._silent: dict[Peer, None] = {}
        # Connections that completed a response; they may be busy again.
        self._rested: dict[Peer, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, peer: Peer) -> TooManyConnections | None:
        """Count a new connection, or return the error to close it with."""
        address = self._address(peer)
        if address:
            found = self._by_address.get(address, 0)
            if found >= self._per_address:
                return TooManyConnections(
                    f"{address} has {found} connections, and an address may have "
                    f"{self._per_address} (the setting connections_per_address).",
                    allowed=self._per_address,
                )
        if len(self._open) >= self._at_most and not self._make_room():
            return TooManyConnections(
                f"All {self._at_most} connections of this server are in use.", allowed=self._at_most
            )
        if address:
            self._by_address[address] = self._by_address.get(address, 0) + 1
        self._open[peer] = address
        self._silent[peer] = None
        return None

    def heard(self, peer: Peer) -> None:
        """Note that a connection sent a whole head."""
        self._silent.pop(peer, None)

    def rested(self, peer: Peer) -> None:
        """Note that a connection completed a response and may be idle now."""
        if peer in self._open:
            self._rested[peer] = None

    def release(self, peer: Peer) -> None:
        """Forget a closed connection. One that was not admitted was never counted."""
        self._silent.pop(peer, None)
        self._rested.pop(peer, None)
        address = self._open.pop(peer, "")
        if address:
            left = self._by_address[address] - 1
            if left:
                self._by_address[address] = left
            else:
                del self._by_address[address]

    def _address(self, peer: Peer) -> str:
        if peer.client is None:
            return ""
        address = peer.client[0]
        if peer.server is not None and peer.server[0] == address:
            return ""
        parsed = ip_address(address.partition("%")[0])
        if any(parsed in network for network in self._proxies):
            return ""
        if not isinstance(parsed, IPv6Address):
            return address
        return f"{parsed.packed[:8].hex(':', 2)}::/64"  # a client usually has a whole /64

    def _make_room(self) -> bool:
        victim = next(iter(self._silent), None) or self._find_idle()
        if victim is None:
            return False
        self.release(victim)
        victim.hang_up()
        return True

    def _find_idle(self) -> Peer | None:
        """Find an idle connection. A busy one is removed from the list until its next response
        ends, so each response is checked once, however many connections there are.
        """
        while self._rested:
            peer = next(iter(self._rested))
            del self._rested[peer]
            if peer.is_idle():
                return peer
        return None


def connections_max() -> int:
    """How many connections the limit on open files allows."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return min(CONNECTIONS_MAX, max(CONNECTIONS_MIN, files - DESCRIPTORS_RESERVED))


def raise_open_files() -> None:
    """Raise the limit on open files as far as the system allows: each connection needs one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
