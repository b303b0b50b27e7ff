"""What is done to all revisions of a package at once: delete them, import them."""

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
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.scopes import repository_scope
from tidegate.domain.access.steps import DELETE_PACKAGE, IMPORT_PACKAGE
from tidegate.domain.packages.bulk import (
    DeletePackage,
    ImportedRevision,
    ImportPackage,
    delete_package,
    import_package,
)
from tidegate.domain.packages.names import full_path
from tidegate.domain.packages.permissions import with_permission_check
from tidegate.domain.packages.refusals import PackageNotFound
from tidegate.domain.packages.rows import PackageRow, package_key
from tidegate.errors import NotFound, StaleVersion
from tidegate.kernel.model import Position


class RevisionToImport(Struct, frozen=True, kw_only=True):
    """A revision that was published elsewhere, under the number that it has there."""

    workspace: str
    number: int
    files: ReceivedFiles
    description: str = ""


class _DeletionAsked(Struct, frozen=True):
    """What identifies a deletion: what was asked, not the plan that was made for it."""

    package: str
    version: Position | None


class PackageOperations:
    """The verbs of a package. Each returns the log position at which it was done.

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

    def delete(self, caller: Caller, repository: str, path: str) -> Position:
        """Delete every revision of a package, or none.

        Raises:
            PackageNotFound, StaleVersion, DeletionPlanOutdated, LimitExceeded.
            PackageNotDeletable: names all reasons against it.
        """
        caller.demand(DELETE_PACKAGE, repository_scope(repository))
        asked = _DeletionAsked(full_path(repository, path), caller.expected_version)
        outcome = self._execute.earlier(delete_package, asked, caller)
        if outcome is None:
            try:
                outcome = self._lanes.run(
                    package_lane(asked.package), lambda: self._delete(caller, asked)
                )
            except (StaleVersion, NotFound):
                # What was found may be what this very request's first copy left.
                outcome = self._execute.earlier(delete_package, asked, caller)
                if outcome is None:
                    raise
        return outcome.position

    def _delete(self, caller: Caller, asked: _DeletionAsked) -> CommandOutcome:
        missing = PackageNotFound(asked.package)
        found = self._reads.demand(package_key(asked.package), PackageRow, missing)
        if asked.version != found.version:
            raise StaleVersion(asked.version or 0, found.version)
        plan = plan_deletion(self._reads, asked.package)
        command = DeletePackage(package=asked.package, by=caller.id, revisions=plan)
        item = with_permission_check(delete_package, caller)
        return self._execute(item, command, caller, asked=asked)

    def import_revisions(
        self,
        caller: Caller,
        repository: str,
        path: str,
        source: str,
        revisions: tuple[RevisionToImport, ...],
    ) -> Position:
        """Import revisions that were published elsewhere, under their own numbers, oldest first.

        Raises:
            RepositoryNotFound, NumberUsed, PackageNotEmpty, InvalidFilePath, InvalidReference,
            ContentTooLarge.
        """
        caller.demand(IMPORT_PACKAGE, repository_scope(repository))
        command = ImportPackage(
            repository=repository,
            package=path,
            by=caller.id,
            source=source,
            revisions=tuple(
                ImportedRevision(
                    workspace=item.workspace,
                    uid=make_id(caller, IMPORT_PACKAGE, f"uid {item.number}"),
                    number=item.number,
                    files=self._uploads.store(caller, repository, item.files),
                    description=item.description,
                )
                for item in revisions
            ),
        )
        outcome = self._lanes.run(
            package_lane(full_path(repository, path)),
            lambda: self._execute(import_package, command, caller),
        )
        return outcome.position
