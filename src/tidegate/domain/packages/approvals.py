"""Proposal, review and publication: the only way from Proposed to Published.

Four eyes: the people who proposed a revision or changed its content cannot approve it. An approval
names the digest that the approver saw. The approval that completes the repository's quorum
publishes the revision in the same commit. Lowering the quorum publishes nothing by itself: the next
approval does, even by a person who has approved before.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from tidegate.domain.content.digests import check_digest
from tidegate.domain.packages import (
    facts as package_facts,
    lifecycle,
    metadata,
    names,
    refusals,
    revision_commands,
    rows as package_rows,
)
from tidegate.kernel import model, slices


class ProposeRevision(revision_commands.StepCommand, frozen=True, kw_only=True):
    """Draft → Proposed: ready for review. Its content is frozen from now on."""


class WithdrawProposal(revision_commands.StepCommand, frozen=True, kw_only=True):
    """Proposed → Draft, by the proposer."""


class RejectProposal(revision_commands.StepCommand, frozen=True, kw_only=True):
    """Proposed → Draft, with a reason."""


class ApproveRevision(revision_commands.StepCommand, frozen=True, kw_only=True):
    """Proposed → Published, once enough others have approved this digest."""

    digest: str


def rows_of_approval(command: ApproveRevision) -> tuple[model.Key, ...]:
    """Reads the package's row, which assigns numbers. Of two approvals at once, the second one is
    decided again.
    """
    names.check_user(command.by)
    check_digest(command.digest)
    metadata.check_reason(command.reason, needed=False)
    place = names.parse(command.name)
    return (
        package_rows.revision_key(place),
        package_rows.repository_key(place.repository),
        package_rows.package_key(place.package),
    )


def decide_approval(
    rows: tuple[
        package_rows.Revision | None, package_rows.Repository | None, package_rows.PackageRow | None
    ],
    command: ApproveRevision,
    now: datetime,
) -> Sequence[Struct]:
    """Raises: TransitionRefused, DigestMismatch, NotReady, SelfApproval."""
    revision, state = revision_commands.demand_versioned(rows[0], command)
    revision_commands.demand_alive(revision)
    lifecycle.edge_by_verb(state, lifecycle.LifecycleVerb.APPROVE)
    if command.digest != revision.content.digest:
        raise refusals.DigestMismatch(command.digest, revision.content.digest)
    revision_commands.demand_ready(revision)
    repository = revision_commands.demand_companion(rows[1], revision.name)
    package = revision_commands.demand_companion(rows[2], revision.name)
    alone = repository.quorum == 0
    if not alone and command.by in (revision.proposed_by, *revision.editors):
        raise refusals.SelfApproval(
            f"{command.by} proposed or changed {revision.name}; another person must approve it",
            revision=revision.name,
        )
    is_repeated = command.by in revision.approvals  # counts once
    by, name, uid = command.by, revision.name, revision.uid
    digest = command.digest
    facts: tuple[Struct, ...] = ()
    if not is_repeated:
        facts = (
            package_facts.RevisionApproved(name, package.package, uid, by, digest, command.reason),
        )
    if len(revision.approvals) + len(facts) < repository.quorum:
        return facts
    number = package.last_number + 1
    published = package_facts.RevisionPublished(
        name, package.package, uid, by, number, digest, alone, package.latest
    )
    return (*facts, published)


def _step(
    name: str,
    command: type[revision_commands.StepCommand],
    fact: type[Struct],
    verb: lifecycle.LifecycleVerb,
) -> slices.Slice:
    return slices.Slice(
        name=name,
        command=command,
        writes=(fact,),
        rows=revision_commands.step_rows(verb),
        expects=revision_commands.expects,
        decide=revision_commands.step_decision(verb),
    )


propose_revision = _step(
    "propose-revision",
    ProposeRevision,
    package_facts.RevisionProposed,
    lifecycle.LifecycleVerb.PROPOSE,
)
withdraw_proposal = _step(
    "withdraw-proposal",
    WithdrawProposal,
    package_facts.ProposalWithdrawn,
    lifecycle.LifecycleVerb.WITHDRAW,
)
reject_proposal = _step(
    "reject-proposal",
    RejectProposal,
    package_facts.ProposalRejected,
    lifecycle.LifecycleVerb.REJECT,
)
approve_revision = slices.Slice(
    name="approve-revision",
    command=ApproveRevision,
    writes=(package_facts.RevisionApproved, package_facts.RevisionPublished),
    rows=rows_of_approval,
    expects=revision_commands.expects,
    decide=decide_approval,
)

SLICES = (propose_revision, withdraw_proposal, reject_proposal, approve_revision)
