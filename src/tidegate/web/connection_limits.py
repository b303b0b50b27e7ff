"""How many connections there may be, in all and from one address."""

from __future__ import annotations

import resource
from ipaddress import IPv6Address
from typing import Protocol

from tidegate.web.problems import TooManyConnections

DESCRIPTORS_RESERVED = 128  # for the log, blobs and outgoing requests; never for connections


CONNECTIONS_MAX = 200_000


CONNECTIONS_MIN = 16  # even where the process may open fewer files than it should


class Peer(Protocol):
    """One connection, as far as it is counted."""

    client: tuple[str, int] | None
    server: tuple[str, int | None] | None

    def is_idle(self) -> bool:
        """Whether it is open for a next request only."""

    def hang_up(self) -> None:
        """Close it."""


class ConnectionLimits:
    """How many connections one address has, and the whole process. On the event loop alone.

    Connections from the server's own address are not counted per address: there, they come from a
    proxy or from the operator. When the process has as many as it may have, a new connection
    replaces one that has not sent a request yet, or an idle one.
    """

    def __init__(self, per_address: int | None, at_most: int) -> None:
        self._per_address = per_address  # None: all of them come from one proxy
        self._at_most = at_most
        self._by_address: dict[str, int] = {}
        self._open: dict[Peer, str] = {}  # to the address that it counts for; empty: for none
        self._silent: dict[Peer, None] = {}  # those that never sent a whole head, oldest first
        self._rested: dict[Peer, None] = {}  # those that ended a response; they may be busy again

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, peer: Peer) -> TooManyConnections | None:
        """Count a new connection; or say why it has to be closed."""
        address = self._address(peer)
        if address:
            found = self._by_address.get(address, 0)
            if self._per_address is not None and found >= self._per_address:
                return TooManyConnections(
                    f"{address} has {found} connections, and an address may have "
                    f"{self._per_address} (the setting connections_per_address).",
                    allowed=self._per_address,
                )
        if len(self._open) >= self._at_most and not self._make_room():
            return TooManyConnections(
                f"All {self._at_most} connections of this server are in use.",
                allowed=self._at_most,
            )
        if address:
            self._by_address[address] = self._by_address.get(address, 0) + 1
        self._open[peer] = address
        self._silent[peer] = None
        return None

    def heard(self, peer: Peer) -> None:
        """It sent a whole head."""
        self._silent.pop(peer, None)

    def rested(self, peer: Peer) -> None:
        """It ended a response, and may be idle now."""
        if peer in self._open:
            self._rested[peer] = None

    def release(self, peer: Peer) -> None:
        """It is closed. One that was not admitted is not counted."""
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
        if peer.client is None or self._per_address is None:
            return ""
        address = peer.client[0]
        if peer.server is not None and peer.server[0] == address:
            return ""
        if ":" not in address:
            return address
        network = IPv6Address(address.partition("%")[0]).packed[:8]  # a client has a whole /64
        return f"{network.hex(':', 2)}::/64"

    def _make_room(self) -> bool:
        victim = next(iter(self._silent), None) or self._find_idle()
        if victim is None:
            return False
        self.release(victim)
        victim.hang_up()
        return True

    def _find_idle(self) -> Peer | None:
        """An idle connection. One that is busy is left out until it ends its next response, so
        each response is looked at once, however many connections there are.
        """
        while self._rested:
            peer = next(iter(self._rested))
            del self._rested[peer]
            if peer.is_idle():
                return peer
        return None


def connections_max() -> int:
    """What the limit on open files leaves for connections."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return min(CONNECTIONS_MAX, max(CONNECTIONS_MIN, files - DESCRIPTORS_RESERVED))


def raise_open_files() -> None:
    """Take as many descriptors as the system grants: a connection needs one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
