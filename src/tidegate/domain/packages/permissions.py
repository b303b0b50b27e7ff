"""Which steps a command on packages takes, and on which repository.

    command, and its row ──▶ ``required_permissions`` ──▶ step on a repository
    step ──▶ ``domain/access/steps`` ──▶ the verb that a grant on that repository must have

The step decides, not the route: an update that proposes needs the permission to propose.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec import Struct

from tidegate.domain.access import callers, scopes, steps
from tidegate.domain.packages import (
    approvals,
    bulk,
    deletions,
    facts,
    lifecycle,
    names,
    origins,
    revision_commands,
    rows as package_rows,
    slices,
    states,
    updates,
)
from tidegate.kernel.slices import Slice

# The step that a command takes. An update and a deletion take other steps as well, or instead,
# depending on the revision: see ``required_permissions``.
STEP_OF: Final[Mapping[type[Struct], steps.Step]] = MappingProxyType(
    {
        slices.CreateRepository: steps.CREATE_REPOSITORY,
        slices.ChangeRepository: steps.CHANGE_REPOSITORY,
        slices.DeleteRepository: steps.DELETE_REPOSITORY,
        bulk.ImportPackage: steps.IMPORT_PACKAGE,
        bulk.DeletePackage: steps.DELETE_PACKAGE,
        slices.CreateRevision: steps.CREATE_REVISION,
        updates.UpdateRevision: steps.UPDATE_REVISION,
        updates.ReplaceResources: steps.EDIT_REVISION,
        updates.SetConditions: steps.SET_CONDITIONS,
        approvals.ProposeRevision: steps.PROPOSE_REVISION,
        approvals.WithdrawProposal: steps.WITHDRAW_PROPOSAL,
        approvals.ApproveRevision: steps.APPROVE_REVISION,
        approvals.RejectProposal: steps.REJECT_PROPOSAL,
        deletions.ProposeDeletion: steps.PROPOSE_DELETION,
        deletions.RejectDeletion: steps.REJECT_DELETION,
        deletions.DeleteRevision: steps.DELETE_REVISION,
    }
)


class RequiredPermission(NamedTuple):
    """A step that a command takes, and the repository on which it takes it."""

    step: steps.Step
    repository: str

    @property
    def scope(self) -> str:
        return scopes.repository_scope(self.repository)


def required_permissions(
    command: Struct, rows: Sequence[Struct | None] = ()
) -> Iterator[RequiredPermission]:
    """The permissions that the caller of a command needs, given the rows that it is decided on.

    A missing row needs none: the decision then reports that it does not exist.

    Raises:
        InvalidName: a task's source is not the name of a revision.
    """
    match command:
        case slices.CreateRevision(repository=repository, tasks=tasks):
            yield RequiredPermission(steps.CREATE_REVISION, repository)
            yield from _sources(tasks)
        case updates.UpdateRevision(name=name):
            for revision in _revisions(rows, name):
                yield from _of_update(revision, command)
        case deletions.DeleteRevision(name=name):
            for revision in _revisions(rows, name):
                step = _of_deletion(revision, command.by)
                if step is not None:
                    yield RequiredPermission(step, revision.repository)
        case bulk.DeletePackage(package=package):
            repository = package.partition("/")[0]
            yield RequiredPermission(steps.DELETE_PACKAGE, repository)
            # An administrator may delete drafts and proposals, as the cleanup of an owner does.
            if any(_is_carried_out(row) for row in rows):
                yield RequiredPermission(steps.CARRY_OUT_DELETION, repository)
        case revision_commands.RevisionCommand(name=name):
            yield RequiredPermission(STEP_OF[type(command)], names.parse(name).repository)


def with_permission_check(item: Slice, caller: callers.Caller) -> Slice:
    """Wrap a slice so that it refuses a command whose steps the caller may not take.

    The check uses the same rows as the decision, so the step cannot change between the check and
    the commit. A repeat with the same idempotency key is answered before the check.
    """

    def decide(rows: Sequence[Struct | None], command: Struct, now: datetime) -> Sequence[Struct]:
        for asked in required_permissions(command, rows):
            caller.demand(asked.step, asked.scope)
        return item.decide(rows, command, now)

    return replace(item, decide=decide)


def _of_update(
    revision: package_rows.Revision, command: updates.UpdateRevision
) -> Iterator[RequiredPermission]:
    """The steps of an update. Only actual changes count, as clients may send the whole document."""
    repository = revision.repository
    state = lifecycle.parse_stored(revision.lifecycle)
    change = updates.change_of(revision, state, command)
    if change.operations - {lifecycle.Operation.LIFECYCLE}:
        yield RequiredPermission(steps.EDIT_REVISION, repository)
    yield from _sources((change.tasks or ())[len(revision.tasks) :])
    own = command.by == revision.proposed_by
    edges = [edge for edge in lifecycle.EDGES if (edge.old, edge.new) == (state, change.lifecycle)]
    if edges:  # otherwise the decision refuses it for everyone
        edge = edges[0] if own else edges[-1]
        yield RequiredPermission(steps.STEPS[edge.permission], repository)


def _of_deletion(revision: package_rows.Revision, by: str) -> steps.Step | None:
    """The step of a deletion. Deleting another person's proposal is rejecting it.

    None: the decision refuses the deletion anyway.
    """
    match lifecycle.parse_stored(revision.lifecycle):
        case states.Lifecycle.DRAFT:
            return steps.DELETE_OPEN
        case states.Lifecycle.PROPOSED:
            return steps.DELETE_OPEN if by == revision.proposed_by else steps.REJECT_PROPOSAL
        case states.Lifecycle.PUBLISHED:
            return None
        case states.Lifecycle.DELETION_PROPOSED:
            return steps.CARRY_OUT_DELETION


def _is_carried_out(row: Struct | None) -> bool:
    return (
        isinstance(row, package_rows.Revision)
        and row.lifecycle == states.Lifecycle.DELETION_PROPOSED
    )


def _sources(tasks: Iterable[facts.Task]) -> Iterator[RequiredPermission]:
    """The permission to read the repositories of a task's sources, whose content is copied."""
    for task in tasks:
        for name in origins.source_names(task):
            yield RequiredPermission(steps.READ_REVISION, names.parse(name).repository)


def _revisions(rows: Sequence[Struct | None], name: str) -> Iterator[package_rows.Revision]:
    """The row of this revision, if it is among these."""
    found = (row for row in rows if isinstance(row, package_rows.Revision) and row.name == name)
    yield from islice(found, 1)
