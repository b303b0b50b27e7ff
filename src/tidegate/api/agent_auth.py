"""Whether a request comes from the agent that it names: its protocol, its MAC, its time, its key.

    Tidegate-Protocol: 1
    Authorization: Tidegate <session> <unix time> <MAC in hex>

A replayed report is a repeat by its number, a replayed poll is a read: so there is no table of
requests. A key that was revoked is found out here, with every request.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any, Final

from tidegate.api.problems import Unauthenticated, UnsupportedProtocol
from tidegate.api.routing import Arrived, Principal, Request, Route
from tidegate.control.enrollment import ClockSkewed, Enrollment, check_skew, parsed
from tidegate.control.installation import Installation
from tidegate.domain.fleet.credentials import KeyRevoked
from tidegate.domain.fleet.refusals import HostGone, HostNotFound
from tidegate.domain.hosts.protocol import PROTOCOL, PROTOCOL_HEADER, request_mac
from tidegate.errors import InvalidInput

SERVED: Final = frozenset({PROTOCOL})  # with the second version: this one and the one before
PREFIX: Final = "host_"

_HEADER: Final = PROTOCOL_HEADER.lower().encode()
_SCHEME: Final = b"tidegate"


class SessionExpired(Unauthenticated):
    """The session is over; open a new one with your key."""

    code = "session_expired"


class BadMac(Unauthenticated):
    """The MAC is not the one of this request under its session."""

    code = "bad_mac"


class KeyRefused(Unauthenticated):
    """The host's key opens nothing any more: it was revoked, or the host retired."""

    code = "key_refused"


class SkewRefused(Unauthenticated):
    """The request's time is too far from the server's; set the host's clock."""

    code = "time_refused"


class AgentDoor:
    """Tells which host asks. ``Application(…, agents=AgentDoor(installation))``."""

    def __init__(self, installation: Installation) -> None:
        self._clock = installation.clock
        self._enrollment = Enrollment(installation)

    def __call__(self, _route: Route, arrived: Arrived) -> Principal:
        """Raises: Unauthenticated, UnsupportedProtocol, InvalidInput."""
        check_protocol(arrived.headers)
        parts = arrived.headers.get(b"authorization", b"").split(b" ")
        if len(parts) != 4 or parts[0].lower() != _SCHEME or not _is_time(parts[2]):
            raise Unauthenticated(
                "send Authorization: Tidegate <session> <unix time> <mac>, as an agent does"
            )
        _, name, time, mac = parts
        session = parsed(name.decode("latin-1"))
        if session is None:
            raise Unauthenticated("the session is none that this server opened")
        key = self._enrollment.session_key(str(session))
        expected = request_mac(key, arrived.method, arrived.path, arrived.query, arrived.body, time)
        if not hmac.compare_digest(expected, mac):
            raise BadMac("the MAC does not fit the request")
        now = self._clock()
        if now.timestamp() >= session.expires:
            raise SessionExpired("the session is over; open a new one")
        try:
            check_skew(int(time), now)
            self._enrollment.demand_valid(session.host_id, session.public_key)
        except ClockSkewed as skewed:
            raise SkewRefused(skewed.detail, **skewed.facts) from None
        except (HostNotFound, HostGone, KeyRevoked) as refused:
            raise KeyRefused(refused.detail, host_id=session.host_id) from None
        return Principal(PREFIX + session.host_id, "agent")


def host_of(request: Request[Any, Any, Any]) -> str:
    """The host whose agent asks."""
    return request.principal.id.removeprefix(PREFIX)


def check_protocol(headers: Mapping[bytes, bytes]) -> None:
    """Raises: InvalidInput: it is not said, or no number. UnsupportedProtocol: another one."""
    said = headers.get(_HEADER, b"")
    if not (said.isdigit() and len(said) <= 9):
        raise InvalidInput(
            f"say {PROTOCOL_HEADER}: {PROTOCOL}; found {said[:40]!r}", field=PROTOCOL_HEADER
        )
    if int(said) not in SERVED:
        raise UnsupportedProtocol(
            f"protocol {int(said)} is not served here", found=int(said), allowed=PROTOCOL
        )


def _is_time(text: bytes) -> bool:
    return text.isdigit() and len(text) <= 12
