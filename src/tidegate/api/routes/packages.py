"""Packages: the paths of a repository, each with its latest published revision."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from tidegate.api.routes import repositories, revision_files
from tidegate.api.routes.revisions import CONTENT_BODY_BYTES_MAX
from tidegate.control.lanes import LaneBusy
from tidegate.control.operations.packages import PackageOperations, RevisionToImport
from tidegate.control.queries.log_reader import LogReader
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.access import roles, scopes
from tidegate.domain.access.steps import DELETE_PACKAGE, IMPORT_PACKAGE
from tidegate.domain.content.refusals import ContentTooLarge, InvalidReference
from tidegate.domain.packages import bulk, facts, history, names, refusals, rows
from tidegate.errors import LimitExceeded
from tidegate.kernel.model import Position
from tidegate.web import inputs, paging, routing, shapes


class PackagePath(inputs.Input, frozen=True):
    repository: repositories.Label
    path: Annotated[str, Meta(min_length=1, max_length=80, pattern=r"^[a-z0-9-]+(/[a-z0-9-]+)*$")]


class PackageFilter(inputs.Paging, frozen=True, kw_only=True):
    repository: repositories.Label | None = None


class Imported(inputs.Input, frozen=True, kw_only=True, rename="camel"):
    """A revision that was published in another system."""

    workspace_name: repositories.Label
    number: Annotated[int, Meta(ge=1, le=inputs.POSITION_MAX)]
    files: tuple[revision_files.FileSent, ...]
    description: Annotated[str, Meta(max_length=1_024)] = ""


class Import(inputs.Input, frozen=True, kw_only=True):
    source: Annotated[str, Meta(min_length=1, max_length=1_024)]
    revisions: Annotated[tuple[Imported, ...], Meta(min_length=1, max_length=bulk.IMPORTED_MAX)]


class PackageShown(Struct, frozen=True):
    package: str  # with its repository
    repository: str
    path: str
    revisions: int  # existing ones
    latest: facts.Numbered | None
    last_number: int
    version: int


def list_all(
    request: routing.Request[inputs.Nothing, PackageFilter, inputs.Nothing],
    reads: Reads,
    cursors: paging.Cursors,
) -> routing.Response:
    """List the packages with revisions that you may read, by path."""
    query = request.query
    prefix = "" if query.repository is None else f"{query.repository}/"
    after = cursors.after(request)
    found = reads.range(rows.PACKAGES, prefix=prefix, after=after, limit=query.limit)
    if not found and not after and query.repository is not None:
        repositories.demand(reads, query.repository)
    last = found[-1].id if len(found) == query.limit else None
    seen = [
        _shown(item)
        for item in found
        if item.row.live
        and request.principal.may(
            roles.Verb.READ, scopes.repository_scope(item.id.partition("/")[0])
        )
    ]
    return routing.Response(cursors.list_page(request, seen, last))


def get(
    request: routing.Request[PackagePath, inputs.ReadQuery, inputs.Nothing], reads: Reads
) -> routing.Response:
    """Get a package; it outlives its revisions, because their numbers stay used."""
    found = _found(request.path, reads)
    return routing.Response(_shown(found), version=found.version)


def steps(
    request: routing.Request[PackagePath, inputs.Paging, inputs.Nothing],
    log: LogReader,
    cursors: paging.Cursors,
) -> routing.Response:
    """List what happened to the revisions of a package, step by step."""
    package = names.full_path(request.path.repository, request.path.path)
    after = int(cursors.after(request) or "0")
    query = history.history_of_package(package)
    events = log.events(query, after=after, limit=request.query.limit)
    if not events and not after:
        raise refusals.PackageNotFound(package)
    shown = history.timeline(log.vocabulary, events)
    last = str(events[-1].position) if len(events) == request.query.limit else None
    return routing.Response(cursors.list_page(request, shown, last))


# ── bulk commands ─────────────────────────────────────────────────────────────────────────────────


def delete(
    request: routing.Request[PackagePath, inputs.Nothing, inputs.Nothing],
    packages: PackageOperations,
) -> routing.Response:
    """Delete every revision of a package, or none; an error lists every obstacle."""
    path = request.path
    return _written(packages.delete(request.caller, path.repository, path.path))


def bring(
    request: routing.Request[PackagePath, inputs.Nothing, Import], packages: PackageOperations
) -> routing.Response:
    """Import revisions from another system, oldest first; they keep their numbers."""
    revisions = tuple(
        RevisionToImport(
            workspace=item.workspace_name,
            number=item.number,
            files=revision_files.decode_files(item.files),
            description=item.description,
        )
        for item in request.body.revisions
    )
    path, source = request.path, request.body.source
    return _written(
        packages.import_revisions(request.caller, path.repository, path.path, source, revisions)
    )


def _written(position: Position) -> routing.Response:
    return routing.Response(shapes.Written(position), position=position)


def _found(path: PackagePath, reads: Reads) -> Found[rows.PackageRow]:
    package = names.full_path(path.repository, path.path)
    return reads.demand(
        rows.package_key(package), rows.PackageRow, refusals.PackageNotFound(package)
    )


def _shown(found: Found[rows.PackageRow]) -> PackageShown:
    row = found.row
    repository, _, path = row.package.partition("/")
    return PackageShown(
        row.package, repository, path, row.live, row.latest, row.last_number, found.version
    )


def _scope(request: routing.Request[PackagePath, Any, Any]) -> str:
    return scopes.repository_scope(request.path.repository)


ROUTES = (
    routing.Route(
        "GET",
        "/v1/packages",
        list_all,
        routing.requires_somewhere(roles.Verb.READ),
        shapes.Listed[PackageShown],
        errors=(refusals.RepositoryNotFound,),
    ),
    routing.Route(
        "GET",
        "/v1/packages/{repository}/{path...}",
        get,
        routing.requires(roles.Verb.READ, _scope),
        PackageShown,
        cached=True,
        quick=True,
        errors=(refusals.PackageNotFound,),
    ),
    routing.Route(
        "DELETE",
        "/v1/packages/{repository}/{path...}",
        delete,
        routing.requires_step(DELETE_PACKAGE, _scope),
        shapes.Written,
        guard=DELETE_PACKAGE.version,
        errors=(
            refusals.PackageNotFound,
            refusals.PackageNotDeletable,
            refusals.DeletionPlanOutdated,
            LimitExceeded,
            LaneBusy,
        ),
        dry_run=True,
    ),
    routing.Route(
        "POST",
        "/v1/package-imports/{repository}/{path...}",
        bring,
        routing.requires_step(IMPORT_PACKAGE, _scope),
        shapes.Written,
        status=201,
        errors=(
            refusals.RepositoryNotFound,
            refusals.NumberUsed,
            refusals.PackageNotEmpty,
            InvalidReference,
            ContentTooLarge,
            LaneBusy,
        ),
        body_bytes_max=CONTENT_BODY_BYTES_MAX,
    ),
    routing.Route(
        "GET",
        "/v1/package-history/{repository}/{path...}",
        steps,
        routing.requires(roles.Verb.READ, _scope),
        shapes.Listed[history.TimelineStep],
        errors=(refusals.PackageNotFound,),
    ),
)
