"""How the facts about packages become their rows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import get_args

from msgspec import Struct
from msgspec.structs import replace

from tidegate.domain.packages.facts import (
    IMPORT,
    Condition,
    ConditionStatus,
    Lineage,
    Numbered,
    OwnerReference,
    PackageEmptied,
    PackageImported,
    PackageStarted,
    ProposalRejected,
    ProposalWithdrawn,
    RepositoryChanged,
    RepositoryCreated,
    RepositoryDeleted,
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
)
from tidegate.domain.packages.names import ancestors, parse
from tidegate.domain.packages.rows import (
    PACKAGES,
    REPOSITORIES,
    REVISION_DEPENDENTS,
    REVISION_LINKS,
    REVISION_OWNERS,
    REVISION_TOMBSTONES,
    REVISIONS,
    PackageRow,
    Repository,
    Revision,
    RevisionDependent,
    RevisionLinks,
    RevisionOwner,
    Tombstone,
    dependent_id,
    owner_prefix,
    tombstone_id,
)
from tidegate.domain.packages.states import Lifecycle
from tidegate.kernel.folds import Fold

CONTENT_CHANGED = "ContentChanged"  # why a condition is no longer known


DEPENDENTS_NAMED_MAX = 16  # in one row; all of them stand in revision_dependents


def step_repository(
    row: Repository | None,
    fact: RepositoryCreated | RepositoryChanged | RepositoryDeleted,
    now: datetime,
) -> Repository | None:
    if isinstance(fact, RepositoryDeleted):
        return None
    return Repository(fact.repository, fact.quorum, fact.deployment, fact.protect_proposed)


repositories = Fold(
    collection=REPOSITORIES,
    number=2,
    reads=(RepositoryCreated, RepositoryChanged, RepositoryDeleted),
    ids=lambda fact: (fact.repository,),
    start=lambda id, fact: None,
    step=step_repository,
)


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
    return Condition(condition.type, ConditionStatus.UNKNOWN, CONTENT_CHANGED)


revisions = Fold(
    collection=REVISIONS,
    number=2,  # since then there is an index by author
    reads=get_args(RevisionFact),
    ids=lambda fact: (fact.name,),
    start=start_revision,
    step=step_revision,
)


LinkFact = RevisionCreated | RevisionTaskAdded | RevisionPublished | RevisionDeleted


def link_ids(fact: LinkFact) -> tuple[str, ...]:
    match fact:
        case RevisionCreated(name=name, upstream=upstream):
            return _names(name, _name(upstream))
        case RevisionTaskAdded(former=former, upstream=upstream):
            return () if former == upstream else _names(_name(former), _name(upstream))
        case RevisionPublished(name=name, older=older):
            return _names(name, _name(older))
        case RevisionDeleted(name=name, upstream=upstream, older=older, newer=newer):
            return _names(name, _name(upstream), _name(older), _name(newer))


def step_links(row: RevisionLinks, fact: LinkFact, now: datetime) -> RevisionLinks | None:
    match fact:
        case RevisionCreated(name=name):
            return row if row.name == name else _gained(row, name)
        case RevisionTaskAdded(name=name, former=former):
            return _lost(row, name) if row.name == _name(former) else _gained(row, name)
        case RevisionPublished(name=name, number=number, older=older):
            if row.name == name:
                return replace(row, older=older)
            return replace(row, newer=Numbered(name, number))
        case RevisionDeleted(name=name) if row.name == name:
            return None
        case RevisionDeleted(name=name, upstream=upstream, older=older, newer=newer):
            if row.name == _name(upstream):
                row = _lost(row, name)
            if row.name == _name(older):
                row = replace(row, newer=newer)
            if row.name == _name(newer):
                row = replace(row, older=older)
            return row


def _gained(row: RevisionLinks, dependent: str) -> RevisionLinks:
    some = row.some_dependents
    if len(some) < DEPENDENTS_NAMED_MAX:
        some = (*some, dependent)
    return replace(row, dependents=row.dependents + 1, some_dependents=some)


def _lost(row: RevisionLinks, dependent: str) -> RevisionLinks:
    some = tuple(name for name in row.some_dependents if name != dependent)
    return replace(row, dependents=row.dependents - 1, some_dependents=some)


def _name(linked: Lineage | Numbered | None) -> str | None:
    return None if linked is None else linked.name


def _names(*names: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name is not None))


revision_links = Fold(
    collection=REVISION_LINKS,
    number=1,
    reads=(RevisionCreated, RevisionTaskAdded, RevisionPublished, RevisionDeleted),
    ids=link_ids,
    start=lambda id, fact: RevisionLinks(id),
    step=step_links,
)


DependentFact = RevisionCreated | RevisionTaskAdded | RevisionDeleted


def dependent_ids(fact: DependentFact) -> tuple[str, ...]:
    linked: list[Lineage | None] = [fact.upstream]
    if isinstance(fact, RevisionTaskAdded):
        linked = [] if fact.former == fact.upstream else [fact.former, fact.upstream]
    return tuple(dependent_id(item.name, fact.name) for item in linked if item is not None)


def step_dependent(
    row: RevisionDependent, fact: DependentFact, now: datetime
) -> RevisionDependent | None:
    match fact:
        case RevisionDeleted():
            return None
        case RevisionTaskAdded(former=former):
            return None if row.upstream == _name(former) else row
        case RevisionCreated():
            return row


revision_dependents = Fold(
    collection=REVISION_DEPENDENTS,
    number=1,
    reads=(RevisionCreated, RevisionTaskAdded, RevisionDeleted),
    ids=dependent_ids,
    start=lambda id, fact: RevisionDependent(*id.split("/")),
    step=step_dependent,
)


OwnerFact = RevisionCreated | RevisionMetadataChanged | RevisionDeleted


def owner_ids(fact: OwnerFact) -> tuple[str, ...]:
    return tuple(owner_prefix(key) + fact.name for key in _touched(fact))


def _touched(fact: OwnerFact) -> tuple[str, ...]:
    """The keys of owners that came or went, each once."""
    match fact:
        case RevisionCreated(metadata=metadata):
            return tuple(_keys(metadata.owner_references))
        case RevisionMetadataChanged(metadata=metadata, former_owners=former):
            before, after = _keys(former), _keys(metadata.owner_references)
            return (
                *(key for key in before if key not in after),
                *(key for key in after if key not in before),
            )
        case RevisionDeleted(owners=owners):
            return tuple(_keys(owners))


def _keys(owners: Iterable[OwnerReference]) -> dict[str, None]:
    return dict.fromkeys(owner.key for owner in owners)


def start_owner(id: str, fact: OwnerFact) -> RevisionOwner:
    key = next(key for key in _touched(fact) if id.startswith(owner_prefix(key)))
    return RevisionOwner(key, fact.name)


def step_owner(row: RevisionOwner, fact: OwnerFact, now: datetime) -> RevisionOwner | None:
    if isinstance(fact, RevisionDeleted):
        return None
    return row if row.owner in _keys(fact.metadata.owner_references) else None


revision_owners = Fold(
    collection=REVISION_OWNERS,
    number=1,
    reads=(RevisionCreated, RevisionMetadataChanged, RevisionDeleted),
    ids=owner_ids,
    start=start_owner,
    step=step_owner,
)


class _NoTombstone(Struct, frozen=True):
    """Before the deletion there is nothing; a fold wants a value to start from."""


def step_tombstone(row: _NoTombstone, fact: RevisionDeleted, now: datetime) -> Tombstone:
    return Tombstone(
        fact.name,
        fact.uid,
        fact.package,
        fact.lifecycle,
        fact.number,
        fact.content,
        deleted_by=fact.by,
        deleted_at=now,
        upstream=fact.upstream,
    )


revision_tombstones = Fold(
    collection=REVISION_TOMBSTONES,
    number=1,
    reads=(RevisionDeleted,),
    ids=lambda fact: (tombstone_id(fact.name, fact.uid),),
    start=lambda id, fact: _NoTombstone(),
    step=step_tombstone,
)

FOLDS = (
    repositories,
    packages,
    revisions,
    revision_links,
    revision_dependents,
    revision_owners,
    revision_tombstones,
)
