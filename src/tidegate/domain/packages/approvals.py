"""Proposal, review, publication: the only door from Proposed to Published.

Four eyes: who proposed a revision or changed what it holds does not approve it. An approval names
the digest that was looked at. The one that completes the repository's quorum publishes, in its
commit. A lower quorum publishes nothing by itself: the next approval does, also one by a person who
has approved before.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from tidegate.domain.content.digests import check_digest
from tidegate.domain.packages.facts import (
    ProposalRejected,
    ProposalWithdrawn,
    RevisionApproved,
    RevisionProposed,
    RevisionPublished,
)
from tidegate.domain.packages.lifecycle import LifecycleVerb, edge_by_verb
from tidegate.domain.packages.metadata import check_reason
from tidegate.domain.packages.names import check_user, parse
from tidegate.domain.packages.refusals import DigestMismatch, SelfApproval
from tidegate.domain.packages.revision_commands import (
    StepCommand,
    demand_alive,
    demand_companion,
    demand_ready,
    demand_versioned,
    expects,
    step_decision,
    step_rows,
)
from tidegate.domain.packages.rows import (
    PackageRow,
    Repository,
    Revision,
    package_key,
    repository_key,
    revision_key,
)
from tidegate.kernel.model import Key
from tidegate.kernel.slices import Slice


class ProposeRevision(StepCommand, frozen=True, kw_only=True):
    """Draft → Proposed: ready for review; its content is frozen from here."""


class WithdrawProposal(StepCommand, frozen=True, kw_only=True):
    """Proposed → Draft, by who proposed it."""


class RejectProposal(StepCommand, frozen=True, kw_only=True):
    """Proposed → Draft, with a reason."""


class ApproveRevision(StepCommand, frozen=True, kw_only=True):
    """Proposed → Published, once enough others have approved this digest."""

    digest: str


def rows_of_approval(command: ApproveRevision) -> tuple[Key, ...]:
    """Numbers are given out per package: of two approvals at once the second decides again."""
    check_user(command.by)
    check_digest(command.digest)
    check_reason(command.reason, needed=False)
    place = parse(command.name)
    return (
        revision_key(place),
        repository_key(place.repository),
        package_key(place.package),
    )


def decide_approval(
    rows: tuple[Revision | None, Repository | None, PackageRow | None],
    command: ApproveRevision,
    now: datetime,
) -> Sequence[Struct]:
    """Raises: TransitionRefused, DigestMismatch, NotReady, SelfApproval."""
    revision, state = demand_versioned(rows[0], command)
    demand_alive(revision)
    edge_by_verb(state, LifecycleVerb.APPROVE)
    if command.digest != revision.content.digest:
        raise DigestMismatch(command.digest, revision.content.digest)
    demand_ready(revision)
    repository = demand_companion(rows[1], revision.name)
    package = demand_companion(rows[2], revision.name)
    alone = repository.quorum == 0
    if not alone and command.by in (revision.proposed_by, *revision.editors):
        raise SelfApproval(
            f"{command.by} proposed or changed {revision.name}; another person must approve it",
            revision=revision.name,
        )
    is_repeated = command.by in revision.approvals  # it does not count twice
    by, name, uid = command.by, revision.name, revision.uid
    digest = command.digest
    facts: tuple[Struct, ...] = ()
    if not is_repeated:
        facts = (RevisionApproved(name, package.package, uid, by, digest, command.reason),)
    if len(revision.approvals) + len(facts) < repository.quorum:
        return facts
    number = package.last_number + 1
    published = RevisionPublished(
        name, package.package, uid, by, number, digest, alone, package.latest
    )
    return (*facts, published)


def _step(name: str, command: type[StepCommand], fact: type[Struct], verb: LifecycleVerb) -> Slice:
    return Slice(
        name=name,
        command=command,
        writes=(fact,),
        rows=step_rows(verb),
        expects=expects,
        decide=step_decision(verb),
    )


propose_revision = _step(
    "propose-revision", ProposeRevision, RevisionProposed, LifecycleVerb.PROPOSE
)
withdraw_proposal = _step(
    "withdraw-proposal", WithdrawProposal, ProposalWithdrawn, LifecycleVerb.WITHDRAW
)
reject_proposal = _step("reject-proposal", RejectProposal, ProposalRejected, LifecycleVerb.REJECT)
approve_revision = Slice(
    name="approve-revision",
    command=ApproveRevision,
    writes=(RevisionApproved, RevisionPublished),
    rows=rows_of_approval,
    expects=expects,
    decide=decide_approval,
)

SLICES = (propose_revision, withdraw_proposal, reject_proposal, approve_revision)
