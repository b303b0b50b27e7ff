"""Maintenance windows: times in which orders may go out, and times in which they may not."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from tidegate.api.routes.channels import Reason, ReasonBody, SelectorText
from tidegate.api.routes.releases import ScopeName
from tidegate.control.operations.freezes import list_scopes
from tidegate.control.operations.protection import RequestShown
from tidegate.control.operations.windows import OCCURRENCES_MAX, Occurrence, WindowOperations
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.access.principals import Principal
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.steps import CREATE_WINDOW, DELETE_WINDOW, EDIT_WINDOW
from tidegate.domain.channels.refusals import ChannelNotFound
from tidegate.domain.fleet.refusals import HostNotFound
from tidegate.domain.requests.refusals import BreakGlassForbidden
from tidegate.domain.windows.checks import (
    DURATION_MAX,
    DURATION_MIN,
    EXCEPT_DATES_MAX,
    REPOSITORIES_MAX,
    WINDOW_CHANNELS_MAX,
)
from tidegate.domain.windows.facts import WindowKind, WindowSpec
from tidegate.domain.windows.refusals import MalformedWindow, WindowExists, WindowNotFound
from tidegate.domain.windows.rows import WINDOWS, Window, window_key
from tidegate.domain.windows.rules import RULE_BYTES_MAX
from tidegate.errors import StaleVersion
from tidegate.web.inputs import Input, Nothing, Paging
from tidegate.web.paging import Cursors
from tidegate.web.routing import Request, Response, Route, requires_somewhere, requires_step
from tidegate.web.shapes import Listed, Written

WindowId = Annotated[str, Meta(min_length=1, max_length=63)]
Channels = Annotated[tuple[ScopeName, ...], Meta(max_length=WINDOW_CHANNELS_MAX)]
Repositories = Annotated[
    tuple[Annotated[str, Meta(max_length=63)], ...], Meta(max_length=REPOSITORIES_MAX)
]
Zone = Annotated[str, Meta(min_length=1, max_length=80)]
Start = Annotated[str, Meta(max_length=32)]
RuleText = Annotated[str, Meta(max_length=RULE_BYTES_MAX)]
Duration = Annotated[int, Meta(ge=DURATION_MIN, le=DURATION_MAX)]
Dates = Annotated[
    tuple[Annotated[str, Meta(max_length=10)], ...], Meta(max_length=EXCEPT_DATES_MAX)
]


class WindowPath(Input, frozen=True):
    window_id: WindowId


class WindowGiven(Input, frozen=True, kw_only=True):
    """A window without a reason: what is checked before it is written."""

    window_id: WindowId
    kind: WindowKind
    start: Start
    duration_seconds: Duration
    rule: RuleText = ""
    except_dates: Dates = ()
    channels: Channels = ()
    repositories: Repositories = ()
    hosts: SelectorText = "*"
    zone: Zone = "UTC"
    zone_default: Zone | None = None


class NewWindow(WindowGiven, frozen=True, kw_only=True):
    """None named: all channels, all repositories, all hosts. Without a rule it occurs once."""

    reason: Reason


class WindowChange(Input, frozen=True, kw_only=True):
    """What is left out stays."""

    reason: Reason
    kind: WindowKind | UnsetType = UNSET
    start: Start | UnsetType = UNSET
    duration_seconds: Duration | UnsetType = UNSET
    rule: RuleText | UnsetType = UNSET
    except_dates: Dates | UnsetType = UNSET
    channels: Channels | UnsetType = UNSET
    repositories: Repositories | UnsetType = UNSET
    hosts: SelectorText | UnsetType = UNSET
    zone: Zone | UnsetType = UNSET
    zone_default: Zone | UnsetType | None = UNSET


class AheadQuery(Input, frozen=True, kw_only=True):
    host_id: Annotated[str, Meta(max_length=128)] | None = None
    count: Annotated[int, Meta(ge=1, le=OCCURRENCES_MAX)] = 5


class WindowShown(Window, frozen=True, kw_only=True):
    version: int


class Occurrences(Struct, frozen=True, kw_only=True):
    """What comes next, first to last; none: it does not occur within 400 days."""

    occurrences: tuple[Occurrence, ...]


def list_all(
    request: Request[Nothing, Paging, Nothing], reads: Reads, cursors: Cursors
) -> Response:
    """The maintenance windows."""
    found = reads.range(WINDOWS, after=cursors.after(request), limit=request.query.limit)
    last = found[-1].id if len(found) == request.query.limit else None
    seen = [_shown(item) for item in found if _may_see(request.principal, item.row)]
    return Response(cursors.list_page(request, seen, last))


def show(request: Request[WindowPath, Nothing, Nothing], reads: Reads) -> Response:
    """One maintenance window."""
    found = _demand(request.principal, reads, request.path.window_id)
    return Response(_shown(found), version=found.version)


def show_next(
    request: Request[WindowPath, AheadQuery, Nothing], reads: Reads, windows: WindowOperations
) -> Response:
    """When the window lasts next, in its zone or in that of a host."""
    window_id, query = request.path.window_id, request.query
    _demand(request.principal, reads, window_id)
    return Response(
        Occurrences(occurrences=windows.list_next(window_id, query.count, query.host_id))
    )


def check(
    request: Request[Nothing, AheadQuery, WindowGiven], windows: WindowOperations
) -> Response:
    """When a window would last, without writing it."""
    spec = WindowSpec(**asdict(request.body))
    return Response(Occurrences(occurrences=windows.check(spec, request.query.count)))


def create(
    request: Request[Nothing, Nothing, NewWindow], windows: WindowOperations, reads: Reads
) -> Response:
    """Allow orders only at some times, or deny them."""
    members = asdict(request.body)
    reason = members.pop("reason")
    position = windows.create(request.caller, WindowSpec(**members), reason)
    return _written(reads, request.body.window_id, position)


def edit(
    request: Request[WindowPath, Nothing, WindowChange], windows: WindowOperations, reads: Reads
) -> Response:
    """Change some members of a window."""
    given: dict[str, Any] = asdict(request.body)
    reason = given.pop("reason")
    changes = {name: value for name, value in given.items() if value is not UNSET}
    position = windows.edit(request.caller, request.path.window_id, changes, reason)
    return _written(reads, request.path.window_id, position)


def delete(
    request: Request[WindowPath, Nothing, ReasonBody], windows: WindowOperations
) -> Response:
    """Remove a window."""
    position = windows.delete(request.caller, request.path.window_id, request.body.reason)
    return Response(Written(position), position=position)


def _written(reads: Reads, window_id: str, position: int) -> Response:
    found = reads.demand(window_key(window_id), Window, WindowNotFound(window_id))
    return Response(_shown(found), version=found.version, position=position or found.version)


def _shown(found: Found[Window]) -> WindowShown:
    return WindowShown(**asdict(found.row), version=found.version)


def _demand(principal: Principal, reads: Reads, window_id: str) -> Found[Window]:
    found = reads.demand(window_key(window_id), Window, WindowNotFound(window_id))
    if not _may_see(principal, found.row):
        raise WindowNotFound(window_id)
    return found


def _may_see(principal: Principal, row: Window) -> bool:
    """One of all channels concerns everybody."""
    return not row.channels or any(
        principal.may(Verb.READ, scope) for scope in list_scopes(row.channels)
    )


def _of_new(request: Request[Nothing, Nothing, NewWindow]) -> str:
    """The first of its scopes; the operation asks for all of them."""
    return list_scopes(request.body.channels)[0]


ROUTES = (
    Route("GET", "/v1/windows", list_all, requires_somewhere(Verb.READ), Listed[WindowShown]),
    Route(
        "POST",
        "/v1/windows",
        create,
        requires_step(CREATE_WINDOW, _of_new),
        WindowShown,
        status=201,
        requests=RequestShown,
        errors=(ChannelNotFound, MalformedWindow, WindowExists, BreakGlassForbidden),
    ),
    Route(
        "POST",
        "/v1/windows/check",
        check,
        requires_somewhere(Verb.READ),
        Occurrences,
        errors=(MalformedWindow,),
    ),
    Route(
        "GET",
        "/v1/windows/{window_id}",
        show,
        requires_somewhere(Verb.READ),
        WindowShown,
        errors=(WindowNotFound,),
    ),
    Route(
        "GET",
        "/v1/windows/{window_id}/next",
        show_next,
        requires_somewhere(Verb.READ),
        Occurrences,
        errors=(WindowNotFound, HostNotFound),
    ),
    Route(
        "PATCH",
        "/v1/windows/{window_id}",
        edit,
        requires_step(EDIT_WINDOW, None),  # the operation asks on each of its channels
        WindowShown,
        guard=EDIT_WINDOW.version,
        requests=RequestShown,
        errors=(
            *(ChannelNotFound, MalformedWindow, WindowNotFound, StaleVersion),
            BreakGlassForbidden,
        ),
    ),
    Route(
        "POST",
        "/v1/windows/{window_id}/delete",
        delete,
        requires_step(DELETE_WINDOW, None),
        Written,
        guard=DELETE_WINDOW.version,
        requests=RequestShown,
        errors=(WindowNotFound, StaleVersion, BreakGlassForbidden),
    ),
)
