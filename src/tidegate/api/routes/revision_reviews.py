"""Reviews: proposed by one, approved or turned down by another, and deletions likewise."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tidegate.api.routes.revisions import Digest, RevisionPath, Text, answer_of, revision_scope
from tidegate.control.installation import Installation
from tidegate.domain.access.steps import VersionRule
from tidegate.domain.packages.approvals import (
    ApproveRevision,
    ProposeRevision,
    RejectProposal,
    WithdrawProposal,
    approve_revision,
    propose_revision,
    reject_proposal,
    withdraw_proposal,
)
from tidegate.domain.packages.deletions import (
    ProposeDeletion,
    RejectDeletion,
    propose_deletion,
    reject_deletion,
)
from tidegate.domain.packages.documents import RevisionDocument
from tidegate.domain.packages.permissions import right_of
from tidegate.domain.packages.refusals import (
    DigestMismatch,
    NotReady,
    RevisionNotFound,
    SelfApproval,
    Terminating,
    TransitionRefused,
)
from tidegate.web.inputs import Input, Nothing
from tidegate.web.routing import Request, Response, Route, requires


class Remark(Input, frozen=True, kw_only=True):
    reason: Text = ""


class Refusal(Input, frozen=True, kw_only=True):
    """Turning somebody down needs a reason that they can read."""

    reason: Annotated[str, Meta(min_length=1, max_length=1_024)]


class Approval(Input, frozen=True, kw_only=True):
    digest: Digest  # of the content that was looked at
    reason: Text = ""


def propose(
    request: Request[RevisionPath, Nothing, Remark], installation: Installation
) -> Response:
    """Draft → Proposed: ready for review, frozen."""
    command = ProposeRevision(
        name=request.path.name,
        by=request.by,
        expected_version=request.version,
        reason=request.body.reason,
    )
    outcome = installation.run(propose_revision, command, meta=request.meta, key=request.once)
    return answer_of(installation, request.path.name, outcome)


def withdraw(
    request: Request[RevisionPath, Nothing, Remark], installation: Installation
) -> Response:
    """Proposed → Draft, by who proposed it."""
    command = WithdrawProposal(
        name=request.path.name,
        by=request.by,
        expected_version=request.version,
        reason=request.body.reason,
    )
    outcome = installation.run(withdraw_proposal, command, meta=request.meta, key=request.once)
    return answer_of(installation, request.path.name, outcome)


def approve(
    request: Request[RevisionPath, Nothing, Approval], installation: Installation
) -> Response:
    """Approve the content of this digest; the approval that completes the quorum publishes."""
    command = ApproveRevision(
        name=request.path.name,
        by=request.by,
        expected_version=request.version,
        digest=request.body.digest,
        reason=request.body.reason,
    )
    outcome = installation.run(approve_revision, command, meta=request.meta, key=request.once)
    return answer_of(installation, request.path.name, outcome)


def reject(
    request: Request[RevisionPath, Nothing, Refusal], installation: Installation
) -> Response:
    """Proposed → Draft, with a reason."""
    command = RejectProposal(
        name=request.path.name,
        by=request.by,
        expected_version=request.version,
        reason=request.body.reason,
    )
    outcome = installation.run(reject_proposal, command, meta=request.meta, key=request.once)
    return answer_of(installation, request.path.name, outcome)


def propose_delete(
    request: Request[RevisionPath, Nothing, Remark], installation: Installation
) -> Response:
    """Published → DeletionProposed."""
    command = ProposeDeletion(
        name=request.path.name,
        by=request.by,
        expected_version=request.version,
        reason=request.body.reason,
    )
    outcome = installation.run(propose_deletion, command, meta=request.meta, key=request.once)
    return answer_of(installation, request.path.name, outcome)


def reject_delete(
    request: Request[RevisionPath, Nothing, Refusal], installation: Installation
) -> Response:
    """DeletionProposed → Published, with a reason."""
    command = RejectDeletion(
        name=request.path.name,
        by=request.by,
        expected_version=request.version,
        reason=request.body.reason,
    )
    outcome = installation.run(reject_deletion, command, meta=request.meta, key=request.once)
    return answer_of(installation, request.path.name, outcome)


_STEP = (RevisionNotFound, TransitionRefused, Terminating)

ROUTES = (
    *(
        Route(
            "POST",
            f"/v1/revisions/{{name}}/{verb}",
            handler,
            requires(right_of(command), revision_scope),
            RevisionDocument,
            guard=VersionRule.DEMANDED,
            errors=(*_STEP, *errors),
        )
        for verb, handler, command, errors in (
            ("propose", propose, ProposeRevision, (NotReady,)),
            ("withdraw", withdraw, WithdrawProposal, ()),
            ("approve", approve, ApproveRevision, (DigestMismatch, SelfApproval)),
            ("reject", reject, RejectProposal, ()),
            ("propose-delete", propose_delete, ProposeDeletion, ()),
            ("reject-delete", reject_delete, RejectDeletion, ()),
        )
    ),
)
