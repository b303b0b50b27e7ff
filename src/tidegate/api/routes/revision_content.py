"""The content and history of a revision: files, differences, steps, lineage."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from msgspec import Meta, Struct, structs

from tidegate.api.routes import revision_files, revisions as route_revisions
from tidegate.control.lanes import LaneBusy
from tidegate.control.operations.accounts import Accounts
from tidegate.control.operations.revisions import RevisionOperations
from tidegate.control.queries import file_changes, log_reader, revisions
from tidegate.control.queries.people import PeopleNames
from tidegate.control.queries.reads import Reads
from tidegate.control.storage.blobs import BlobDamaged, BlobMissing, Blobs
from tidegate.control.storage.content_store import ContentArchive, open_content, read_manifest
from tidegate.domain.access import callers, scopes
from tidegate.domain.access.steps import EDIT_REVISION, READ_REVISION
from tidegate.domain.content import digests, entries, manifests, refusals as content_refusals
from tidegate.domain.packages import documents, facts, history, names, refusals as package_refusals
from tidegate.errors import NotFound
from tidegate.web import downloads, inputs, paging, routing, shapes

HISTORY_START = "0"


class FileNotFound(NotFound):
    """The revision has no file of this path."""

    code = "file_not_found"

    def __init__(self, name: str, path: str) -> None:
        super().__init__(f"{name} has no file {path[:200]!r}", revision=name, path=path[:1_024])


class NamedStep(history.TimelineStep, frozen=True, rename="camel", kw_only=True):
    by_name: str | None  # their current name; null: erased, or not a person


class NamedPerson(Struct, frozen=True):
    user_id: str
    name: str | None  # null: erased, or not a person


class FilePath(inputs.Input, frozen=True):
    name: str
    path: Annotated[str, Meta(min_length=1, max_length=1_024)]


class Files(inputs.Input, frozen=True, kw_only=True):
    """All files of the revision."""

    files: tuple[revision_files.FileSent, ...]


class Against(inputs.ReadQuery, frozen=True, kw_only=True):
    """The revision to compare with; without one, the latest published one of the package."""

    against: Annotated[str, Meta(max_length=names.NAME_CHARS_MAX)] = ""


class RevisionHistoryQuery(inputs.Paging, frozen=True, kw_only=True):
    # Selects one of several revisions that had this name.
    uid: Annotated[str, Meta(max_length=64)] = ""


class Resources(Struct, frozen=True):
    content: manifests.Content
    files: tuple[entries.File, ...]


class Compared(Struct, frozen=True):
    old: str | None
    new: str
    changes: tuple[file_changes.FileChanged, ...]


class Descent(Struct, frozen=True):
    """The revisions that a revision descends from, nearest first, and its descendants."""

    lineage: tuple[facts.Lineage, ...]
    dependents: tuple[str, ...]
    last_good: str | None  # the latest published revision of the package


def resources(
    request: routing.Request[route_revisions.RevisionPath, inputs.ReadQuery, inputs.Nothing],
    reads: Reads,
    blobs: Blobs,
) -> routing.Response:
    """List the files of a revision: paths, sizes, hashes, and the URIs of references."""
    row = revisions.demand_row(reads, request.path.name)
    return routing.Response(Resources(row.content, read_manifest(blobs, row.content).files))


def download(
    request: routing.Request[FilePath, inputs.ReadQuery, inputs.Nothing], reads: Reads, blobs: Blobs
) -> routing.Response:
    """Download one file, verified against its hash, or find where a reference is stored."""
    name, path = request.path.name, request.path.path
    row = revisions.demand_row(reads, name)
    file = read_manifest(blobs, row.content).by_path.get(path)
    if file is None:
        raise FileNotFound(name, path)
    return routing.Response(
        download=downloads.Download(file.bytes, partial(open_content, blobs, file)),
        tag=f'"{file.sha256}"',
        media="application/octet-stream",
        headers={"content-disposition": "attachment", "tidegate-sha256": file.sha256},
    )


def pull(
    request: routing.Request[route_revisions.RevisionPath, inputs.ReadQuery, inputs.Nothing],
    reads: Reads,
    blobs: Blobs,
) -> routing.Response:
    """Download all stored files as one tar; equal content gives equal bytes.

    References are not included: tidegate-references has their number, resources lists them.
    """
    row = revisions.demand_row(reads, request.path.name)
    archive = ContentArchive(blobs, read_manifest(blobs, row.content))
    headers = {
        "content-disposition": "attachment",
        "tidegate-digest": row.content.digest,
        "tidegate-references": str(row.content.references),
    }
    return routing.Response(
        download=downloads.Download(archive.size, archive.read),
        tag=f'"{row.content.manifest.removeprefix(digests.DIGEST_PREFIX)}"',
        media="application/x-tar",
        headers=headers,
    )


def push(
    request: routing.Request[route_revisions.RevisionPath, inputs.Nothing, Files],
    revisions: RevisionOperations,
) -> routing.Response:
    """Replace all files of a Draft."""
    files = revision_files.decode_files(request.body.files)
    return route_revisions.show_outcome(
        revisions.push_files(request.caller, request.path.name, files)
    )


def compare(
    request: routing.Request[route_revisions.RevisionPath, Against, inputs.Nothing],
    reads: Reads,
    blobs: Blobs,
) -> routing.Response:
    """Compare a revision with another one, file by file and line by line."""
    name = request.path.name
    new = revisions.demand_row(reads, name)
    against = request.query.against or revisions.find_latest(reads, new.package)
    old = manifests.FileManifest(())
    if against is not None:
        request.caller.demand(
            READ_REVISION, scopes.repository_scope(names.parse(against).repository)
        )
        old = read_manifest(blobs, revisions.demand_row(reads, against).content)
    found = file_changes.diff_files(blobs, old, read_manifest(blobs, new.content))
    return routing.Response(Compared(against, name, found))


def steps(
    request: routing.Request[route_revisions.RevisionPath, RevisionHistoryQuery, inputs.Nothing],
    log: log_reader.LogReader,
    cursors: paging.Cursors,
    people: PeopleNames,
) -> routing.Response:
    """List who did what, when and why; also for a deleted revision."""
    after = int(cursors.after(request) or HISTORY_START)
    query = history.history_of(request.path.name)
    events = log.events(query, after=after, limit=request.query.limit)
    if not events and not after:
        raise package_refusals.RevisionNotFound(request.path.name)
    uid = request.query.uid or None
    shown = [
        NamedStep(**structs.asdict(step), by_name=people.find_name(step.by))
        for step in history.timeline(log.vocabulary, events, uid)
    ]
    last = str(events[-1].position) if len(events) == request.query.limit else None
    return routing.Response(cursors.list_page(request, shown, last))


def descent(
    request: routing.Request[route_revisions.RevisionPath, inputs.ReadQuery, inputs.Nothing],
    reads: Reads,
) -> routing.Response:
    """List the ancestors and descendants of a revision that you may read."""
    name = request.path.name
    row = revisions.demand_row(reads, name)
    above = revisions.list_lineage(reads, name)
    below = revisions.list_dependents(reads, name)
    caller = request.caller
    return routing.Response(
        Descent(
            tuple(item for item in above if _may_read(caller, item.name)),
            tuple(item for item in below if _may_read(caller, item)),
            revisions.find_latest(reads, row.package),
        )
    )


def _may_read(caller: callers.Caller, name: str) -> bool:
    return caller.may(READ_REVISION, scopes.repository_scope(names.parse(name).repository))


def _file_scope(request: routing.Request[FilePath, inputs.ReadQuery, inputs.Nothing]) -> str:
    return scopes.repository_scope(names.parse(request.path.name).repository)


def people(
    request: routing.Request[route_revisions.RevisionPath, inputs.ReadQuery, inputs.Nothing],
    reads: Reads,
    accounts: Accounts,
) -> routing.Response:
    """List the people who created, changed, proposed, approved and published a revision."""
    row = revisions.demand_row(reads, request.path.name)
    ids = dict.fromkeys(
        (
            *(row.created_by, *row.editors, row.proposed_by, *row.approvals, row.published_by),
            row.deletion_proposed_by,
        )
    )
    shown = []
    for user_id in ids:
        if user_id:
            called = accounts.called(user_id)
            shown.append(NamedPerson(user_id, None if called is None else called.name))
    return routing.Response(shapes.Listed(tuple(shown)))


_READ = routing.requires_step(READ_REVISION, route_revisions.revision_scope)
_BLOBS = (package_refusals.RevisionNotFound, BlobMissing, BlobDamaged)

ROUTES = (
    routing.Route(
        "GET", "/v1/revisions/{name}/resources", resources, _READ, Resources, errors=_BLOBS
    ),
    routing.Route(
        "PUT",
        "/v1/revisions/{name}/resources",
        push,
        routing.requires_step(EDIT_REVISION, route_revisions.revision_scope),
        documents.RevisionDocument,
        guard=EDIT_REVISION.version,
        errors=(
            package_refusals.RevisionNotFound,
            package_refusals.NotDraft,
            content_refusals.InvalidFilePath,
            content_refusals.InvalidReference,
            content_refusals.InvalidLink,
            content_refusals.ContentTooLarge,
            LaneBusy,
        ),
        body_bytes_max=route_revisions.CONTENT_BODY_BYTES_MAX,
    ),
    routing.Route(
        "GET",
        "/v1/revisions/{name}/resources/{path...}",
        download,
        routing.requires_step(READ_REVISION, _file_scope),
        bytes,
        produces="application/octet-stream",
        errors=(*_BLOBS, FileNotFound, package_refusals.FileByReference),
        ranges=True,
    ),
    routing.Route(
        "GET",
        "/v1/revisions/{name}/archive",
        pull,
        _READ,
        bytes,
        produces="application/x-tar",
        errors=_BLOBS,
        ranges=True,
    ),
    routing.Route("GET", "/v1/revisions/{name}/diff", compare, _READ, Compared, errors=_BLOBS),
    routing.Route(
        "GET",
        "/v1/revisions/{name}/history",
        steps,
        _READ,
        shapes.Listed[NamedStep],
        errors=(package_refusals.RevisionNotFound,),
    ),
    routing.Route(
        "GET",
        "/v1/revisions/{name}/people",
        people,
        _READ,
        shapes.Listed[NamedPerson],
        errors=(package_refusals.RevisionNotFound,),
    ),
    routing.Route(
        "GET",
        "/v1/revisions/{name}/lineage",
        descent,
        _READ,
        Descent,
        errors=(package_refusals.RevisionNotFound,),
    ),
)
