"""Set an installation up: its first user and its first repository, in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from tidegate.domain.access import (
    facts as access_facts,
    refusals,
    rows as access_rows,
    slices as access_slices,
)
from tidegate.domain.access.roles import EVERYWHERE, Role
from tidegate.domain.packages import (
    facts as package_facts,
    names,
    rows as package_rows,
    slices as package_slices,
)
from tidegate.kernel.slices import Slice


class SetUp(Struct, frozen=True, kw_only=True):
    """Create the first user. Signed-in users create everything else."""

    user_id: str
    alone: bool


def decide_set_up(
    rows: tuple[
        access_rows.InstallationRow | None, access_rows.User | None, package_rows.Repository | None
    ],
    command: SetUp,
    now: datetime,
) -> Sequence[Struct]:
    """Raises: AlreadySetUp, InvalidAccess."""
    installation, _, repository = rows
    access_slices.check_user_id(command.user_id)
    if installation is not None:
        raise refusals.AlreadySetUp("this installation has its first user; sign in")
    by = command.user_id
    roles = tuple(Role) if command.alone else (Role.SECURITY_ADMIN, Role.ON_CALL)
    facts: list[Struct] = [
        access_facts.InstallationSetUp(access_rows.INSTALLATION, by, command.alone),
        access_facts.UserAdded(by, by),
        *(access_facts.RoleGranted(by, role, EVERYWHERE, by) for role in roles),
    ]
    if repository is None:
        quorum = 0 if command.alone else package_slices.QUORUM_DEFAULT
        facts.append(
            package_facts.RepositoryCreated(names.DEFAULT_REPOSITORY, quorum, False, False, by)
        )
    return facts


set_up = Slice(
    name="set-up",
    command=SetUp,
    writes=(
        access_facts.InstallationSetUp,
        access_facts.UserAdded,
        access_facts.RoleGranted,
        package_facts.RepositoryCreated,
    ),
    rows=lambda command: (
        access_rows.installation_key(),
        access_rows.user_key(command.user_id),
        package_rows.repository_key(names.DEFAULT_REPOSITORY),
    ),
    decide=decide_set_up,
)

SLICES = (set_up,)
