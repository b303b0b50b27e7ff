"""Repositories: groups of packages, with the number of approvals that publish a revision."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from tidegate.api.routes.channels import ReasonBody
from tidegate.control.operations.repositories import RepositoryOperations
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.access import roles, scopes, steps
from tidegate.domain.packages import names, refusals, rows, slices
from tidegate.kernel.model import Position
from tidegate.web import inputs, paging, routing, shapes

Label = Annotated[
    str,
    Meta(min_length=1, max_length=names.LABEL_CHARS_MAX, pattern="^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"),
]
Quorum = Annotated[int, Meta(ge=0, le=slices.QUORUM_MAX)]


class RepositoryPath(inputs.Input, frozen=True):
    repository: Label


class NewRepository(inputs.Input, frozen=True, kw_only=True):
    name: Label
    quorum: Quorum = slices.QUORUM_DEFAULT
    deployment: bool = False
    protect_proposed: bool | None = None


class RepositoryChange(inputs.Input, frozen=True, kw_only=True):
    """Members that are left out do not change."""

    quorum: Quorum | None = None
    deployment: bool | None = None
    protect_proposed: bool | None = None


class RepositoryShown(Struct, frozen=True):
    name: str
    quorum: int
    deployment: bool
    protect_proposed: bool
    version: int


def _of_path(request: routing.Request[RepositoryPath, inputs.Nothing, inputs.Nothing]) -> str:
    return scopes.repository_scope(request.path.repository)


def _shown(found: Found[rows.Repository]) -> RepositoryShown:
    row = found.row
    return RepositoryShown(
        row.name, row.quorum, row.deployment, row.protect_proposed, found.version
    )


def create(
    request: routing.Request[inputs.Nothing, inputs.Nothing, NewRepository],
    repositories: RepositoryOperations,
) -> routing.Response:
    """Create a repository."""
    body = request.body
    outcome = repositories.create(
        request.caller,
        body.name,
        quorum=body.quorum,
        deployment=body.deployment,
        protect_proposed=body.protect_proposed,
    )
    return _show(outcome.found, outcome.position)


def get(
    request: routing.Request[RepositoryPath, inputs.ReadQuery, inputs.Nothing], reads: Reads
) -> routing.Response:
    """Get one repository."""
    return _show(demand(reads, request.path.repository))


def demand(reads: Reads, name: str) -> Found[rows.Repository]:
    """The repository. Raises: RepositoryNotFound."""
    return reads.demand(
        rows.repository_key(name), rows.Repository, refusals.RepositoryNotFound(name)
    )


def change(
    request: routing.Request[RepositoryPath, inputs.Nothing, RepositoryChange],
    repositories: RepositoryOperations,
) -> routing.Response:
    """Change how the revisions of a repository are approved."""
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
    request: routing.Request[RepositoryPath, inputs.Nothing, ReasonBody],
    repositories: RepositoryOperations,
) -> routing.Response:
    """Delete a repository without packages. Its history is kept."""
    position = repositories.delete(request.caller, request.path.repository, request.body.reason)
    return routing.Response(shapes.Written(position), position=position)


def list_all(
    request: routing.Request[inputs.Nothing, inputs.Paging, inputs.Nothing],
    reads: Reads,
    cursors: paging.Cursors,
) -> routing.Response:
    """List the repositories that you may read, by name."""
    found = reads.range(rows.REPOSITORIES, after=cursors.after(request), limit=request.query.limit)
    last = found[-1].id if len(found) == request.query.limit else None
    seen = [
        _shown(item)
        for item in found
        if request.principal.may(roles.Verb.READ, scopes.repository_scope(item.row.name))
    ]
    return routing.Response(cursors.list_page(request, seen, last))


def _show(found: Found[rows.Repository], position: Position = 0) -> routing.Response:
    return routing.Response(_shown(found), version=found.version, position=position)


ROUTES = (
    routing.Route(
        "POST",
        "/v1/repositories",
        create,
        routing.requires_step(steps.CREATE_REPOSITORY),
        RepositoryShown,
        status=201,
        errors=(refusals.AlreadyExists, refusals.InvalidName),
    ),
    routing.Route(
        "GET",
        "/v1/repositories",
        list_all,
        routing.requires_somewhere(roles.Verb.READ),
        shapes.Listed[RepositoryShown],
    ),
    routing.Route(
        "GET",
        "/v1/repositories/{repository}",
        get,
        routing.requires(roles.Verb.READ, _of_path),
        RepositoryShown,
        cached=True,
        quick=True,
        errors=(refusals.RepositoryNotFound,),
    ),
    routing.Route(
        "PATCH",
        "/v1/repositories/{repository}",
        change,
        routing.requires_step(steps.CHANGE_REPOSITORY, _of_path),
        RepositoryShown,
        guard=steps.CHANGE_REPOSITORY.version,
        errors=(refusals.RepositoryNotFound,),
        dry_run=True,
    ),
    routing.Route(
        "POST",
        "/v1/repositories/{repository}/delete",
        delete,
        routing.requires_step(steps.DELETE_REPOSITORY, _of_path),
        shapes.Written,
        errors=(refusals.RepositoryNotFound, refusals.RepositoryInUse),
        dry_run=True,
    ),
)
