"""Package revisions: list, draft, change, review and delete them. Each change names a version.

The names of members are those of docs/design/packages.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta, field, structs

from tidegate.api.routes import repositories
from tidegate.api.routes.repositories import Label
from tidegate.api.routes.revision_files import FileSent, decode_files
from tidegate.control.lanes import LaneBusy
from tidegate.control.operations.revisions import RevisionOperations, RevisionOutcome
from tidegate.control.queries import log_reader, reads as query_reads, revisions as query_revisions
from tidegate.control.queries.as_of import HistoryTooLong, RowHistory
from tidegate.control.queries.people import PeopleNames
from tidegate.domain.access import refusals as access_refusals, roles, scopes, steps
from tidegate.domain.content import entries, refusals as content_refusals
from tidegate.domain.packages import (
    documents,
    facts,
    refusals as package_refusals,
    rows as package_rows,
    states,
)
from tidegate.domain.packages.names import NAME_CHARS_MAX, parse
from tidegate.kernel.model import Position
from tidegate.web import as_of, inputs, paging, routing, shapes

ME = "me"
CONTENT_BODY_BYTES_MAX = entries.CONTENT_BYTES_MAX * 3 // 2  # base64, and the JSON around it

Name = Annotated[
    str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+){2,}$")
]
PackagePath = Annotated[
    str, Meta(min_length=1, max_length=80, pattern=r"^[a-z0-9-]+(/[a-z0-9-]+)*$")
]
Text = Annotated[str, Meta(max_length=1_024)]
Labels = Annotated[dict[str, str], Meta(max_length=64)]
Texts = Annotated[tuple[str, ...], Meta(max_length=64)]
Owners = Annotated[tuple[facts.OwnerReference, ...], Meta(max_length=32)]
Tasks = Annotated[tuple[facts.Task, ...], Meta(max_length=32)]
Digest = Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]

Author = Annotated[str, Meta(min_length=1, max_length=128, pattern="^[A-Za-z0-9_.-]+$")]
Owner = Annotated[str, Meta(min_length=3, max_length=571, pattern=r"^[^\x00-\x1f]+/[^\x00-\x1f]+$")]


class RevisionPath(inputs.Input, frozen=True):
    name: Name


class NewRevision(inputs.Input, frozen=True, kw_only=True, rename="camel"):
    """A new Draft, made by one task; without a task, it starts empty."""

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


class RevisionChange(inputs.Input, frozen=True, kw_only=True, rename="camel"):
    """The new revision; members that are left out do not change."""

    lifecycle: Text | None = None
    tasks: Tasks | None = None
    files: tuple[FileSent, ...] | None = None
    labels: Labels | None = None
    annotations: dict[str, str] | None = None
    finalizers: Texts | None = None
    owner_references: Owners | None = None
    readiness_gates: Texts | None = None
    reason: Text = ""


class Conditions(inputs.Input, frozen=True, kw_only=True):
    digest: Digest
    conditions: Annotated[tuple[facts.Condition, ...], Meta(max_length=64)]


class Remark(inputs.Input, frozen=True, kw_only=True):
    reason: Text = ""


class Refusal(inputs.Input, frozen=True, kw_only=True):
    """A rejection needs a reason for the author."""

    reason: Annotated[str, Meta(min_length=1, max_length=1_024)]


class Approval(inputs.Input, frozen=True, kw_only=True):
    digest: Digest  # of the content that you reviewed
    reason: Text = ""


class RevisionFilter(inputs.Paging, frozen=True, kw_only=True):
    repository: Label | None = None
    package: Annotated[str, Meta(max_length=160)] | None = None  # with its repository
    lifecycle: states.Lifecycle | None = None
    author: Author | None = None  # the user who drafted it; me: you
    owner: Owner | None = None  # one of its ownerReferences: kind/id


Reviewed = routing.Request[RevisionPath, inputs.Nothing, Remark]
Refused = routing.Request[RevisionPath, inputs.Nothing, Refusal]
Filtered = routing.Request[inputs.Nothing, RevisionFilter, inputs.Nothing]
FoundPage = tuple[
    list[query_reads.Found[Any]], str | None
]  # revisions, and the cursor of the next page


def revision_scope(request: routing.Request[RevisionPath, Any, Any]) -> str:
    """The repository that a revision's name begins with."""
    return scopes.repository_scope(parse(request.path.name).repository)


# ── create, read ──────────────────────────────────────────────────────────────────────────────────


def create(
    request: routing.Request[inputs.Nothing, inputs.Nothing, NewRevision],
    revisions: RevisionOperations,
) -> routing.Response:
    """Create a Draft: init, clone, edit or upgrade."""
    body = request.body
    outcome = revisions.create(
        request.caller,
        body.repository,
        body.package_name,
        body.workspace_name,
        lifecycle=body.lifecycle,
        tasks=body.tasks,
        metadata=facts.Metadata(
            body.labels, body.annotations, body.finalizers, body.owner_references
        ),
        readiness_gates=body.readiness_gates,
        files=None if body.files is None else decode_files(body.files),
    )
    return show_outcome(outcome)


def get(
    request: routing.Request[RevisionPath, as_of.AsOfQuery, inputs.Nothing],
    reads: query_reads.Reads,
    log: log_reader.LogReader,
    row_history: RowHistory,
) -> routing.Response:
    """Get one revision; as_of shows an earlier state."""
    name, position = request.path.name, 0
    if request.query.as_of:
        position = as_of.position_of(log, request.query.as_of)
        found = query_revisions.revision_at(row_history, name, position)
    else:
        found = query_revisions.find_revision(reads, name)
    if found is None:
        raise package_refusals.RevisionNotFound(name)
    return _show(found, position)


def list_all(
    request: Filtered, reads: query_reads.Reads, cursors: paging.Cursors, people: PeopleNames
) -> routing.Response:
    """List the revisions that you may read, by repository, package, lifecycle, author or owner."""
    after = cursors.after(request)
    found, last = _page(request, reads, after)
    if not found and not after:
        _demand_place(request.query, reads)
    seen = [item for item in found if _fits(item.row, request)]
    packages = reads.find_all(
        *((package_rows.package_key(item.row.package), package_rows.PackageRow) for item in seen)
    )
    names = list(dict.fromkeys(item.row.repository for item in seen))
    rows = reads.find_all(
        *((package_rows.repository_key(name), package_rows.Repository) for name in names)
    )
    repositories = dict(zip(names, map(_row, rows), strict=True))
    shown = [
        documents.to_document(
            item.row, item.version, _row(package), repositories[item.row.repository]
        )
        for item, package in zip(seen, packages, strict=True)
    ]
    named = [_with_name(item, people) for item in shown]
    return routing.Response(cursors.list_page(request, named, last))


def _with_name(
    found: documents.RevisionDocument, people: PeopleNames
) -> documents.RevisionDocument:
    name = people.find_name(found.status.created_by)
    return structs.replace(found, status=structs.replace(found.status, created_by_name=name))


def _demand_place(query: RevisionFilter, reads: query_reads.Reads) -> None:
    """Raises: RepositoryNotFound, PackageNotFound."""
    if query.repository is not None:
        repositories.demand(reads, query.repository)
    if query.package is not None:
        reads.demand(
            package_rows.package_key(query.package),
            package_rows.PackageRow,
            package_refusals.PackageNotFound(query.package),
        )


def _page(request: Filtered, reads: query_reads.Reads, after: str) -> FoundPage:
    """Read one page by the narrowest index that fits, and filter the rest."""
    query = request.query
    if query.owner is not None:
        return _page_by_owner(query.owner, reads, after, query.limit)
    if query.package is not None:
        index, of = "by_package", query.package
    elif query.author is not None:
        index, of = "by_author", _author(request)
    elif query.repository is None and query.lifecycle is not None:
        index, of = "by_lifecycle", str(query.lifecycle)
    else:
        index, of = None, ""
    if index is not None:
        found = reads.range(
            package_rows.REVISIONS, index=index, of=(of,), after=after, limit=query.limit
        )
    else:
        prefix = "" if query.repository is None else f"{query.repository}."
        found = reads.range(package_rows.REVISIONS, prefix=prefix, after=after, limit=query.limit)
    return found, found[-1].id if len(found) == query.limit else None


def _page_by_owner(owner: str, reads: query_reads.Reads, after: str, limit: int) -> FoundPage:
    prefix = package_rows.owner_prefix(owner)
    rows = reads.range(package_rows.REVISION_OWNERS, prefix=prefix, after=after, limit=limit)
    names = (row.row.revision for row in rows)
    found = reads.find_all(
        *((package_rows.revision_key(name), package_rows.Revision) for name in names)
    )
    last = rows[-1].id if len(rows) == limit else None
    return [item for item in found if item is not None], last


def _fits(row: package_rows.Revision, request: Filtered) -> bool:
    query = request.query
    return (
        request.principal.may(roles.Verb.READ, scopes.repository_scope(row.repository))
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
    request: routing.Request[RevisionPath, inputs.Nothing, RevisionChange],
    revisions: RevisionOperations,
) -> routing.Response:
    """Change content, tasks, metadata and lifecycle at once; outside Draft, metadata only."""
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
    request: routing.Request[RevisionPath, inputs.Nothing, Conditions],
    revisions: RevisionOperations,
) -> routing.Response:
    """Report conditions about the content of a digest."""
    name, body = request.path.name, request.body
    return show_outcome(
        revisions.set_conditions(request.caller, name, body.digest, body.conditions)
    )


def delete(
    request: routing.Request[RevisionPath, inputs.Nothing, inputs.Nothing],
    revisions: RevisionOperations,
) -> routing.Response:
    """Delete a revision for good; 202 while finalizers block it."""
    response = show_outcome(revisions.delete(request.caller, request.path.name))
    if response.body is not None:
        response.status = 202
    return response


# ── review ────────────────────────────────────────────────────────────────────────────────────────


def propose(request: Reviewed, revisions: RevisionOperations) -> routing.Response:
    """Propose a Draft: it is frozen and ready for review."""
    name, reason = request.path.name, request.body.reason
    return show_outcome(revisions.propose(request.caller, name, reason))


def withdraw(request: Reviewed, revisions: RevisionOperations) -> routing.Response:
    """Withdraw a proposal: Proposed → Draft, by the person who proposed it."""
    name, reason = request.path.name, request.body.reason
    return show_outcome(revisions.withdraw(request.caller, name, reason))


def approve(
    request: routing.Request[RevisionPath, inputs.Nothing, Approval], revisions: RevisionOperations
) -> routing.Response:
    """Approve the content of this digest; the last approval of the quorum publishes it."""
    name, body = request.path.name, request.body
    return show_outcome(revisions.approve(request.caller, name, body.digest, body.reason))


def reject(request: Refused, revisions: RevisionOperations) -> routing.Response:
    """Reject a proposal, with a reason: Proposed → Draft."""
    name, reason = request.path.name, request.body.reason
    return show_outcome(revisions.reject(request.caller, name, reason))


def propose_delete(request: Reviewed, revisions: RevisionOperations) -> routing.Response:
    """Propose to delete a revision: Published → DeletionProposed."""
    name, reason = request.path.name, request.body.reason
    return show_outcome(revisions.propose_deletion(request.caller, name, reason))


def reject_delete(request: Refused, revisions: RevisionOperations) -> routing.Response:
    """Reject a deletion, with a reason: DeletionProposed → Published."""
    name, reason = request.path.name, request.body.reason
    return show_outcome(revisions.reject_deletion(request.caller, name, reason))


# ── responses ─────────────────────────────────────────────────────────────────────────────────────


def show_outcome(outcome: RevisionOutcome) -> routing.Response:
    """The revision after a change; no content: it was deleted."""
    if outcome.found is None:
        return routing.Response(None, position=outcome.position)
    return _show(outcome.found, outcome.position)


def _show(found: query_revisions.RevisionInPackage, position: Position) -> routing.Response:
    revision, package, repository = found.revision, found.package, found.repository
    return routing.Response(
        documents.to_document(revision.row, revision.version, _row(package), _row(repository)),
        version=revision.version,
        position=position,
    )


def _row(found: query_reads.Found[query_reads.Row] | None) -> query_reads.Row | None:
    return None if found is None else found.row


def _new_scope(request: routing.Request[inputs.Nothing, inputs.Nothing, NewRevision]) -> str:
    return scopes.repository_scope(request.body.repository)


_ERRORS = (
    package_refusals.RevisionNotFound,
    package_refusals.TransitionRefused,
    package_refusals.Terminating,
    LaneBusy,
)


def _review(
    name: str, handler: Callable[..., routing.Response], step: steps.Step, *errors: type[Any]
) -> routing.Route:
    return routing.Route(
        "POST",
        f"/v1/revisions/{{name}}/{name}",
        handler,
        routing.requires_step(step, revision_scope),
        documents.RevisionDocument,
        guard=step.version,
        errors=(*_ERRORS, *errors),
        dry_run=True,
    )


ROUTES = (
    routing.Route(
        "POST",
        "/v1/revisions",
        create,
        routing.requires_step(steps.CREATE_REVISION, _new_scope),
        documents.RevisionDocument,
        status=201,
        errors=(
            package_refusals.InvalidName,
            content_refusals.InvalidReference,
            content_refusals.ContentTooLarge,
            LaneBusy,
        ),
        body_bytes_max=CONTENT_BODY_BYTES_MAX,
    ),
    routing.Route(
        "GET",
        "/v1/revisions/{name}",
        get,
        routing.requires_step(steps.READ_REVISION, revision_scope),
        documents.RevisionDocument,
        cached=True,
        errors=(package_refusals.RevisionNotFound, HistoryTooLong),
    ),
    routing.Route(
        "PATCH",
        "/v1/revisions/{name}",
        update,
        routing.requires_step(steps.UPDATE_REVISION, revision_scope),
        documents.RevisionDocument,
        also=(204,),
        guard=steps.UPDATE_REVISION.version,
        errors=(*_ERRORS, package_refusals.Immutable, content_refusals.InvalidReference),
        body_bytes_max=CONTENT_BODY_BYTES_MAX,
    ),
    routing.Route(
        "DELETE",
        "/v1/revisions/{name}",
        delete,
        routing.requires_step(steps.DELETE_REVISION, revision_scope),
        documents.RevisionDocument,
        status=202,
        also=(204,),
        guard=steps.DELETE_REVISION.version,
        errors=_ERRORS,
        dry_run=True,
    ),
    routing.Route(
        "PUT",
        "/v1/revisions/{name}/conditions",
        conditions,
        routing.requires_step(steps.SET_CONDITIONS, revision_scope),
        documents.RevisionDocument,
        guard=steps.SET_CONDITIONS.version,
        errors=(*_ERRORS, package_refusals.DigestMismatch),
    ),
    routing.Route(
        "GET",
        "/v1/revisions",
        list_all,
        routing.requires_somewhere(roles.Verb.READ),
        shapes.Listed[documents.RevisionDocument],
        errors=(package_refusals.RepositoryNotFound, package_refusals.PackageNotFound),
    ),
    _review("propose", propose, steps.PROPOSE_REVISION, package_refusals.NotReady),
    _review("withdraw", withdraw, steps.WITHDRAW_PROPOSAL),
    _review(
        "approve",
        approve,
        steps.APPROVE_REVISION,
        package_refusals.DigestMismatch,
        package_refusals.SelfApproval,
        access_refusals.ApprovalsBarred,
        package_refusals.ContentDamaged,
    ),
    _review("reject", reject, steps.REJECT_PROPOSAL),
    _review("propose-delete", propose_delete, steps.PROPOSE_DELETION),
    _review("reject-delete", reject_delete, steps.REJECT_DELETION),
)
