"""Reads about revisions: lineage, dependents, what a package's deletion would remove."""

from __future__ import annotations

from tidegate.domain.packages.bulk import PLANNED_MAX, PlannedDeletion
from tidegate.domain.packages.facts import (
    Lineage,
)
from tidegate.domain.packages.rows import (
    REVISION_DEPENDENTS,
    REVISIONS,
    PackageRow,
    Revision,
    RevisionDependent,
    package_key,
    revision_key,
)
from tidegate.errors import NotFound
from tidegate.kernel import codec
from tidegate.kernel.collections import entry
from tidegate.kernel.model import at_most
from tidegate.kernel.store import Store

LINEAGE_MAX = 64  # generations that are shown


DEPENDENTS_MAX = 1_000


def list_lineage(store: Store, name: str) -> tuple[Lineage, ...]:
    """What a revision descends from, nearest first, as far as it goes."""
    found: list[Lineage] = []
    for _ in range(LINEAGE_MAX):
        (record,) = store.get(revision_key(name))
        upstream = None if record is None else codec.decode(record.data, Revision).upstream
        if upstream is None:
            break
        found.append(upstream)
        name = upstream.name
    return tuple(found)


def list_dependents(store: Store, name: str) -> tuple[str, ...]:
    """The revisions that descend from this one, so that it cannot be deleted."""
    records = store.range(REVISION_DEPENDENTS.name, prefix=f"{name}/", limit=DEPENDENTS_MAX)
    return tuple(codec.decode(record.data, RevisionDependent).dependent for record in records)


def find_latest(store: Store, package: str) -> str | None:
    """The package's latest published revision: what one returns to."""
    (record,) = store.get(package_key(package))
    latest = None if record is None else codec.decode(record.data, PackageRow).latest
    return None if latest is None else latest.name


def plan_deletion(store: Store, package: str) -> tuple[PlannedDeletion, ...]:
    """The revisions that the package has now. Raises: NotFound, LimitExceeded."""
    prefix = entry(package, "")
    found = store.range(REVISIONS.name, index="by_package", prefix=prefix, limit=PLANNED_MAX + 1)
    if not found:
        raise NotFound(f"package {package} has no revision", package=package)
    at_most("revisions of a package that is deleted at once", len(found), PLANNED_MAX)
    return tuple(PlannedDeletion(record.key.id, record.version) for record in found)
