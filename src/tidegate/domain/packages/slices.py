"""A new revision: always a Draft, made by one task, at a path that no other package overlaps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from tidegate.domain.access.reasons import check_operator
from tidegate.domain.content.entries import File
from tidegate.domain.content.manifests import Content, FileManifest
from tidegate.domain.packages.facts import (
    Clone,
    Init,
    Metadata,
    PackageStarted,
    RepositoryChanged,
    RepositoryCreated,
    RepositoryDeleted,
    RevisionCreated,
    Task,
)
from tidegate.domain.packages.lifecycle import parse_initial
from tidegate.domain.packages.metadata import check_gates, check_metadata, check_uid
from tidegate.domain.packages.names import (
    DEFAULT_REPOSITORY,
    Identity,
    ancestors,
    check_user,
    identity,
)
from tidegate.domain.packages.origins import Rows, choose_content, find_origin, source_keys
from tidegate.domain.packages.refusals import (
    AlreadyExists,
    InvalidMember,
    OwnerBusy,
    PackageExists,
    PathOverlap,
    RepositoryInUse,
    RepositoryNotFound,
    TooManyTasks,
)
from tidegate.domain.packages.rows import (
    PackageRow,
    Repository,
    package_key,
    repository_key,
    revision_key,
)
from tidegate.errors import VersionRequired
from tidegate.kernel.model import Key, Position, at_most
from tidegate.kernel.slices import Slice

OWNED_MAX = 64


QUORUM_DEFAULT = 1
QUORUM_MAX = 16


class CreateRevision(Struct, frozen=True, kw_only=True):
    """``uid`` is new for each creation. ``files`` None: those of the task's source."""

    repository: str
    package: str  # the path inside the repository
    workspace: str
    uid: str
    by: str
    lifecycle: str = ""
    tasks: tuple[Task, ...] = ()
    files: tuple[File, ...] | None = None
    metadata: Metadata = Metadata()
    readiness_gates: tuple[str, ...] = ()

    @property
    def place(self) -> Identity:
        """Raises: InvalidName."""
        return identity(self.repository, self.package, self.workspace)

    @property
    def task(self) -> Task:
        """The one task that tells how it comes to be. Raises: TooManyTasks."""
        if len(self.tasks) > 1:
            raise TooManyTasks(f"a revision is created by one task, found {len(self.tasks)}")
        return self.tasks[0] if self.tasks else Init()


def rows_of_revision(command: CreateRevision) -> tuple[Key, ...]:
    """Raises: Invalid, TooLarge."""
    parse_initial(command.lifecycle)
    _check_form(command)
    return _keys(command)


def _keys(command: CreateRevision) -> tuple[Key, ...]:
    """A new package depends on what lies above it; what lies below is counted in its own row."""
    place = command.place
    own = (repository_key(place.repository), revision_key(place), package_key(place.package))
    paths = path_keys(place.package) if _starts_package(command.task) else ()
    return tuple(dict.fromkeys((*own, *paths, *source_keys(command.task))))


def path_keys(package: str) -> tuple[Key, ...]:
    """The rows of a path and of those above it."""
    return (package_key(package), *map(package_key, ancestors(package)))


def decide_revision(
    rows: tuple[Struct | None, ...], command: CreateRevision, now: datetime
) -> Sequence[Struct]:
    """Raises: NotFound, Conflict and Refused leaves of ``refusals``."""
    content = _content(command)
    place, task = command.place, command.task
    seen: Rows = dict(zip(_keys(command), rows, strict=True))
    if seen[repository_key(place.repository)] is None:
        raise RepositoryNotFound(place.repository)
    if seen[revision_key(place)] is not None:
        raise AlreadyExists(f"package revision {place.name} exists", revision=place.name)
    package = _package(seen, place.package)
    _demand_unowned(package, command.metadata)
    if _starts_package(task):
        demand_free(package, seen)
    came = find_origin(task, place.package, seen)
    created = RevisionCreated(
        place.name,
        place.package,
        command.uid,
        command.by,
        task,
        choose_content(came, task, content),
        came.upstream,
        command.metadata,
        command.readiness_gates,
        came.warnings,
    )
    if package.live:
        return (created,)
    return (PackageStarted(place.package, command.by), created)


def _check_form(command: CreateRevision) -> None:
    """Raises: Invalid, TooLarge."""
    check_user(command.by)
    check_uid(command.uid)
    check_metadata(command.metadata)
    check_gates(command.readiness_gates)
    if command.files is not None:
        FileManifest(command.files)


def _content(command: CreateRevision) -> Content | None:
    """The content that the command brings."""
    if command.files is not None:
        return FileManifest(command.files).content
    return FileManifest(()).content if isinstance(command.task, Init) else None


def _starts_package(task: Task) -> bool:
    return isinstance(task, Init | Clone)


def _package(seen: Rows, package: str) -> PackageRow:
    row = seen[package_key(package)]
    assert row is None or isinstance(row, PackageRow)
    return PackageRow(package) if row is None else row


def demand_free(package: PackageRow, seen: Rows) -> None:
    """That a first revision can start here: several may be drafted until one is published.

    Raises:
        PackageExists, PathOverlap.
    """
    if package.latest is not None:
        raise PackageExists(
            f"package {package.package} exists, latest is {package.latest.name}; edit that",
            package=package.package,
        )
    if package.below:
        raise PathOverlap(
            f"{package.below} packages lie below {package.package}", package=package.package
        )
    for above in ancestors(package.package):
        if _package(seen, above).live:
            raise PathOverlap(f"{package.package} would lie inside package {above}", package=above)


def _demand_unowned(package: PackageRow, metadata: Metadata) -> None:
    """That nothing of the package is open in the name of the same owner: automation that forgets
    what it did must not fill the package with drafts. Raises: OwnerBusy, LimitExceeded.
    """
    owners = [owner.key for owner in metadata.owner_references]
    for owner in owners:
        if owner in package.owned:
            raise OwnerBusy(owner, package.owned[owner])
    at_most("owners of open revisions of a package", len(package.owned) + len(owners), OWNED_MAX)


create_revision = Slice(
    name="create-revision",
    command=CreateRevision,
    writes=(PackageStarted, RevisionCreated),
    rows=rows_of_revision,
    decide=decide_revision,
)


class CreateRepository(Struct, frozen=True, kw_only=True):
    """``quorum`` 0 is for one person alone: each publication then says that it is self-approved.

    ``protect_proposed`` follows ``deployment`` unless it is said.
    """

    name: str
    by: str
    quorum: int = QUORUM_DEFAULT
    deployment: bool = False
    protect_proposed: bool | None = None


class ChangeRepository(Struct, frozen=True, kw_only=True):
    """None: as it is."""

    name: str
    by: str
    expected_version: Position | None = None
    quorum: int | None = None
    deployment: bool | None = None
    protect_proposed: bool | None = None


class DeleteRepository(Struct, frozen=True, kw_only=True):
    """``users`` is what still uses it, by name: whoever sends the command has looked."""

    name: str
    by: str
    reason: str
    users: tuple[str, ...] = ()


def decide_repository_deletion(
    rows: tuple[Repository | None], command: DeleteRepository, now: datetime
) -> Sequence[Struct]:
    """Raises: RepositoryNotFound, RepositoryInUse.

    A package that starts between the look and the commit is not seen. It can be read again when a
    repository of this name is created.
    """
    check_operator(command.by, command.reason)
    if rows[0] is None:
        raise RepositoryNotFound(command.name)
    if command.name == DEFAULT_REPOSITORY:
        raise RepositoryInUse(command.name, ("every name without a repository",))
    if command.users:
        raise RepositoryInUse(command.name, command.users)
    return (RepositoryDeleted(command.name, command.by, command.reason),)


def decide_repository(
    rows: tuple[Repository | None], command: CreateRepository, now: datetime
) -> Sequence[Struct]:
    check_user(command.by)
    _check_quorum(command.quorum)
    if rows[0] is not None:
        raise AlreadyExists(f"repository {command.name} exists", repository=command.name)
    protect = command.protect_proposed
    return (
        RepositoryCreated(
            command.name,
            command.quorum,
            command.deployment,
            command.deployment if protect is None else protect,
            command.by,
        ),
    )


def decide_repository_change(
    rows: tuple[Repository | None], command: ChangeRepository, now: datetime
) -> Sequence[Struct]:
    check_user(command.by)
    (row,) = rows
    if row is None:
        raise RepositoryNotFound(command.name)
    if command.expected_version is None:
        raise VersionRequired(f"say which version of repository {command.name} you saw")
    wanted = Repository(
        row.name,
        row.quorum if command.quorum is None else command.quorum,
        row.deployment if command.deployment is None else command.deployment,
        row.protect_proposed if command.protect_proposed is None else command.protect_proposed,
    )
    _check_quorum(wanted.quorum)
    if wanted == row:
        return ()
    return (
        RepositoryChanged(
            row.name, wanted.quorum, wanted.deployment, wanted.protect_proposed, command.by
        ),
    )


def _check_quorum(quorum: int) -> None:
    if not 0 <= quorum <= QUORUM_MAX:
        raise InvalidMember(f"a quorum is 0 to {QUORUM_MAX}, found {quorum}", quorum=quorum)


def _expects_repository(command: ChangeRepository) -> dict[Key, Position]:
    if command.expected_version is None:
        return {}
    return {repository_key(command.name): command.expected_version}


create_repository = Slice(
    name="create-repository",
    command=CreateRepository,
    writes=(RepositoryCreated,),
    rows=lambda command: (repository_key(command.name),),
    decide=decide_repository,
)


change_repository = Slice(
    name="change-repository",
    command=ChangeRepository,
    writes=(RepositoryChanged,),
    rows=lambda command: (repository_key(command.name),),
    expects=_expects_repository,
    decide=decide_repository_change,
)


delete_repository = Slice(
    name="delete-repository",
    command=DeleteRepository,
    writes=(RepositoryDeleted,),
    rows=lambda command: (repository_key(command.name),),
    decide=decide_repository_deletion,
)


SLICES = (create_repository, change_repository, delete_repository, create_revision)
