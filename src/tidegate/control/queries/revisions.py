"""Read revisions: current and past ones, lineage, dependents, and what a deletion would remove."""

from __future__ import annotations

from msgspec import Struct

from tidegate.control.queries.as_of import RowHistory
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.packages import (
    bulk,
    facts as package_facts,
    folds,
    history,
    names,
    refusals,
    rows as package_rows,
)
from tidegate.errors import NotFound
from tidegate.kernel.model import Position, at_most

LINEAGE_MAX = 64  # generations
DEPENDENTS_MAX = 1_000


class RevisionInPackage(Struct, frozen=True):
    """A revision with its package and repository; its document shows all three."""

    revision: Found[package_rows.Revision]
    package: Found[package_rows.PackageRow] | None
    repository: Found[package_rows.Repository] | None


def find_revision(reads: Reads, name: str) -> RevisionInPackage | None:
    """Find the current revision, or None. Raises: InvalidName."""
    place = names.parse(name)
    revision, package, repository = reads.find_all(
        (package_rows.revision_key(place), package_rows.Revision),
        (package_rows.package_key(place.package), package_rows.PackageRow),
        (package_rows.repository_key(place.repository), package_rows.Repository),
    )
    return None if revision is None else RevisionInPackage(revision, package, repository)


def revision_at(rows: RowHistory, name: str, position: Position) -> RevisionInPackage | None:
    """Return the revision as it was at a log position, or None. Raises: HistoryTooLong."""
    place = names.parse(name)
    revision = rows.row_at(folds.revisions, name, history.history_of(name), position)
    if revision is None:
        return None
    facts = history.history_of_package(place.package)
    package = rows.row_at(folds.packages, place.package, facts, position)
    facts = history.history_of_repository(place.repository)
    repository = rows.row_at(folds.repositories, place.repository, facts, position)
    return RevisionInPackage(revision, package, repository)


def demand_row(reads: Reads, name: str) -> package_rows.Revision:
    """Return the row of a revision. Raises: RevisionNotFound, InvalidName."""
    return reads.demand(
        package_rows.revision_key(name), package_rows.Revision, refusals.RevisionNotFound(name)
    ).row


def list_lineage(reads: Reads, name: str) -> tuple[package_facts.Lineage, ...]:
    """List the revisions that a revision descends from, nearest first."""
    found: list[package_facts.Lineage] = []
    for _ in range(LINEAGE_MAX):
        revision = reads.find(package_rows.revision_key(name), package_rows.Revision)
        upstream = None if revision is None else revision.row.upstream
        if upstream is None:
            break
        found.append(upstream)
        name = upstream.name
    return tuple(found)


def list_dependents(reads: Reads, name: str) -> tuple[str, ...]:
    """List the revisions that descend from this one, which keep it from being deleted."""
    found = reads.range(package_rows.REVISION_DEPENDENTS, prefix=f"{name}/", limit=DEPENDENTS_MAX)
    return tuple(item.row.dependent for item in found)


def find_latest(reads: Reads, package: str) -> str | None:
    """Find the package's latest published revision."""
    found = reads.find(package_rows.package_key(package), package_rows.PackageRow)
    latest = None if found is None else found.row.latest
    return None if latest is None else latest.name


def plan_deletion(reads: Reads, package: str) -> tuple[bulk.PlannedDeletion, ...]:
    """List the revisions that a deletion would remove. Raises: NotFound, LimitExceeded."""
    found = reads.range(
        package_rows.REVISIONS, index="by_package", of=(package,), limit=bulk.PLANNED_MAX + 1
    )
    if not found:
        raise NotFound(f"package {package} has no revision", package=package)
    at_most("revisions of a package that is deleted at once", len(found), bulk.PLANNED_MAX)
    return tuple(bulk.PlannedDeletion(item.id, item.version) for item in found)
