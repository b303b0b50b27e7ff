"""The folds that compute the rows of packages from their facts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import get_args

from msgspec import Struct, structs

from tidegate.domain.packages import facts, rows, states
from tidegate.domain.packages.names import ancestors, parse
from tidegate.kernel.folds import Fold

CONTENT_CHANGED = "ContentChanged"  # the reason of a condition that was reset


DEPENDENTS_NAMED_MAX = 16  # in one row; revision_dependents has all of them


def step_repository(
    row: rows.Repository | None,
    fact: facts.RepositoryCreated | facts.RepositoryChanged | facts.RepositoryDeleted,
    now: datetime,
) -> rows.Repository | None:
    if isinstance(fact, facts.RepositoryDeleted):
        return None
    return rows.Repository(fact.repository, fact.quorum, fact.deployment, fact.protect_proposed)


repositories = Fold(
    collection=rows.REPOSITORIES,
    number=2,
    reads=(facts.RepositoryCreated, facts.RepositoryChanged, facts.RepositoryDeleted),
    ids=lambda fact: (fact.repository,),
    start=lambda id, fact: None,
    step=step_repository,
)


PackageFact = (
    facts.PackageStarted
    | facts.PackageImported
    | facts.PackageEmptied
    | facts.RevisionCreated
    | facts.RevisionPublished
    | facts.RevisionDeleted
)


def package_ids(fact: Struct) -> tuple[str, ...]:
    match fact:
        case facts.PackageStarted(package=package) | facts.PackageEmptied(package=package):
            return ancestors(package)
        case facts.PackageImported(package=package):
            return (package,)
        case facts.RevisionCreated(package=package) | facts.RevisionPublished(package=package):
            return (package,)
        case facts.RevisionDeleted(package=package):
            return (package,)
    raise AssertionError(f"no package is stepped by {type(fact).__name__}")


def step_package(row: rows.PackageRow, fact: PackageFact, now: datetime) -> rows.PackageRow:
    match fact:
        case facts.PackageImported():
            return structs.replace(row, imported=True)
        case facts.PackageStarted():
            return structs.replace(row, below=row.below + 1)
        case facts.PackageEmptied():
            return structs.replace(row, below=row.below - 1)
        case facts.RevisionCreated(name=name, by=by, metadata=metadata):
            owned = row.owned | {item.key: name for item in metadata.owner_references}
            imported = row.imported and by == facts.IMPORT
            return structs.replace(row, live=row.live + 1, owned=owned, imported=imported)
        case facts.RevisionPublished(name=name, number=number):
            latest: facts.Numbered | None = facts.Numbered(name, number)
            return structs.replace(
                row, last_number=number, latest=latest, owned=_without(row, name)
            )
        case facts.RevisionDeleted(name=name, older=older):
            was_latest = row.latest is not None and row.latest.name == name
            latest = older if was_latest else row.latest
            return structs.replace(row, live=row.live - 1, latest=latest, owned=_without(row, name))


def _without(row: rows.PackageRow, name: str) -> dict[str, str]:
    return {owner: revision for owner, revision in row.owned.items() if revision != name}


packages = Fold(
    collection=rows.PACKAGES,
    number=2,
    reads=get_args(PackageFact),
    ids=package_ids,
    start=lambda id, fact: rows.PackageRow(id),
    step=step_package,
)


RevisionFact = (
    facts.RevisionCreated
    | facts.RevisionContentReplaced
    | facts.RevisionTaskAdded
    | facts.RevisionGatesChanged
    | facts.RevisionConditionsChanged
    | facts.RevisionMetadataChanged
    | facts.RevisionProposed
    | facts.ProposalWithdrawn
    | facts.ProposalRejected
    | facts.RevisionApproved
    | facts.RevisionPublished
    | facts.RevisionDeletionProposed
    | facts.RevisionDeletionRejected
    | facts.RevisionDeletionStarted
    | facts.RevisionDeleted
)


def start_revision(id: str, fact: facts.RevisionCreated) -> rows.Revision:
    place = parse(fact.name)
    return rows.Revision(
        name=fact.name,
        uid=fact.uid,
        repository=place.repository,
        package=fact.package,
        workspace=place.workspace,
        lifecycle=states.Lifecycle.DRAFT,
        number=0,
        content=fact.content,
        tasks=(fact.task,),
        created_by=fact.by,
    )


def step_revision(row: rows.Revision, fact: RevisionFact, now: datetime) -> rows.Revision | None:
    match fact:
        case facts.RevisionCreated():
            return structs.replace(
                row,
                created_at=now,
                upstream=fact.upstream,
                metadata=fact.metadata,
                gates=fact.gates,
                editors=(fact.by,),
            )
        case facts.RevisionContentReplaced(content=content):
            conditions = tuple(map(_reset_condition, row.conditions))
            return structs.replace(_edited(row, fact.by), content=content, conditions=conditions)
        case facts.RevisionTaskAdded(task=task, upstream=upstream):
            return structs.replace(
                _edited(row, fact.by), tasks=(*row.tasks, task), upstream=upstream
            )
        case facts.RevisionGatesChanged(gates=gates):
            return structs.replace(_edited(row, fact.by), gates=gates)
        case facts.RevisionConditionsChanged(conditions=conditions):
            return structs.replace(row, conditions=conditions)
        case facts.RevisionMetadataChanged(metadata=metadata):
            return structs.replace(row, metadata=metadata)
        case facts.RevisionApproved():
            return structs.replace(row, approvals=(*row.approvals, fact.by))
        case facts.RevisionDeletionStarted():
            return structs.replace(row, deletion_timestamp=now)
        case facts.RevisionDeleted():
            return None
    return _take_step(row, fact, now)


def _take_step(
    row: rows.Revision,
    fact: facts.RevisionProposed
    | facts.ProposalWithdrawn
    | facts.ProposalRejected
    | facts.RevisionPublished
    | facts.RevisionDeletionProposed
    | facts.RevisionDeletionRejected,
    now: datetime,
) -> rows.Revision:
    """The row after a step of its lifecycle."""
    match fact:
        case facts.RevisionProposed(by=by):
            return structs.replace(
                row, lifecycle=states.Lifecycle.PROPOSED, proposed_by=by, proposed_at=now
            )
        case facts.ProposalWithdrawn() | facts.ProposalRejected():
            return structs.replace(row, lifecycle=states.Lifecycle.DRAFT, approvals=())
        case facts.RevisionPublished(by=by, number=number):
            return structs.replace(
                row,
                lifecycle=states.Lifecycle.PUBLISHED,
                number=number,
                published_by=by,
                published_at=now,
                self_approved=fact.self_approved,
            )
        case facts.RevisionDeletionProposed(by=by):
            return structs.replace(
                row,
                lifecycle=states.Lifecycle.DELETION_PROPOSED,
                deletion_proposed_by=by,
                deletion_proposed_at=now,
            )
        case facts.RevisionDeletionRejected():
            return structs.replace(
                row,
                lifecycle=states.Lifecycle.PUBLISHED,
                deletion_proposed_by="",
                deletion_proposed_at=None,
            )


def _edited(row: rows.Revision, by: str) -> rows.Revision:
    return row if by in row.editors else structs.replace(row, editors=(*row.editors, by))


def _reset_condition(condition: facts.Condition) -> facts.Condition:
    """Reset a condition, because it was reported for other content."""
    return facts.Condition(condition.type, facts.ConditionStatus.UNKNOWN, CONTENT_CHANGED)


revisions = Fold(
    collection=rows.REVISIONS,
    number=2,  # since then there is an index by author
    reads=get_args(RevisionFact),
    ids=lambda fact: (fact.name,),
    start=start_revision,
    step=step_revision,
)


LinkFact = (
    facts.RevisionCreated
    | facts.RevisionTaskAdded
    | facts.RevisionPublished
    | facts.RevisionDeleted
)


def link_ids(fact: LinkFact) -> tuple[str, ...]:
    match fact:
        case facts.RevisionCreated(name=name, upstream=upstream):
            return _names(name, _name(upstream))
        case facts.RevisionTaskAdded(former=former, upstream=upstream):
            return () if former == upstream else _names(_name(former), _name(upstream))
        case facts.RevisionPublished(name=name, older=older):
            return _names(name, _name(older))
        case facts.RevisionDeleted(name=name, upstream=upstream, older=older, newer=newer):
            return _names(name, _name(upstream), _name(older), _name(newer))


def step_links(row: rows.RevisionLinks, fact: LinkFact, now: datetime) -> rows.RevisionLinks | None:
    match fact:
        case facts.RevisionCreated(name=name):
            return row if row.name == name else _gained(row, name)
        case facts.RevisionTaskAdded(name=name, former=former):
            return _lost(row, name) if row.name == _name(former) else _gained(row, name)
        case facts.RevisionPublished(name=name, number=number, older=older):
            if row.name == name:
                return structs.replace(row, older=older)
            return structs.replace(row, newer=facts.Numbered(name, number))
        case facts.RevisionDeleted(name=name) if row.name == name:
            return None
        case facts.RevisionDeleted(name=name, upstream=upstream, older=older, newer=newer):
            if row.name == _name(upstream):
                row = _lost(row, name)
            if row.name == _name(older):
                row = structs.replace(row, newer=newer)
            if row.name == _name(newer):
                row = structs.replace(row, older=older)
            return row


def _gained(row: rows.RevisionLinks, dependent: str) -> rows.RevisionLinks:
    some = row.some_dependents
    if len(some) < DEPENDENTS_NAMED_MAX:
        some = (*some, dependent)
    return structs.replace(row, dependents=row.dependents + 1, some_dependents=some)


def _lost(row: rows.RevisionLinks, dependent: str) -> rows.RevisionLinks:
    some = tuple(name for name in row.some_dependents if name != dependent)
    return structs.replace(row, dependents=row.dependents - 1, some_dependents=some)


def _name(linked: facts.Lineage | facts.Numbered | None) -> str | None:
    return None if linked is None else linked.name


def _names(*names: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name is not None))


revision_links = Fold(
    collection=rows.REVISION_LINKS,
    number=1,
    reads=(
        facts.RevisionCreated,
        facts.RevisionTaskAdded,
        facts.RevisionPublished,
        facts.RevisionDeleted,
    ),
    ids=link_ids,
    start=lambda id, fact: rows.RevisionLinks(id),
    step=step_links,
)


DependentFact = facts.RevisionCreated | facts.RevisionTaskAdded | facts.RevisionDeleted


def dependent_ids(fact: DependentFact) -> tuple[str, ...]:
    linked: list[facts.Lineage | None] = [fact.upstream]
    if isinstance(fact, facts.RevisionTaskAdded):
        linked = [] if fact.former == fact.upstream else [fact.former, fact.upstream]
    return tuple(rows.dependent_id(item.name, fact.name) for item in linked if item is not None)


def step_dependent(
    row: rows.RevisionDependent, fact: DependentFact, now: datetime
) -> rows.RevisionDependent | None:
    match fact:
        case facts.RevisionDeleted():
            return None
        case facts.RevisionTaskAdded(former=former):
            return None if row.upstream == _name(former) else row
        case facts.RevisionCreated():
            return row


revision_dependents = Fold(
    collection=rows.REVISION_DEPENDENTS,
    number=1,
    reads=(facts.RevisionCreated, facts.RevisionTaskAdded, facts.RevisionDeleted),
    ids=dependent_ids,
    start=lambda id, fact: rows.RevisionDependent(*id.split("/")),
    step=step_dependent,
)


OwnerFact = facts.RevisionCreated | facts.RevisionMetadataChanged | facts.RevisionDeleted


def owner_ids(fact: OwnerFact) -> tuple[str, ...]:
    return tuple(rows.owner_prefix(key) + fact.name for key in _changed_owner_keys(fact))


def _changed_owner_keys(fact: OwnerFact) -> tuple[str, ...]:
    """The keys of owners that were added or removed, each once."""
    match fact:
        case facts.RevisionCreated(metadata=metadata):
            return tuple(_keys(metadata.owner_references))
        case facts.RevisionMetadataChanged(metadata=metadata, former_owners=former):
            before, after = _keys(former), _keys(metadata.owner_references)
            return (
                *(key for key in before if key not in after),
                *(key for key in after if key not in before),
            )
        case facts.RevisionDeleted(owners=owners):
            return tuple(_keys(owners))


def _keys(owners: Iterable[facts.OwnerReference]) -> dict[str, None]:
    return dict.fromkeys(owner.key for owner in owners)


def start_owner(id: str, fact: OwnerFact) -> rows.RevisionOwner:
    key = next(key for key in _changed_owner_keys(fact) if id.startswith(rows.owner_prefix(key)))
    return rows.RevisionOwner(key, fact.name)


def step_owner(
    row: rows.RevisionOwner, fact: OwnerFact, now: datetime
) -> rows.RevisionOwner | None:
    if isinstance(fact, facts.RevisionDeleted):
        return None
    return row if row.owner in _keys(fact.metadata.owner_references) else None


revision_owners = Fold(
    collection=rows.REVISION_OWNERS,
    number=1,
    reads=(facts.RevisionCreated, facts.RevisionMetadataChanged, facts.RevisionDeleted),
    ids=owner_ids,
    start=start_owner,
    step=step_owner,
)


class _NoTombstone(Struct, frozen=True):
    """The value before the deletion, because a fold needs a value to start from."""


def step_tombstone(row: _NoTombstone, fact: facts.RevisionDeleted, now: datetime) -> rows.Tombstone:
    return rows.Tombstone(
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
    collection=rows.REVISION_TOMBSTONES,
    number=1,
    reads=(facts.RevisionDeleted,),
    ids=lambda fact: (rows.tombstone_id(fact.name, fact.uid),),
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
