"""Draft, change, propose, approve, reject and delete revisions."""

from __future__ import annotations

from msgspec import Struct, structs

from tidegate.control.lanes import Lanes
from tidegate.control.operations.execute import Execute
from tidegate.control.operations.ids import make_id
from tidegate.control.operations.uploads import ReceivedFiles, UploadOperations
from tidegate.control.queries import as_of, release_hosts, revisions
from tidegate.control.queries.reads import Reads
from tidegate.control.runtime import CommandOutcome
from tidegate.control.storage import content_store
from tidegate.control.storage.blobs import Blobs
from tidegate.domain.access import callers, roles, scopes, steps
from tidegate.domain.content.entries import File
from tidegate.domain.packages import (
    approvals,
    deletions,
    facts,
    merging,
    names,
    permissions,
    refusals,
    revision_commands,
    slices as package_slices,
    updates,
)
from tidegate.domain.releases.refusals import StillPinned
from tidegate.kernel import model, slices as kernel_slices


class RevisionOutcome(Struct, frozen=True):
    """A revision right after an operation; it may have changed since.

    If an update removes the last finalizer, this is the revision as it was when it was deleted.
    """

    position: model.Position
    found: revisions.RevisionInPackage | None  # None: it is deleted


class RevisionOperations:
    """The verbs of a revision. Which permission a verb needs may depend on the revision.

    Verbs on one package run one after the other, in the lane of the package. Concurrent ones would
    change its row between each other's read and commit, until some run out of attempts.

    Raises:
        MissingPermission, InvalidName, RevisionNotFound, StaleVersion, Terminating,
        TransitionRefused, LaneBusy.
    """

    def __init__(
        self,
        execute: Execute,
        lanes: Lanes,
        reads: Reads,
        history: as_of.RowHistory,
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
        caller: callers.Caller,
        repository: str,
        package: str,
        workspace: str,
        *,
        lifecycle: str = "",
        tasks: tuple[facts.Task, ...] = (),
        metadata: facts.Metadata,
        readiness_gates: tuple[str, ...] = (),
        files: ReceivedFiles | None = None,
    ) -> RevisionOutcome:
        """Draft a revision: empty, or by the task init, clone, edit or upgrade.

        The caller must be allowed to read the repositories that tasks name.

        Raises:
            AlreadyExists, RepositoryNotFound, UpgradeConflict, InvalidFilePath, InvalidReference,
            ContentTooLarge, UploadUnknown.
        """
        place = names.identity(repository, package, workspace)
        command = package_slices.CreateRevision(
            repository=repository,
            package=package,
            workspace=workspace,
            uid=make_id(caller, steps.CREATE_REVISION, "uid"),
            by=caller.id,
            lifecycle=lifecycle,
            tasks=tasks,
            metadata=metadata,
            readiness_gates=readiness_gates,
        )
        for asked in permissions.required_permissions(command):
            caller.demand(asked.step, asked.scope)
        item = package_slices.create_revision
        if files is not None:
            stored = self._uploads.store(caller, repository, files)
            command = structs.replace(command, files=stored)
        elif tasks:
            # A repeat does not merge again: a source may have been deleted since.
            unmerged = command
            earlier = self._execute.earlier(item, unmerged, caller)
            if earlier is not None:
                return self._outcome(place.name, earlier)
            command = structs.replace(command, files=self._merge_upgrade(tasks[0]))
            return self._run_in_lane(place, item, command, caller, asked=unmerged)
        return self._run_in_lane(place, item, command, caller)

    def update(
        self,
        caller: callers.Caller,
        name: str,
        *,
        lifecycle: str | None = None,
        tasks: tuple[facts.Task, ...] | None = None,
        files: ReceivedFiles | None = None,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        finalizers: tuple[str, ...] | None = None,
        owner_references: tuple[facts.OwnerReference, ...] | None = None,
        readiness_gates: tuple[str, ...] | None = None,
        reason: str = "",
    ) -> RevisionOutcome:
        """Change content, tasks, metadata and lifecycle at once; None keeps a part.

        Raises:
            Immutable, NotReady, ReasonRequired, NotProposer, InvalidFilePath, InvalidReference,
            ContentTooLarge, UploadUnknown.
        """
        caller.demand(steps.UPDATE_REVISION, _scope(name))  # before files are stored
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

    def push_files(
        self, caller: callers.Caller, name: str, files: ReceivedFiles
    ) -> RevisionOutcome:
        """Replace all files of a draft.

        Raises:
            NotDraft, InvalidFilePath, InvalidReference, ContentTooLarge, UploadUnknown.
        """
        caller.demand(steps.EDIT_REVISION, _scope(name))  # before files are stored
        command = updates.ReplaceResources(
            name=name,
            by=caller.id,
            expected_version=caller.expected_version,
            files=self._store(caller, name, files),
        )
        return self._run(updates.replace_resources, command, caller)

    def set_conditions(
        self,
        caller: callers.Caller,
        name: str,
        digest: str,
        conditions: tuple[facts.Condition, ...],
    ) -> RevisionOutcome:
        """Report conditions of the content with this digest. Raises: DigestMismatch."""
        command = updates.SetConditions(
            name=name,
            by=caller.id,
            expected_version=caller.expected_version,
            digest=digest,
            conditions=conditions,
        )
        return self._run(updates.set_conditions, command, caller)

    # ── review ──

    def propose(self, caller: callers.Caller, name: str, reason: str = "") -> RevisionOutcome:
        """Propose a draft for review; its content cannot change meanwhile. Raises: NotReady."""
        command = approvals.ProposeRevision(
            name=name, by=caller.id, expected_version=caller.expected_version, reason=reason
        )
        return self._run(approvals.propose_revision, command, caller)

    def withdraw(self, caller: callers.Caller, name: str, reason: str = "") -> RevisionOutcome:
        """Withdraw the caller's own proposal. Raises: NotProposer."""
        command = approvals.WithdrawProposal(
            name=name, by=caller.id, expected_version=caller.expected_version, reason=reason
        )
        return self._run(approvals.withdraw_proposal, command, caller)

    def approve(
        self, caller: callers.Caller, name: str, digest: str, reason: str = ""
    ) -> RevisionOutcome:
        """Approve the content with this digest; the last approval of the quorum publishes it.

        All bytes are read first, to check that they are stored and match the digest.

        Raises:
            DigestMismatch, SelfApproval, ContentDamaged.
        """
        caller.demand(steps.APPROVE_REVISION, _scope(name))  # before anything is read
        found = revisions.find_revision(self._reads, name)
        if found is not None and found.revision.row.content.digest == digest:
            content_store.verify_content(self._blobs, name, found.revision.row.content)
        command = approvals.ApproveRevision(
            name=name,
            by=caller.id,
            expected_version=caller.expected_version,
            digest=digest,
            reason=reason,
        )
        return self._run(approvals.approve_revision, command, caller)

    def reject(self, caller: callers.Caller, name: str, reason: str) -> RevisionOutcome:
        """Send a proposal back to its author. Raises: ReasonRequired."""
        command = approvals.RejectProposal(
            name=name, by=caller.id, expected_version=caller.expected_version, reason=reason
        )
        return self._run(approvals.reject_proposal, command, caller)

    # ── delete ──

    def propose_deletion(
        self, caller: callers.Caller, name: str, reason: str = ""
    ) -> RevisionOutcome:
        """Propose the deletion of a published revision."""
        command = deletions.ProposeDeletion(
            name=name, by=caller.id, expected_version=caller.expected_version, reason=reason
        )
        return self._run(deletions.propose_deletion, command, caller)

    def reject_deletion(self, caller: callers.Caller, name: str, reason: str) -> RevisionOutcome:
        """Keep a revision whose deletion was proposed. Raises: ReasonRequired."""
        command = deletions.RejectDeletion(
            name=name, by=caller.id, expected_version=caller.expected_version, reason=reason
        )
        return self._run(deletions.reject_deletion, command, caller)

    def delete(self, caller: callers.Caller, name: str) -> RevisionOutcome:
        """Delete a revision permanently; it is terminating while it has finalizers.

        Raises:
            StillReferenced: names only the references that the caller may read.
        """
        command = deletions.DeleteRevision(
            name=name, by=caller.id, expected_version=caller.expected_version
        )
        try:
            return self._run(deletions.delete_revision, command, caller)
        except refusals.StillReferenced as refusal:
            visible = (
                item for item in refusal.some if caller.may(steps.READ_REVISION, _scope(item))
            )
            raise refusals.StillReferenced(refusal.name, refusal.count, visible) from None

    # ── what they share ──

    def _store(self, caller: callers.Caller, name: str, files: ReceivedFiles) -> tuple[File, ...]:
        return self._uploads.store(caller, names.parse(name).repository, files)

    def _run(
        self,
        item: kernel_slices.Slice,
        command: revision_commands.RevisionCommand,
        caller: callers.Caller,
    ) -> RevisionOutcome:
        place = names.parse(command.name)
        scope = scopes.repository_scope(place.repository)
        caller.demand(permissions.STEP_OF[type(command)], scope)  # even if it does not exist
        checked = permissions.with_permission_check(item, caller)
        return self._run_in_lane(place, checked, command, caller)

    def _run_in_lane(
        self,
        place: names.Identity,
        item: kernel_slices.Slice,
        command: Struct,
        caller: callers.Caller,
        *,
        asked: Struct | None = None,
    ) -> RevisionOutcome:
        try:
            outcome = self._lanes.run(
                package_lane(place.package),
                lambda: self._execute(item, command, caller, asked=asked),
            )
        except StillPinned as refusal:
            raise self._with_hosts(refusal, caller) from None
        return self._outcome(place.name, outcome)

    def _with_hosts(self, refusal: StillPinned, caller: callers.Caller) -> StillPinned:
        """Add to a refusal the hosts that run the release on channels that the caller may read."""
        may = caller.principal.may
        readable = [
            name for name in refusal.channels if may(roles.Verb.READ, scopes.channel_scope(name))
        ]
        found = release_hosts.find_release_hosts(self._reads, refusal.release_id, readable)
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
        found = revisions.find_revision(self._reads, name)
        receipt = outcome.receipt
        if receipt is None:  # nothing changed
            if found is None:
                raise refusals.RevisionNotFound(name)
            return RevisionOutcome(found.revision.version, found)
        if found is None or not receipt.first <= found.revision.version <= receipt.last:
            found = revisions.revision_at(self._history, name, receipt.last)
        if found is None:
            # An update that removes the last finalizer changes the revision, then deletes it.
            found = revisions.revision_at(self._history, name, receipt.first)
        return RevisionOutcome(receipt.last, found)

    def _merge_upgrade(self, task: facts.Task) -> tuple[File, ...] | None:
        """Return the files of an upgrade that is merged file by file; None: another kind of task.

        Raises:
            UpgradeConflict: names every path that the strategy does not resolve.
        """
        if not isinstance(task, facts.Upgrade) or task.strategy in merging.WHOLE:
            return None
        base, local, upstream = (
            content_store.read_manifest(
                self._blobs, revisions.demand_row(self._reads, name).content
            )
            for name in (task.old_upstream, task.local_package_revision, task.new_upstream)
        )
        return content_store.store_manifest(
            self._blobs, merging.merge(base, local, upstream, task.strategy)
        ).files


def package_lane(package: str) -> str:
    """Return the name of the lane of a package, given its full path."""
    return f"package {package}"


def _scope(name: str) -> str:
    return scopes.repository_scope(names.parse(name).repository)
