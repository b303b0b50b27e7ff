"""What a route is: method, path, permission, types and the function that answers. A value.

    Route("POST", "/v1/revisions/{name}/approve", approve, may(Verb.APPROVE, of_revision), …)

The types of path, query and body stand in the handler's own signature, so that they cannot differ
from what it uses: ``def approve(request: Request[RevisionPath, Nothing, Approval], …)``.
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
PUBLIC_BODY_BYTES_MAX = 4 * 1024  # from clients that nobody knows
SIGN_IN_BYTES_MAX = 8 * 1024  # a name and a password, each character percent-encoded
JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"

P = TypeVar("P")
Q = TypeVar("Q")
B = TypeVar("B")


# ── what a route asks of them ─────────────────────────────────────────────────────────────────────


class PublicAccess(Enum):
    """Permissions that are no verb on a scope."""

    PUBLIC = "public"  # nobody needs to sign in
    SIGNED_IN = "signed in"  # whoever is signed in, about themselves
    AGENT = "agent"  # a host, by its MAC


ScopeOf = Callable[["Request[Any, Any, Any]"], str]


@dataclass(frozen=True, slots=True)
class Requires:
    """One of some verbs on the scope that the request is about; ``scope`` None: on some scope, and
    the handler shows of each scope only what the principal may see.
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
    """The permission to do this on a scope: everywhere, or what the request names."""
    verbs = (verb,) if isinstance(verb, roles.Verb) else verb
    if isinstance(scope, str):
        fixed = scope
        return Requires(verbs, lambda request: fixed)
    return Requires(verbs, scope)


def requires_step(step: steps.Step, scope: ScopeOf | str | None = roles.EVERYWHERE) -> Permission:
    """The permission to take a step on a scope: everywhere, or what the request names.

    ``scope`` None: on some scope, where only the operation knows which one it must be. A step that
    needs no verb is for everybody who is signed in.
    """
    if not step.verbs:
        return SIGNED_IN
    return Requires(step.verbs, None) if scope is None else requires(step.verbs, scope)


def requires_somewhere(verb: roles.Verb) -> Requires:
    """The permission to do this on some scope: for lists, which show what each may see."""
    return Requires((verb,), None)


# ── what a handler gets and gives ─────────────────────────────────────────────────────────────────


class RawRequest(Struct, frozen=True):
    """A request as it came over the wire."""

    method: str
    path: bytes  # as sent, percent-encoded
    query: bytes
    headers: Mapping[bytes, bytes]
    address: str
    body: bytes = b""


@dataclass(slots=True)
class Request(Generic[P, Q, B]):
    """A request that was understood: typed, authenticated, allowed."""

    path: P
    query: Q
    body: B
    principal: principals.Principal
    id: str
    route: str
    arrived: RawRequest
    version: Position | None = None  # of If-Match: the version that the client saw
    key: str | None = None  # of Idempotency-Key
    incoming: IncomingBody | None = None  # where the route takes its body piece by piece
    break_glass: str = ""  # of Tidegate-Break-Glass: why
    dry_run: bool = False  # of Tidegate-Dry-Run

    @property
    def caller(self) -> callers.Caller:
        """Who asks, as operations want to know it."""
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
        """Who is named in facts."""
        return self.principal.id

    @property
    def meta(self) -> Meta:
        return Meta(actor=self.principal.id, request=self.id)


Stream = AsyncIterator[bytes]


@dataclass(slots=True)
class Response:
    """What a handler gives back. ``version`` begins the ETag, ``position`` becomes a header."""

    body: Any = None  # a Struct; bytes with a media type of their own; None: no content
    status: int = 0  # 0: as the route declares
    version: Position | None = None
    position: Position = 0  # of the log, caused by this write
    media: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    cookies: tuple[str, ...] = ()
    stream: Stream | None = None  # instead of a body
    download: downloads.Download | None = (
        None  # instead of a body: sent in pieces, whole or in part
    )
    tag: str | None = None  # an ETag of the body's own, quoted, where no row's version is it


class FastRequest(Protocol):
    """A plain request that is answered right at its socket: who asks, with what, and the answer."""

    principal: principals.Principal
    body: bytes
    id: str

    def answer(self, answer: Response) -> None:
        """Send it. Once, from the event loop, now or later, as the other two."""

    def send_success(self, content: Struct | None = None) -> None:
        """Send this, or nothing, as the route's success: the same bytes, made with less ado."""

    def fail(self, error: BaseException) -> None:
        """Send what the application says of this error, in its stead."""


# The first parameter is the request. The others name parts of the server: see web/parts.py.
FastHandler = Callable[..., bool]
Handler = Callable[..., Any]  # a Response, or a coroutine of one
ErrorPageOf = Callable[
    [TidegateError, bytes], Response
]  # of the error and the address that was asked for


# ── the route ─────────────────────────────────────────────────────────────────────────────────────


class Consumes(Enum):
    """How a body comes."""

    NOTHING = ""
    JSON = "application/json"
    FORM = "application/x-www-form-urlencoded"
    BYTES = "application/octet-stream"


_PARAMETER = re.compile(r"\{([a-z][a-z0-9_]*)(\.\.\.)?\}")
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True)
class Route:
    """One operation of the API.

    Raises:
        InvalidDefinition: no permission, or types that do not fit the path.
    """

    method: str
    path: str  # {name} is a segment, {name...} all that is left
    handler: Handler
    permission: Permission
    answer: type[Any] | None = None  # None: no content
    status: int = 200
    also: tuple[int, ...] = ()  # other successes
    errors: tuple[type[TidegateError], ...] = ()  # beside those that every route may have
    guard: steps.VersionRule = steps.VersionRule.IGNORED
    requests: type[Any] | None = None  # what a 202 shows, where a second person may be needed
    dry_run: bool = (
        False  # a request with Tidegate-Dry-Run changes nothing; elsewhere it is refused
    )
    cached: bool = False  # its answers have an ETag and may be 304
    ranges: bool = False  # its answers are downloads: they have an ETag and may be asked in part
    quick: bool = False  # point reads alone: may run on the event loop where the log is local
    urgent: bool = False  # halts something: it has a rate limit of its own
    consumes: Consumes | None = None  # None: JSON if the handler takes a body
    produces: str = JSON
    streams: bool = False  # or as server-sent events, to who accepts these
    uploads: bool = False  # the handler takes the body piece by piece, and limits it
    body_bytes_max: int = 0  # 0: 256 KiB; 4 KiB where nobody needs to sign in
    fast: FastHandler | None = None  # answers plain requests at the socket; False: not this one
    describes: str = ""  # summary; empty: the first line of the handler's docstring
    fails: ErrorPageOf | None = None  # of a page: how a refusal looks; None: a problem detail

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
        """Whether it is for people: it is no operation of the API."""
        return self.fails is not None

    @cached_property
    def is_write(self) -> bool:
        return self.method != "GET"

    @cached_property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.handler)

    @cached_property
    def types(self) -> tuple[type[inputs.Input], type[inputs.Input], type[inputs.Input]]:
        """Of path, query and body."""
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
        """Whether nothing at all means the same as an empty object."""
        return not any(item.required for item in structs.fields(self.types[2]))

    @cached_property
    def noun(self) -> str:
        parts = [part for part in self.path.split("/") if part and part != "v1"]
        return parts[0] if parts else "root"

    @cached_property
    def operation(self) -> str:
        """A name for programs, unique over all routes."""
        name = f"{self.noun.replace('.', '-')}.{self.handler.__name__}"
        return f"pages.{name}" if self.is_page else name

    @cached_property
    def summary(self) -> str:
        return self.describes or (inspect.getdoc(self.handler) or "").partition("\n")[0]


class Router:
    """Finds the route of a path: a step per segment, literals before parameters.

    Raises:
        InvalidDefinition: two routes for one method and path.
    """

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self._root: dict[str, Any] = {}
        self.plain: dict[bytes, dict[str, Route]] = {}  # paths without parameters, as they are sent
        names: set[str] = set()
        for route in routes:
            if route.operation in names:
                raise InvalidDefinition(f"two operations are called {route.operation}")
            names.add(route.operation)
            self._add(route)

    def _add(self, route: Route) -> None:
        node = self._root
        plain = True
        for segment in filter(None, route.path[1:].split("/")):  # the root has none
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
