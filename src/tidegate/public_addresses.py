"""Which addresses a webhook or a reference may reach: public ones, and those allowed by name.

    https://hooks.example.com/x ──▶ parse strictly
                                ──▶ resolve once, check every address in the result
                                ──▶ connect to one of those, never resolve the name again

A webhook must not give its author access to what only this machine can reach: loopback, private
networks, the cloud's metadata service. An operator can allow an exact ``host:port``. Only then do
plain HTTP and other ports work for a webhook. References (``agent/references``) are verified by
their hash, so plain HTTP is fine for them. They follow the same rule on addresses.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Collection
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from tidegate.errors import Invalid

URL_CHARS_MAX = 2_048
ADDRESSES_MAX = 64
HTTPS_PORT: Final = 443

_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9-]{1,63})*")
_NUMBERS = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+))*")
_NAT64 = ip_network("64:ff9b::/96")
# Networks that some versions of the standard library call public although they are not, or that
# are public by number only: protocol assignments, relays, discard, local translation, site-local,
# and the address that a cloud uses for its own services.
_CLOSED = tuple(
    map(
        ip_network,
        (
            *("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32"),
            *("100::/64", "2001::/23", "64:ff9b:1::/48", "fec0::/10", "5f00::/16"),
        ),
    )
)

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Collection[str]]


class DestinationRefused(Invalid):
    """A webhook needs https and a public address, or a host and port that are allowed by name."""

    code = "destination_refused"


class Destination(Struct, frozen=True):
    """A URL that was parsed strictly."""

    scheme: str
    host: str
    port: int
    target: str  # path and query
    allowed: bool  # its host and port are allowed by name, so its addresses may be private

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.target}"


def parse_destination(url: str, allowed: Collection[str] = ()) -> Destination:
    """Parse the URL of a webhook. Its addresses are not checked here.

    Raises:
        DestinationRefused: two parsers could read the URL differently, or it is not https on port
            443 and not allowed by name.
    """
    if len(url) > URL_CHARS_MAX or not url.isascii() or not url.isprintable():
        raise DestinationRefused("a webhook's URL is short, printable ASCII")
    if any(char in url for char in ' \\"<>^`{|}#'):
        raise DestinationRefused("a webhook's URL holds a character that parsers read differently")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise DestinationRefused("a webhook's URL has no valid host and port") from None
    if parts.scheme not in ("https", "http") or not parts.netloc:
        raise DestinationRefused("a webhook's URL begins with https://")
    if "@" in parts.netloc:
        raise DestinationRefused("a webhook's URL holds no user or password")
    host = _host(parts.hostname or "", parts.netloc)
    port = port if port is not None else HTTPS_PORT if parts.scheme == "https" else 80
    is_allowed = f"{host}:{port}" in allowed
    if not is_allowed and (parts.scheme != "https" or port != HTTPS_PORT):
        raise DestinationRefused(
            f"only https on port {HTTPS_PORT}, unless {host}:{port} is allowed",
            allow=f"{host}:{port}",
        )
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Destination(parts.scheme, host, port, target, is_allowed)


def _host(host: str, netloc: str) -> str:
    if netloc.startswith("["):
        try:
            if "%" in host:
                raise ValueError(host)
            return str(IPv6Address(host))
        except ValueError:
            raise DestinationRefused("a webhook's host is not an IPv6 address") from None
    if _NUMBERS.fullmatch(host):
        # Some resolver reads each of 2130706433, 0x7f.1 and 0177.0.0.1 as 127.0.0.1.
        try:
            return str(IPv4Address(host))
        except ValueError:
            raise DestinationRefused("a webhook's host is a number, not an address") from None
    if not _HOST.fullmatch(host) or _NUMBERS.fullmatch(host.rpartition(".")[2]):
        raise DestinationRefused("a webhook's host is not a host name")
    return host


def resolve_destination(found: Destination, resolve: Resolve) -> tuple[str, ...]:
    """Resolve a destination, and check every address.

    Raises:
        DestinationRefused: one of them is not public, and the destination is not allowed by name.
        OSError: the name has no address now.
    """
    texts = tuple(dict.fromkeys(resolve(found.host, found.port)))[:ADDRESSES_MAX]
    if not texts:
        raise OSError("the name has no address")
    for text in texts:
        if not found.allowed and not is_public(text):
            raise DestinationRefused(
                f"{found.host} leads to an address that is not public",
                allow=f"{found.host}:{found.port}",
            )
    return texts


def is_public(text: str) -> bool:
    """Whether the address is reachable from the public internet. False for invalid text."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return all(map(_is_public, (address, *_inside(address))))


def _is_public(address: Address) -> bool:
    special = (
        address.is_multicast
        or address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_reserved
        or address.is_unspecified
    )
    closed = any(address in network for network in _CLOSED)
    return address.is_global and not special and not closed


def _inside(address: Address) -> tuple[Address, ...]:
    """The IPv4 addresses embedded in an IPv6 address, which a gateway could connect to."""
    if isinstance(address, IPv4Address):
        return ()
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        found.append(IPv4Address(int(address) & 0xFFFF_FFFF))
    if int(address) >> 32 == 0:
        found.append(IPv4Address(int(address)))  # the old "compatible" form
    return tuple(item for item in found if item is not None)


def system_resolve(host: str, port: int) -> tuple[str, ...]:
    """Resolve the name with the system's resolver. Raises: OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(str(address[0]) for *_, address in found)
