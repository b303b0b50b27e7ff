"""The end of a revision: proposed first if it was published, never while others descend from it.

Finalizers hold it: then the deletion only sets a timestamp, once, and the removal of the last one
deletes in its own commit. What is left is a tombstone, and the history.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from tidegate.domain.packages.facts import (
    PackageEmptied,
    RevisionDeleted,
    RevisionDeletionProposed,
    RevisionDeletionRejected,
    RevisionDeletionStarted,
)
from tidegate.domain.packages.lifecycle import MUTABILITY, LifecycleVerb, Operation
from tidegate.domain.packages.names import check_user, parse
from tidegate.domain.packages.refusals import (
    DeletionNotProposed,
    ProposalProtected,
    SelfDeletion,
    StillReferenced,
)
from tidegate.domain.packages.revision_commands import (
    RevisionCommand,
    StepCommand,
    demand_companion,
    demand_revision,
    expects,
    step_decision,
    step_rows,
)
from tidegate.domain.packages.rows import (
    PackageRow,
    Repository,
    Revision,
    RevisionLinks,
    links_key,
    package_key,
    repository_key,
    revision_key,
)
from tidegate.domain.packages.states import Lifecycle
from tidegate.kernel.model import Key
from tidegate.kernel.slices import Slice


class ProposeDeletion(StepCommand, frozen=True, kw_only=True):
    """Published → DeletionProposed."""


class RejectDeletion(StepCommand, frozen=True, kw_only=True):
    """DeletionProposed → Published, with a reason."""


class DeleteRevision(RevisionCommand, frozen=True, kw_only=True):
    """For good. The version is checked if it is given."""


def rows_of_deletion(command: DeleteRevision) -> tuple[Key, ...]:
    """Its links tell who descends from it, so a clone beside this is seen or conflicts."""
    check_user(command.by)
    place = parse(command.name)
    return (
        revision_key(place),
        repository_key(place.repository),
        package_key(place.package),
        links_key(place.name),
    )


def decide_deletion(
    rows: tuple[Revision | None, Repository | None, PackageRow | None, RevisionLinks | None],
    command: DeleteRevision,
    now: datetime,
) -> Sequence[Struct]:
    """Raises: DeletionNotProposed, ProposalProtected, SelfDeletion, StillReferenced."""
    revision, state = demand_revision(rows[0], command)
    if revision.deletion_timestamp is not None:
        return ()  # under way: the timestamp stays what it is
    repository = demand_companion(rows[1], revision.name)
    package = demand_companion(rows[2], revision.name)
    links = demand_companion(rows[3], revision.name)
    demand_deletable(revision, state, repository, command.by)
    demand_unreferenced(links)
    if revision.metadata.finalizers:
        return (
            RevisionDeletionStarted(
                revision.name, revision.package, revision.uid, command.by, state
            ),
        )
    return deletion_facts(revision, package, links, command.by)


def deletion_facts(
    revision: Revision, package: PackageRow, links: RevisionLinks, by: str
) -> Sequence[Struct]:
    """The facts of a deletion that nothing holds up. Raises: StillReferenced."""
    demand_unreferenced(links)
    deleted = RevisionDeleted(
        revision.name,
        revision.package,
        revision.uid,
        by,
        Lifecycle(revision.lifecycle),
        revision.number,
        revision.content,
        revision.upstream,
        links.older,
        links.newer,
        revision.metadata.owner_references,
    )
    if package.live > 1:
        return (deleted,)
    return (deleted, PackageEmptied(revision.package, by))


def demand_deletable(revision: Revision, state: Lifecycle, repository: Repository, by: str) -> None:
    """Raises: DeletionNotProposed, ProposalProtected, SelfDeletion."""
    if not MUTABILITY[Operation.DELETE, state]:
        raise DeletionNotProposed(
            f"{revision.name} is {state}; propose its deletion first", revision=revision.name
        )
    if state is Lifecycle.PROPOSED and repository.protect_proposed:
        raise ProposalProtected(
            f"{revision.name} is {state}; withdraw or reject it first", revision=revision.name
        )
    # Where one person works alone there is nobody else to ask.
    guarded = repository.deployment and repository.quorum > 0
    if guarded and state is Lifecycle.DELETION_PROPOSED and by == revision.deletion_proposed_by:
        raise SelfDeletion(
            f"{by} proposed the deletion of {revision.name}; another person must carry it out",
            revision=revision.name,
        )


def demand_unreferenced(links: RevisionLinks) -> None:
    """Raises: StillReferenced."""
    if links.dependents:
        raise StillReferenced(links.name, links.dependents, links.some_dependents)


propose_deletion = Slice(
    name="propose-deletion",
    command=ProposeDeletion,
    writes=(RevisionDeletionProposed,),
    rows=step_rows(LifecycleVerb.PROPOSE_DELETION),
    expects=expects,
    decide=step_decision(LifecycleVerb.PROPOSE_DELETION),
)
reject_deletion = Slice(
    name="reject-deletion",
    command=RejectDeletion,
    writes=(RevisionDeletionRejected,),
    rows=step_rows(LifecycleVerb.REJECT_DELETION),
    expects=expects,
    decide=step_decision(LifecycleVerb.REJECT_DELETION),
)
delete_revision = Slice(
    name="delete-revision",
    command=DeleteRevision,
    writes=(RevisionDeletionStarted, RevisionDeleted, PackageEmptied),
    rows=rows_of_deletion,
    expects=expects,
    decide=decide_deletion,
)

SLICES = (propose_deletion, reject_deletion, delete_revision)
