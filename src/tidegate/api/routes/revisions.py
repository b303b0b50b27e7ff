"""Package revisions: listed, drafted, changed, reviewed, deleted; each change names its version.

The document and its members are spelt as docs/design/packages.md spells them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta, field

from tidegate.api.routes.repositories import Label
from tidegate.api.routes.revision_files import FileSent, decode_files
from tidegate.control.lanes import LaneBusy
from tidegate.control.operations.revisions import RevisionOperations, RevisionOutcome
from tidegate.control.queries.as_of import HistoryTooLong, RowHistory
from tidegate.control.queries.log_reader import LogReader
from tidegate.control.queries.reads import Found, Reads, Row
from tidegate.control.queries.revisions import RevisionInPackage, find_revision, revision_at
from tidegate.domain.access import steps
from tidegate.domain.access.refusals import ApprovalsBarred
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import repository_scope
from tidegate.domain.content.entries import CONTENT_BYTES_MAX
from tidegate.domain.content.refusals import ContentTooLarge, InvalidReference
from tidegate.domain.packages.documents import RevisionDocument, to_document
from tidegate.domain.packages.facts import Condition, Metadata, OwnerReference, Task
from tidegate.domain.packages.names import NAME_CHARS_MAX, parse
from tidegate.domain.packages.refusals import (
    ContentDamaged,
    DigestMismatch,
    Immutable,
    InvalidName,
    NotReady,
    RevisionNotFound,
    SelfApproval,
    Terminating,
    TransitionRefused,
)
from tidegate.domain.packages.rows import (
    REVISION_OWNERS,
    REVISIONS,
    PackageRow,
    Repository,
    Revision,
    owner_prefix,
    package_key,
    repository_key,
    revision_key,
)
from tidegate.domain.packages.states import Lifecycle
from tidegate.kernel.model import Position
from tidegate.web.as_of import AsOfQuery, position_of
from tidegate.web.inputs import Input, Nothing, Paging
from tidegate.web.paging import Cursors
from tidegate.web.routing import (
    Request,
    Response,
    Route,
    requires_somewhere,
    requires_step,
)
from tidegate.web.shapes import Listed

ME = "me"
CONTENT_BODY_BYTES_MAX = CONTENT_BYTES_MAX * 3 // 2  # base64, and some JSON around it

Name = Annotated[
    str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+){2,}$")
]
PackagePath = Annotated[
    str, Meta(min_length=1, max_length=80, pattern=r"^[a-z0-9-]+(/[a-z0-9-]+)*$")
]
Text = Annotated[str, Meta(max_length=1_024)]
Labels = Annotated[dict[str, str], Meta(max_length=64)]
Texts = Annotated[tuple[str, ...], Meta(max_length=64)]
Owners = Annotated[tuple[OwnerReference, ...], Meta(max_length=32)]
Tasks = Annotated[tuple[Task, ...], Meta(max_length=32)]
Digest = Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]

Author = Annotated[str, Meta(min_length=1, max_length=128, pattern="^[A-Za-z0-9_.-]+$")]
Owner = Annotated[str, Meta(min_length=3, max_length=571, pattern=r"^[^\x00-\x1f]+/[^\x00-\x1f]+$")]


class RevisionPath(Input, frozen=True):
    name: Name


class NewRevision(Input, frozen=True, kw_only=True, rename="camel"):
    """A Draft, made by one task; without one, from nothing."""

    repository: Label
    package_name: PackagePath
    workspace_name: Label
    lifecycle: Text = ""
    tasks: Tasks = ()
    files: tuple[FileSent, ...] | None = None
    labels: Labels = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    finalizers: Texts = ()
    owner_references: Owners = ()
    readiness_gates: Texts = ()


class RevisionChange(Input, frozen=True, kw_only=True, rename="camel"):
    """The revision as it shall be; what is left out stays as it is."""

    lifecycle: Text | None = None
    tasks: Tasks | None = None
    files: tuple[FileSent, ...] | None = None
    labels: Labels | None = None
    annotations: dict[str, str] | None = None
    finalizers: Texts | None = None
    owner_references: Owners | None = None
    readiness_gates: Texts | None = None
    reason: Text = ""


class Conditions(Input, frozen=True, kw_only=True):
    digest: Digest
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=64)]


class Remark(Input, frozen=True, kw_only=True):
    reason: Text = ""


class Refusal(Input, frozen=True, kw_only=True):
    """Turning somebody down needs a reason that they can read."""

    reason: Annotated[str, Meta(min_length=1, max_length=1_024)]


class Approval(Input, frozen=True, kw_only=True):
    digest: Digest  # of the content that was looked at
    reason: Text = ""


class RevisionFilter(Paging, frozen=True, kw_only=True):
    repository: Label | None = None
    package: Annotated[str, Meta(max_length=160)] | None = None  # with its repository
    lifecycle: Lifecycle | None = None
    author: Author | None = None  # who drafted it; me: you
    owner: Owner | None = None  # one of its ownerReferences: kind/id


Reviewed = Request[RevisionPath, Nothing, Remark]
Refused = Request[RevisionPath, Nothing, Refusal]
Filtered = Request[Nothing, RevisionFilter, Nothing]
FoundPage = tuple[list[Found[Any]], str | None]  # revisions, and where the next page begins


def revision_scope(request: Request[RevisionPath, Any, Any]) -> str:
    """The repository that a revision's name begins with."""
    return repository_scope(parse(request.path.name).repository)


# ── create, read ──────────────────────────────────────────────────────────────────────────────────


def create(
    request: Request[Nothing, Nothing, NewRevision], revisions: RevisionOperations
) -> Response:
    """Draft a revision: init, clone, edit or upgrade."""
    body = request.body
    outcome = revisions.create(
        request.caller,
        body.repository,
        body.package_name,
        body.workspace_name,
        lifecycle=body.lifecycle,
        tasks=body.tasks,
        metadata=Metadata(body.labels, body.annotations, body.finalizers, body.owner_references),
        readiness_gates=body.readiness_gates,
        files=None if body.files is None else decode_files(body.files),
    )
    return show_outcome(outcome)


def get(
    request: Request[RevisionPath, AsOfQuery, Nothing],
    reads: Reads,
    log: LogReader,
    row_history: RowHistory,
) -> Response:
    """One revision; as_of shows it as it was."""
    name, position = request.path.name, 0
    if request.query.as_of:
        position = position_of(log, request.query.as_of)
        found = revision_at(row_history, name, position)
    else:
        found = find_revision(reads, name)
    if found is None:
        raise RevisionNotFound(name)
    return _show(found, position)


def list_all(request: Filtered, reads: Reads, cursors: Cursors) -> Response:
    """The revisions that you may read; by repository, package, lifecycle, author or owner."""
    after = cursors.after(request)
    found, last = _page(request, reads, after)
    seen = [item for item in found if _fits(item.row, request)]
    packages = reads.find_all(*((package_key(item.row.package), PackageRow) for item in seen))
    names = list(dict.fromkeys(item.row.repository for item in seen))
    rows = reads.find_all(*((repository_key(name), Repository) for name in names))
    repositories = dict(zip(names, map(_row, rows), strict=True))
    shown = [
        to_document(item.row, item.version, _row(package), repositories[item.row.repository])
        for item, package in zip(seen, packages, strict=True)
    ]
    return Response(cursors.list_page(request, shown, last))


def _page(request: Filtered, reads: Reads, after: str) -> FoundPage:
    """By the narrowest index that fits; what else is asked for is filtered."""
    query = request.query
    if query.owner is not None:
        return _owned(query.owner, reads, after, query.limit)
    if query.package is not None:
        index, of = "by_package", query.package
    elif query.author is not None:
        index, of = "by_author", _author(request)
    elif query.repository is None and query.lifecycle is not None:
        index, of = "by_lifecycle", str(query.lifecycle)
    else:
        index, of = None, ""
    if index is not None:
        found = reads.range(REVISIONS, index=index, of=(of,), after=after, limit=query.limit)
    else:
        prefix = "" if query.repository is None else f"{query.repository}."
        found = reads.range(REVISIONS, prefix=prefix, after=after, limit=query.limit)
    return found, found[-1].id if len(found) == query.limit else None


def _owned(owner: str, reads: Reads, after: str, limit: int) -> FoundPage:
    prefix = owner_prefix(owner)
    rows = reads.range(REVISION_OWNERS, prefix=prefix, after=after, limit=limit)
    names = (row.row.revision for row in rows)
    found = reads.find_all(*((revision_key(name), Revision) for name in names))
    last = rows[-1].id if len(rows) == limit else None
    return [item for item in found if item is not None], last


def _fits(row: Revision, request: Filtered) -> bool:
    query = request.query
    return (
        request.principal.may(Verb.READ, repository_scope(row.repository))
        and query.repository in (None, row.repository)
        and query.package in (None, row.package)
        and query.lifecycle in (None, row.lifecycle)
        and (query.author is None or row.created_by == _author(request))
        and (
            query.owner is None
            or query.owner in (owner.key for owner in row.metadata.owner_references)
        )
    )


def _author(request: Filtered) -> str:
    asked = request.query.author or ME
    return request.by if asked == ME else asked


# ── change ────────────────────────────────────────────────────────────────────────────────────────


def update(
    request: Request[RevisionPath, Nothing, RevisionChange], revisions: RevisionOperations
) -> Response:
    """Change content, tasks, metadata and lifecycle at once; outside Draft, metadata alone."""
    body = request.body
    outcome = revisions.update(
        request.caller,
        request.path.name,
        lifecycle=body.lifecycle,
        tasks=body.tasks,
        files=None if body.files is None else decode_files(body.files),
        labels=body.labels,
        annotations=body.annotations,
        finalizers=body.finalizers,
        owner_references=body.owner_references,
        readiness_gates=body.readiness_gates,
        reason=body.reason,
    )
    return show_outcome(outcome)


def conditions(
    request: Request[RevisionPath, Nothing, Conditions], revisions: RevisionOperations
) -> Response:
    """Report what was found out about the content of a digest."""
    name, body = request.path.name, request.body
    return show_outcome(
        revisions.set_conditions(request.caller, name, body.digest, body.conditions)
    )


def delete(
    request: Request[RevisionPath, Nothing, Nothing], revisions: RevisionOperations
) -> Response:
    """Delete for good; 202 while finalizers hold it."""
    response = show_outcome(revisions.delete(request.caller, request.path.name))
    if response.body is not None:
        response.status = 202
    return response


# ── review ────────────────────────────────────────────────────────────────────────────────────────


def propose(request: Reviewed, revisions: RevisionOperations) -> Response:
    """Draft → Proposed: ready for review, frozen."""
    name, reason = request.path.name, request.body.reason
    return show_outcome(revisions.propose(request.caller, name, reason))


def withdraw(request: Reviewed, revisions: RevisionOperations) -> Response:
    """Proposed → Draft, by who proposed it."""
    name, reason = request.path.name, request.body.reason
    return show_outcome(revisions.withdraw(request.caller, name, reason))


def approve(
    request: Request[RevisionPath, Nothing, Approval], revisions: RevisionOperations
) -> Response:
    """Approve the content of this digest; the approval that completes the quorum publishes."""
    name, body = request.path.name, request.body
    return show_outcome(revisions.approve(request.caller, name, body.digest, body.reason))


def reject(request: Refused, revisions: RevisionOperations) -> Response:
    """Proposed → Draft, with a reason."""
    name, reason = request.path.name, request.body.reason
    return show_outcome(revisions.reject(request.caller, name, reason))


def propose_delete(request: Reviewed, revisions: RevisionOperations) -> Response:
    """Published → DeletionProposed."""
    name, reason = request.path.name, request.body.reason
    return show_outcome(revisions.propose_deletion(request.caller, name, reason))


def reject_delete(request: Refused, revisions: RevisionOperations) -> Response:
    """DeletionProposed → Published, with a reason."""
    name, reason = request.path.name, request.body.reason
    return show_outcome(revisions.reject_deletion(request.caller, name, reason))


# ── answers ───────────────────────────────────────────────────────────────────────────────────────


def show_outcome(outcome: RevisionOutcome) -> Response:
    """The revision as a change left it; no content: it is deleted."""
    if outcome.found is None:
        return Response(None, position=outcome.position)
    return _show(outcome.found, outcome.position)


def _show(found: RevisionInPackage, position: Position) -> Response:
    revision, package, repository = found.revision, found.package, found.repository
    return Response(
        to_document(revision.row, revision.version, _row(package), _row(repository)),
        version=revision.version,
        position=position,
    )


def _row(found: Found[Row] | None) -> Row | None:
    return None if found is None else found.row


def _new_scope(request: Request[Nothing, Nothing, NewRevision]) -> str:
    return repository_scope(request.body.repository)


_ERRORS = (RevisionNotFound, TransitionRefused, Terminating, LaneBusy)


def _review(
    name: str, handler: Callable[..., Response], step: steps.Step, *errors: type[Any]
) -> Route:
    return Route(
        "POST",
        f"/v1/revisions/{{name}}/{name}",
        handler,
        requires_step(step, revision_scope),
        RevisionDocument,
        guard=step.version,
        errors=(*_ERRORS, *errors),
    )


ROUTES = (
    Route(
        "POST",
        "/v1/revisions",
        create,
        requires_step(steps.CREATE_REVISION, _new_scope),
        RevisionDocument,
        status=201,
        errors=(InvalidName, InvalidReference, ContentTooLarge, LaneBusy),
        body_bytes_max=CONTENT_BODY_BYTES_MAX,
    ),
    Route(
        "GET",
        "/v1/revisions/{name}",
        get,
        requires_step(steps.READ_REVISION, revision_scope),
        RevisionDocument,
        cached=True,
        errors=(RevisionNotFound, HistoryTooLong),
    ),
    Route(
        "PATCH",
        "/v1/revisions/{name}",
        update,
        requires_step(steps.UPDATE_REVISION, revision_scope),
        RevisionDocument,
        also=(204,),
        guard=steps.UPDATE_REVISION.version,
        errors=(*_ERRORS, Immutable, InvalidReference),
        body_bytes_max=CONTENT_BODY_BYTES_MAX,
    ),
    Route(
        "DELETE",
        "/v1/revisions/{name}",
        delete,
        requires_step(steps.DELETE_REVISION, revision_scope),
        RevisionDocument,
        status=202,
        also=(204,),
        guard=steps.DELETE_REVISION.version,
        errors=_ERRORS,
    ),
    Route(
        "PUT",
        "/v1/revisions/{name}/conditions",
        conditions,
        requires_step(steps.SET_CONDITIONS, revision_scope),
        RevisionDocument,
        guard=steps.SET_CONDITIONS.version,
        errors=(*_ERRORS, DigestMismatch),
    ),
    Route(
        "GET", "/v1/revisions", list_all, requires_somewhere(Verb.READ), Listed[RevisionDocument]
    ),
    _review("propose", propose, steps.PROPOSE_REVISION, NotReady),
    _review("withdraw", withdraw, steps.WITHDRAW_PROPOSAL),
    _review(
        "approve",
        approve,
        steps.APPROVE_REVISION,
        DigestMismatch,
        SelfApproval,
        ApprovalsBarred,
        ContentDamaged,
    ),
    _review("reject", reject, steps.REJECT_PROPOSAL),
    _review("propose-delete", propose_delete, steps.PROPOSE_DELETION),
    _review("reject-delete", reject_delete, steps.REJECT_DELETION),
)
