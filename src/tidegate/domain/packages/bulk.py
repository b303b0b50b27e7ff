"""A whole package at once: deleted by a plan, or imported with its numbers; all of it or nothing.

    plan_deletion ──▶ DeletePackage ──▶ every revision deleted, or every reason why not
    ImportPackage ──▶ revisions that were published elsewhere, under their own numbers

Both are one commit, which bounds how much of a package they can take: an import may go on with the
next revisions as long as nothing was made here, a longer package is deleted from its oldest on.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import cast

from msgspec import Struct

from tidegate.domain.content.entries import File
from tidegate.domain.content.manifests import FileManifest
from tidegate.domain.packages.deletions import demand_deletable, demand_unreferenced
from tidegate.domain.packages.facts import (
    IMPORT,
    Init,
    Metadata,
    Numbered,
    PackageEmptied,
    PackageImported,
    PackageStarted,
    RevisionCreated,
    RevisionDeleted,
    RevisionProposed,
    RevisionPublished,
)
from tidegate.domain.packages.lifecycle import parse_stored
from tidegate.domain.packages.metadata import check_metadata, check_uid
from tidegate.domain.packages.names import Identity, check_path, check_user, identity, parse
from tidegate.domain.packages.origins import Rows
from tidegate.domain.packages.refusals import (
    AlreadyExists,
    DeletionPlanOutdated,
    InvalidMember,
    NumberUsed,
    PackageNotDeletable,
    PackageNotEmpty,
    RepositoryNotFound,
)
from tidegate.domain.packages.rows import (
    PackageRow,
    Repository,
    Revision,
    RevisionLinks,
    links_key,
    package_key,
    repository_key,
    revision_key,
)
from tidegate.domain.packages.slices import demand_free, path_keys
from tidegate.domain.packages.states import Lifecycle
from tidegate.errors import Forbidden, NotFound
from tidegate.kernel.canonical_json import INTEGER_MAX
from tidegate.kernel.model import Key, Position, at_most, check_text
from tidegate.kernel.slices import Slice

# What fits into one commit of 100 storage items, sixteen levels deep, with releases and their pins.
PLANNED_MAX = 5
IMPORTED_MAX = 5
SOURCE_BYTES_MAX = 1_024


# ── deleting ──────────────────────────────────────────────────────────────────────────────────────


class PlannedDeletion(Struct, frozen=True):
    """A revision of a plan, at the version at which it was looked at."""

    name: str
    version: Position


class DeletePackage(Struct, frozen=True, kw_only=True):
    """All revisions of a package, as a plan names them."""

    package: str  # with its repository: blueprints/networking/vpc
    by: str
    revisions: tuple[PlannedDeletion, ...]


def rows_of_deletion(command: DeletePackage) -> tuple[Key, ...]:
    """Raises: Invalid, LimitExceeded."""
    check_user(command.by)
    names = [planned.name for planned in command.revisions]
    at_most("revisions of a package that is deleted at once", len(names), PLANNED_MAX)
    if not names or len(set(names)) != len(names):
        raise InvalidMember("a plan names each revision of the package, once")
    places = [parse(name) for name in names]
    for name, place in zip(names, places, strict=True):
        if place.package != command.package:
            raise InvalidMember(f"{name} is no revision of {command.package}", revision=name)
    return (
        repository_key(command.package.partition("/")[0]),
        package_key(command.package),
        *map(revision_key, places),
        *map(links_key, names),
    )


def decide_deletion(
    rows: tuple[Struct | None, ...], command: DeletePackage, now: datetime
) -> Sequence[Struct]:
    """Raises: NotFound, PlanOutdated, PackageNotDeletable."""
    repository, package = cast(tuple[Repository | None, PackageRow | None], rows[:2])
    count = len(command.revisions)
    revisions = cast(tuple[Revision | None, ...], rows[2 : 2 + count])
    links = cast(tuple[RevisionLinks | None, ...], rows[2 + count :])
    if repository is None or package is None or not package.live:
        raise NotFound(f"there is no package {command.package}", package=command.package)
    found = [
        (revision, link)
        for revision, link in zip(revisions, links, strict=True)
        if revision is not None and link is not None
    ]
    if len(found) != count or package.live != count:
        raise DeletionPlanOutdated(
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
        raise PackageNotDeletable(command.package, reasons)
    return (*_deletions(found, command.by), PackageEmptied(command.package, command.by))


def _reasons(
    revision: Revision, links: RevisionLinks, repository: Repository, by: str
) -> Sequence[str]:
    """Why this revision may not go, as its own deletion would be refused."""
    reasons = []
    state = parse_stored(revision.lifecycle)
    try:
        demand_deletable(revision, state, repository, by)
        demand_unreferenced(links)
    except Forbidden as refusal:
        reasons.append(refusal.detail)
    if revision.metadata.finalizers:
        reasons.append(f"{revision.name} waits for {', '.join(revision.metadata.finalizers)}")
    return reasons


def _deletions(
    found: Sequence[tuple[Revision, RevisionLinks]], by: str
) -> Sequence[RevisionDeleted]:
    """In the order of their numbers, so that each is the oldest when its turn comes."""
    ordered = sorted(found, key=lambda pair: pair[0].number)
    return [
        RevisionDeleted(
            revision.name,
            revision.package,
            revision.uid,
            by,
            Lifecycle(revision.lifecycle),
            revision.number,
            revision.content,
            revision.upstream,
            None,
            links.newer,
            revision.metadata.owner_references,
        )
        for revision, links in ordered
    ]


def _expects(command: DeletePackage) -> dict[Key, Position]:
    return {revision_key(planned.name): planned.version for planned in command.revisions}


# ── importing ─────────────────────────────────────────────────────────────────────────────────────


class ImportedRevision(Struct, frozen=True, kw_only=True):
    """A revision that was published elsewhere. Its bytes are in the blob store already."""

    workspace: str
    uid: str
    number: int
    files: tuple[File, ...]
    description: str = ""
    metadata: Metadata = Metadata()


class ImportPackage(Struct, frozen=True, kw_only=True):
    """Published revisions of a package that is empty here, oldest first."""

    repository: str
    package: str  # the path inside the repository
    by: str
    source: str  # where they come from, for the audit trail
    revisions: tuple[ImportedRevision, ...]

    def place(self, revision: ImportedRevision) -> Identity:
        """Raises: InvalidName."""
        return identity(self.repository, self.package, revision.workspace)

    @property
    def whole(self) -> str:
        return f"{self.repository}/{self.package}"


def rows_of_import(command: ImportPackage) -> tuple[Key, ...]:
    """Raises: Invalid, TooLarge."""
    check_user(command.by)
    check_path(command.package)
    check_text("the source of an import", command.source, SOURCE_BYTES_MAX)
    at_most("revisions of an import", len(command.revisions), IMPORTED_MAX)
    for revision in command.revisions:
        check_uid(revision.uid)
        check_metadata(revision.metadata)
        FileManifest(revision.files)
    _check_numbers([revision.number for revision in command.revisions])
    return _import_keys(command)


def _check_numbers(numbers: Sequence[int]) -> None:
    if not numbers:
        raise InvalidMember("an import brings at least one revision")
    if list(numbers) != sorted(set(numbers)) or not 1 <= numbers[0] <= numbers[-1] <= INTEGER_MAX:
        raise InvalidMember(
            "the numbers of an import begin at 1 or later and rise", member="number"
        )


def _import_keys(command: ImportPackage) -> tuple[Key, ...]:
    names = [command.place(revision).name for revision in command.revisions]
    if len(set(names)) != len(names):
        raise InvalidMember("an import names each workspace once", member="workspace")
    return (
        repository_key(command.repository),
        *path_keys(command.whole),
        *map(revision_key, names),
    )


def decide_import(
    rows: tuple[Struct | None, ...], command: ImportPackage, now: datetime
) -> Sequence[Struct]:
    """Raises: RepositoryNotFound, PackageNotEmpty, AlreadyExists, PathOverlap, NumberUsed."""
    seen: Rows = dict(zip(_import_keys(command), rows, strict=True))
    if seen[repository_key(command.repository)] is None:
        raise RepositoryNotFound(command.repository)
    package = cast(PackageRow | None, seen[package_key(command.whole)]) or PackageRow(command.whole)
    if package.live and not package.imported:
        raise PackageNotEmpty(
            f"{command.whole} has {package.live} revisions, made here", package=command.whole
        )
    if not package.live:
        demand_free(package, seen)
    if command.revisions[0].number <= package.last_number:
        raise NumberUsed(
            f"{command.whole} gave out the numbers up to {package.last_number} already",
            number=command.revisions[0].number,
            last_number=package.last_number,
        )
    started = () if package.live else (PackageStarted(command.whole, IMPORT),)
    imported = PackageImported(command.whole, command.by, command.source, len(command.revisions))
    facts: list[Struct] = [*started, imported]
    older = package.latest
    for revision in command.revisions:
        place = command.place(revision)
        if seen[revision_key(place)] is not None:
            raise AlreadyExists(f"package revision {place.name} exists", revision=place.name)
        facts += _published(place, revision, older)
        older = Numbered(place.name, revision.number)
    return facts


def _published(
    place: Identity, revision: ImportedRevision, older: Numbered | None
) -> Sequence[Struct]:
    """The life of a revision as far as it is known here: made, proposed, published."""
    content = FileManifest(revision.files).content
    name, package, uid = place.name, place.package, revision.uid
    task = Init(revision.description)
    return (
        RevisionCreated(name, package, uid, IMPORT, task, content, metadata=revision.metadata),
        RevisionProposed(name, package, uid, IMPORT, content.digest),
        RevisionPublished(
            name, package, uid, IMPORT, revision.number, content.digest, False, older
        ),
    )


delete_package = Slice(
    name="delete-package",
    command=DeletePackage,
    writes=(RevisionDeleted, PackageEmptied),
    rows=rows_of_deletion,
    expects=_expects,
    decide=decide_deletion,
)
import_package = Slice(
    name="import-package",
    command=ImportPackage,
    writes=(PackageStarted, PackageImported, RevisionCreated, RevisionProposed, RevisionPublished),
    rows=rows_of_import,
    decide=decide_import,
)

SLICES = (delete_package, import_package)
