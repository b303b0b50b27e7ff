"""What an administrator does to a repository: create it, change how revisions are approved."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from tidegate.control.operations.execute import Execute
from tidegate.control.queries.as_of import RowHistory
from tidegate.control.queries.reads import Found, Reads
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.roles import EVERYWHERE
from tidegate.domain.access.scopes import repository_scope
from tidegate.domain.access.steps import CHANGE_REPOSITORY, CREATE_REPOSITORY, DELETE_REPOSITORY
from tidegate.domain.fleet.rows import Fleet, fleet_key
from tidegate.domain.packages.folds import repositories
from tidegate.domain.packages.history import history_of_repository
from tidegate.domain.packages.refusals import RepositoryNotFound
from tidegate.domain.packages.rows import PACKAGES, PackageRow, Repository
from tidegate.domain.packages.slices import (
    QUORUM_DEFAULT,
    ChangeRepository,
    CreateRepository,
    DeleteRepository,
    change_repository,
    create_repository,
    delete_repository,
)
from tidegate.kernel.model import Position

USERS_NAMED_MAX = 10
PAGE = 500


class RepositoryOutcome(Struct, frozen=True):
    """A repository as an operation left it, also if it has changed since."""

    position: Position
    found: Found[Repository]


class RepositoryOperations:
    """The verbs of a repository. Raises: MissingPermission, InvalidName."""

    def __init__(self, execute: Execute, reads: Reads, history: RowHistory) -> None:
        self._execute = execute
        self._reads = reads
        self._history = history

    def create(
        self,
        caller: Caller,
        name: str,
        *,
        quorum: int = QUORUM_DEFAULT,
        deployment: bool = False,
        protect_proposed: bool | None = None,
    ) -> RepositoryOutcome:
        """Create a repository. Raises: AlreadyExists."""
        caller.demand(CREATE_REPOSITORY, EVERYWHERE)
        command = CreateRepository(
            name=name,
            by=caller.id,
            quorum=quorum,
            deployment=deployment,
            protect_proposed=protect_proposed,
        )
        return self._outcome(name, self._execute(create_repository, command, caller))

    def change(
        self,
        caller: Caller,
        name: str,
        *,
        quorum: int | None = None,
        deployment: bool | None = None,
        protect_proposed: bool | None = None,
    ) -> RepositoryOutcome:
        """Change how its revisions are approved; None leaves a setting as it is.

        Raises:
            RepositoryNotFound, StaleVersion.
        """
        caller.demand(CHANGE_REPOSITORY, repository_scope(name))
        command = ChangeRepository(
            name=name,
            by=caller.id,
            expected_version=caller.expected_version,
            quorum=quorum,
            deployment=deployment,
            protect_proposed=protect_proposed,
        )
        return self._outcome(name, self._execute(change_repository, command, caller))

    def delete(self, caller: Caller, name: str, reason: str) -> Position:
        """Remove a repository that has no packages; the log keeps everything.

        Raises:
            RepositoryNotFound, RepositoryInUse.
        """
        caller.demand(DELETE_REPOSITORY, repository_scope(name))
        command = DeleteRepository(name=name, by=caller.id, reason=reason)
        earlier = self._execute.earlier(delete_repository, command, caller)
        if earlier is not None:
            return earlier.position
        seen = replace(command, users=tuple(islice(self._users(name), USERS_NAMED_MAX)))
        return self._execute(delete_repository, seen, caller, asked=command).position

    def _users(self, name: str) -> Iterator[str]:
        """What still uses the repository, by name."""
        for page in self._reads.views(PACKAGES, PackageRow, prefix=f"{name}/", page_rows=PAGE):
            yield from (f"package {row.package}" for row in page if row.live)
        fleet = self._reads.find(fleet_key(), Fleet)
        for scope in () if fleet is None else fleet.row.channels:
            if scope.package.startswith(f"{name}/"):
                yield f"channel {scope.channel}"

    def _outcome(self, name: str, outcome: CommandOutcome) -> RepositoryOutcome:
        facts = history_of_repository(name)
        found = self._history.row_after(outcome, repositories, name, facts)
        if found is None:
            raise RepositoryNotFound(name)
        return RepositoryOutcome(outcome.position or found.version, found)
