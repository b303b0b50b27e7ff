"""A whole package at once: deleted by a plan, or imported with its numbers, all or nothing.

    plan_deletion ──▶ DeletePackage ──▶ every revision deleted, or every reason why not
    ImportPackage ──▶ revisions that were published elsewhere, under their own numbers

Both are one commit, which limits how many revisions they can take. An import may continue with the
next revisions as long as none was created here. Of a longer package, delete the oldest revisions
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import cast

from msgspec import Struct

from tidegate.domain.content import entries, manifests
from tidegate.domain.packages import (
    deletions,
    facts as package_facts,
    lifecycle,
    names as package_names,
    origins,
    refusals,
    rows as package_rows,
    slices,
    states,
)
from tidegate.domain.packages.metadata import check_metadata, check_uid
from tidegate.errors import Forbidden, NotFound
from tidegate.kernel import canonical_json, model, slices as kernel_slices

# What fits into one commit of 100 storage items, sixteen levels deep, with releases and pins.
PLANNED_MAX = 5
IMPORTED_MAX = 5
SOURCE_BYTES_MAX = 1_024


# ── deleting ──────────────────────────────────────────────────────────────────────────────────────


class PlannedDeletion(Struct, frozen=True):
    """A revision of a plan and its version when the plan was made."""

    name: str
    version: model.Position


class DeletePackage(Struct, frozen=True, kw_only=True):
    """Delete all revisions of a package, as a plan lists them."""

    package: str  # with its repository: blueprints/networking/vpc
    by: str
    revisions: tuple[PlannedDeletion, ...]


def rows_of_deletion(command: DeletePackage) -> tuple[model.Key, ...]:
    """Raises: Invalid, LimitExceeded."""
    package_names.check_user(command.by)
    names = [planned.name for planned in command.revisions]
    model.at_most("revisions of a package that is deleted at once", len(names), PLANNED_MAX)
    if not names or len(set(names)) != len(names):
        raise refusals.InvalidMember("a plan names each revision of the package, once")
    places = [package_names.parse(name) for name in names]
    for name, place in zip(names, places, strict=True):
        if place.package != command.package:
            raise refusals.InvalidMember(
                f"{name} is no revision of {command.package}", revision=name
            )
    return (
        package_rows.repository_key(command.package.partition("/")[0]),
        package_rows.package_key(command.package),
        *map(package_rows.revision_key, places),
        *map(package_rows.links_key, names),
    )


def decide_deletion(
    rows: tuple[Struct | None, ...], command: DeletePackage, now: datetime
) -> Sequence[Struct]:
    """Raises: NotFound, PlanOutdated, PackageNotDeletable."""
    repository, package = cast(
        tuple[package_rows.Repository | None, package_rows.PackageRow | None], rows[:2]
    )
    count = len(command.revisions)
    revisions = cast(tuple[package_rows.Revision | None, ...], rows[2 : 2 + count])
    links = cast(tuple[package_rows.RevisionLinks | None, ...], rows[2 + count :])
    if repository is None or package is None or not package.live:
        raise NotFound(f"there is no package {command.package}", package=command.package)
    found = [
        (revision, link)
        for revision, link in zip(revisions, links, strict=True)
        if revision is not None and link is not None
    ]
    if len(found) != count or package.live != count:
        raise refusals.DeletionPlanOutdated(
            f"the plan names {count} revisions of {command.package}, which has {package.live}",
            planned=count,
            found=package.live,
        )
    reasons = [
        reason
        for revision, link in found
        for reason in _reasons(revision, link, repository, command.by)
    ]
    if reasons:
        raise refusals.PackageNotDeletable(command.package, reasons)
    return (
        *_deletions(found, command.by),
        package_facts.PackageEmptied(command.package, command.by),
    )


def _reasons(
    revision: package_rows.Revision,
    links: package_rows.RevisionLinks,
    repository: package_rows.Repository,
    by: str,
) -> Sequence[str]:
    """The reasons for which a deletion of this revision alone would be refused."""
    reasons = []
    state = lifecycle.parse_stored(revision.lifecycle)
    try:
        deletions.demand_deletable(revision, state, repository, by)
        deletions.demand_unreferenced(links)
    except Forbidden as refusal:
        reasons.append(refusal.detail)
    if revision.metadata.finalizers:
        reasons.append(f"{revision.name} waits for {', '.join(revision.metadata.finalizers)}")
    return reasons


def _deletions(
    found: Sequence[tuple[package_rows.Revision, package_rows.RevisionLinks]], by: str
) -> Sequence[package_facts.RevisionDeleted]:
    """The deletions in the order of their numbers, so that each revision is the oldest in turn."""
    ordered = sorted(found, key=lambda pair: pair[0].number)
    return [
        package_facts.RevisionDeleted(
            revision.name,
            revision.package,
            revision.uid,
            by,
            states.Lifecycle(revision.lifecycle),
            revision.number,
            revision.content,
            revision.upstream,
            None,
            links.newer,
            revision.metadata.owner_references,
        )
        for revision, links in ordered
    ]


def _expects(command: DeletePackage) -> dict[model.Key, model.Position]:
    return {
        package_rows.revision_key(planned.name): planned.version for planned in command.revisions
    }


# ── importing ─────────────────────────────────────────────────────────────────────────────────────


class ImportedRevision(Struct, frozen=True, kw_only=True):
    """A revision that was published elsewhere. Its bytes are in the blob store already."""

    workspace: str
    uid: str
    number: int
    files: tuple[entries.File, ...]
    description: str = ""
    metadata: package_facts.Metadata = package_facts.Metadata()


class ImportPackage(Struct, frozen=True, kw_only=True):
    """Import published revisions of a package that is empty here, oldest first."""

    repository: str
    package: str  # the path inside the repository
    by: str
    source: str  # where they come from, for the audit log
    revisions: tuple[ImportedRevision, ...]

    def place(self, revision: ImportedRevision) -> package_names.Identity:
        """Raises: InvalidName."""
        return package_names.identity(self.repository, self.package, revision.workspace)

    @property
    def whole(self) -> str:
        return f"{self.repository}/{self.package}"


def rows_of_import(command: ImportPackage) -> tuple[model.Key, ...]:
    """Raises: Invalid, TooLarge."""
    package_names.check_user(command.by)
    package_names.check_path(command.package)
    model.check_text("the source of an import", command.source, SOURCE_BYTES_MAX)
    model.at_most("revisions of an import", len(command.revisions), IMPORTED_MAX)
    for revision in command.revisions:
        check_uid(revision.uid)
        check_metadata(revision.metadata)
        manifests.FileManifest(revision.files)
    _check_numbers([revision.number for revision in command.revisions])
    return _import_keys(command)


def _check_numbers(numbers: Sequence[int]) -> None:
    if not numbers:
        raise refusals.InvalidMember("an import brings at least one revision")
    if (
        list(numbers) != sorted(set(numbers))
        or not 1 <= numbers[0] <= numbers[-1] <= canonical_json.INTEGER_MAX
    ):
        raise refusals.InvalidMember(
            "the numbers of an import begin at 1 or later and rise", member="number"
        )


def _import_keys(command: ImportPackage) -> tuple[model.Key, ...]:
    names = [command.place(revision).name for revision in command.revisions]
    if len(set(names)) != len(names):
        raise refusals.InvalidMember("an import names each workspace once", member="workspace")
    return (
        package_rows.repository_key(command.repository),
        *slices.path_keys(command.whole),
        *map(package_rows.revision_key, names),
    )


def decide_import(
    rows: tuple[Struct | None, ...], command: ImportPackage, now: datetime
) -> Sequence[Struct]:
    """Raises: RepositoryNotFound, PackageNotEmpty, AlreadyExists, PathOverlap, NumberUsed."""
    seen: origins.Rows = dict(zip(_import_keys(command), rows, strict=True))
    if seen[package_rows.repository_key(command.repository)] is None:
        raise refusals.RepositoryNotFound(command.repository)
    package = cast(
        package_rows.PackageRow | None, seen[package_rows.package_key(command.whole)]
    ) or package_rows.PackageRow(command.whole)
    if package.live and not package.imported:
        raise refusals.PackageNotEmpty(
            f"{command.whole} has {package.live} revisions, made here", package=command.whole
        )
    if not package.live:
        slices.demand_free(package, seen)
    if command.revisions[0].number <= package.last_number:
        raise refusals.NumberUsed(
            f"{command.whole} gave out the numbers up to {package.last_number} already",
            number=command.revisions[0].number,
            last_number=package.last_number,
        )
    started = (
        () if package.live else (package_facts.PackageStarted(command.whole, package_facts.IMPORT),)
    )
    imported = package_facts.PackageImported(
        command.whole, command.by, command.source, len(command.revisions)
    )
    facts: list[Struct] = [*started, imported]
    older = package.latest
    for revision in command.revisions:
        place = command.place(revision)
        if seen[package_rows.revision_key(place)] is not None:
            raise refusals.AlreadyExists(
                f"package revision {place.name} exists", revision=place.name
            )
        facts += _import_facts(place, revision, older)
        older = package_facts.Numbered(place.name, revision.number)
    return facts


def _import_facts(
    place: package_names.Identity, revision: ImportedRevision, older: package_facts.Numbered | None
) -> Sequence[Struct]:
    """The facts of an imported revision: created, proposed, published."""
    content = manifests.FileManifest(revision.files).content
    name, package, uid = place.name, place.package, revision.uid
    task = package_facts.Init(revision.description)
    return (
        package_facts.RevisionCreated(
            name, package, uid, package_facts.IMPORT, task, content, metadata=revision.metadata
        ),
        package_facts.RevisionProposed(name, package, uid, package_facts.IMPORT, content.digest),
        package_facts.RevisionPublished(
            name, package, uid, package_facts.IMPORT, revision.number, content.digest, False, older
        ),
    )


delete_package = kernel_slices.Slice(
    name="delete-package",
    command=DeletePackage,
    writes=(package_facts.RevisionDeleted, package_facts.PackageEmptied),
    rows=rows_of_deletion,
    expects=_expects,
    decide=decide_deletion,
)
import_package = kernel_slices.Slice(
    name="import-package",
    command=ImportPackage,
    writes=(
        package_facts.PackageStarted,
        package_facts.PackageImported,
        package_facts.RevisionCreated,
        package_facts.RevisionProposed,
        package_facts.RevisionPublished,
    ),
    rows=rows_of_import,
    decide=decide_import,
)

SLICES = (delete_package, import_package)
