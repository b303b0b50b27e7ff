"""Which steps a command on packages takes, and on which repository.

    command, and its row ──▶ ``required_permissions`` ──▶ step on a repository
    step ──▶ ``domain/access/steps`` ──▶ the verb that a grant on that repository must have

The step decides, not the route: an update that proposes needs what a proposal needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec import Struct

from tidegate.domain.access import steps
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.scopes import repository_scope
from tidegate.domain.access.steps import STEPS, Step
from tidegate.domain.packages.approvals import (
    ApproveRevision,
    ProposeRevision,
    RejectProposal,
    WithdrawProposal,
)
from tidegate.domain.packages.bulk import DeletePackage, ImportPackage
from tidegate.domain.packages.deletions import DeleteRevision, ProposeDeletion, RejectDeletion
from tidegate.domain.packages.facts import Task
from tidegate.domain.packages.lifecycle import EDGES, Operation, parse_stored
from tidegate.domain.packages.names import parse
from tidegate.domain.packages.origins import source_names
from tidegate.domain.packages.revision_commands import RevisionCommand
from tidegate.domain.packages.rows import Revision
from tidegate.domain.packages.slices import (
    ChangeRepository,
    CreateRepository,
    CreateRevision,
    DeleteRepository,
)
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.packages.updates import (
    ReplaceResources,
    SetConditions,
    UpdateRevision,
    change_of,
)
from tidegate.kernel.slices import Slice

# The step that a command takes. An update and a deletion take other steps as well, or instead,
# depending on the revision: see ``required_permissions``.
STEP_OF: Final[Mapping[type[Struct], Step]] = MappingProxyType(
    {
        CreateRepository: steps.CREATE_REPOSITORY,
        ChangeRepository: steps.CHANGE_REPOSITORY,
        DeleteRepository: steps.DELETE_REPOSITORY,
        ImportPackage: steps.IMPORT_PACKAGE,
        DeletePackage: steps.DELETE_PACKAGE,
        CreateRevision: steps.CREATE_REVISION,
        UpdateRevision: steps.UPDATE_REVISION,
        ReplaceResources: steps.EDIT_REVISION,
        SetConditions: steps.SET_CONDITIONS,
        ProposeRevision: steps.PROPOSE_REVISION,
        WithdrawProposal: steps.WITHDRAW_PROPOSAL,
        ApproveRevision: steps.APPROVE_REVISION,
        RejectProposal: steps.REJECT_PROPOSAL,
        ProposeDeletion: steps.PROPOSE_DELETION,
        RejectDeletion: steps.REJECT_DELETION,
        DeleteRevision: steps.DELETE_REVISION,
    }
)


class RequiredPermission(NamedTuple):
    """A step that a command takes, and the repository on which."""

    step: Step
    repository: str

    @property
    def scope(self) -> str:
        return repository_scope(self.repository)


def required_permissions(
    command: Struct, rows: Sequence[Struct | None] = ()
) -> Iterator[RequiredPermission]:
    """What the command asks of its sender, given the rows that it is decided on.

    Of a row that is missing nothing is asked: the decision says that there is none.

    Raises:
        InvalidName: a task names no revision.
    """
    match command:
        case CreateRevision(repository=repository, tasks=tasks):
            yield RequiredPermission(steps.CREATE_REVISION, repository)
            yield from _sources(tasks)
        case UpdateRevision(name=name):
            for revision in _revisions(rows, name):
                yield from _of_update(revision, command)
        case DeleteRevision(name=name):
            for revision in _revisions(rows, name):
                step = _of_deletion(revision, command.by)
                if step is not None:
                    yield RequiredPermission(step, revision.repository)
        case DeletePackage(package=package):
            repository = package.partition("/")[0]
            yield RequiredPermission(steps.DELETE_PACKAGE, repository)
            # Who administers may clear away what is open, as the clean-up after an owner does.
            if any(_is_carried_out(row) for row in rows):
                yield RequiredPermission(steps.CARRY_OUT_DELETION, repository)
        case RevisionCommand(name=name):
            yield RequiredPermission(STEP_OF[type(command)], parse(name).repository)


def with_permission_check(item: Slice, caller: Caller) -> Slice:
    """The slice, refusing a command whose steps the caller may not take.

    It asks about the very rows that are decided on: which step it is cannot change between the
    question and the commit, and a repeat under an idempotency key is answered before it is asked.
    """

    def decide(rows: Sequence[Struct | None], command: Struct, now: datetime) -> Sequence[Struct]:
        for asked in required_permissions(command, rows):
            caller.demand(asked.step, asked.scope)
        return item.decide(rows, command, now)

    return replace(item, decide=decide)


def _of_update(revision: Revision, command: UpdateRevision) -> Iterator[RequiredPermission]:
    """Only what would change counts: a client may send the whole document back."""
    repository = revision.repository
    state = parse_stored(revision.lifecycle)
    change = change_of(revision, state, command)
    if change.operations - {Operation.LIFECYCLE}:
        yield RequiredPermission(steps.EDIT_REVISION, repository)
    yield from _sources((change.tasks or ())[len(revision.tasks) :])
    own = command.by == revision.proposed_by
    edges = [edge for edge in EDGES if (edge.old, edge.new) == (state, change.lifecycle)]
    if edges:  # else the decision refuses it for everyone
        edge = edges[0] if own else edges[-1]
        yield RequiredPermission(STEPS[edge.permission], repository)


def _of_deletion(revision: Revision, by: str) -> Step | None:
    """To delete what another one proposes is to reject it. None: the decision refuses it anyway."""
    match parse_stored(revision.lifecycle):
        case Lifecycle.DRAFT:
            return steps.DELETE_OPEN
        case Lifecycle.PROPOSED:
            return steps.DELETE_OPEN if by == revision.proposed_by else steps.REJECT_PROPOSAL
        case Lifecycle.PUBLISHED:
            return None
        case Lifecycle.DELETION_PROPOSED:
            return steps.CARRY_OUT_DELETION


def _is_carried_out(row: Struct | None) -> bool:
    return isinstance(row, Revision) and row.lifecycle == Lifecycle.DELETION_PROPOSED


def _sources(tasks: Iterable[Task]) -> Iterator[RequiredPermission]:
    """Content is copied from what a task names, so its repository must be readable."""
    for task in tasks:
        for name in source_names(task):
            yield RequiredPermission(steps.READ_REVISION, parse(name).repository)


def _revisions(rows: Sequence[Struct | None], name: str) -> Iterator[Revision]:
    """The row of this revision, if it is among these."""
    found = (row for row in rows if isinstance(row, Revision) and row.name == name)
    yield from islice(found, 1)
