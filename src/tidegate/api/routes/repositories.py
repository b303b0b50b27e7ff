"""Repositories: where packages live, and how many approvals a publication of theirs needs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from tidegate.api.routes.channels import ReasonBody
from tidegate.control.operations.repositories import RepositoryOperations
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import repository_scope
from tidegate.domain.access.steps import CHANGE_REPOSITORY, CREATE_REPOSITORY, DELETE_REPOSITORY
from tidegate.domain.packages.names import LABEL_CHARS_MAX
from tidegate.domain.packages.refusals import (
    AlreadyExists,
    InvalidName,
    RepositoryInUse,
    RepositoryNotFound,
)
from tidegate.domain.packages.rows import REPOSITORIES, Repository, repository_key
from tidegate.domain.packages.slices import QUORUM_DEFAULT, QUORUM_MAX
from tidegate.kernel.model import Position
from tidegate.web.inputs import Input, Nothing, Paging, ReadQuery
from tidegate.web.paging import Cursors
from tidegate.web.routing import (
    Request,
    Response,
    Route,
    requires,
    requires_somewhere,
    requires_step,
)
from tidegate.web.shapes import Listed, Written

Label = Annotated[
    str, Meta(min_length=1, max_length=LABEL_CHARS_MAX, pattern="^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")
]
Quorum = Annotated[int, Meta(ge=0, le=QUORUM_MAX)]


class RepositoryPath(Input, frozen=True):
    repository: Label


class NewRepository(Input, frozen=True, kw_only=True):
    name: Label
    quorum: Quorum = QUORUM_DEFAULT
    deployment: bool = False
    protect_proposed: bool | None = None


class RepositoryChange(Input, frozen=True, kw_only=True):
    """What is left out stays as it is."""

    quorum: Quorum | None = None
    deployment: bool | None = None
    protect_proposed: bool | None = None


class RepositoryShown(Struct, frozen=True):
    name: str
    quorum: int
    deployment: bool
    protect_proposed: bool
    version: int


def _of_path(request: Request[RepositoryPath, Nothing, Nothing]) -> str:
    return repository_scope(request.path.repository)


def _shown(found: Found[Repository]) -> RepositoryShown:
    row = found.row
    return RepositoryShown(
        row.name, row.quorum, row.deployment, row.protect_proposed, found.version
    )


def create(
    request: Request[Nothing, Nothing, NewRepository], repositories: RepositoryOperations
) -> Response:
    """Make a repository."""
    body = request.body
    outcome = repositories.create(
        request.caller,
        body.name,
        quorum=body.quorum,
        deployment=body.deployment,
        protect_proposed=body.protect_proposed,
    )
    return _show(outcome.found, outcome.position)


def get(request: Request[RepositoryPath, ReadQuery, Nothing], reads: Reads) -> Response:
    """One repository."""
    name = request.path.repository
    found = reads.demand(repository_key(name), Repository, RepositoryNotFound(name))
    return _show(found)


def change(
    request: Request[RepositoryPath, Nothing, RepositoryChange], repositories: RepositoryOperations
) -> Response:
    """Change how a repository wants its revisions approved."""
    body = request.body
    outcome = repositories.change(
        request.caller,
        request.path.repository,
        quorum=body.quorum,
        deployment=body.deployment,
        protect_proposed=body.protect_proposed,
    )
    return _show(outcome.found, outcome.position)


def delete(
    request: Request[RepositoryPath, Nothing, ReasonBody], repositories: RepositoryOperations
) -> Response:
    """Delete a repository without packages. Its history stays."""
    position = repositories.delete(request.caller, request.path.repository, request.body.reason)
    return Response(Written(position), position=position)


def list_all(
    request: Request[Nothing, Paging, Nothing], reads: Reads, cursors: Cursors
) -> Response:
    """The repositories that you may read, by name."""
    found = reads.range(REPOSITORIES, after=cursors.after(request), limit=request.query.limit)
    last = found[-1].id if len(found) == request.query.limit else None
    seen = [
        _shown(item)
        for item in found
        if request.principal.may(Verb.READ, repository_scope(item.row.name))
    ]
    return Response(cursors.list_page(request, seen, last))


def _show(found: Found[Repository], position: Position = 0) -> Response:
    return Response(_shown(found), version=found.version, position=position)


ROUTES = (
    Route(
        "POST",
        "/v1/repositories",
        create,
        requires_step(CREATE_REPOSITORY),
        RepositoryShown,
        status=201,
        errors=(AlreadyExists, InvalidName),
    ),
    Route(
        "GET", "/v1/repositories", list_all, requires_somewhere(Verb.READ), Listed[RepositoryShown]
    ),
    Route(
        "GET",
        "/v1/repositories/{repository}",
        get,
        requires(Verb.READ, _of_path),
        RepositoryShown,
        cached=True,
        quick=True,
        errors=(RepositoryNotFound,),
    ),
    Route(
        "PATCH",
        "/v1/repositories/{repository}",
        change,
        requires_step(CHANGE_REPOSITORY, _of_path),
        RepositoryShown,
        guard=CHANGE_REPOSITORY.version,
        errors=(RepositoryNotFound,),
    ),
    Route(
        "POST",
        "/v1/repositories/{repository}/delete",
        delete,
        requires_step(DELETE_REPOSITORY, _of_path),
        Written,
        errors=(RepositoryNotFound, RepositoryInUse),
    ),
)
