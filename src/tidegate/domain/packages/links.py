"""What others have to do with a revision, and what is left of it.

    revision_links       how many descend from it, its neighbours among the published revisions
    revision_dependents  a row per revision that descends from another: the list of blockers
    revision_owners      a row per revision and owner: what belongs to somebody
    revision_tombstones  a row per deleted revision, for ever

They stand apart from the revision's own row, so that the doings of others do not change its
version: nobody's update is stale because somebody else cloned the revision.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from tidegate.domain.content.manifests import Content
from tidegate.domain.packages.facts import (
    Lineage,
    Numbered,
    OwnerReference,
    RevisionCreated,
    RevisionDeleted,
    RevisionMetadataChanged,
    RevisionPublished,
    RevisionTaskAdded,
)
from tidegate.domain.packages.lifecycle import Lifecycle
from tidegate.kernel.collections import Collection, Index, Nature, Writers
from tidegate.kernel.folds import Fold

DEPENDENTS_NAMED_MAX = 16  # in one row; all of them stand in revision_dependents

# ── links ─────────────────────────────────────────────────────────────────────────────────────────


class RevisionLinks(Struct, frozen=True, omit_defaults=True):
    """The published revisions of a package form a chain, so that the deletion of the latest finds
    the one before it without a search.
    """

    name: str
    dependents: int = 0
    some_dependents: tuple[str, ...] = ()
    older: Numbered | None = None
    newer: Numbered | None = None


REVISION_LINKS = Collection(
    "revision_links", RevisionLinks, writers=Writers.FOLDED, nature=Nature.DERIVED
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

# ── dependents ────────────────────────────────────────────────────────────────────────────────────


class RevisionDependent(Struct, frozen=True):
    """``dependent`` descends from ``upstream``, which therefore cannot be deleted."""

    upstream: str
    dependent: str


REVISION_DEPENDENTS = Collection(
    "revision_dependents", RevisionDependent, writers=Writers.FOLDED, nature=Nature.DERIVED
)

DependentFact = RevisionCreated | RevisionTaskAdded | RevisionDeleted


def dependent_id(upstream: str, dependent: str) -> str:
    """The row of this pair; ``upstream/`` is the prefix of all of an upstream's."""
    return f"{upstream}/{dependent}"


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

# ── owners ────────────────────────────────────────────────────────────────────────────────────────


class RevisionOwner(Struct, frozen=True):
    """``revision`` belongs to the owner of this key, among others perhaps."""

    owner: str
    revision: str


REVISION_OWNERS = Collection(
    "revision_owners", RevisionOwner, writers=Writers.FOLDED, nature=Nature.DERIVED
)

OwnerFact = RevisionCreated | RevisionMetadataChanged | RevisionDeleted


def owner_prefix(owner: str) -> str:
    """How the rows of an owner's key begin. Hashed, because it may be long, and hold anything."""
    return sha256(owner.encode(errors="replace")).hexdigest()[:32] + "/"


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

# ── tombstones ────────────────────────────────────────────────────────────────────────────────────


class Tombstone(Struct, frozen=True, omit_defaults=True):
    """A revision that was deleted. Its history stays in the log under its name."""

    name: str
    uid: str
    package: str
    lifecycle: Lifecycle  # the last one
    number: int
    content: Content
    deleted_by: str
    deleted_at: datetime
    upstream: Lineage | None = None


REVISION_TOMBSTONES = Collection(
    "revision_tombstones",
    Tombstone,
    writers=Writers.FOLDED,
    nature=Nature.DERIVED,
    columns=("package", "number"),
    indexes=(Index("by_package", ("package",)),),
)


def tombstone_id(name: str, uid: str) -> str:
    """The row of this incarnation; ``name/`` is the prefix of all that had the name."""
    return f"{name}/{uid}"


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
