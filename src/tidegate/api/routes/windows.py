"""Maintenance windows: times in which orders may be sent, and times in which they may not."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from tidegate.api.routes import channels as route_channels, releases
from tidegate.control.operations import freezes, protection, windows as operation_windows
from tidegate.control.queries.people import PeopleNames
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.access import principals, roles, steps
from tidegate.domain.channels.refusals import ChannelNotFound
from tidegate.domain.fleet.refusals import HostNotFound
from tidegate.domain.requests.refusals import BreakGlassForbidden
from tidegate.domain.windows import checks, facts, refusals, rows, rules
from tidegate.errors import StaleVersion
from tidegate.web import inputs, paging, routing, shapes

WindowId = Annotated[str, Meta(min_length=1, max_length=63)]
Channels = Annotated[tuple[releases.ScopeName, ...], Meta(max_length=checks.WINDOW_CHANNELS_MAX)]
Repositories = Annotated[
    tuple[Annotated[str, Meta(max_length=63)], ...], Meta(max_length=checks.REPOSITORIES_MAX)
]
Zone = Annotated[str, Meta(min_length=1, max_length=80)]
Start = Annotated[str, Meta(max_length=32)]
RuleText = Annotated[str, Meta(max_length=rules.RULE_BYTES_MAX)]
Duration = Annotated[int, Meta(ge=checks.DURATION_MIN, le=checks.DURATION_MAX)]
Dates = Annotated[
    tuple[Annotated[str, Meta(max_length=10)], ...], Meta(max_length=checks.EXCEPT_DATES_MAX)
]


class WindowPath(inputs.Input, frozen=True):
    window_id: WindowId


class WindowGiven(inputs.Input, frozen=True, kw_only=True):
    """A window without a reason: what is checked before it is saved."""

    window_id: WindowId
    kind: facts.WindowKind
    start: Start
    duration_seconds: Duration
    rule: RuleText = ""
    except_dates: Dates = ()
    channels: Channels = ()
    repositories: Repositories = ()
    hosts: route_channels.SelectorText = "*"
    zone: Zone = "UTC"
    zone_default: Zone | None = None


class NewWindow(WindowGiven, frozen=True, kw_only=True):
    """Without channels, repositories or hosts it covers all. Without a rule it occurs once."""

    reason: route_channels.Reason


class WindowChange(inputs.Input, frozen=True, kw_only=True):
    """Members that are left out do not change."""

    reason: route_channels.Reason
    kind: facts.WindowKind | UnsetType = UNSET
    start: Start | UnsetType = UNSET
    duration_seconds: Duration | UnsetType = UNSET
    rule: RuleText | UnsetType = UNSET
    except_dates: Dates | UnsetType = UNSET
    channels: Channels | UnsetType = UNSET
    repositories: Repositories | UnsetType = UNSET
    hosts: route_channels.SelectorText | UnsetType = UNSET
    zone: Zone | UnsetType = UNSET
    zone_default: Zone | UnsetType | None = UNSET


class AheadQuery(inputs.Input, frozen=True, kw_only=True):
    host_id: Annotated[str, Meta(max_length=128)] | None = None
    count: Annotated[int, Meta(ge=1, le=operation_windows.OCCURRENCES_MAX)] = 5


class WindowShown(rows.Window, frozen=True, kw_only=True):
    version: int
    operator_name: str | None = None  # null: erased, or not a person
    lasts_now: bool | None = None  # null: each host has a zone of its own


class Occurrences(Struct, frozen=True, kw_only=True):
    """The next occurrences in order; none: it does not occur within 400 days."""

    occurrences: tuple[operation_windows.Occurrence, ...]


def list_all(
    request: routing.Request[inputs.Nothing, inputs.Paging, inputs.Nothing],
    reads: Reads,
    cursors: paging.Cursors,
    people: PeopleNames,
    windows: operation_windows.WindowOperations,
) -> routing.Response:
    """List the maintenance windows."""
    found = reads.range(rows.WINDOWS, after=cursors.after(request), limit=request.query.limit)
    last = found[-1].id if len(found) == request.query.limit else None
    seen = [
        _shown(item, windows, people) for item in found if _may_see(request.principal, item.row)
    ]
    return routing.Response(cursors.list_page(request, seen, last))


def show(
    request: routing.Request[WindowPath, inputs.Nothing, inputs.Nothing],
    reads: Reads,
    people: PeopleNames,
    windows: operation_windows.WindowOperations,
) -> routing.Response:
    """Get one maintenance window."""
    found = _demand(request.principal, reads, request.path.window_id)
    return routing.Response(_shown(found, windows, people), version=found.version)


def show_next(
    request: routing.Request[WindowPath, AheadQuery, inputs.Nothing],
    reads: Reads,
    windows: operation_windows.WindowOperations,
) -> routing.Response:
    """List the next occurrences of a window, in its zone or in that of a host."""
    window_id, query = request.path.window_id, request.query
    _demand(request.principal, reads, window_id)
    return routing.Response(
        Occurrences(occurrences=windows.list_next(window_id, query.count, query.host_id))
    )


def check(
    request: routing.Request[inputs.Nothing, AheadQuery, WindowGiven],
    windows: operation_windows.WindowOperations,
) -> routing.Response:
    """Show when a window would occur, without saving it."""
    spec = facts.WindowSpec(**structs.asdict(request.body))
    found = windows.check(request.caller, spec, request.query.count)
    return routing.Response(Occurrences(occurrences=found))


def create(
    request: routing.Request[inputs.Nothing, inputs.Nothing, NewWindow],
    windows: operation_windows.WindowOperations,
    reads: Reads,
) -> routing.Response:
    """Create a window that allows or denies orders at some times."""
    members = structs.asdict(request.body)
    reason = members.pop("reason")
    position = windows.create(request.caller, facts.WindowSpec(**members), reason)
    return _written(reads, windows, request.body.window_id, position)


def edit(
    request: routing.Request[WindowPath, inputs.Nothing, WindowChange],
    windows: operation_windows.WindowOperations,
    reads: Reads,
) -> routing.Response:
    """Change some members of a window."""
    given: dict[str, Any] = structs.asdict(request.body)
    reason = given.pop("reason")
    changes = {name: value for name, value in given.items() if value is not UNSET}
    position = windows.edit(request.caller, request.path.window_id, changes, reason)
    return _written(reads, windows, request.path.window_id, position)


def delete(
    request: routing.Request[WindowPath, inputs.Nothing, route_channels.ReasonBody],
    windows: operation_windows.WindowOperations,
) -> routing.Response:
    """Delete a window."""
    position = windows.delete(request.caller, request.path.window_id, request.body.reason)
    return routing.Response(shapes.Written(position), position=position)


def _written(
    reads: Reads, windows: operation_windows.WindowOperations, window_id: str, position: int
) -> routing.Response:
    found = reads.demand(
        rows.window_key(window_id), rows.Window, refusals.WindowNotFound(window_id)
    )
    return routing.Response(
        _shown(found, windows), version=found.version, position=position or found.version
    )


def _shown(
    found: Found[rows.Window],
    windows: operation_windows.WindowOperations,
    people: PeopleNames | None = None,
) -> WindowShown:
    return WindowShown(
        **structs.asdict(found.row),
        version=found.version,
        operator_name=None if people is None else people.find_name(found.row.operator),
        lasts_now=windows.lasts_now(found.row),
    )


def _demand(principal: principals.Principal, reads: Reads, window_id: str) -> Found[rows.Window]:
    found = reads.demand(
        rows.window_key(window_id), rows.Window, refusals.WindowNotFound(window_id)
    )
    if not _may_see(principal, found.row):
        raise refusals.WindowNotFound(window_id)
    return found


def _may_see(principal: principals.Principal, row: rows.Window) -> bool:
    """A window of all channels is visible to everyone."""
    return not row.channels or any(
        principal.may(roles.Verb.READ, scope) for scope in freezes.list_scopes(row.channels)
    )


def _of_new(request: routing.Request[inputs.Nothing, inputs.Nothing, NewWindow]) -> str:
    """The first scope of the window; the operation checks all of them."""
    return freezes.list_scopes(request.body.channels)[0]


ROUTES = (
    routing.Route(
        "GET",
        "/v1/windows",
        list_all,
        routing.requires_somewhere(roles.Verb.READ),
        shapes.Listed[WindowShown],
    ),
    routing.Route(
        "POST",
        "/v1/windows",
        create,
        routing.requires_step(steps.CREATE_WINDOW, _of_new),
        WindowShown,
        status=201,
        requests=protection.RequestShown,
        errors=(
            ChannelNotFound,
            refusals.MalformedWindow,
            refusals.WindowExists,
            BreakGlassForbidden,
        ),
        dry_run=True,
    ),
    routing.Route(
        "POST",
        "/v1/windows/check",
        check,
        routing.requires_somewhere(roles.Verb.READ),
        Occurrences,
        errors=(ChannelNotFound, refusals.MalformedWindow),
    ),
    routing.Route(
        "GET",
        "/v1/windows/{window_id}",
        show,
        routing.requires_somewhere(roles.Verb.READ),
        WindowShown,
        errors=(refusals.WindowNotFound,),
    ),
    routing.Route(
        "GET",
        "/v1/windows/{window_id}/next",
        show_next,
        routing.requires_somewhere(roles.Verb.READ),
        Occurrences,
        errors=(refusals.WindowNotFound, HostNotFound),
    ),
    routing.Route(
        "PATCH",
        "/v1/windows/{window_id}",
        edit,
        routing.requires_step(steps.EDIT_WINDOW, None),  # the operation checks each of its channels
        WindowShown,
        guard=steps.EDIT_WINDOW.version,
        requests=protection.RequestShown,
        errors=(
            *(ChannelNotFound, refusals.MalformedWindow, refusals.WindowNotFound, StaleVersion),
            BreakGlassForbidden,
        ),
        dry_run=True,
    ),
    routing.Route(
        "POST",
        "/v1/windows/{window_id}/delete",
        delete,
        routing.requires_step(steps.DELETE_WINDOW, None),
        shapes.Written,
        guard=steps.DELETE_WINDOW.version,
        requests=protection.RequestShown,
        errors=(refusals.WindowNotFound, StaleVersion, BreakGlassForbidden),
        dry_run=True,
    ),
)
