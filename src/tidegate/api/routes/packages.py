"""Packages: the paths of a repository, each with its latest published revision."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from tidegate.api.routes.repositories import Label
from tidegate.api.routes.revision_files import FileSent, decode_files
from tidegate.api.routes.revisions import CONTENT_BODY_BYTES_MAX
from tidegate.control.lanes import LaneBusy
from tidegate.control.operations.packages import PackageOperations, RevisionToImport
from tidegate.control.queries.log_reader import LogReader
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import repository_scope
from tidegate.domain.access.steps import DELETE_PACKAGE, IMPORT_PACKAGE
from tidegate.domain.content.refusals import ContentTooLarge, InvalidReference
from tidegate.domain.packages import history
from tidegate.domain.packages.bulk import IMPORTED_MAX
from tidegate.domain.packages.facts import Numbered
from tidegate.domain.packages.history import TimelineStep
from tidegate.domain.packages.names import full_path
from tidegate.domain.packages.refusals import (
    DeletionPlanOutdated,
    NumberUsed,
    PackageNotDeletable,
    PackageNotEmpty,
    PackageNotFound,
    RepositoryNotFound,
)
from tidegate.domain.packages.rows import PACKAGES, PackageRow, package_key
from tidegate.errors import LimitExceeded
from tidegate.kernel.model import Position
from tidegate.web.inputs import POSITION_MAX, Input, Nothing, Paging, ReadQuery
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


class PackagePath(Input, frozen=True):
    repository: Label
    path: Annotated[str, Meta(min_length=1, max_length=80, pattern=r"^[a-z0-9-]+(/[a-z0-9-]+)*$")]


class PackageFilter(Paging, frozen=True, kw_only=True):
    repository: Label | None = None


class Imported(Input, frozen=True, kw_only=True, rename="camel"):
    """A revision that was published elsewhere."""

    workspace_name: Label
    number: Annotated[int, Meta(ge=1, le=POSITION_MAX)]
    files: tuple[FileSent, ...]
    description: Annotated[str, Meta(max_length=1_024)] = ""


class Import(Input, frozen=True, kw_only=True):
    source: Annotated[str, Meta(min_length=1, max_length=1_024)]
    revisions: Annotated[tuple[Imported, ...], Meta(min_length=1, max_length=IMPORTED_MAX)]


class PackageShown(Struct, frozen=True):
    package: str  # with its repository
    repository: str
    path: str
    revisions: int  # that exist
    latest: Numbered | None
    last_number: int
    version: int


def list_all(
    request: Request[Nothing, PackageFilter, Nothing], reads: Reads, cursors: Cursors
) -> Response:
    """The packages that you may read and that have revisions, by path."""
    query = request.query
    prefix = "" if query.repository is None else f"{query.repository}/"
    after = cursors.after(request)
    found = reads.range(PACKAGES, prefix=prefix, after=after, limit=query.limit)
    last = found[-1].id if len(found) == query.limit else None
    seen = [
        _shown(item)
        for item in found
        if item.row.live
        and request.principal.may(Verb.READ, repository_scope(item.id.partition("/")[0]))
    ]
    return Response(cursors.list_page(request, seen, last))


def get(request: Request[PackagePath, ReadQuery, Nothing], reads: Reads) -> Response:
    """One package; it outlives its revisions, because their numbers stay used."""
    found = _found(request.path, reads)
    return Response(_shown(found), version=found.version)


def steps(
    request: Request[PackagePath, Paging, Nothing], log: LogReader, cursors: Cursors
) -> Response:
    """What happened to the revisions of a package, step by step."""
    package = full_path(request.path.repository, request.path.path)
    after = int(cursors.after(request) or "0")
    query = history.history_of_package(package)
    events = log.events(query, after=after, limit=request.query.limit)
    if not events and not after:
        raise PackageNotFound(package)
    shown = history.timeline(log.vocabulary, events)
    last = str(events[-1].position) if len(events) == request.query.limit else None
    return Response(cursors.list_page(request, shown, last))


# ── all of a package at once ──────────────────────────────────────────────────────────────────────


def delete(
    request: Request[PackagePath, Nothing, Nothing], packages: PackageOperations
) -> Response:
    """Delete every revision of a package, or none: all reasons against it are listed."""
    path = request.path
    return _written(packages.delete(request.caller, path.repository, path.path))


def bring(request: Request[PackagePath, Nothing, Import], packages: PackageOperations) -> Response:
    """Import revisions that were published elsewhere, under their own numbers, oldest first."""
    revisions = tuple(
        RevisionToImport(
            workspace=item.workspace_name,
            number=item.number,
            files=decode_files(item.files),
            description=item.description,
        )
        for item in request.body.revisions
    )
    path, source = request.path, request.body.source
    return _written(
        packages.import_revisions(request.caller, path.repository, path.path, source, revisions)
    )


def _written(position: Position) -> Response:
    return Response(Written(position), position=position)


def _found(path: PackagePath, reads: Reads) -> Found[PackageRow]:
    package = full_path(path.repository, path.path)
    return reads.demand(package_key(package), PackageRow, PackageNotFound(package))


def _shown(found: Found[PackageRow]) -> PackageShown:
    row = found.row
    repository, _, path = row.package.partition("/")
    return PackageShown(
        row.package, repository, path, row.live, row.latest, row.last_number, found.version
    )


def _scope(request: Request[PackagePath, Any, Any]) -> str:
    return repository_scope(request.path.repository)


ROUTES = (
    Route("GET", "/v1/packages", list_all, requires_somewhere(Verb.READ), Listed[PackageShown]),
    Route(
        "GET",
        "/v1/packages/{repository}/{path...}",
        get,
        requires(Verb.READ, _scope),
        PackageShown,
        cached=True,
        quick=True,
        errors=(PackageNotFound,),
    ),
    Route(
        "DELETE",
        "/v1/packages/{repository}/{path...}",
        delete,
        requires_step(DELETE_PACKAGE, _scope),
        Written,
        guard=DELETE_PACKAGE.version,
        errors=(
            PackageNotFound,
            PackageNotDeletable,
            DeletionPlanOutdated,
            LimitExceeded,
            LaneBusy,
        ),
    ),
    Route(
        "POST",
        "/v1/package-imports/{repository}/{path...}",
        bring,
        requires_step(IMPORT_PACKAGE, _scope),
        Written,
        status=201,
        errors=(
            RepositoryNotFound,
            NumberUsed,
            PackageNotEmpty,
            InvalidReference,
            ContentTooLarge,
            LaneBusy,
        ),
        body_bytes_max=CONTENT_BODY_BYTES_MAX,
    ),
    Route(
        "GET",
        "/v1/package-history/{repository}/{path...}",
        steps,
        requires(Verb.READ, _scope),
        Listed[TimelineStep],
        errors=(PackageNotFound,),
    ),
)
