"""What stands: the rows that decisions on packages read, each a fold of facts.

    repositories         how a repository wants its revisions approved
    packages             next to each path: is it taken, the last number, the latest revision
    revisions            a revision by its name; its version is the resource version

Every row is small: pointers and counts, never a history. What others have to do with a revision
stands beside it, in ``links``.
"""

from __future__ import annotations

from datetime import datetime
from typing import get_args

from msgspec import Struct
from msgspec.structs import replace

from tidegate.domain.content.manifests import Content
from tidegate.domain.packages.facts import (
    IMPORT,
    Condition,
    Lineage,
    Metadata,
    Numbered,
    PackageEmptied,
    PackageImported,
    PackageStarted,
    ProposalRejected,
    ProposalWithdrawn,
    RepositoryChanged,
    RepositoryCreated,
    RevisionApproved,
    RevisionConditionsChanged,
    RevisionContentReplaced,
    RevisionCreated,
    RevisionDeleted,
    RevisionDeletionProposed,
    RevisionDeletionRejected,
    RevisionDeletionStarted,
    RevisionGatesChanged,
    RevisionMetadataChanged,
    RevisionProposed,
    RevisionPublished,
    RevisionTaskAdded,
    Status,
    Task,
)
from tidegate.domain.packages.lifecycle import Lifecycle
from tidegate.domain.packages.names import ancestors, parse
from tidegate.kernel.collections import Collection, Index, Nature, Writers
from tidegate.kernel.folds import Fold

CONTENT_CHANGED = "ContentChanged"  # why a condition is no longer known


# ── repositories ──────────────────────────────────────────────────────────────────────────────────


class Repository(Struct, frozen=True):
    name: str
    quorum: int  # approvals that a publication needs; 0: the proposer's own is enough
    deployment: bool
    protect_proposed: bool  # a proposal must be withdrawn or rejected before it is deleted


REPOSITORIES = Collection("repositories", Repository, writers=Writers.FOLDED, nature=Nature.DERIVED)


def step_repository(
    row: Repository, fact: RepositoryCreated | RepositoryChanged, now: datetime
) -> Repository:
    return Repository(row.name, fact.quorum, fact.deployment, fact.protect_proposed)


repositories = Fold(
    collection=REPOSITORIES,
    number=1,
    reads=(RepositoryCreated, RepositoryChanged),
    ids=lambda fact: (fact.repository,),
    start=lambda id, fact: Repository(id, fact.quorum, fact.deployment, fact.protect_proposed),
    step=step_repository,
)


# ── packages ──────────────────────────────────────────────────────────────────────────────────────


class PackageRow(Struct, frozen=True, omit_defaults=True):
    """A path of a repository. It outlives its revisions, because their numbers stay used."""

    package: str
    live: int = 0  # revisions that exist
    below: int = 0  # packages that exist below this path
    last_number: int = 0
    latest: Numbered | None = None  # the highest number that is published or DeletionProposed
    owned: dict[str, str] = {}  # owner → the open revision that was created in its name
    imported: bool = False  # all that is there came by an import, which may go on


PACKAGES = Collection("packages", PackageRow, writers=Writers.FOLDED, nature=Nature.DERIVED)

PackageFact = (
    PackageStarted
    | PackageImported
    | PackageEmptied
    | RevisionCreated
    | RevisionPublished
    | RevisionDeleted
)


def package_ids(fact: Struct) -> tuple[str, ...]:
    match fact:
        case PackageStarted(package=package) | PackageEmptied(package=package):
            return ancestors(package)
        case PackageImported(package=package):
            return (package,)
        case RevisionCreated(package=package) | RevisionPublished(package=package):
            return (package,)
        case RevisionDeleted(package=package):
            return (package,)
    raise AssertionError(f"no package is stepped by {type(fact).__name__}")


def step_package(
    row: PackageRow,
    fact: PackageFact,
    now: datetime,
) -> PackageRow:
    match fact:
        case PackageImported():
            return replace(row, imported=True)
        case PackageStarted():
            return replace(row, below=row.below + 1)
        case PackageEmptied():
            return replace(row, below=row.below - 1)
        case RevisionCreated(name=name, by=by, metadata=metadata):
            owned = row.owned | {item.key: name for item in metadata.owner_references}
            imported = row.imported and by == IMPORT
            return replace(row, live=row.live + 1, owned=owned, imported=imported)
        case RevisionPublished(name=name, number=number):
            latest: Numbered | None = Numbered(name, number)
            return replace(row, last_number=number, latest=latest, owned=_without(row, name))
        case RevisionDeleted(name=name, older=older):
            was_latest = row.latest is not None and row.latest.name == name
            latest = older if was_latest else row.latest
            return replace(row, live=row.live - 1, latest=latest, owned=_without(row, name))


def _without(row: PackageRow, name: str) -> dict[str, str]:
    return {owner: revision for owner, revision in row.owned.items() if revision != name}


packages = Fold(
    collection=PACKAGES,
    number=2,
    reads=get_args(PackageFact),
    ids=package_ids,
    start=lambda id, fact: PackageRow(id),
    step=step_package,
)


# ── revisions ─────────────────────────────────────────────────────────────────────────────────────


class Revision(Struct, frozen=True, omit_defaults=True):
    """A package revision. Fields that only make sense later in life are empty until then.

    ``lifecycle`` is text, not an enum: a damaged value must be told, not fail to be read.
    """

    name: str
    uid: str
    repository: str
    package: str
    workspace: str
    lifecycle: str
    number: int  # 0 until it is published
    content: Content
    tasks: tuple[Task, ...]
    created_by: str
    created_at: datetime | None = None
    upstream: Lineage | None = None
    metadata: Metadata = Metadata()
    gates: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    editors: tuple[str, ...] = ()  # everybody who changed what would be published
    approvals: tuple[str, ...] = ()  # of the standing proposal
    proposed_by: str = ""
    proposed_at: datetime | None = None
    published_by: str = ""
    published_at: datetime | None = None
    self_approved: bool = False
    deletion_proposed_by: str = ""
    deletion_proposed_at: datetime | None = None
    deletion_timestamp: datetime | None = None


RevisionFact = (
    RevisionCreated
    | RevisionContentReplaced
    | RevisionTaskAdded
    | RevisionGatesChanged
    | RevisionConditionsChanged
    | RevisionMetadataChanged
    | RevisionProposed
    | ProposalWithdrawn
    | ProposalRejected
    | RevisionApproved
    | RevisionPublished
    | RevisionDeletionProposed
    | RevisionDeletionRejected
    | RevisionDeletionStarted
    | RevisionDeleted
)

REVISIONS = Collection(
    "revisions",
    Revision,
    writers=Writers.FOLDED,
    nature=Nature.DERIVED,
    columns=("repository", "package", "workspace", "lifecycle", "number", "uid", "created_by"),
    indexes=(
        Index("by_package", ("package",)),
        Index("by_lifecycle", ("lifecycle",)),
        Index("by_author", ("created_by",)),
    ),
)


def start_revision(id: str, fact: RevisionCreated) -> Revision:
    place = parse(fact.name)
    return Revision(
        name=fact.name,
        uid=fact.uid,
        repository=place.repository,
        package=fact.package,
        workspace=place.workspace,
        lifecycle=Lifecycle.DRAFT,
        number=0,
        content=fact.content,
        tasks=(fact.task,),
        created_by=fact.by,
    )


def step_revision(row: Revision, fact: RevisionFact, now: datetime) -> Revision | None:
    match fact:
        case RevisionCreated():
            return replace(
                row,
                created_at=now,
                upstream=fact.upstream,
                metadata=fact.metadata,
                gates=fact.gates,
                editors=(fact.by,),
            )
        case RevisionContentReplaced(content=content):
            conditions = tuple(map(_forgotten, row.conditions))
            return replace(_edited(row, fact.by), content=content, conditions=conditions)
        case RevisionTaskAdded(task=task, upstream=upstream):
            return replace(_edited(row, fact.by), tasks=(*row.tasks, task), upstream=upstream)
        case RevisionGatesChanged(gates=gates):
            return replace(_edited(row, fact.by), gates=gates)
        case RevisionConditionsChanged(conditions=conditions):
            return replace(row, conditions=conditions)
        case RevisionMetadataChanged(metadata=metadata):
            return replace(row, metadata=metadata)
        case RevisionApproved():
            return replace(row, approvals=(*row.approvals, fact.by))
        case RevisionDeletionStarted():
            return replace(row, deletion_timestamp=now)
        case RevisionDeleted():
            return None
    return _moved(row, fact, now)


def _moved(
    row: Revision,
    fact: RevisionProposed
    | ProposalWithdrawn
    | ProposalRejected
    | RevisionPublished
    | RevisionDeletionProposed
    | RevisionDeletionRejected,
    now: datetime,
) -> Revision:
    """The row after a step of its lifecycle."""
    match fact:
        case RevisionProposed(by=by):
            return replace(row, lifecycle=Lifecycle.PROPOSED, proposed_by=by, proposed_at=now)
        case ProposalWithdrawn() | ProposalRejected():
            return replace(row, lifecycle=Lifecycle.DRAFT, approvals=())
        case RevisionPublished(by=by, number=number):
            return replace(
                row,
                lifecycle=Lifecycle.PUBLISHED,
                number=number,
                published_by=by,
                published_at=now,
                self_approved=fact.self_approved,
            )
        case RevisionDeletionProposed(by=by):
            return replace(
                row,
                lifecycle=Lifecycle.DELETION_PROPOSED,
                deletion_proposed_by=by,
                deletion_proposed_at=now,
            )
        case RevisionDeletionRejected():
            return replace(
                row,
                lifecycle=Lifecycle.PUBLISHED,
                deletion_proposed_by="",
                deletion_proposed_at=None,
            )


def _edited(row: Revision, by: str) -> Revision:
    return row if by in row.editors else replace(row, editors=(*row.editors, by))


def _forgotten(condition: Condition) -> Condition:
    """What was found out about other content is not known of this one."""
    return Condition(condition.type, Status.UNKNOWN, CONTENT_CHANGED)


revisions = Fold(
    collection=REVISIONS,
    number=2,  # since then there is an index by author
    reads=get_args(RevisionFact),
    ids=lambda fact: (fact.name,),
    start=start_revision,
    step=step_revision,
)
