"""Package revisions: drafted, changed, proposed, approved, deleted; each change names its version.

The document and its members are spelt as seed 001 spells them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from msgspec import Meta, field, structs

from tidegate.api.routes.repositories import Label
from tidegate.api.routes.revision_files import FileSent, merge_upgrade, receive_files
from tidegate.control.installation import Installation
from tidegate.control.queries.as_of import HistoryTooLong
from tidegate.control.queries.reads import Found
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.access.principals import demand_permission
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import repository_scope
from tidegate.domain.access.steps import VersionRule
from tidegate.domain.content.entries import CONTENT_BYTES_MAX
from tidegate.domain.content.refusals import ContentTooLarge, InvalidReference
from tidegate.domain.packages import folds, history
from tidegate.domain.packages.deletions import (
    DeleteRevision,
    delete_revision,
)
from tidegate.domain.packages.documents import RevisionDocument, to_document
from tidegate.domain.packages.facts import Condition, Metadata, OwnerReference, Task
from tidegate.domain.packages.names import NAME_CHARS_MAX, identity, parse
from tidegate.domain.packages.permissions import (
    RequiredPermission,
    required_permissions,
    right_of,
    with_permission_check,
)
from tidegate.domain.packages.refusals import (
    DigestMismatch,
    Immutable,
    InvalidName,
    RevisionNotFound,
    StillReferenced,
    Terminating,
    TransitionRefused,
)
from tidegate.domain.packages.rows import PackageRow, Revision, package_key, revision_key
from tidegate.domain.packages.slices import CreateRevision, create_revision
from tidegate.domain.packages.updates import (
    SetConditions,
    UpdateRevision,
    set_conditions,
    update_revision,
)
from tidegate.kernel.model import Position
from tidegate.web.as_of import AsOf, position_of
from tidegate.web.inputs import Input, Nothing, ReadQuery
from tidegate.web.routing import Request, Response, Route, requires

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


class RevisionPath(Input, frozen=True):
    name: Name


class RevisionReading(ReadQuery, frozen=True, kw_only=True):
    as_of: AsOf = ""


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


def revision_scope(request: Request[RevisionPath, Any, Any]) -> str:
    """The repository that a revision's name begins with."""
    return repository_scope(parse(request.path.name).repository)


def may_read(request: Request[Any, Any, Any], name: str) -> bool:
    """Whether the sender may read the revision of this name."""
    return request.principal.may(Verb.READ, repository_scope(parse(name).repository))


def rights(request: Request[Any, Any, Any]) -> Callable[[RequiredPermission], None]:
    """Check that the requester has every permission that the command needs.

    Raises:
        MissingPermission.
    """

    def demand_asked(asked: RequiredPermission) -> None:
        demand_permission(request.principal, (asked.right,), repository_scope(asked.repository))

    return demand_asked


# ── create, read ──────────────────────────────────────────────────────────────────────────────────


def create(request: Request[Nothing, Nothing, NewRevision], installation: Installation) -> Response:
    """Draft a revision: init, clone, edit or upgrade."""
    body = request.body
    place = identity(body.repository, body.package_name, body.workspace_name)
    command = CreateRevision(
        repository=body.repository,
        package=body.package_name,
        workspace=body.workspace_name,
        uid=request.mint("uid"),
        by=request.by,
        lifecycle=body.lifecycle,
        tasks=body.tasks,
        metadata=Metadata(body.labels, body.annotations, body.finalizers, body.owner_references),
        readiness_gates=body.readiness_gates,
    )
    for asked in required_permissions(command):
        rights(request)(asked)  # before any source is read
    if body.files is not None:
        files = receive_files(installation.blobs, body.files).files
        command = structs.replace(command, files=files)
    elif body.tasks:
        command = structs.replace(command, files=merge_upgrade(installation, body.tasks[0]))
    outcome = installation.run(create_revision, command, meta=request.meta, key=request.once)
    return answer_of(installation, place.name, outcome)


def get(
    request: Request[RevisionPath, RevisionReading, Nothing], installation: Installation
) -> Response:
    """One revision; as_of shows it as it was."""
    name = request.path.name
    if request.query.as_of:
        return _shown_at(installation, name, position_of(installation, request.query.as_of))
    found = _find(installation, name)
    if found is None:
        raise RevisionNotFound(name)
    return found


# ── change ────────────────────────────────────────────────────────────────────────────────────────


def update(
    request: Request[RevisionPath, Nothing, RevisionChange], installation: Installation
) -> Response:
    """Change content, tasks, metadata and lifecycle at once; outside Draft, metadata alone."""
    body = request.body
    name = request.path.name
    files = None if body.files is None else receive_files(installation.blobs, body.files).files
    command = UpdateRevision(
        name=name,
        by=request.by,
        expected_version=request.version,
        files=files,
        tasks=body.tasks,
        readiness_gates=body.readiness_gates,
        labels=body.labels,
        annotations=body.annotations,
        finalizers=body.finalizers,
        owner_references=body.owner_references,
        lifecycle=body.lifecycle,
        reason=body.reason,
    )
    verb = with_permission_check(update_revision, rights(request))
    outcome = installation.run(verb, command, meta=request.meta, key=request.once)
    return answer_of(installation, name, outcome)


def conditions(
    request: Request[RevisionPath, Nothing, Conditions], installation: Installation
) -> Response:
    """Report what was found out about the content of a digest."""
    command = SetConditions(
        name=request.path.name,
        by=request.by,
        expected_version=request.version,
        digest=request.body.digest,
        conditions=request.body.conditions,
    )
    outcome = installation.run(set_conditions, command, meta=request.meta, key=request.once)
    return answer_of(installation, request.path.name, outcome)


def delete(
    request: Request[RevisionPath, Nothing, Nothing], installation: Installation
) -> Response:
    """Delete for good; 202 while finalizers hold it."""
    command = DeleteRevision(
        name=request.path.name, by=request.by, expected_version=request.version
    )
    verb = with_permission_check(delete_revision, rights(request))
    try:
        outcome = installation.run(verb, command, meta=request.meta, key=request.once)
    except StillReferenced as refusal:
        some = (name for name in refusal.some if may_read(request, name))
        raise StillReferenced(refusal.name, refusal.count, some) from None
    answer = answer_of(installation, request.path.name, outcome)
    return answer if answer.body is None else replace(answer, status=202)


# ── answers ───────────────────────────────────────────────────────────────────────────────────────


def _find(installation: Installation, name: str, position: Position = 0) -> Response | None:
    revision, package = installation.reads.find_all(
        (revision_key(name), Revision), (package_key(parse(name).package), PackageRow)
    )
    return None if revision is None else _document(revision, package, position)


def _document(
    revision: Found[Revision], package: Found[PackageRow] | None, position: Position
) -> Response:
    return Response(
        to_document(revision.row, revision.version, None if package is None else package.row),
        version=revision.version,
        beside=() if package is None else (package.version,),
        position=position,
    )


def _shown_at(installation: Installation, name: str, position: Position) -> Response:
    """The revision as it stood at a position. Raises: RevisionNotFound, HistoryTooLong."""
    place = parse(name)
    about = history.history_of(name)
    revision = installation.row_history.row_at(folds.revisions, name, about, position)
    if revision is None:
        raise RevisionNotFound(name)
    of_package = history.history_of_package(place.package)
    package = installation.row_history.row_at(folds.packages, place.package, of_package, position)
    return _document(revision, package, position)


def answer_of(installation: Installation, name: str, outcome: CommandOutcome) -> Response:
    """The revision as this change left it, also when it has moved on; no content: it is gone."""
    receipt = outcome.receipt
    if receipt is None:
        found = _find(installation, name)
        if found is None or found.version is None:
            raise RevisionNotFound(name)
        found.position = found.version
        return found
    found = _find(installation, name, receipt.last)
    if found is not None and receipt.first <= (found.version or 0) <= receipt.last:
        return found
    try:
        return _shown_at(installation, name, receipt.last)
    except RevisionNotFound:
        return Response(None, position=receipt.last)


_SOME_STEP = requires(
    (Verb.AUTHOR, Verb.APPROVE), revision_scope
)  # which one, the decision finds out
_STEP = (RevisionNotFound, TransitionRefused, Terminating)


def _new_scope(request: Request[Nothing, Nothing, NewRevision]) -> str:
    return repository_scope(request.body.repository)


ROUTES = (
    Route(
        "POST",
        "/v1/revisions",
        create,
        requires(right_of(CreateRevision), _new_scope),
        RevisionDocument,
        status=201,
        errors=(InvalidName, InvalidReference, ContentTooLarge),
        body_bytes_max=CONTENT_BODY_BYTES_MAX,
    ),
    Route(
        "GET",
        "/v1/revisions/{name}",
        get,
        requires(Verb.READ, revision_scope),
        RevisionDocument,
        cached=True,
        errors=(RevisionNotFound, HistoryTooLong),
    ),
    Route(
        "PATCH",
        "/v1/revisions/{name}",
        update,
        _SOME_STEP,
        RevisionDocument,
        also=(204,),
        guard=VersionRule.DEMANDED,
        errors=(*_STEP, Immutable, InvalidReference),
        body_bytes_max=CONTENT_BODY_BYTES_MAX,
    ),
    Route(
        "DELETE",
        "/v1/revisions/{name}",
        delete,
        _SOME_STEP,
        RevisionDocument,
        status=202,
        also=(204,),
        guard=VersionRule.CHECKED,
        errors=_STEP,
    ),
    Route(
        "PUT",
        "/v1/revisions/{name}/conditions",
        conditions,
        requires(right_of(SetConditions), revision_scope),
        RevisionDocument,
        guard=VersionRule.DEMANDED,
        errors=(*_STEP, DigestMismatch),
    ),
)
