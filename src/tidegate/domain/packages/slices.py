"""Create revisions and repositories. A new revision is always a Draft, created by one task, at a
path that no other package overlaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from tidegate.domain.access.reasons import check_operator
from tidegate.domain.content import entries, manifests
from tidegate.domain.packages import (
    facts,
    metadata as package_metadata,
    names,
    origins,
    refusals,
    rows as package_rows,
)
from tidegate.domain.packages.lifecycle import parse_initial
from tidegate.errors import VersionRequired
from tidegate.kernel import model, slices

OWNED_MAX = 64


QUORUM_DEFAULT = 1
QUORUM_MAX = 16


class CreateRevision(Struct, frozen=True, kw_only=True):
    """Create a draft. ``uid`` is unique per creation. ``files`` None: those of the source."""

    repository: str
    package: str  # the path inside the repository
    workspace: str
    uid: str
    by: str
    lifecycle: str = ""
    tasks: tuple[facts.Task, ...] = ()
    files: tuple[entries.File, ...] | None = None
    metadata: facts.Metadata = facts.Metadata()
    readiness_gates: tuple[str, ...] = ()

    @property
    def place(self) -> names.Identity:
        """Raises: InvalidName."""
        return names.identity(self.repository, self.package, self.workspace)

    @property
    def task(self) -> facts.Task:
        """The one task that creates it. Raises: TooManyTasks."""
        if len(self.tasks) > 1:
            raise refusals.TooManyTasks(
                f"a revision is created by one task, found {len(self.tasks)}"
            )
        return self.tasks[0] if self.tasks else facts.Init()


def rows_of_revision(command: CreateRevision) -> tuple[model.Key, ...]:
    """Raises: Invalid, TooLarge."""
    parse_initial(command.lifecycle)
    _check_form(command)
    return _keys(command)


def _keys(command: CreateRevision) -> tuple[model.Key, ...]:
    """The rows read. A new package depends on the paths above it; its row counts those below."""
    place = command.place
    own = (
        package_rows.repository_key(place.repository),
        package_rows.revision_key(place),
        package_rows.package_key(place.package),
    )
    paths = path_keys(place.package) if _starts_package(command.task) else ()
    return tuple(dict.fromkeys((*own, *paths, *origins.source_keys(command.task))))


def path_keys(package: str) -> tuple[model.Key, ...]:
    """The rows of a path and of those above it."""
    return (
        package_rows.package_key(package),
        *map(package_rows.package_key, names.ancestors(package)),
    )


def decide_revision(
    rows: tuple[Struct | None, ...], command: CreateRevision, now: datetime
) -> Sequence[Struct]:
    """Raises: NotFound, Conflict and Refused leaves of ``refusals``."""
    content = _content(command)
    place, task = command.place, command.task
    seen: origins.Rows = dict(zip(_keys(command), rows, strict=True))
    if seen[package_rows.repository_key(place.repository)] is None:
        raise refusals.RepositoryNotFound(place.repository)
    if seen[package_rows.revision_key(place)] is not None:
        raise refusals.AlreadyExists(f"package revision {place.name} exists", revision=place.name)
    package = _package(seen, place.package)
    _demand_unowned(package, command.metadata)
    if _starts_package(task):
        demand_free(package, seen)
    origin = origins.find_origin(task, place.package, seen)
    created = facts.RevisionCreated(
        place.name,
        place.package,
        command.uid,
        command.by,
        task,
        origins.choose_content(origin, task, content),
        origin.upstream,
        command.metadata,
        command.readiness_gates,
        origin.warnings,
    )
    if package.live:
        return (created,)
    return (facts.PackageStarted(place.package, command.by), created)


def _check_form(command: CreateRevision) -> None:
    """Raises: Invalid, TooLarge."""
    names.check_user(command.by)
    package_metadata.check_uid(command.uid)
    package_metadata.check_metadata(command.metadata)
    package_metadata.check_gates(command.readiness_gates)
    if command.files is not None:
        manifests.FileManifest(command.files)


def _content(command: CreateRevision) -> manifests.Content | None:
    """The content in the command."""
    if command.files is not None:
        return manifests.FileManifest(command.files).content
    return manifests.FileManifest(()).content if isinstance(command.task, facts.Init) else None


def _starts_package(task: facts.Task) -> bool:
    return isinstance(task, facts.Init | facts.Clone)


def _package(seen: origins.Rows, package: str) -> package_rows.PackageRow:
    row = seen[package_rows.package_key(package)]
    assert row is None or isinstance(row, package_rows.PackageRow)
    return package_rows.PackageRow(package) if row is None else row


def demand_free(package: package_rows.PackageRow, seen: origins.Rows) -> None:
    """Check that a first revision can start here. Several may be drafted until one is published.

    Raises:
        PackageExists, PathOverlap.
    """
    if package.latest is not None:
        raise refusals.PackageExists(
            f"package {package.package} exists, latest is {package.latest.name}; edit that",
            package=package.package,
        )
    if package.below:
        raise refusals.PathOverlap(
            f"{package.below} packages lie below {package.package}", package=package.package
        )
    for above in names.ancestors(package.package):
        if _package(seen, above).live:
            raise refusals.PathOverlap(
                f"{package.package} would lie inside package {above}", package=above
            )


def _demand_unowned(package: package_rows.PackageRow, metadata: facts.Metadata) -> None:
    """Check that the same owner has no open revision of the package.

    Otherwise automation that forgets its drafts could fill the package with them.

    Raises:
        OwnerBusy, LimitExceeded.
    """
    owners = [owner.key for owner in metadata.owner_references]
    for owner in owners:
        if owner in package.owned:
            raise refusals.OwnerBusy(owner, package.owned[owner])
    model.at_most(
        "owners of open revisions of a package", len(package.owned) + len(owners), OWNED_MAX
    )


create_revision = slices.Slice(
    name="create-revision",
    command=CreateRevision,
    writes=(facts.PackageStarted, facts.RevisionCreated),
    rows=rows_of_revision,
    decide=decide_revision,
)


class CreateRepository(Struct, frozen=True, kw_only=True):
    """Create a repository. A ``quorum`` of 0 is for one person who works alone: publications are
    then recorded as self-approved.

    ``protect_proposed`` defaults to ``deployment``.
    """

    name: str
    by: str
    quorum: int = QUORUM_DEFAULT
    deployment: bool = False
    protect_proposed: bool | None = None


class ChangeRepository(Struct, frozen=True, kw_only=True):
    """Change a repository. None: unchanged."""

    name: str
    by: str
    expected_version: model.Position | None = None
    quorum: int | None = None
    deployment: bool | None = None
    protect_proposed: bool | None = None


class DeleteRepository(Struct, frozen=True, kw_only=True):
    """Delete a repository. ``users`` names what still uses it, as found by the caller."""

    name: str
    by: str
    reason: str
    users: tuple[str, ...] = ()


def decide_repository_deletion(
    rows: tuple[package_rows.Repository | None], command: DeleteRepository, now: datetime
) -> Sequence[Struct]:
    """Raises: RepositoryNotFound, RepositoryInUse.

    A package that is created between the caller's search and the commit is missed. It becomes
    readable again when a repository with this name is created.
    """
    check_operator(command.by, command.reason)
    if rows[0] is None:
        raise refusals.RepositoryNotFound(command.name)
    if command.name == names.DEFAULT_REPOSITORY:
        raise refusals.RepositoryInUse(command.name, ("every name without a repository",))
    if command.users:
        raise refusals.RepositoryInUse(command.name, command.users)
    return (facts.RepositoryDeleted(command.name, command.by, command.reason),)


def decide_repository(
    rows: tuple[package_rows.Repository | None], command: CreateRepository, now: datetime
) -> Sequence[Struct]:
    names.check_user(command.by)
    _check_quorum(command.quorum)
    if rows[0] is not None:
        raise refusals.AlreadyExists(f"repository {command.name} exists", repository=command.name)
    protect = command.protect_proposed
    return (
        facts.RepositoryCreated(
            command.name,
            command.quorum,
            command.deployment,
            command.deployment if protect is None else protect,
            command.by,
        ),
    )


def decide_repository_change(
    rows: tuple[package_rows.Repository | None], command: ChangeRepository, now: datetime
) -> Sequence[Struct]:
    names.check_user(command.by)
    (row,) = rows
    if row is None:
        raise refusals.RepositoryNotFound(command.name)
    if command.expected_version is None:
        raise VersionRequired(f"say which version of repository {command.name} you saw")
    wanted = package_rows.Repository(
        row.name,
        row.quorum if command.quorum is None else command.quorum,
        row.deployment if command.deployment is None else command.deployment,
        row.protect_proposed if command.protect_proposed is None else command.protect_proposed,
    )
    _check_quorum(wanted.quorum)
    if wanted == row:
        return ()
    return (
        facts.RepositoryChanged(
            row.name, wanted.quorum, wanted.deployment, wanted.protect_proposed, command.by
        ),
    )


def _check_quorum(quorum: int) -> None:
    if not 0 <= quorum <= QUORUM_MAX:
        raise refusals.InvalidMember(
            f"a quorum is 0 to {QUORUM_MAX}, found {quorum}", quorum=quorum
        )


def _expects_repository(command: ChangeRepository) -> dict[model.Key, model.Position]:
    if command.expected_version is None:
        return {}
    return {package_rows.repository_key(command.name): command.expected_version}


create_repository = slices.Slice(
    name="create-repository",
    command=CreateRepository,
    writes=(facts.RepositoryCreated,),
    rows=lambda command: (package_rows.repository_key(command.name),),
    decide=decide_repository,
)


change_repository = slices.Slice(
    name="change-repository",
    command=ChangeRepository,
    writes=(facts.RepositoryChanged,),
    rows=lambda command: (package_rows.repository_key(command.name),),
    expects=_expects_repository,
    decide=decide_repository_change,
)


delete_repository = slices.Slice(
    name="delete-repository",
    command=DeleteRepository,
    writes=(facts.RepositoryDeleted,),
    rows=lambda command: (package_rows.repository_key(command.name),),
    decide=decide_repository_deletion,
)


SLICES = (create_repository, change_repository, delete_repository, create_revision)
