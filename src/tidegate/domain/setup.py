"""Set an installation up: its first user and its first repository, in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from tidegate.domain.access.facts import (
    InstallationSetUp,
    RoleGranted,
    UserAdded,
)
from tidegate.domain.access.refusals import (
    AlreadySetUp,
)
from tidegate.domain.access.roles import EVERYWHERE, Role
from tidegate.domain.access.rows import (
    INSTALLATION,
    InstallationRow,
    User,
    installation_key,
    user_key,
)
from tidegate.domain.access.slices import check_user_id
from tidegate.domain.packages.facts import RepositoryCreated
from tidegate.domain.packages.names import DEFAULT_REPOSITORY
from tidegate.domain.packages.rows import Repository, repository_key
from tidegate.domain.packages.slices import QUORUM_DEFAULT
from tidegate.kernel.slices import Slice


class SetUp(Struct, frozen=True, kw_only=True):
    """The first user; everything else is made by signed-in people."""

    user_id: str
    alone: bool


def decide_set_up(
    rows: tuple[InstallationRow | None, User | None, Repository | None],
    command: SetUp,
    now: datetime,
) -> Sequence[Struct]:
    """Raises: AlreadySetUp, InvalidAccess."""
    installation, _, repository = rows
    check_user_id(command.user_id)
    if installation is not None:
        raise AlreadySetUp("this installation has its first user; sign in")
    by = command.user_id
    roles = tuple(Role) if command.alone else (Role.SECURITY_ADMIN, Role.ON_CALL)
    facts: list[Struct] = [
        InstallationSetUp(INSTALLATION, by, command.alone),
        UserAdded(by, by),
        *(RoleGranted(by, role, EVERYWHERE, by) for role in roles),
    ]
    if repository is None:
        quorum = 0 if command.alone else QUORUM_DEFAULT
        facts.append(RepositoryCreated(DEFAULT_REPOSITORY, quorum, False, False, by))
    return facts


set_up = Slice(
    name="set-up",
    command=SetUp,
    writes=(InstallationSetUp, UserAdded, RoleGranted, RepositoryCreated),
    rows=lambda command: (
        installation_key(),
        user_key(command.user_id),
        repository_key(DEFAULT_REPOSITORY),
    ),
    decide=decide_set_up,
)

SLICES = (set_up,)
