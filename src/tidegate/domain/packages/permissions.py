"""Which permission each step on packages asks for, and which verb of a role gives it.

    command, and its row ──▶ ``required_permissions`` ──▶ permission on a repository
    permission ──▶ ``RIGHTS`` ──▶ the verb that a grant on that repository must have

The step decides, not the route: an update that proposes asks for what the proposal asks for. Every
caller asks here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec import Struct

from tidegate.domain.access.roles import Verb as Right
from tidegate.domain.packages.approvals import (
    ApproveRevision,
    ProposeRevision,
    RejectProposal,
    WithdrawProposal,
)
from tidegate.domain.packages.bulk import DeletePackage, ImportPackage
from tidegate.domain.packages.deletions import DeleteRevision, ProposeDeletion, RejectDeletion
from tidegate.domain.packages.facts import Task
from tidegate.domain.packages.lifecycle import (
    BY_VERB,
    EDGES,
    LifecycleVerb,
    Operation,
    parse_stored,
)
from tidegate.domain.packages.names import parse
from tidegate.domain.packages.origins import source_names
from tidegate.domain.packages.revision_commands import RevisionCommand
from tidegate.domain.packages.rows import Revision
from tidegate.domain.packages.slices import ChangeRepository, CreateRepository, CreateRevision
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.packages.updates import (
    ReplaceResources,
    SetConditions,
    UpdateRevision,
    change_of,
)
from tidegate.kernel.slices import Slice

READ: Final = "revision.read"
CREATE: Final = "revision.create"
EDIT: Final = "revision.edit"
SET_CONDITION: Final = "revision.set_condition"
DELETE: Final = "revision.delete"  # of a Draft, or of one's own proposal
CARRY_OUT_DELETION: Final = "revision.carry_out_deletion"  # of what was published
ADMINISTER: Final = "repository.administer"

# What a command asks for whatever it is about. An update and a deletion may ask for other steps'
# permissions: see ``required_permissions``.
PERMISSIONS: Final[Mapping[type[Struct], str]] = MappingProxyType(
    {
        CreateRepository: ADMINISTER,
        ChangeRepository: ADMINISTER,
        ImportPackage: ADMINISTER,
        DeletePackage: ADMINISTER,
        CreateRevision: CREATE,
        UpdateRevision: EDIT,
        ReplaceResources: EDIT,
        SetConditions: SET_CONDITION,
        ProposeRevision: BY_VERB[LifecycleVerb.PROPOSE].permission,
        WithdrawProposal: BY_VERB[LifecycleVerb.WITHDRAW].permission,
        ApproveRevision: BY_VERB[LifecycleVerb.APPROVE].permission,
        RejectProposal: BY_VERB[LifecycleVerb.REJECT].permission,
        ProposeDeletion: BY_VERB[LifecycleVerb.PROPOSE_DELETION].permission,
        RejectDeletion: BY_VERB[LifecycleVerb.REJECT_DELETION].permission,
        DeleteRevision: DELETE,
    }
)

RIGHTS: Final[Mapping[str, Right]] = MappingProxyType(
    {
        READ: Right.READ,
        CREATE: Right.AUTHOR,
        EDIT: Right.AUTHOR,
        SET_CONDITION: Right.AUTHOR,
        BY_VERB[LifecycleVerb.PROPOSE].permission: Right.AUTHOR,
        BY_VERB[LifecycleVerb.WITHDRAW].permission: Right.AUTHOR,
        BY_VERB[LifecycleVerb.APPROVE].permission: Right.APPROVE,
        BY_VERB[LifecycleVerb.REJECT].permission: Right.APPROVE,
        BY_VERB[LifecycleVerb.PROPOSE_DELETION].permission: Right.AUTHOR,
        BY_VERB[LifecycleVerb.REJECT_DELETION].permission: Right.APPROVE,
        DELETE: Right.AUTHOR,
        CARRY_OUT_DELETION: Right.APPROVE,
        ADMINISTER: Right.ADMINISTER,
    }
)


class RequiredPermission(NamedTuple):
    """A permission that a command needs, and the repository on which."""

    permission: str
    repository: str

    @property
    def right(self) -> Right:
        return RIGHTS[self.permission]


def right_of(command: type[Struct]) -> Right:
    """The right that a command always asks for."""
    return RIGHTS[PERMISSIONS[command]]


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
            yield RequiredPermission(CREATE, repository)
            yield from _sources(tasks)
        case UpdateRevision(name=name):
            for revision in _revisions(rows, name):
                yield from _of_update(revision, command)
        case DeleteRevision(name=name):
            for revision in _revisions(rows, name):
                permission = _of_deletion(revision, command.by)
                if permission is not None:
                    yield RequiredPermission(permission, revision.repository)
        case DeletePackage(package=package):
            repository = package.partition("/")[0]
            yield RequiredPermission(ADMINISTER, repository)
            # Who administers may clear away what is open, as the reaper does.
            if any(_is_carried_out(row) for row in rows):
                yield RequiredPermission(CARRY_OUT_DELETION, repository)
        case RevisionCommand(name=name):
            yield RequiredPermission(PERMISSIONS[type(command)], parse(name).repository)


def with_permission_check(item: Slice, demand: Callable[[RequiredPermission], None]) -> Slice:
    """The slice, with ``demand`` called for all that its command asks of the sender.

    It is called on the very rows that are decided on: what the step is cannot change between the
    question and the commit, and a repeat under an idempotency key is answered before it.
    """

    def decide(rows: Sequence[Struct | None], command: Struct, now: datetime) -> Sequence[Struct]:
        for asked in required_permissions(command, rows):
            demand(asked)
        return item.decide(rows, command, now)

    return replace(item, decide=decide)


def _of_update(revision: Revision, command: UpdateRevision) -> Iterator[RequiredPermission]:
    """Only what would change counts: a client may send the whole document back."""
    repository = revision.repository
    state = parse_stored(revision.lifecycle)
    change = change_of(revision, state, command)
    if change.operations - {Operation.LIFECYCLE}:
        yield RequiredPermission(EDIT, repository)
    yield from _sources((change.tasks or ())[len(revision.tasks) :])
    own = command.by == revision.proposed_by
    edges = [edge for edge in EDGES if (edge.old, edge.new) == (state, change.lifecycle)]
    if edges:  # else the decision refuses it for everyone
        yield RequiredPermission((edges[0] if own else edges[-1]).permission, repository)


def _of_deletion(revision: Revision, by: str) -> str | None:
    """To delete what another one proposes is to reject it. None: the decision refuses it anyway."""
    match parse_stored(revision.lifecycle):
        case Lifecycle.DRAFT:
            return DELETE
        case Lifecycle.PROPOSED:
            return (
                DELETE if by == revision.proposed_by else BY_VERB[LifecycleVerb.REJECT].permission
            )
        case Lifecycle.PUBLISHED:
            return None
        case Lifecycle.DELETION_PROPOSED:
            return CARRY_OUT_DELETION


def _is_carried_out(row: Struct | None) -> bool:
    return isinstance(row, Revision) and row.lifecycle == Lifecycle.DELETION_PROPOSED


def _sources(tasks: Iterable[Task]) -> Iterator[RequiredPermission]:
    """Content is copied from what a task names, so its repository must be readable."""
    for task in tasks:
        for name in source_names(task):
            yield RequiredPermission(READ, parse(name).repository)


def _revisions(rows: Sequence[Struct | None], name: str) -> Iterator[Revision]:
    """The row of this revision, if it is among these."""
    found = (row for row in rows if isinstance(row, Revision) and row.name == name)
    yield from islice(found, 1)
