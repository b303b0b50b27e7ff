"""What people do to a revision: draft, change, propose, decide about it, delete it."""

from __future__ import annotations

from msgspec import Struct, structs

from tidegate.control.lanes import Lanes
from tidegate.control.operations.execute import Execute
from tidegate.control.operations.ids import make_id
from tidegate.control.operations.uploads import ReceivedFiles, UploadOperations
from tidegate.control.queries.as_of import RowHistory
from tidegate.control.queries.reads import Reads
from tidegate.control.queries.release_hosts import find_release_hosts
from tidegate.control.queries.revisions import (
    RevisionInPackage,
    demand_row,
    find_revision,
    revision_at,
)
from tidegate.control.runtime import CommandOutcome
from tidegate.control.storage.blobs import Blobs
from tidegate.control.storage.content_store import (
    read_manifest,
    store_manifest,
    verify_content,
)
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import channel_scope, repository_scope
from tidegate.domain.access.steps import (
    APPROVE_REVISION,
    CREATE_REVISION,
    EDIT_REVISION,
    READ_REVISION,
    UPDATE_REVISION,
)
from tidegate.domain.content.entries import File
from tidegate.domain.packages import approvals, deletions, updates
from tidegate.domain.packages.facts import Condition, Metadata, OwnerReference, Task, Upgrade
from tidegate.domain.packages.merging import WHOLE, merge
from tidegate.domain.packages.names import Identity, identity, parse
from tidegate.domain.packages.permissions import (
    STEP_OF,
    required_permissions,
    with_permission_check,
)
from tidegate.domain.packages.refusals import RevisionNotFound, StillReferenced
from tidegate.domain.packages.revision_commands import RevisionCommand
from tidegate.domain.packages.slices import CreateRevision, create_revision
from tidegate.domain.releases.refusals import StillPinned
from tidegate.kernel.model import Position
from tidegate.kernel.slices import Slice


class RevisionOutcome(Struct, frozen=True):
    """A revision as an operation left it, also if it has changed since.

    An update that removes the last finalizer shows the revision as it was when it was deleted.
    """

    position: Position
    found: RevisionInPackage | None  # None: it is deleted


class RevisionOperations:
    """The verbs of a revision. Which permission a verb needs may depend on the revision.

    Verbs on one package run one after the other, in the lane of the package. Else many of them at
    once would move its row between each other's read and commit, until some run out of attempts.

    Raises:
        MissingPermission, InvalidName, RevisionNotFound, StaleVersion, Terminating,
        TransitionRefused, LaneBusy.
    """

    def __init__(
        self,
        execute: Execute,
        lanes: Lanes,
        reads: Reads,
        history: RowHistory,
        blobs: Blobs,
        uploads: UploadOperations,
    ) -> None:
        self._execute = execute
        self._lanes = lanes
        self._reads = reads
        self._history = history
        self._blobs = blobs
        self._uploads = uploads

    # ── draft and change ──

    def create(
        self,
        caller: Caller,
        repository: str,
        package: str,
        workspace: str,
        *,
        lifecycle: str = "",
        tasks: tuple[Task, ...] = (),
        metadata: Metadata,
        readiness_gates: tuple[str, ...] = (),
        files: ReceivedFiles | None = None,
    ) -> RevisionOutcome:
        """Draft a revision: from nothing, or by the task init, clone, edit or upgrade.

        The repositories that tasks name must be readable: this is asked before they are read.

        Raises:
            AlreadyExists, RepositoryNotFound, UpgradeConflict, InvalidFilePath, InvalidReference,
            ContentTooLarge, UploadUnknown.
        """
        place = identity(repository, package, workspace)
        command = CreateRevision(
            repository=repository,
            package=package,
            workspace=workspace,
            uid=make_id(caller, CREATE_REVISION, "uid"),
            by=caller.id,
            lifecycle=lifecycle,
            tasks=tasks,
            metadata=metadata,
            readiness_gates=readiness_gates,
        )
        for asked in required_permissions(command):
            caller.demand(asked.step, asked.scope)
        if files is not None:
            stored = self._uploads.store(caller, repository, files)
            command = structs.replace(command, files=stored)
        elif tasks:
            command = structs.replace(command, files=self._merge_upgrade(tasks[0]))
        return self._run_in_lane(place, create_revision, command, caller)

    def update(
        self,
        caller: Caller,
        name: str,
        *,
        lifecycle: str | None = None,
        tasks: tuple[Task, ...] | None = None,
        files: ReceivedFiles | None = None,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        finalizers: tuple[str, ...] | None = None,
        owner_references: tuple[OwnerReference, ...] | None = None,
        readiness_gates: tuple[str, ...] | None = None,
        reason: str = "",
    ) -> RevisionOutcome:
        """Change content, tasks, metadata and lifecycle at once; None leaves a part as it is.

        Raises:
            Immutable, NotReady, ReasonRequired, NotProposer, InvalidFilePath, InvalidReference,
            ContentTooLarge, UploadUnknown.
        """
        caller.demand(UPDATE_REVISION, _scope(name))  # before files are stored
        command = updates.UpdateRevision(
            name=name,
            by=caller.id,
            expected_version=caller.expected_version,
            files=None if files is None else self._store(caller, name, files),
            tasks=tasks,
            readiness_gates=readiness_gates,
            labels=labels,
            annotations=annotations,
            finalizers=finalizers,
            owner_references=owner_references,
            lifecycle=lifecycle,
            reason=reason,
        )
        return self._run(updates.update_revision, command, caller)

    def push_files(self, caller: Caller, name: str, files: ReceivedFiles) -> RevisionOutcome:
        """Replace all files of a draft.

        Raises:
            NotDraft, InvalidFilePath, InvalidReference, ContentTooLarge, UploadUnknown.
        """
        caller.demand(EDIT_REVISION, _scope(name))  # before files are stored
        command = updates.ReplaceResources(
            name=name,
            by=caller.id,
            expected_version=caller.expected_version,
            files=self._store(caller, name, files),
        )
        return self._run(updates.replace_resources, command, caller)

    def set_conditions(
        self, caller: Caller, name: str, digest: str, conditions: tuple[Condition, ...]
    ) -> RevisionOutcome:
        """Report what was found out about the content of a digest. Raises: DigestMismatch."""
        command = updates.SetConditions(
            name=name,
            by=caller.id,
            expected_version=caller.expected_version,
            digest=digest,
            conditions=conditions,
        )
        return self._run(updates.set_conditions, command, caller)

    # ── review ──

    def propose(self, caller: Caller, name: str, reason: str = "") -> RevisionOutcome:
        """Ask for review of a draft; its content is frozen until then. Raises: NotReady."""
        command = approvals.ProposeRevision(
            name=name, by=caller.id, expected_version=caller.expected_version, reason=reason
        )
        return self._run(approvals.propose_revision, command, caller)

    def withdraw(self, caller: Caller, name: str, reason: str = "") -> RevisionOutcome:
        """Take one's own proposal back. Raises: NotProposer."""
        command = approvals.WithdrawProposal(
            name=name, by=caller.id, expected_version=caller.expected_version, reason=reason
        )
        return self._run(approvals.withdraw_proposal, command, caller)

    def approve(self, caller: Caller, name: str, digest: str, reason: str = "") -> RevisionOutcome:
        """Approve the content of this digest; the approval that completes the quorum publishes.

        Its bytes are read first: what is approved is there, and is what the digest says.

        Raises:
            DigestMismatch, SelfApproval, ContentDamaged.
        """
        caller.demand(APPROVE_REVISION, _scope(name))  # before anything is read
        found = find_revision(self._reads, name)
        if found is not None and found.revision.row.content.digest == digest:
            verify_content(self._blobs, name, found.revision.row.content)
        command = approvals.ApproveRevision(
            name=name,
            by=caller.id,
            expected_version=caller.expected_version,
            digest=digest,
            reason=reason,
        )
        return self._run(approvals.approve_revision, command, caller)

    def reject(self, caller: Caller, name: str, reason: str) -> RevisionOutcome:
        """Send a proposal back to its author. Raises: ReasonRequired."""
        command = approvals.RejectProposal(
            name=name, by=caller.id, expected_version=caller.expected_version, reason=reason
        )
        return self._run(approvals.reject_proposal, command, caller)

    # ── delete ──

    def propose_deletion(self, caller: Caller, name: str, reason: str = "") -> RevisionOutcome:
        """Ask that a published revision is deleted."""
        command = deletions.ProposeDeletion(
            name=name, by=caller.id, expected_version=caller.expected_version, reason=reason
        )
        return self._run(deletions.propose_deletion, command, caller)

    def reject_deletion(self, caller: Caller, name: str, reason: str) -> RevisionOutcome:
        """Keep a revision whose deletion was proposed. Raises: ReasonRequired."""
        command = deletions.RejectDeletion(
            name=name, by=caller.id, expected_version=caller.expected_version, reason=reason
        )
        return self._run(deletions.reject_deletion, command, caller)

    def delete(self, caller: Caller, name: str) -> RevisionOutcome:
        """Delete a revision for good; while finalizers hold it, it is terminating.

        Raises:
            StillReferenced: names only those references that the caller may read.
        """
        command = deletions.DeleteRevision(
            name=name, by=caller.id, expected_version=caller.expected_version
        )
        try:
            return self._run(deletions.delete_revision, command, caller)
        except StillReferenced as refusal:
            visible = (item for item in refusal.some if caller.may(READ_REVISION, _scope(item)))
            raise StillReferenced(refusal.name, refusal.count, visible) from None

    # ── what they share ──

    def _store(self, caller: Caller, name: str, files: ReceivedFiles) -> tuple[File, ...]:
        return self._uploads.store(caller, parse(name).repository, files)

    def _run(self, item: Slice, command: RevisionCommand, caller: Caller) -> RevisionOutcome:
        place = parse(command.name)
        scope = repository_scope(place.repository)
        caller.demand(STEP_OF[type(command)], scope)  # also if it does not exist
        checked = with_permission_check(item, caller)
        return self._run_in_lane(place, checked, command, caller)

    def _run_in_lane(
        self, place: Identity, item: Slice, command: Struct, caller: Caller
    ) -> RevisionOutcome:
        try:
            outcome = self._lanes.run(
                package_lane(place.package), lambda: self._execute(item, command, caller)
            )
        except StillPinned as refusal:
            raise self._with_hosts(refusal, caller) from None
        return self._outcome(place.name, outcome)

    def _with_hosts(self, refusal: StillPinned, caller: Caller) -> StillPinned:
        """The refusal, with the hosts that run the release on channels that the caller may read."""
        may = caller.principal.may
        readable = [name for name in refusal.channels if may(Verb.READ, channel_scope(name))]
        found = find_release_hosts(self._reads, refusal.release_id, readable)
        return StillPinned(
            refusal.release_id,
            refusal.pins,
            refusal.channels,
            proposed=refusal.proposed,
            hosts=found.names,
            host_count=found.count,
        )

    def _outcome(self, name: str, outcome: CommandOutcome) -> RevisionOutcome:
        """Raises: RevisionNotFound, HistoryTooLong."""
        found = find_revision(self._reads, name)
        receipt = outcome.receipt
        if receipt is None:  # nothing was to be done
            if found is None:
                raise RevisionNotFound(name)
            return RevisionOutcome(found.revision.version, found)
        if found is None or not receipt.first <= found.revision.version <= receipt.last:
            found = revision_at(self._history, name, receipt.last)
        if found is None:
            # An update that removes the last finalizer changes the revision, then deletes it.
            found = revision_at(self._history, name, receipt.first)
        return RevisionOutcome(receipt.last, found)

    def _merge_upgrade(self, task: Task) -> tuple[File, ...] | None:
        """The files of an upgrade that is merged file by file; None: the task is none of these.

        Raises:
            UpgradeConflict: names every path on which the strategy does not choose.
        """
        if not isinstance(task, Upgrade) or task.strategy in WHOLE:
            return None
        base, local, upstream = (
            read_manifest(self._blobs, demand_row(self._reads, name).content)
            for name in (task.old_upstream, task.local_package_revision, task.new_upstream)
        )
        return store_manifest(self._blobs, merge(base, local, upstream, task.strategy)).files


def package_lane(package: str) -> str:
    """The lane of a package, by its full path."""
    return f"package {package}"


def _scope(name: str) -> str:
    return repository_scope(parse(name).repository)
