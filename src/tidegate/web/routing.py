"""A route as a value: method, path, permission, types, and the function that responds.

    Route("POST", "/v1/revisions/{name}/approve", approve, may(Verb.APPROVE, of_revision), …)

The handler's own signature has the types of path, query and body, so they cannot differ from what
it uses: ``def approve(request: Request[RevisionPath, Nothing, Approval], …)``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Final, Generic, Protocol, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct, structs

from tidegate import decoders
from tidegate.domain.access import callers, principals, roles, steps
from tidegate.errors import InvalidDefinition, TidegateError
from tidegate.kernel.model import Meta, Position
from tidegate.web import downloads, inputs
from tidegate.web.uploads import IncomingBody

BODY_BYTES_MAX = 256 * 1024
PUBLIC_BODY_BYTES_MAX = 4 * 1024  # from clients that are not authenticated
SIGN_IN_BYTES_MAX = 8 * 1024  # a name and a password, each character percent-encoded
JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"

P = TypeVar("P")
Q = TypeVar("Q")
B = TypeVar("B")


# ── permissions ───────────────────────────────────────────────────────────────────────────────────


class PublicAccess(Enum):
    """Permissions that are not a verb on a scope."""

    PUBLIC = "public"  # no sign-in needed
    SIGNED_IN = "signed in"  # every signed-in user, about themselves
    AGENT = "agent"  # a host, authenticated by its MAC


ScopeOf = Callable[["Request[Any, Any, Any]"], str]


@dataclass(frozen=True, slots=True)
class Requires:
    """Any one of some verbs on the scope that the request names. With ``scope`` None, any scope
    will do, and the handler filters what it returns by what the principal may see.
    """

    verbs: tuple[roles.Verb, ...]
    scope: ScopeOf | None


Permission = Requires | PublicAccess
PUBLIC: Final = PublicAccess.PUBLIC
SIGNED_IN: Final = PublicAccess.SIGNED_IN
AGENT: Final = PublicAccess.AGENT


def requires(
    verb: roles.Verb | tuple[roles.Verb, ...], scope: ScopeOf | str = roles.EVERYWHERE
) -> Requires:
    """Require a verb: everywhere, or on the scope that the request names."""
    verbs = (verb,) if isinstance(verb, roles.Verb) else verb
    if isinstance(scope, str):
        fixed = scope
        return Requires(verbs, lambda request: fixed)
    return Requires(verbs, scope)


def requires_step(step: steps.Step, scope: ScopeOf | str | None = roles.EVERYWHERE) -> Permission:
    """Require the verb of a step: everywhere, or on the scope that the request names.

    With ``scope`` None any scope will do, because only the operation knows which one it must be. A
    step that needs no verb is open to every signed-in user.
    """
    if not step.verbs:
        return SIGNED_IN
    return Requires(step.verbs, None) if scope is None else requires(step.verbs, scope)


def requires_somewhere(verb: roles.Verb) -> Requires:
    """Require a verb on any scope. For lists, which show each user only what they may see."""
    return Requires((verb,), None)


# ── requests and responses ────────────────────────────────────────────────────────────────────────


class RawRequest(Struct, frozen=True):
    """A request as it was received."""

    method: str
    path: bytes  # as sent, percent-encoded
    query: bytes
    headers: Mapping[bytes, bytes]
    address: str
    body: bytes = b""


@dataclass(slots=True)
class Request(Generic[P, Q, B]):
    """A request that was decoded, authenticated and authorized."""

    path: P
    query: Q
    body: B
    principal: principals.Principal
    id: str
    route: str
    arrived: RawRequest
    version: Position | None = None  # from If-Match: the version that the client saw
    key: str | None = None  # from Idempotency-Key
    incoming: IncomingBody | None = None  # set if the route reads its body in pieces
    break_glass: str = ""  # from Tidegate-Break-Glass: the reason
    dry_run: bool = False  # from Tidegate-Dry-Run

    @property
    def caller(self) -> callers.Caller:
        """The caller, as operations take it."""
        return callers.Caller(
            principal=self.principal,
            request_id=self.id,
            key=self.key,
            expected_version=self.version,
            break_glass=self.break_glass,
            dry_run=self.dry_run,
        )

    @property
    def by(self) -> str:
        """The name of the caller in facts."""
        return self.principal.id

    @property
    def meta(self) -> Meta:
        return Meta(actor=self.principal.id, request=self.id)


Stream = AsyncIterator[bytes]


@dataclass(slots=True)
class Response:
    """What a handler returns. ``version`` begins the ETag, ``position`` becomes a header."""

    body: Any = None  # a Struct; bytes with their own media type; None: no content
    status: int = 0  # 0: the status that the route declares
    version: Position | None = None
    position: Position = 0  # the log position of this write
    media: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    cookies: tuple[str, ...] = ()
    stream: Stream | None = None  # instead of a body
    # Instead of a body: sent in pieces, whole or in part.
    download: downloads.Download | None = None
    tag: str | None = None  # a quoted ETag of the body itself, if no row's version serves as one


class FastRequest(Protocol):
    """A plain request that is answered at its socket."""

    principal: principals.Principal
    body: bytes
    id: str

    def answer(self, answer: Response) -> None:
        """Send a response. Call one of the three methods once, on the event loop, now or later."""

    def send_success(self, content: Struct | None = None) -> None:
        """Send the success of the route: the same bytes as ``answer``, but faster."""

    def fail(self, error: BaseException) -> None:
        """Send the response that the application has for this error."""


# The first parameter is the request. The others name parts of the server, see web/parts.py.
FastHandler = Callable[..., bool]
Handler = Callable[..., Any]  # a Response, or a coroutine of one
ErrorPageOf = Callable[[TidegateError, bytes], Response]  # from the error and the requested address


# ── the route ─────────────────────────────────────────────────────────────────────────────────────


class Consumes(Enum):
    """How a request body is encoded."""

    NOTHING = ""
    JSON = "application/json"
    FORM = "application/x-www-form-urlencoded"
    BYTES = "application/octet-stream"


_PARAMETER = re.compile(r"\{([a-z][a-z0-9_]*)(\.\.\.)?\}")
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True)
class Route:
    """One operation of the API, or a page.

    Raises:
        InvalidDefinition: no permission, or types that do not fit the path.
    """

    method: str
    path: str  # {name} matches one segment, {name...} the rest of the path
    handler: Handler
    permission: Permission
    answer: type[Any] | None = None  # None: no content
    status: int = 200
    also: tuple[int, ...] = ()  # other statuses of success
    errors: tuple[type[TidegateError], ...] = ()  # in addition to those that every route may have
    guard: steps.VersionRule = steps.VersionRule.IGNORED
    requests: type[Any] | None = None  # the body of a 202, if a second person may be needed
    # A request with Tidegate-Dry-Run changes nothing; elsewhere it is refused.
    dry_run: bool = False
    cached: bool = False  # responses have an ETag and may be 304
    ranges: bool = False  # responses are downloads with an ETag, and may be requested in part
    quick: bool = False  # point reads only: may run on the event loop if the log is local
    urgent: bool = False  # halts something, so it has its own rate limit
    consumes: Consumes | None = None  # None: JSON if the handler takes a body
    produces: str = JSON
    streams: bool = False  # also as server-sent events, if the client accepts them
    uploads: bool = False  # the handler reads the body in pieces, and limits it
    body_bytes_max: int = 0  # 0: 256 KiB; 4 KiB on routes without sign-in
    # Answers plain requests at the socket; returns False to decline one.
    fast: FastHandler | None = None
    describes: str = ""  # the summary; empty: the first line of the handler's docstring
    fails: ErrorPageOf | None = None  # renders the errors of a page; None: problem documents

    def __post_init__(self) -> None:
        if not isinstance(self.permission, Requires | PublicAccess):
            raise InvalidDefinition(f"{self.name} declares no permission: it cannot be registered")
        if not self.body_bytes_max:
            most = PUBLIC_BODY_BYTES_MAX if self.permission is PUBLIC else BODY_BYTES_MAX
            object.__setattr__(self, "body_bytes_max", most)
        if self.method not in _METHODS or not self.path.startswith("/"):
            raise InvalidDefinition(f"{self.name} is no route")
        if self.method == "GET" and (
            self.guard is not steps.VersionRule.IGNORED or self.takes_body
        ):
            raise InvalidDefinition(f"{self.name} only reads: it takes no body and no If-Match")
        named = set(self.parameters)
        typed = set(self.types[0].__struct_fields__)
        if named != typed:
            raise InvalidDefinition(f"{self.name} has {named} in its path, {typed} in its types")
        for struct in self.types:
            if not struct.__struct_config__.forbid_unknown_fields:
                raise InvalidDefinition(f"{self.name}: {struct.__name__} must be an Input")
            decoders.build(struct)

    @cached_property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        return tuple(name for name, _ in _PARAMETER.findall(self.path))

    @cached_property
    def is_page(self) -> bool:
        """Whether the route is a page for people, not an operation of the API."""
        return self.fails is not None

    @cached_property
    def is_write(self) -> bool:
        return self.method != "GET"

    @cached_property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.handler)

    @cached_property
    def types(self) -> tuple[type[inputs.Input], type[inputs.Input], type[inputs.Input]]:
        """The types of path, query and body."""
        hint = get_type_hints(self.handler).get("request")
        if get_origin(hint) is not Request:
            raise InvalidDefinition(f"{self.name}: its handler takes Request[path, query, body]")
        path, query, body = get_args(hint)
        return path, query, body

    @cached_property
    def takes_body(self) -> bool:
        return self.content is not Consumes.NOTHING

    @cached_property
    def content(self) -> Consumes:
        if self.consumes is not None:
            return self.consumes
        return Consumes.JSON if self.types[2].__struct_fields__ else Consumes.NOTHING

    @cached_property
    def has_optional_body(self) -> bool:
        """Whether a missing body means the same as an empty object."""
        return not any(item.required for item in structs.fields(self.types[2]))

    @cached_property
    def noun(self) -> str:
        parts = [part for part in self.path.split("/") if part and part != "v1"]
        return parts[0] if parts else "root"

    @cached_property
    def operation(self) -> str:
        """A unique name of the route, for programs."""
        name = f"{self.noun.replace('.', '-')}.{self.handler.__name__}"
        return f"pages.{name}" if self.is_page else name

    @cached_property
    def summary(self) -> str:
        return self.describes or (inspect.getdoc(self.handler) or "").partition("\n")[0]


class Router:
    """Finds the route of a path, segment by segment. Literals win over parameters.

    Raises:
        InvalidDefinition: two routes have the same method and path.
    """

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self._root: dict[str, Any] = {}
        self.plain: dict[bytes, dict[str, Route]] = {}  # paths without parameters, as sent
        names: set[str] = set()
        for route in routes:
            if route.operation in names:
                raise InvalidDefinition(f"two operations are called {route.operation}")
            names.add(route.operation)
            self._add(route)

    def _add(self, route: Route) -> None:
        node = self._root
        plain = True
        for segment in filter(None, route.path[1:].split("/")):  # the root path has none
            found = _PARAMETER.fullmatch(segment)
            plain = plain and found is None
            step = segment if found is None else ("{...}" if found[2] else "{}")
            node = node.setdefault(step, {})
        methods = node.setdefault("", {})
        if route.method in methods:
            raise InvalidDefinition(f"{route.name} is declared twice")
        methods[route.method] = route
        if plain:
            self.plain[route.path.encode()] = methods

    def find(self, segments: list[str]) -> tuple[dict[str, Route], list[str]] | None:
        """The routes of a path by method, and the values of its parameters; None: no such path."""
        return _descend(self._root, [] if segments == [""] else segments, 0)


def _descend(
    node: dict[str, Any], segments: list[str], at: int
) -> tuple[dict[str, Route], list[str]] | None:
    if at == len(segments):
        methods = node.get("")
        return None if methods is None else (methods, [])
    segment = segments[at]
    if segment and segment[0] != "{":
        child = node.get(segment)
        if child is not None:
            found = _descend(child, segments, at + 1)
            if found is not None:
                return found
    child = node.get("{}")
    if child is not None and segment:
        found = _descend(child, segments, at + 1)
        if found is not None:
            found[1].insert(0, segment)
            return found
    child = node.get("{...}")
    if child is not None and segment:
        return child[""], ["/".join(segments[at:])]
    return None
