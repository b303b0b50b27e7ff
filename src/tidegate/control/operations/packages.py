"""Delete or import all revisions of a package at once."""

from __future__ import annotations

from msgspec import Struct

from tidegate.control.lanes import Lanes
from tidegate.control.operations.execute import Execute
from tidegate.control.operations.ids import make_id
from tidegate.control.operations.revisions import package_lane
from tidegate.control.operations.uploads import ReceivedFiles, UploadOperations
from tidegate.control.queries.reads import Reads
from tidegate.control.queries.revisions import plan_deletion
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.access import callers, scopes, steps
from tidegate.domain.packages import bulk, names, permissions, refusals, rows
from tidegate.errors import NotFound, StaleVersion
from tidegate.kernel.model import Position


class RevisionToImport(Struct, frozen=True, kw_only=True):
    """A revision that was published elsewhere, with its number there."""

    workspace: str
    number: int
    files: ReceivedFiles
    description: str = ""


class _DeletionAsked(Struct, frozen=True):
    """What identifies a repeated deletion: the request, without the plan that was made for it."""

    package: str
    version: Position | None


class PackageOperations:
    """The verbs of a package. Each returns the log position of the change.

    Raises:
        MissingPermission, InvalidName, LaneBusy.
    """

    def __init__(
        self, execute: Execute, lanes: Lanes, reads: Reads, uploads: UploadOperations
    ) -> None:
        self._execute = execute
        self._lanes = lanes
        self._reads = reads
        self._uploads = uploads

    def delete(self, caller: callers.Caller, repository: str, path: str) -> Position:
        """Delete all revisions of a package, or none of them.

        Raises:
            PackageNotFound, StaleVersion, DeletionPlanOutdated, LimitExceeded.
                PackageNotDeletable: names all reasons.
        """
        caller.demand(steps.DELETE_PACKAGE, scopes.repository_scope(repository))
        asked = _DeletionAsked(names.full_path(repository, path), caller.expected_version)
        outcome = self._execute.earlier(bulk.delete_package, asked, caller)
        if outcome is None:
            try:
                outcome = self._lanes.run(
                    package_lane(asked.package), lambda: self._delete(caller, asked)
                )
            except (StaleVersion, NotFound):
                # This may be a repeat of a request whose first copy already deleted them.
                outcome = self._execute.earlier(bulk.delete_package, asked, caller)
                if outcome is None:
                    raise
        return outcome.position

    def _delete(self, caller: callers.Caller, asked: _DeletionAsked) -> CommandOutcome:
        missing = refusals.PackageNotFound(asked.package)
        found = self._reads.demand(rows.package_key(asked.package), rows.PackageRow, missing)
        if asked.version != found.version:
            raise StaleVersion(asked.version or 0, found.version)
        plan = plan_deletion(self._reads, asked.package)
        command = bulk.DeletePackage(package=asked.package, by=caller.id, revisions=plan)
        item = permissions.with_permission_check(bulk.delete_package, caller)
        return self._execute(item, command, caller, asked=asked)

    def import_revisions(
        self,
        caller: callers.Caller,
        repository: str,
        path: str,
        source: str,
        revisions: tuple[RevisionToImport, ...],
    ) -> Position:
        """Import revisions that were published elsewhere, with their numbers, oldest first.

        Raises:
            RepositoryNotFound, NumberUsed, PackageNotEmpty, InvalidFilePath, InvalidReference,
            ContentTooLarge.
        """
        caller.demand(steps.IMPORT_PACKAGE, scopes.repository_scope(repository))
        command = bulk.ImportPackage(
            repository=repository,
            package=path,
            by=caller.id,
            source=source,
            revisions=tuple(
                bulk.ImportedRevision(
                    workspace=item.workspace,
                    uid=make_id(caller, steps.IMPORT_PACKAGE, f"uid {item.number}"),
                    number=item.number,
                    files=self._uploads.store(caller, repository, item.files),
                    description=item.description,
                )
                for item in revisions
            ),
        )
        outcome = self._lanes.run(
            package_lane(names.full_path(repository, path)),
            lambda: self._execute(bulk.import_package, command, caller),
        )
        return outcome.position
