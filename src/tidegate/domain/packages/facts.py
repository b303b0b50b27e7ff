"""The facts about repositories and package revisions. They name users by id and hold no content.

A revision's facts are found by its name, and the steps of its lifecycle also by its package.
``uid`` distinguishes revisions that had the same name one after another.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Struct

from tidegate.domain.content.manifests import Content
from tidegate.domain.packages.states import Lifecycle
from tidegate.kernel import tags, vocabulary

IMPORT = "import"  # as the actor of everything that an import brought

Name = Annotated[str, tags.Partition("revision")]
Package = Annotated[str, tags.Cross("package")]  # with its repository: blueprints/networking/vpc


# ── the origin of a revision ──────────────────────────────────────────────────────────────────────


class Strategy(StrEnum):
    """How an upgrade merges a new upstream with local changes."""

    THREE_WAY = "three-way"  # both sides' changes; a conflict is reported
    COPY_MERGE = "copy-merge"  # both sides' changes; in a conflict, upstream wins
    FORCE_DELETE_REPLACE = "force-delete-replace"  # upstream; local changes are lost
    FAST_FORWARD = "fast-forward"  # upstream, only if nothing was changed locally


class Init(Struct, frozen=True, tag="init", tag_field="type", omit_defaults=True):
    """A new package without a source."""

    description: str = ""
    keywords: tuple[str, ...] = ()
    site: str = ""


class Clone(Struct, frozen=True, tag="clone", tag_field="type"):
    """A new package from a published revision of another one."""

    upstream: str


class Edit(Struct, frozen=True, tag="edit", tag_field="type"):
    """The next revision of a package, from a published one."""

    source: str


class Upgrade(Struct, frozen=True, tag="upgrade", tag_field="type", rename="camel"):
    """The next revision of a package, moved from its upstream to a newer one."""

    old_upstream: str
    new_upstream: str
    local_package_revision: str
    strategy: Strategy = Strategy.THREE_WAY


Task = Init | Clone | Edit | Upgrade


class Lineage(Struct, frozen=True):
    """A published revision that another one descends from, as it was at that time."""

    name: str
    uid: str
    revision: int
    digest: str


# ── metadata and status ───────────────────────────────────────────────────────────────────────────


class OwnerReference(Struct, frozen=True):
    """Something that the revision belongs to. It is information; deletion does not cascade."""

    kind: str
    id: str

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.id}"


class Metadata(Struct, frozen=True, omit_defaults=True):
    """The fields that may change in every state."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class ConditionStatus(StrEnum):
    """The status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Struct, frozen=True, omit_defaults=True):
    """The result of a check of a revision, under a name that a readiness gate may require."""

    type: str
    status: ConditionStatus
    reason: str = ""
    message: str = ""


class Numbered(Struct, frozen=True):
    """A published revision in the order of its package."""

    name: str
    number: int


# ── repositories ──────────────────────────────────────────────────────────────────────────────────


class RepositoryCreated(Struct, frozen=True):
    repository: Annotated[str, tags.Partition()]
    quorum: int
    deployment: bool
    protect_proposed: bool
    by: str


class RepositoryChanged(Struct, frozen=True):
    repository: Annotated[str, tags.Partition()]
    quorum: int
    deployment: bool
    protect_proposed: bool
    by: str


class RepositoryDeleted(Struct, frozen=True):
    repository: Annotated[str, tags.Partition()]
    by: str
    reason: str


# ── packages ──────────────────────────────────────────────────────────────────────────────────────


class PackageStarted(Struct, frozen=True):
    """The package has its first revision, so its path is in use."""

    package: Annotated[str, tags.Partition()]
    by: str


class PackageImported(Struct, frozen=True):
    """Revisions that were published elsewhere were imported with their numbers. Each has facts of
    its own, by ``import``.
    """

    package: Annotated[str, tags.Partition()]
    by: str  # the user who imported them
    source: str  # where they came from
    revisions: int


class PackageEmptied(Struct, frozen=True):
    """The last revision was deleted. The path is free, but its numbers are not reused."""

    package: Annotated[str, tags.Partition()]
    by: str


# ── revisions ─────────────────────────────────────────────────────────────────────────────────────


class RevisionCreated(Struct, frozen=True, omit_defaults=True):
    name: Name
    package: Package
    uid: str
    by: str
    task: Task
    content: Content
    upstream: Lineage | None = None
    metadata: Metadata = Metadata()
    gates: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class RevisionContentReplaced(Struct, frozen=True):
    name: Name
    uid: str
    by: str
    before: str  # its digest
    content: Content


class RevisionTaskAdded(Struct, frozen=True, omit_defaults=True):
    name: Name
    uid: str
    by: str
    task: Task
    former: Lineage | None  # what it descended from before
    upstream: Lineage | None
    warnings: tuple[str, ...] = ()


class RevisionGatesChanged(Struct, frozen=True):
    name: Name
    uid: str
    by: str
    gates: tuple[str, ...]


class RevisionConditionsChanged(Struct, frozen=True):
    name: Name
    uid: str
    by: str
    lifecycle: Lifecycle
    digest: str  # of the content that was checked
    conditions: tuple[Condition, ...]  # all of them


class RevisionMetadataChanged(Struct, frozen=True, omit_defaults=True):
    name: Name
    uid: str
    by: str
    lifecycle: Lifecycle
    metadata: Metadata  # all of it
    former_owners: tuple[OwnerReference, ...] = ()


class RevisionProposed(Struct, frozen=True):
    name: Name
    package: Package
    uid: str
    by: str
    digest: str
    reason: str = ""


class ProposalWithdrawn(Struct, frozen=True):
    name: Name
    package: Package
    uid: str
    by: str
    reason: str = ""


class ProposalRejected(Struct, frozen=True):
    name: Name
    package: Package
    uid: str
    by: str
    digest: str
    reason: str


class RevisionApproved(Struct, frozen=True):
    """One approval of this content. The one that completes the quorum is followed by
    ``RevisionPublished``.
    """

    name: Name
    package: Package
    uid: str
    by: str
    digest: str
    reason: str = ""


class RevisionPublished(Struct, frozen=True):
    name: Name
    package: Package
    uid: str
    by: str
    number: int
    digest: str
    self_approved: bool  # the repository needs no approval by another person
    older: Numbered | None  # the latest revision of the package before this one


class RevisionDeletionProposed(Struct, frozen=True):
    name: Name
    package: Package
    uid: str
    by: str
    reason: str = ""


class RevisionDeletionRejected(Struct, frozen=True):
    name: Name
    package: Package
    uid: str
    by: str
    reason: str = ""


class RevisionDeletionStarted(Struct, frozen=True):
    """The revision will be deleted when its last finalizer is removed."""

    name: Name
    package: Package
    uid: str
    by: str
    lifecycle: Lifecycle


class RevisionDeleted(Struct, frozen=True, omit_defaults=True):
    name: Name
    package: Package
    uid: str
    by: str
    lifecycle: Lifecycle  # the last one
    number: int  # 0: it was never published
    content: Content
    upstream: Lineage | None
    older: Numbered | None  # its neighbours among the published revisions of the package
    newer: Numbered | None
    owners: tuple[OwnerReference, ...] = ()  # the last ones


FACTS = vocabulary.facts(
    "package",
    RepositoryCreated,
    RepositoryChanged,
    RepositoryDeleted,
    PackageStarted,
    PackageImported,
    PackageEmptied,
    RevisionCreated,
    RevisionContentReplaced,
    RevisionTaskAdded,
    RevisionGatesChanged,
    RevisionConditionsChanged,
    RevisionMetadataChanged,
    RevisionProposed,
    ProposalWithdrawn,
    ProposalRejected,
    RevisionApproved,
    RevisionPublished,
    RevisionDeletionProposed,
    RevisionDeletionRejected,
    RevisionDeletionStarted,
    RevisionDeleted,
)
