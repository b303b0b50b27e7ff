"""Deleting a revision. A published one must be proposed for deletion first, and no revision is
deleted while others descend from it.

While a revision has finalizers, the deletion only sets a timestamp, once. The removal of the last
finalizer then deletes the revision in the same commit. A tombstone and the history remain.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from tidegate.domain.packages import (
    facts,
    lifecycle,
    names,
    refusals,
    revision_commands,
    rows as package_rows,
    states,
)
from tidegate.kernel import model, slices


class ProposeDeletion(revision_commands.StepCommand, frozen=True, kw_only=True):
    """Published → DeletionProposed."""


class RejectDeletion(revision_commands.StepCommand, frozen=True, kw_only=True):
    """DeletionProposed → Published, with a reason."""


class DeleteRevision(revision_commands.RevisionCommand, frozen=True, kw_only=True):
    """Delete a revision permanently. The version is checked if it is given."""


def rows_of_deletion(command: DeleteRevision) -> tuple[model.Key, ...]:
    """Reads the row with the revisions that descend from it, so that a clone at the same time is
    either seen or conflicts.
    """
    names.check_user(command.by)
    place = names.parse(command.name)
    return (
        package_rows.revision_key(place),
        package_rows.repository_key(place.repository),
        package_rows.package_key(place.package),
        package_rows.links_key(place.name),
    )


def decide_deletion(
    rows: tuple[
        package_rows.Revision | None,
        package_rows.Repository | None,
        package_rows.PackageRow | None,
        package_rows.RevisionLinks | None,
    ],
    command: DeleteRevision,
    now: datetime,
) -> Sequence[Struct]:
    """Raises: DeletionNotProposed, ProposalProtected, SelfDeletion, StillReferenced."""
    revision, state = revision_commands.demand_revision(rows[0], command)
    if revision.deletion_timestamp is not None:
        return ()  # the deletion has begun; the timestamp does not change
    repository = revision_commands.demand_companion(rows[1], revision.name)
    package = revision_commands.demand_companion(rows[2], revision.name)
    links = revision_commands.demand_companion(rows[3], revision.name)
    demand_deletable(revision, state, repository, command.by)
    demand_unreferenced(links)
    if revision.metadata.finalizers:
        return (
            facts.RevisionDeletionStarted(
                revision.name, revision.package, revision.uid, command.by, state
            ),
        )
    return deletion_facts(revision, package, links, command.by)


def deletion_facts(
    revision: package_rows.Revision,
    package: package_rows.PackageRow,
    links: package_rows.RevisionLinks,
    by: str,
) -> Sequence[Struct]:
    """The facts of a deletion that no finalizer delays. Raises: StillReferenced."""
    demand_unreferenced(links)
    deleted = facts.RevisionDeleted(
        revision.name,
        revision.package,
        revision.uid,
        by,
        states.Lifecycle(revision.lifecycle),
        revision.number,
        revision.content,
        revision.upstream,
        links.older,
        links.newer,
        revision.metadata.owner_references,
    )
    if package.live > 1:
        return (deleted,)
    return (deleted, facts.PackageEmptied(revision.package, by))


def demand_deletable(
    revision: package_rows.Revision,
    state: states.Lifecycle,
    repository: package_rows.Repository,
    by: str,
) -> None:
    """Raises: DeletionNotProposed, ProposalProtected, SelfDeletion."""
    if not lifecycle.MUTABILITY[lifecycle.Operation.DELETE, state]:
        raise refusals.DeletionNotProposed(
            f"{revision.name} is {state}; propose its deletion first", revision=revision.name
        )
    if state is states.Lifecycle.PROPOSED and repository.protect_proposed:
        raise refusals.ProposalProtected(
            f"{revision.name} is {state}; withdraw or reject it first", revision=revision.name
        )
    # With a quorum of 0 one person works alone, and nobody else could approve.
    guarded = repository.deployment and repository.quorum > 0
    if (
        guarded
        and state is states.Lifecycle.DELETION_PROPOSED
        and by == revision.deletion_proposed_by
    ):
        raise refusals.SelfDeletion(
            f"{by} proposed the deletion of {revision.name}; another person must carry it out",
            revision=revision.name,
        )


def demand_unreferenced(links: package_rows.RevisionLinks) -> None:
    """Raises: StillReferenced."""
    if links.dependents:
        raise refusals.StillReferenced(links.name, links.dependents, links.some_dependents)


propose_deletion = slices.Slice(
    name="propose-deletion",
    command=ProposeDeletion,
    writes=(facts.RevisionDeletionProposed,),
    rows=revision_commands.step_rows(lifecycle.LifecycleVerb.PROPOSE_DELETION),
    expects=revision_commands.expects,
    decide=revision_commands.step_decision(lifecycle.LifecycleVerb.PROPOSE_DELETION),
)
reject_deletion = slices.Slice(
    name="reject-deletion",
    command=RejectDeletion,
    writes=(facts.RevisionDeletionRejected,),
    rows=revision_commands.step_rows(lifecycle.LifecycleVerb.REJECT_DELETION),
    expects=revision_commands.expects,
    decide=revision_commands.step_decision(lifecycle.LifecycleVerb.REJECT_DELETION),
)
delete_revision = slices.Slice(
    name="delete-revision",
    command=DeleteRevision,
    writes=(facts.RevisionDeletionStarted, facts.RevisionDeleted, facts.PackageEmptied),
    rows=rows_of_deletion,
    expects=revision_commands.expects,
    decide=decide_deletion,
)

SLICES = (propose_deletion, reject_deletion, delete_revision)
