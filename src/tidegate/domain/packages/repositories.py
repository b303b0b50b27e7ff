"""A repository: a place for packages, and how it wants their revisions approved."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from tidegate.domain.packages.facts import RepositoryChanged, RepositoryCreated
from tidegate.domain.packages.names import check_label, check_user
from tidegate.domain.packages.refusals import AlreadyExists, InvalidMember, RepositoryNotFound
from tidegate.domain.packages.rows import REPOSITORIES, Repository
from tidegate.errors import VersionRequired
from tidegate.kernel.model import Key, Position
from tidegate.kernel.slices import Slice

QUORUM_DEFAULT = 1
QUORUM_MAX = 16


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


def repository_key(name: str) -> Key:
    check_label("a repository", name)
    return Key(REPOSITORIES.name, name)


def decide_creation(
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


def decide_change(
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


def _expects(command: ChangeRepository) -> dict[Key, Position]:
    if command.expected_version is None:
        return {}
    return {repository_key(command.name): command.expected_version}


create_repository = Slice(
    name="create-repository",
    command=CreateRepository,
    writes=(RepositoryCreated,),
    rows=lambda command: (repository_key(command.name),),
    decide=decide_creation,
)
change_repository = Slice(
    name="change-repository",
    command=ChangeRepository,
    writes=(RepositoryChanged,),
    rows=lambda command: (repository_key(command.name),),
    expects=_expects,
    decide=decide_change,
)

SLICES = (create_repository, change_repository)
