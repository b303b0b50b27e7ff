"""Create, change and delete repositories."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec import Struct, structs

from tidegate.control.operations.execute import Execute
from tidegate.control.queries.as_of import RowHistory
from tidegate.control.queries.reads import Found, Reads
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.access import callers, roles, scopes, steps
from tidegate.domain.fleet.rows import Fleet, fleet_key
from tidegate.domain.packages import folds, refusals, rows, slices
from tidegate.domain.packages.history import history_of_repository
from tidegate.kernel.model import Position

USERS_NAMED_MAX = 10
PAGE = 500


class RepositoryOutcome(Struct, frozen=True):
    """A repository right after an operation; it may have changed since."""

    position: Position
    found: Found[rows.Repository]


class RepositoryOperations:
    """The verbs of a repository. Raises: MissingPermission, InvalidName."""

    def __init__(self, execute: Execute, reads: Reads, history: RowHistory) -> None:
        self._execute = execute
        self._reads = reads
        self._history = history

    def create(
        self,
        caller: callers.Caller,
        name: str,
        *,
        quorum: int = slices.QUORUM_DEFAULT,
        deployment: bool = False,
        protect_proposed: bool | None = None,
    ) -> RepositoryOutcome:
        """Create a repository. Raises: AlreadyExists."""
        caller.demand(steps.CREATE_REPOSITORY, roles.EVERYWHERE)
        command = slices.CreateRepository(
            name=name,
            by=caller.id,
            quorum=quorum,
            deployment=deployment,
            protect_proposed=protect_proposed,
        )
        return self._outcome(name, self._execute(slices.create_repository, command, caller))

    def change(
        self,
        caller: callers.Caller,
        name: str,
        *,
        quorum: int | None = None,
        deployment: bool | None = None,
        protect_proposed: bool | None = None,
    ) -> RepositoryOutcome:
        """Change how its revisions are approved; None keeps a setting.

        Raises:
            RepositoryNotFound, StaleVersion.
        """
        caller.demand(steps.CHANGE_REPOSITORY, scopes.repository_scope(name))
        command = slices.ChangeRepository(
            name=name,
            by=caller.id,
            expected_version=caller.expected_version,
            quorum=quorum,
            deployment=deployment,
            protect_proposed=protect_proposed,
        )
        return self._outcome(name, self._execute(slices.change_repository, command, caller))

    def delete(self, caller: callers.Caller, name: str, reason: str) -> Position:
        """Delete a repository without packages; the log keeps its history.

        Raises:
            RepositoryNotFound, RepositoryInUse.
        """
        caller.demand(steps.DELETE_REPOSITORY, scopes.repository_scope(name))
        command = slices.DeleteRepository(name=name, by=caller.id, reason=reason)
        earlier = self._execute.earlier(slices.delete_repository, command, caller)
        if earlier is not None:
            return earlier.position
        seen = structs.replace(command, users=tuple(islice(self._users(name), USERS_NAMED_MAX)))
        return self._execute(slices.delete_repository, seen, caller, asked=command).position

    def _users(self, name: str) -> Iterator[str]:
        """Yield the names of what still uses the repository."""
        for page in self._reads.views(
            rows.PACKAGES, rows.PackageRow, prefix=f"{name}/", page_rows=PAGE
        ):
            yield from (f"package {row.package}" for row in page if row.live)
        fleet = self._reads.find(fleet_key(), Fleet)
        for scope in () if fleet is None else fleet.row.channels:
            if scope.package.startswith(f"{name}/"):
                yield f"channel {scope.channel}"

    def _outcome(self, name: str, outcome: CommandOutcome) -> RepositoryOutcome:
        facts = history_of_repository(name)
        found = self._history.row_after(outcome, folds.repositories, name, facts)
        if found is None:
            raise refusals.RepositoryNotFound(name)
        return RepositoryOutcome(outcome.position or found.version, found)
