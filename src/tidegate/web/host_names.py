"""The names of this server that the Host and Origin of a request may have.

Another site can point a name of its own at this server's address (DNS rebinding). Its requests
then carry that name, so a name that is not ours is refused. The port is ignored, because proxies
and published ports change it.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from tidegate.config import Settings
from tidegate.web.problems import MisdirectedRequest

SHOWN_CHARS_MAX = 80
REMEMBERED_MAX = 64  # accepted Host headers that are cached
DEFAULT_PORTS = {"http": 80, "https": 443}


class HostNames:
    """Our names: the host of ``public_url``, the listening address, loopback, ``host_names``."""

    def __init__(self, settings: Settings) -> None:
        given = (settings.host, *settings.host_names.split(","))
        names = [_host_of(name.strip()) for name in given]
        if settings.public_url:
            names.append(_host_of(urlsplit(settings.public_url).netloc))
        self._names = frozenset(name for name in names if name)
        self._accepted: set[tuple[bytes, str]] = set()

    def check(self, host: bytes | None, local_address: str) -> None:
        """Check the Host of a request that arrived at ``local_address``.

        A request without Host passes: browsers always send one, some health checks do not.

        Raises:
            MisdirectedRequest.
        """
        if host is None or (host, local_address) in self._accepted:
            return
        name = _host_of(host.decode("latin-1"))
        if not (name in self._names or name == local_address or _is_loopback(name)):
            raise MisdirectedRequest(
                f"This server is not known as {name[:SHOWN_CHARS_MAX]!r}. Set public_url to the"
                " address that clients use, or list the name in host_names."
            )
        if len(self._accepted) < REMEMBERED_MAX:
            self._accepted.add((host, local_address))


def canonical_origin(origin: str) -> str:
    """An origin as browsers write it: in lower case, without the default port."""
    parts = urlsplit(origin.lower())
    usual = f":{DEFAULT_PORTS.get(parts.scheme)}"
    return f"{parts.scheme}://{parts.netloc.removesuffix(usual)}"


def _host_of(authority: str) -> str:
    """The host of ``host:port``, in lower case; an IPv6 address has no brackets."""
    text = authority.lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text if text.count(":") > 1 else text.partition(":")[0].removesuffix(".")


def _is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
