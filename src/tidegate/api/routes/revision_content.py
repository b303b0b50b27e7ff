"""What a revision holds and how it came to be: files, differences, history, lineage."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import asdict

from tidegate.api.routes.revision_files import FileSent, decode_files
from tidegate.api.routes.revisions import (
    CONTENT_BODY_BYTES_MAX,
    RevisionPath,
    revision_scope,
    show_outcome,
)
from tidegate.control.lanes import LaneBusy
from tidegate.control.operations.accounts import Accounts
from tidegate.control.operations.revisions import RevisionOperations
from tidegate.control.queries import revisions
from tidegate.control.queries.file_changes import FileChanged, diff_files
from tidegate.control.queries.log_reader import LogReader
from tidegate.control.queries.people import PeopleNames
from tidegate.control.queries.reads import Reads
from tidegate.control.storage.blobs import BlobDamaged, BlobMissing, Blobs
from tidegate.control.storage.content_store import ContentArchive, open_content, read_manifest
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.scopes import repository_scope
from tidegate.domain.access.steps import EDIT_REVISION, READ_REVISION
from tidegate.domain.content.digests import DIGEST_PREFIX
from tidegate.domain.content.entries import File
from tidegate.domain.content.manifests import Content, FileManifest
from tidegate.domain.content.refusals import (
    ContentTooLarge,
    InvalidFilePath,
    InvalidLink,
    InvalidReference,
)
from tidegate.domain.packages import history
from tidegate.domain.packages.documents import RevisionDocument
from tidegate.domain.packages.facts import Lineage
from tidegate.domain.packages.history import TimelineStep
from tidegate.domain.packages.names import NAME_CHARS_MAX, parse
from tidegate.domain.packages.refusals import FileByReference, NotDraft, RevisionNotFound
from tidegate.errors import NotFound
from tidegate.web.downloads import Download
from tidegate.web.inputs import Input, Nothing, Paging, ReadQuery
from tidegate.web.paging import Cursors
from tidegate.web.routing import Request, Response, Route, requires_step
from tidegate.web.shapes import Listed

HISTORY_START = "0"


class FileNotFound(NotFound):
    """The revision has no file of this path."""

    code = "file_not_found"

    def __init__(self, name: str, path: str) -> None:
        super().__init__(f"{name} has no file {path[:200]!r}", revision=name, path=path[:1_024])


class NamedStep(TimelineStep, frozen=True, rename="camel", kw_only=True):
    by_name: str | None  # how they are called now; None: erased, or no person


class NamedPerson(Struct, frozen=True):
    user_id: str
    name: str | None  # None: erased, or no person


class FilePath(Input, frozen=True):
    name: str
    path: Annotated[str, Meta(min_length=1, max_length=1_024)]


class Files(Input, frozen=True, kw_only=True):
    """All files that the revision shall have."""

    files: tuple[FileSent, ...]


class Against(ReadQuery, frozen=True, kw_only=True):
    """Which revision to compare with; none: the latest published one of the package."""

    against: Annotated[str, Meta(max_length=NAME_CHARS_MAX)] = ""


class RevisionHistoryQuery(Paging, frozen=True, kw_only=True):
    uid: Annotated[str, Meta(max_length=64)] = ""  # of one of several that had the name


class Resources(Struct, frozen=True):
    content: Content
    files: tuple[File, ...]


class Compared(Struct, frozen=True):
    old: str | None
    new: str
    changes: tuple[FileChanged, ...]


class Descent(Struct, frozen=True):
    """What a revision descends from, nearest first, and what descends from it."""

    lineage: tuple[Lineage, ...]
    dependents: tuple[str, ...]
    last_good: str | None  # the package's latest published revision


def resources(
    request: Request[RevisionPath, ReadQuery, Nothing], reads: Reads, blobs: Blobs
) -> Response:
    """The files of a revision: paths, sizes and hashes, and of a reference its uri."""
    row = revisions.demand_row(reads, request.path.name)
    return Response(Resources(row.content, read_manifest(blobs, row.content).files))


def download(
    request: Request[FilePath, ReadQuery, Nothing], reads: Reads, blobs: Blobs
) -> Response:
    """The bytes of one file, checked against their hash; of a reference, where they are."""
    name, path = request.path.name, request.path.path
    row = revisions.demand_row(reads, name)
    file = read_manifest(blobs, row.content).by_path.get(path)
    if file is None:
        raise FileNotFound(name, path)
    return Response(
        download=Download(file.bytes, partial(open_content, blobs, file)),
        tag=f'"{file.sha256}"',
        media="application/octet-stream",
        headers={"content-disposition": "attachment", "tidegate-sha256": file.sha256},
    )


def pull(
    request: Request[RevisionPath, ReadQuery, Nothing], reads: Reads, blobs: Blobs
) -> Response:
    """All files that are kept here as one tar; the same bytes for the same content.

    References are not in it: tidegate-references says how many there are, resources lists them.
    """
    row = revisions.demand_row(reads, request.path.name)
    archive = ContentArchive(blobs, read_manifest(blobs, row.content))
    headers = {
        "content-disposition": "attachment",
        "tidegate-digest": row.content.digest,
        "tidegate-references": str(row.content.references),
    }
    return Response(
        download=Download(archive.size, archive.read),
        tag=f'"{row.content.manifest.removeprefix(DIGEST_PREFIX)}"',
        media="application/x-tar",
        headers=headers,
    )


def push(request: Request[RevisionPath, Nothing, Files], revisions: RevisionOperations) -> Response:
    """Replace all files of a Draft."""
    files = decode_files(request.body.files)
    return show_outcome(revisions.push_files(request.caller, request.path.name, files))


def compare(
    request: Request[RevisionPath, Against, Nothing], reads: Reads, blobs: Blobs
) -> Response:
    """How a revision differs from another one, file by file and line by line."""
    name = request.path.name
    new = revisions.demand_row(reads, name)
    against = request.query.against or revisions.find_latest(reads, new.package)
    old = FileManifest(())
    if against is not None:
        request.caller.demand(READ_REVISION, repository_scope(parse(against).repository))
        old = read_manifest(blobs, revisions.demand_row(reads, against).content)
    found = diff_files(blobs, old, read_manifest(blobs, new.content))
    return Response(Compared(against, name, found))


def steps(
    request: Request[RevisionPath, RevisionHistoryQuery, Nothing],
    log: LogReader,
    cursors: Cursors,
    people: PeopleNames,
) -> Response:
    """Who did what, when and why; readable after the revision is gone, too."""
    after = int(cursors.after(request) or HISTORY_START)
    query = history.history_of(request.path.name)
    events = log.events(query, after=after, limit=request.query.limit)
    if not events and not after:
        raise RevisionNotFound(request.path.name)
    uid = request.query.uid or None
    shown = [
        NamedStep(**asdict(step), by_name=people.find_name(step.by))
        for step in history.timeline(log.vocabulary, events, uid)
    ]
    last = str(events[-1].position) if len(events) == request.query.limit else None
    return Response(cursors.list_page(request, shown, last))


def descent(request: Request[RevisionPath, ReadQuery, Nothing], reads: Reads) -> Response:
    """Where a revision comes from, and what comes from it, as far as you may read it."""
    name = request.path.name
    row = revisions.demand_row(reads, name)
    above = revisions.list_lineage(reads, name)
    below = revisions.list_dependents(reads, name)
    caller = request.caller
    return Response(
        Descent(
            tuple(item for item in above if _may_read(caller, item.name)),
            tuple(item for item in below if _may_read(caller, item)),
            revisions.find_latest(reads, row.package),
        )
    )


def _may_read(caller: Caller, name: str) -> bool:
    return caller.may(READ_REVISION, repository_scope(parse(name).repository))


def _file_scope(request: Request[FilePath, ReadQuery, Nothing]) -> str:
    return repository_scope(parse(request.path.name).repository)


def people(
    request: Request[RevisionPath, ReadQuery, Nothing], reads: Reads, accounts: Accounts
) -> Response:
    """The names of those who made, changed, proposed, approved and published it."""
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
    return Response(Listed(tuple(shown)))


_READ = requires_step(READ_REVISION, revision_scope)
_BLOBS = (RevisionNotFound, BlobMissing, BlobDamaged)

ROUTES = (
    Route("GET", "/v1/revisions/{name}/resources", resources, _READ, Resources, errors=_BLOBS),
    Route(
        "PUT",
        "/v1/revisions/{name}/resources",
        push,
        requires_step(EDIT_REVISION, revision_scope),
        RevisionDocument,
        guard=EDIT_REVISION.version,
        errors=(
            RevisionNotFound,
            NotDraft,
            InvalidFilePath,
            InvalidReference,
            InvalidLink,
            ContentTooLarge,
            LaneBusy,
        ),
        body_bytes_max=CONTENT_BODY_BYTES_MAX,
    ),
    Route(
        "GET",
        "/v1/revisions/{name}/resources/{path...}",
        download,
        requires_step(READ_REVISION, _file_scope),
        bytes,
        produces="application/octet-stream",
        errors=(*_BLOBS, FileNotFound, FileByReference),
        ranges=True,
    ),
    Route(
        "GET",
        "/v1/revisions/{name}/archive",
        pull,
        _READ,
        bytes,
        produces="application/x-tar",
        errors=_BLOBS,
        ranges=True,
    ),
    Route("GET", "/v1/revisions/{name}/diff", compare, _READ, Compared, errors=_BLOBS),
    Route(
        "GET",
        "/v1/revisions/{name}/history",
        steps,
        _READ,
        Listed[NamedStep],
        errors=(RevisionNotFound,),
    ),
    Route(
        "GET",
        "/v1/revisions/{name}/people",
        people,
        _READ,
        Listed[NamedPerson],
        errors=(RevisionNotFound,),
    ),
    Route(
        "GET", "/v1/revisions/{name}/lineage", descent, _READ, Descent, errors=(RevisionNotFound,)
    ),
)
