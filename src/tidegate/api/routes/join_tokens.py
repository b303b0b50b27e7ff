"""Join tokens: each enrolls many new hosts, with labels, a limit and an expiry."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, field, structs

from tidegate.api.routes.hosts import Labels
from tidegate.control.operations.join_tokens import JoinTokenOperations, MadeJoinToken
from tidegate.control.queries.people import PeopleNames
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.access import roles, steps
from tidegate.domain.fleet import joins, refusals
from tidegate.web import inputs, paging, routing, shapes


class JoinPath(inputs.Input, frozen=True):
    join_id: Annotated[str, Meta(min_length=1, max_length=64)]


class NewJoinToken(inputs.Input, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=joins.JOIN_HOSTS_MAX)]
    until: Annotated[datetime, Meta(tz=True)]
    labels: Labels = field(default_factory=dict)


class JoinTokenShown(joins.JoinToken, frozen=True, kw_only=True):
    """A join token, without its secret."""

    version: int
    operator_name: str | None = None  # null: erased, or not a person


def list_all(
    request: routing.Request[inputs.Nothing, inputs.Paging, inputs.Nothing],
    reads: Reads,
    cursors: paging.Cursors,
    people: PeopleNames,
) -> routing.Response:
    """List the join tokens, without their secrets."""
    found = reads.range(joins.JOIN_TOKENS, after=cursors.after(request), limit=request.query.limit)
    last = found[-1].id if len(found) == request.query.limit else None
    return routing.Response(
        cursors.list_page(request, [_shown(item, people) for item in found], last)
    )


def show(
    request: routing.Request[JoinPath, inputs.ReadQuery, inputs.Nothing],
    reads: Reads,
    people: PeopleNames,
) -> routing.Response:
    """Get a join token, and how many hosts it enrolled."""
    join_id = request.path.join_id
    found = reads.demand(
        joins.join_key(join_id), joins.JoinToken, refusals.JoinTokenNotFound(join_id)
    )
    return routing.Response(_shown(found, people), version=found.version)


def create(
    request: routing.Request[inputs.Nothing, inputs.Nothing, NewJoinToken],
    join_tokens: JoinTokenOperations,
) -> routing.Response:
    """Make a token that enrolls up to `limit` new hosts; it is shown only in this response."""
    body = request.body
    made, position = join_tokens.create(request.caller, body.labels, body.limit, body.until)
    return routing.Response(made, position=position)


def delete(
    request: routing.Request[JoinPath, inputs.Nothing, inputs.Nothing],
    join_tokens: JoinTokenOperations,
) -> routing.Response:
    """Delete a join token; it enrolls no more hosts."""
    position = join_tokens.delete(request.caller, request.path.join_id)
    return routing.Response(shapes.Written(position), position=position)


def _shown(found: Found[joins.JoinToken], people: PeopleNames) -> JoinTokenShown:
    return JoinTokenShown(
        **structs.asdict(found.row),
        version=found.version,
        operator_name=people.find_name(found.row.operator),
    )


_READ = routing.requires(roles.Verb.READ)

ROUTES = (
    routing.Route("GET", "/v1/join-tokens", list_all, _READ, shapes.Listed[JoinTokenShown]),
    routing.Route(
        "POST",
        "/v1/join-tokens",
        create,
        routing.requires_step(steps.CREATE_JOIN_TOKEN),
        MadeJoinToken,
        status=201,
        errors=(refusals.InvalidLabel,),
    ),
    routing.Route(
        "GET",
        "/v1/join-tokens/{join_id}",
        show,
        _READ,
        JoinTokenShown,
        errors=(refusals.JoinTokenNotFound,),
    ),
    routing.Route(
        "POST",
        "/v1/join-tokens/{join_id}/delete",
        delete,
        routing.requires_step(steps.DELETE_JOIN_TOKEN),
        shapes.Written,
        errors=(refusals.JoinTokenNotFound,),
    ),
)
