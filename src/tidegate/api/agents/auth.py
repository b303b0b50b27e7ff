"""Authenticates agents: checks the protocol, MAC, time and key of each request.

    Tidegate-Protocol: 2
    Authorization: Tidegate <session> <unix time> <MAC in hex>

There is no table of requests: a replayed report is recognized by its number, a replayed poll only
reads, and a replayed heartbeat is older than the newest one. Every request checks whether the
host's key was revoked. The result is cached until some key of this installation ends, and only
where no other server writes to the log.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Any, Final

from tidegate.clock import Clock
from tidegate.control.fleet import agent_sessions, request_macs
from tidegate.control.fleet.enrollment import Enrollment
from tidegate.domain.access.principals import Principal
from tidegate.domain.fleet.refusals import HostGone, HostNotFound, KeyRevoked
from tidegate.domain.hosts import protocol
from tidegate.errors import InvalidInput
from tidegate.web import problems, routing

SERVED: Final = frozenset({protocol.PROTOCOL})  # after a release: this version and the one before
PREFIX: Final = "host_"
SESSIONS_MAX: Final = 20_000  # sessions whose keys are cached; with more, the cache is emptied

_HEADER: Final = protocol.PROTOCOL_HEADER.lower().encode()
_SCHEME: Final = b"tidegate"


class SessionExpired(problems.Unauthenticated):
    """The session has expired; open a new one with your key."""

    code = "session_expired"


class BadMac(problems.Unauthenticated):
    """The MAC does not match this request and its session."""

    code = "bad_mac"


class KeyRefused(problems.Unauthenticated):
    """The host's key is not valid any more: it was revoked, or the host was retired."""

    code = "key_refused"


class SkewRefused(problems.Unauthenticated):
    """The request's time is too far from the server's; set the host's clock."""

    code = "time_refused"


class _Session(request_macs.RequestMacs):
    """A session that a request named, and the MACs of its requests."""

    __slots__ = ("named", "principal", "standing")

    def __init__(self, named: agent_sessions.AgentSession, key: bytes) -> None:
        super().__init__(key)
        self.named = named
        self.principal = Principal(PREFIX + named.host_id, "agent")
        # The authenticator's token from when the host's key was last found valid.
        self.standing: object = None


class AgentAuthenticator:
    """Finds the host that sent a request.

    ``key_listeners`` are called when a commit of this process ends a key. If the log is local, only
    this process writes to it, so a valid key can be cached.
    """

    def __init__(
        self,
        clock: Clock,
        enrollment: Enrollment,
        key_listeners: list[Callable[[], None]],
        *,
        is_local: bool,
    ) -> None:
        self._clock = clock
        self._enrollment = enrollment
        self._is_local = is_local
        self._standing = object()
        key_listeners.append(self._forget)
        # Parsed session names; says nothing about their validity.
        self._sessions: dict[bytes, _Session] = {}

    def __call__(self, _route: routing.Route, arrived: routing.RawRequest) -> Principal:
        """Authenticate a request. Raises: Unauthenticated, UnsupportedProtocol, InvalidInput."""
        check_protocol(arrived.headers)
        parts = arrived.headers.get(b"authorization", b"").split(b" ")
        if len(parts) != 4 or parts[0].lower() != _SCHEME or not _is_time(parts[2]):
            raise problems.Unauthenticated(
                "send Authorization: Tidegate <session> <unix time> <mac>, as an agent does"
            )
        _, name, time, mac = parts
        return self._authenticate(arrived, name, time, mac)

    def _authenticate(
        self, arrived: routing.RawRequest, name: bytes, time: bytes, mac: bytes
    ) -> Principal:
        """Check the MAC of a request with a supported protocol.

        Raises:
            Unauthenticated.
        """
        known = self._sessions.get(name) or self._session(name)
        message = protocol.request_message(
            arrived.method, arrived.path, arrived.query, arrived.body, time
        )
        if not hmac.compare_digest(known.mac(message).hex().encode(), mac):
            raise BadMac("the MAC does not fit the request")
        session = known.named
        now = self._clock()
        seconds = now.timestamp()
        if seconds >= session.expires:
            self._sessions.pop(name, None)
            raise SessionExpired("the session is over; open a new one")
        if name not in self._sessions:
            self._remember(name, known)
        try:
            if abs(seconds - int(time)) > protocol.SKEW_SECONDS_MAX:
                agent_sessions.check_skew(int(time), now)
            if known.standing is not self._standing:
                self._demand_valid(known)
        except agent_sessions.ClockSkewed as skewed:
            raise SkewRefused(skewed.detail, **skewed.facts) from None
        except (HostNotFound, HostGone, KeyRevoked) as refused:
            raise KeyRefused(refused.detail, host_id=session.host_id) from None
        return known.principal

    def _remember(self, name: bytes, known: _Session) -> None:
        if len(self._sessions) >= SESSIONS_MAX:
            self._sessions.clear()
        self._sessions[name] = known

    def _demand_valid(self, known: _Session) -> None:
        """Check that the host's key is still valid. Raises: HostNotFound, HostGone, KeyRevoked."""
        standing = self._standing  # read first, so that a later change is not missed
        self._enrollment.demand_valid(known.named.host_id, known.named.public_key)
        if self._is_local:
            known.standing = standing

    def _forget(self) -> None:
        """Forget which keys are valid, because one ended. Called from any thread."""
        self._standing = object()

    def _session(self, name: bytes) -> _Session:
        """Parse the name of a session and derive its key. Raises: Unauthenticated."""
        session = agent_sessions.parse_session(name.decode("latin-1"))
        if session is None:
            raise problems.Unauthenticated("the session is none that this server opened")
        return _Session(session, self._enrollment.session_key(str(session)))


def host_of(request: routing.Request[Any, Any, Any]) -> str:
    """The host whose agent sent the request."""
    return request.principal.id.removeprefix(PREFIX)


def time_of(request: routing.Request[Any, Any, Any]) -> int:
    """When the agent sent the request, in Unix time by its own clock; the MAC covers it."""
    return int(request.arrived.headers[b"authorization"].split(b" ")[2])


def check_protocol(headers: Mapping[bytes, bytes]) -> None:
    """Check the protocol. Raises: InvalidInput: missing or not a number. UnsupportedProtocol."""
    version = headers.get(_HEADER, b"")
    if not (version.isdigit() and len(version) <= 9):
        raise InvalidInput(
            f"say {protocol.PROTOCOL_HEADER}: {protocol.PROTOCOL}; found {version[:40]!r}",
            field=protocol.PROTOCOL_HEADER,
        )
    if int(version) not in SERVED:
        raise problems.UnsupportedProtocol(
            f"protocol {int(version)} is not served here",
            found=int(version),
            allowed=protocol.PROTOCOL,
        )


def _is_time(text: bytes) -> bool:
    return text.isdigit() and len(text) <= 12
