"""Join tokens: each enrolls many new hosts, with labels, a limit and an end."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, field
from msgspec.structs import asdict

from tidegate.api.routes.hosts import Labels
from tidegate.control.operations.join_tokens import JoinTokenOperations, MadeJoinToken
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.steps import CREATE_JOIN_TOKEN, DELETE_JOIN_TOKEN
from tidegate.domain.fleet.joins import JOIN_HOSTS_MAX, JOIN_TOKENS, JoinToken, join_key
from tidegate.domain.fleet.refusals import InvalidLabel, JoinTokenNotFound
from tidegate.web.inputs import Input, Nothing, Paging, ReadQuery
from tidegate.web.paging import Cursors
from tidegate.web.routing import Request, Response, Route, requires, requires_step
from tidegate.web.shapes import Listed, Written


class JoinPath(Input, frozen=True):
    join_id: Annotated[str, Meta(min_length=1, max_length=64)]


class NewJoinToken(Input, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=JOIN_HOSTS_MAX)]
    until: Annotated[datetime, Meta(tz=True)]
    labels: Labels = field(default_factory=dict)


class JoinTokenShown(JoinToken, frozen=True, kw_only=True):
    """A join token, without its secret."""

    version: int


def list_all(
    request: Request[Nothing, Paging, Nothing], reads: Reads, cursors: Cursors
) -> Response:
    """The join tokens, without their secrets."""
    found = reads.range(JOIN_TOKENS, after=cursors.after(request), limit=request.query.limit)
    last = found[-1].id if len(found) == request.query.limit else None
    return Response(cursors.list_page(request, [_shown(item) for item in found], last))


def show(request: Request[JoinPath, ReadQuery, Nothing], reads: Reads) -> Response:
    """One join token, and how many hosts it enrolled."""
    join_id = request.path.join_id
    found = reads.demand(join_key(join_id), JoinToken, JoinTokenNotFound(join_id))
    return Response(_shown(found), version=found.version)


def create(
    request: Request[Nothing, Nothing, NewJoinToken], join_tokens: JoinTokenOperations
) -> Response:
    """A token that enrolls up to `limit` new hosts until its end; shown this once."""
    body = request.body
    made, position = join_tokens.create(request.caller, body.labels, body.limit, body.until)
    return Response(made, position=position)


def delete(
    request: Request[JoinPath, Nothing, Nothing], join_tokens: JoinTokenOperations
) -> Response:
    """Let a join token enroll no more hosts."""
    position = join_tokens.delete(request.caller, request.path.join_id)
    return Response(Written(position), position=position)


def _shown(found: Found[JoinToken]) -> JoinTokenShown:
    return JoinTokenShown(**asdict(found.row), version=found.version)


_READ = requires(Verb.READ)

ROUTES = (
    Route("GET", "/v1/join-tokens", list_all, _READ, Listed[JoinTokenShown]),
    Route(
        "POST",
        "/v1/join-tokens",
        create,
        requires_step(CREATE_JOIN_TOKEN),
        MadeJoinToken,
        status=201,
        errors=(InvalidLabel,),
    ),
    Route(
        "GET",
        "/v1/join-tokens/{join_id}",
        show,
        _READ,
        JoinTokenShown,
        errors=(JoinTokenNotFound,),
    ),
    Route(
        "POST",
        "/v1/join-tokens/{join_id}/delete",
        delete,
        requires_step(DELETE_JOIN_TOKEN),
        Written,
        errors=(JoinTokenNotFound,),
    ),
)
