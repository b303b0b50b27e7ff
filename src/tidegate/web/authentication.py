"""Authentication by session cookie or API token, and authorization by verb and scope.

A write from a browser must also prove that it comes from our own pages, by CSRF token,
Sec-Fetch-Site and Origin. A token is accepted in the Authorization header only, never in a URL.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Iterable
from functools import partial
from http.cookies import CookieError, SimpleCookie
from time import monotonic
from typing import Any, Protocol
from urllib.parse import urlsplit

from tidegate import config, rate_limits
from tidegate.domain.access import erasable_rows, principals, rows
from tidegate.kernel.model import Event
from tidegate.web import decoding, host_names, problems, routing

COOKIE_BYTES_MAX = 4_096
CHECK_SECONDS = 60.0  # between two checks of the credentials of an open stream
SECURITY = "security"  # the kind of events about access


class SignInCredentials(Protocol):
    """Finds the user of a session or API token. ``Accounts`` implements it."""

    @property
    def is_set_up(self) -> bool:
        """Whether any account exists."""

    def principal_of_token(self, text: str, /) -> principals.Principal | None:
        """The owner of an API token, if it is valid now."""

    def principal_of_session(self, cookie: str, /) -> principals.Principal | None:
        """The owner of a session cookie, if it is valid now."""

    def is_still_authenticated(
        self, user_id: str, session: str, token_id: str, /
    ) -> rows.User | None:
        """The user again, if the session or token of this principal is still valid."""


class AgentProof(Protocol):
    """Finds the host that sent a request by its MAC. Raises: Unauthenticated."""

    def __call__(
        self, route: routing.Route, arrived: routing.RawRequest, /
    ) -> principals.Principal: ...


class Authenticator:
    """Authenticates requests and limits their rate. ``agents`` verifies the MACs of hosts."""

    def __init__(
        self,
        credentials: SignInCredentials,
        settings: config.Settings,
        agents: AgentProof | None = None,
    ) -> None:
        self._credentials = credentials
        self._settings = settings
        self._agents = agents
        self._reads = _bucket("reads per second", settings.reads_per_second)
        self._writes = _bucket("writes per second", settings.writes_per_second)
        self._hosts = _bucket("requests of a host per second", settings.agent_requests_per_second)
        self._urgent = _bucket("urgent writes per second", settings.writes_per_second)

    def principal(self, route: routing.Route, arrived: routing.RawRequest) -> principals.Principal:
        """Authenticate a request. Raises: Unauthenticated, CrossSite, RateLimited."""
        if route.permission is routing.PublicAccess.AGENT:
            if self._agents is None:
                raise problems.Unauthenticated("this server does not accept agents")
            host = self._agents(route, arrived)
            # After the proof, so that nobody can use up another host's limit.
            self._hosts.take(host.id)
            return host
        found = self._credential_owner(arrived)
        if found is None:
            if route.permission is not routing.PublicAccess.PUBLIC:
                raise problems.Unauthenticated(
                    "the request has no valid session and no valid API token"
                )
            self._take(route, f"address {arrived.address}")
            return principals.NOBODY
        if found.session and route.is_write:
            check_origin(arrived, self._settings)
        self._take(route, found.id)
        return found

    def give_back(self, host: principals.Principal) -> None:
        """Undo the count of an agent's request, because it will be authenticated again."""
        self._hosts.give_back(host.id)

    def _take(self, route: routing.Route, who: str) -> None:
        bucket = self._writes if route.is_write else self._reads
        (self._urgent if route.urgent else bucket).take(who)

    def _credential_owner(self, arrived: routing.RawRequest) -> principals.Principal | None:
        authorization = arrived.headers.get(b"authorization")
        if authorization is not None:
            scheme, _, text = authorization.decode("latin-1").partition(" ")
            is_bearer = scheme.lower() == "bearer"
            found = self._credentials.principal_of_token(text.strip()) if is_bearer else None
            if found is None:
                raise problems.Unauthenticated("the API token is unknown, expired or revoked")
            return found
        cookie = cookie_of(arrived, self._settings)
        return None if cookie is None else self._credentials.principal_of_session(cookie)


def check_origin(arrived: routing.RawRequest, settings: config.Settings) -> None:
    """Check that a browser's write comes from our own pages. Raises: CrossSite."""
    headers = arrived.headers
    if headers.get(b"sec-fetch-site", b"none") not in (b"same-origin", b"none"):
        raise problems.CrossSite("the request comes from another site")
    origin = headers.get(b"origin")
    if origin == b"null" and headers.get(b"sec-fetch-site") == b"same-origin":
        return  # pages without a referrer hide the origin of their forms; Sec-Fetch-Site is enough
    if origin is not None:
        if settings.public_url:
            found = host_names.canonical_origin(origin.decode("latin-1"))
            is_ours = found == host_names.canonical_origin(settings.public_url)
        else:  # ignore the scheme: a proxy may terminate TLS
            is_ours = urlsplit(origin).netloc.lower() == headers.get(b"host", b"").lower()
        if not is_ours:
            raise problems.CrossSite("the request comes from another origin")


def check_csrf(
    route: routing.Route, arrived: routing.RawRequest, principal: principals.Principal
) -> None:
    """Check that a browser's write carries its session's CSRF token, as a header or field.

    Raises:
        CrossSite.
    """
    if not (principal.session and route.is_write):
        return
    sent = arrived.headers.get(b"x-csrf-token", b"")
    if not sent and route.content is routing.Consumes.FORM:
        sent = decoding.form_token(arrived.body)
    if not hmac.compare_digest(sent, principal.csrf.encode()):
        raise problems.CrossSite(
            "send the session's CSRF token: X-CSRF-Token, or csrf_token in a form"
        )


class CredentialWatch:
    """Checks whether the session, token or roles that opened a stream are still valid.

    It checks when an event is about the user, and once a minute, because sessions and tokens also
    expire without an event.
    """

    def __init__(self, credentials: SignInCredentials, principal: principals.Principal) -> None:
        self._credentials = credentials
        self._principal = principal
        self._checked_at = monotonic()

    async def holds(self, events: Iterable[Event]) -> bool:
        """Whether the stream may continue after these events."""
        principal = self._principal
        tag = f"user_id:{principal.id}"
        due = monotonic() - self._checked_at > CHECK_SECONDS
        if not due and not any(item.kind == SECURITY and tag in item.tags for item in events):
            return True
        self._checked_at = monotonic()
        still = self._credentials.is_still_authenticated
        read = partial(still, principal.id, principal.session, principal.token_id)
        user = await asyncio.get_running_loop().run_in_executor(None, read)
        return user is not None and user.grants == principal.grants


# ── cookies ───────────────────────────────────────────────────────────────────────────────────────


def cookie_name(settings: config.Settings) -> str:
    return "__Host-tidegate" if settings.is_secure else "tidegate_session"


def cookie_of(arrived: routing.RawRequest, settings: config.Settings) -> str | None:
    header = arrived.headers.get(b"cookie", b"")
    if not header or len(header) > COOKIE_BYTES_MAX:
        return None
    try:
        found = SimpleCookie(header.decode("latin-1")).get(cookie_name(settings))
    except CookieError:
        return None
    return None if found is None else found.value


def set_cookie(value: str, settings: config.Settings) -> str:
    """The Set-Cookie header of a session; an empty value deletes the cookie."""
    secure = "; Secure" if settings.is_secure else ""
    age = int(erasable_rows.SESSION_LIFE.total_seconds()) if value else 0
    name = cookie_name(settings)
    return f"{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}"


# ── permissions ───────────────────────────────────────────────────────────────────────────────────


def authorize_anywhere(route: routing.Route, principal: principals.Principal) -> None:
    """Check for permission on any scope at all, before the request is decoded.

    Raises:
        MissingPermission.
    """
    if isinstance(route.permission, routing.Requires):
        principals.demand_permission(principal, route.permission.verbs, None)


def authorize(route: routing.Route, request: routing.Request[Any, Any, Any]) -> None:
    """Check permission on the scope of this request.

    Raises:
        MissingPermission, and what finding the scope raises.
    """
    permission = route.permission
    if not isinstance(permission, routing.Requires):
        return
    if permission.scope is not None:
        principals.demand_permission(request.principal, permission.verbs, permission.scope(request))


def _bucket(what: str, rate: int) -> rate_limits.Bucket:
    return rate_limits.Bucket(what, rate, 2 * rate)
