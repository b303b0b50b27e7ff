"""A revision as clients see it: metadata, spec and status, see docs/design/packages.md."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.domain.content.manifests import Content
from tidegate.domain.packages import facts, rows, states
from tidegate.kernel.model import Position


class MetadataPart(Struct, frozen=True, rename="camel"):
    name: str
    uid: str
    resource_version: str  # opaque to clients, who send it back
    creation_timestamp: datetime | None
    deletion_timestamp: datetime | None
    labels: dict[str, str]
    annotations: dict[str, str]
    finalizers: tuple[str, ...]
    owner_references: tuple[facts.OwnerReference, ...]


class SpecPart(Struct, frozen=True, rename="camel"):
    repository: str
    package_name: str
    workspace_name: str
    revision: int  # 0 until it is published
    lifecycle: str
    tasks: tuple[facts.Task, ...]
    readiness_gates: tuple[str, ...]


class StatusPart(Struct, frozen=True, rename="camel"):
    created_by: str
    proposed_by: str | None
    proposed_at: datetime | None
    approved_by: tuple[str, ...]
    ready_to_publish: bool  # proposed, with enough approvals; the next one publishes it
    published_by: str | None
    published_at: datetime | None
    self_approved: bool
    deletion_proposed_by: str | None
    deletion_proposed_at: datetime | None
    latest: bool
    content: Content
    upstream: facts.Lineage | None
    conditions: tuple[facts.Condition, ...]
    created_by_name: str | None = None  # in lists; None: an erased user, or not a person


class RevisionDocument(Struct, frozen=True):
    metadata: MetadataPart
    spec: SpecPart
    status: StatusPart


def to_document(
    row: rows.Revision,
    version: Position,
    package: rows.PackageRow | None,
    repository: rows.Repository | None = None,
) -> RevisionDocument:
    """The document of a revision at this version of its row.

    The package's row says which revision is the latest. The repository's row says how many people
    must approve.
    """
    is_approved = repository is not None and len(row.approvals) >= repository.quorum
    latest = None if package is None else package.latest
    return RevisionDocument(
        MetadataPart(
            name=row.name,
            uid=row.uid,
            resource_version=str(version),
            creation_timestamp=row.created_at,
            deletion_timestamp=row.deletion_timestamp,
            labels=row.metadata.labels,
            annotations=row.metadata.annotations,
            finalizers=row.metadata.finalizers,
            owner_references=row.metadata.owner_references,
        ),
        SpecPart(
            repository=row.repository,
            package_name=row.package.partition("/")[2],
            workspace_name=row.workspace,
            revision=row.number,
            lifecycle=row.lifecycle,
            tasks=row.tasks,
            readiness_gates=row.gates,
        ),
        StatusPart(
            created_by=row.created_by,
            proposed_by=row.proposed_by or None,
            proposed_at=row.proposed_at,
            approved_by=row.approvals,
            ready_to_publish=row.lifecycle == states.Lifecycle.PROPOSED and is_approved,
            published_by=row.published_by or None,
            published_at=row.published_at,
            self_approved=row.self_approved,
            deletion_proposed_by=row.deletion_proposed_by or None,
            deletion_proposed_at=row.deletion_proposed_at,
            latest=latest is not None and latest.name == row.name,
            content=row.content,
            upstream=row.upstream,
            conditions=row.conditions,
        ),
    )
