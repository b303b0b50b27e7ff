"""The table of steps: each command of an operator, with the permission and the version it needs.

API routes, dashboard forms and operations all read this table, so that each permission is defined
once. The string below a step is its entry in docs/reference/permissions.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from tidegate.domain.access.roles import Verb


class VersionRule(Enum):
    """Whether a request must name the version that its client saw."""

    IGNORED = "ignored"
    CHECKED = "checked"  # if it is given
    DEMANDED = "demanded"  # 428 without one


class Step(Struct, frozen=True, kw_only=True):
    """One command of an operator.

    A step without ``verbs`` is open to all users for their own account; the operation checks more.
    """

    name: str  # noun.verb
    verbs: tuple[Verb, ...]  # one is needed on the scope of the request; may be empty
    version: VersionRule = VersionRule.IGNORED
    urgent: bool = False  # it stops something: it has a rate limit of its own


READ = (Verb.READ,)
AUTHOR = (Verb.AUTHOR,)
REPORT = (Verb.REPORT,)
APPROVE = (Verb.APPROVE,)
AUTHOR_OR_APPROVE = (Verb.AUTHOR, Verb.APPROVE)
OPERATE = (Verb.OPERATE,)
RELEASE = (Verb.RELEASE,)
EMERGENCY = (Verb.EMERGENCY,)
ADMINISTER = (Verb.ADMINISTER,)
CHECKED = VersionRule.CHECKED
DEMANDED = VersionRule.DEMANDED

PAUSE_ROLLOUT: Final = Step(name="rollout.pause", verbs=OPERATE, version=CHECKED, urgent=True)
"""Pause a rollout. It sends no orders and starts no wave until it is resumed."""
RESUME_ROLLOUT: Final = Step(name="rollout.resume", verbs=OPERATE, version=CHECKED)
"""Resume a paused rollout."""
ABORT_ROLLOUT: Final = Step(name="rollout.abort", verbs=OPERATE, version=CHECKED, urgent=True)
"""End a running rollout. It sends no more orders, and hosts that acknowledged one finish it."""
CLEAR_ROLLOUT: Final = Step(name="rollout.clear", verbs=OPERATE, version=CHECKED)
"""Decide what happens to a halted rollout: resume, waive hosts, or abandon it."""
RETRY_ROLLOUT: Final = Step(name="rollout.retry", verbs=OPERATE, version=CHECKED)
"""Try the failed and reverted hosts of a halted rollout again."""
SKIP_HOST: Final = Step(name="rollout.skip", verbs=OPERATE, version=CHECKED)
"""Continue a rollout without a host that has not started its order."""
OVERRIDE_GATE: Final = Step(name="rollout.override", verbs=EMERGENCY, version=CHECKED)
"""Let one rollout pass an edge, a freeze, a window, a hold, its start time or old evidence."""
CONTINUE_ROLLOUT: Final = Step(name="rollout.continue", verbs=OPERATE, version=CHECKED)
"""Start a wave that waits for a person."""
SKIP_WAVE: Final = Step(name="rollout.skip-wave", verbs=EMERGENCY, version=CHECKED)
"""Continue a rollout without the hosts of a wave that have no order."""
PROMOTE_ALL: Final = Step(name="rollout.promote-all", verbs=EMERGENCY, version=CHECKED)
"""Start every wave of a rollout now, without waiting for the waves before."""
PROMOTE: Final = Step(name="channel.promote", verbs=RELEASE, version=CHECKED)
"""Pin a channel to a release and roll the release out to its hosts."""
ROLL_BACK: Final = Step(
    name="channel.rollback", verbs=(Verb.RELEASE, Verb.EMERGENCY), version=CHECKED, urgent=True
)
"""Go back to a release that succeeded on the channel, and mark the pinned one as bad."""
ROLL_BACK_NOW: Final = Step(name="channel.rollback_now", verbs=EMERGENCY)
"""Go back on all hosts at once, in spite of freezes, holds and windows (`rollback --now`)."""

# ── revisions and packages: on the repository ──
# Which of these an update or a deletion takes depends on the revision: domain/packages/permissions.
READ_REVISION: Final = Step(name="revision.read", verbs=READ)
"""Read a package revision, its files and its history."""
CREATE_REVISION: Final = Step(name="revision.create", verbs=AUTHOR)
"""Create a draft: from files, a clone, an edit or an upgrade."""
EDIT_REVISION: Final = Step(name="revision.edit", verbs=AUTHOR, version=DEMANDED)
"""Change the files, tasks or metadata of a revision."""
UPDATE_REVISION: Final = Step(name="revision.update", verbs=AUTHOR_OR_APPROVE, version=DEMANDED)
"""Change content, metadata and lifecycle in one request. The server also checks the step of each
change.
"""
SET_CONDITIONS: Final = Step(name="revision.set_condition", verbs=REPORT, version=DEMANDED)
"""Record the result of a check for the content of a digest."""
PROPOSE_REVISION: Final = Step(name="revision.propose", verbs=AUTHOR, version=DEMANDED)
"""Propose a draft for approval. Its content is frozen."""
WITHDRAW_PROPOSAL: Final = Step(name="revision.withdraw", verbs=AUTHOR, version=DEMANDED)
"""Take your own proposal back to draft."""
APPROVE_REVISION: Final = Step(name="revision.approve", verbs=APPROVE, version=DEMANDED)
"""Approve a proposal. The approval that completes the quorum publishes it."""
REJECT_PROPOSAL: Final = Step(name="revision.reject", verbs=APPROVE, version=DEMANDED)
"""Send a proposal back to draft, with a reason."""
PROPOSE_DELETION: Final = Step(name="revision.propose_deletion", verbs=AUTHOR, version=DEMANDED)
"""Propose to delete a published revision."""
REJECT_DELETION: Final = Step(name="revision.reject_deletion", verbs=APPROVE, version=DEMANDED)
"""Reject a proposed deletion, with a reason. The revision stays published."""
DELETE_REVISION: Final = Step(name="revision.delete", verbs=AUTHOR_OR_APPROVE, version=CHECKED)
"""Delete a revision. The server also checks the step that the revision's state asks for."""
DELETE_OPEN: Final = Step(name="revision.delete_open", verbs=AUTHOR)
"""Delete a draft, or a proposal of your own."""
CARRY_OUT_DELETION: Final = Step(name="revision.carry_out_deletion", verbs=APPROVE)
"""Delete a published revision whose deletion was proposed."""
CLEAN_UP_OWNER: Final = Step(name="revision.clean_up_owner", verbs=ADMINISTER)
"""Delete the drafts and proposals of an owner that no longer exists."""
DELETE_PACKAGE: Final = Step(name="package.delete", verbs=ADMINISTER, version=DEMANDED)
"""Delete all revisions of a package, or none."""
IMPORT_PACKAGE: Final = Step(name="package.import", verbs=ADMINISTER)
"""Import revisions that were published elsewhere, with their numbers."""
CREATE_REPOSITORY: Final = Step(name="repository.create", verbs=ADMINISTER)
"""Create a repository."""
CHANGE_REPOSITORY: Final = Step(name="repository.change", verbs=ADMINISTER, version=DEMANDED)
"""Change how a repository's revisions are approved."""
DELETE_REPOSITORY: Final = Step(name="repository.delete", verbs=ADMINISTER)
"""Delete a repository without packages. Its history stays."""

# ── releases: on the channel that a scope is named after ──
REGISTER_RELEASE: Final = Step(name="release.register", verbs=RELEASE)
"""Pin a scope to its first release."""
TRANSITION_RELEASE: Final = Step(name="release.transition", verbs=RELEASE, version=DEMANDED)
"""Pin a scope to another release, or confirm its pin."""
RETIRE_RELEASE: Final = Step(name="release.retire", verbs=RELEASE, version=DEMANDED)
"""Close a scope. Its history stays."""
KEEP_EVIDENCE: Final = Step(name="release.keep_evidence", verbs=RELEASE)
"""Record an observation about a scope. It never moves the pin."""
IMPORT_MANIFEST: Final = Step(name="release.import_manifest", verbs=RELEASE, version=CHECKED)
"""Import a factory manifest. It moves the pin if it matches one release."""

# outbox, targets, publications
REDRIVE_INTENT: Final = Step(name="outbox.redrive", verbs=OPERATE)
"""Retry a dead intent with the same idempotency key."""
CANCEL_INTENT: Final = Step(name="outbox.cancel", verbs=OPERATE)
"""Cancel an intent, with a reason."""
TEST_TARGET: Final = Step(name="target.test", verbs=OPERATE)
"""Test whether a target answers, without giving it work."""
ROLL_BACK_PUBLICATION: Final = Step(name="publication.roll_back", verbs=RELEASE)
"""Point a publication back to an earlier generation."""
COLLECT_PUBLICATIONS: Final = Step(name="publication.collect", verbs=OPERATE)
"""Remove expired publications now instead of within the hour."""

# subscriptions: on each of their scopes
READ_SUBSCRIPTION: Final = Step(name="subscription.read", verbs=READ)
"""Read a subscription and what waits to be sent to its target."""
CREATE_SUBSCRIPTION: Final = Step(name="subscription.create", verbs=OPERATE)
"""Send events to a target."""
EDIT_SUBSCRIPTION: Final = Step(name="subscription.edit", verbs=OPERATE, version=CHECKED)
"""Change which events a target gets, or where it is; rotate its secret."""
DELETE_SUBSCRIPTION: Final = Step(name="subscription.delete", verbs=OPERATE)
"""Delete a subscription. Messages that wait are dropped."""
TEST_SUBSCRIPTION: Final = Step(name="subscription.test", verbs=OPERATE)
"""Send a test message to a target."""
SKIP_NOTICE: Final = Step(name="subscription.skip", verbs=OPERATE)
"""Skip the first message that waits, with a reason."""
REPLAY_NOTICES: Final = Step(name="subscription.replay", verbs=OPERATE)
"""Send the events after a log position again."""

# access
ADD_USER: Final = Step(name="user.add", verbs=ADMINISTER)
"""Add a user with roles."""
GRANT_ROLE: Final = Step(name="user.grant", verbs=ADMINISTER)
"""Give another user a role on a scope."""
REVOKE_ROLE: Final = Step(name="user.revoke", verbs=ADMINISTER)
"""Take a role on a scope from another user."""
DISABLE_USER: Final = Step(name="user.disable", verbs=ADMINISTER)
"""Disable another user. Their sessions and tokens end."""
ENABLE_USER: Final = Step(name="user.enable", verbs=ADMINISTER)
"""Enable a disabled user."""
ERASE_USER: Final = Step(name="user.erase", verbs=ADMINISTER)
"""Erase a user's name, sign-in and credentials. The id stays in the history."""
RESET_PASSWORD: Final = Step(name="user.reset_password", verbs=ADMINISTER)
"""End another user's password, sessions and tokens, and make a one-time code with which they choose
a new password.
"""
REDEEM_RESET: Final = Step(name="user.redeem_reset", verbs=())
"""Choose a new password with the one-time code of a reset."""
CHANGE_PASSWORD: Final = Step(name="user.change_password", verbs=())
"""Change your own password, in a session and with the current password."""
CREATE_TOKEN: Final = Step(name="token.create", verbs=())
"""Create an API token of your own."""
REVOKE_TOKEN: Final = Step(name="token.revoke", verbs=())
"""Revoke an API token of your own. With the verb `administer` you can revoke any token."""
SET_UP: Final = Step(name="installation.set_up", verbs=())
"""Create the first user, with the setup code that the server printed."""
SIGN_IN: Final = Step(name="session.sign_in", verbs=())
"""Sign in with a name and a password."""
SIGN_OUT: Final = Step(name="session.sign_out", verbs=())
"""Close your session."""
# Channels, freezes, quarantine, budgets, hosts.
STOP_CHANNEL = (Verb.OPERATE, Verb.RELEASE)
CREATE_CHANNEL: Final = Step(name="channel.create", verbs=RELEASE)
"""Create a channel with its package, selector and policy."""
EDIT_CHANNEL: Final = Step(name="channel.edit", verbs=RELEASE, version=DEMANDED)
"""Change the selector or the policy of a channel. Open rollouts keep their plan."""
DELETE_CHANNEL: Final = Step(name="channel.delete", verbs=RELEASE)
"""Delete a channel that nothing uses. Its history stays."""
HOLD_CHANNEL: Final = Step(name="channel.hold", verbs=STOP_CHANNEL, urgent=True)
"""Hold a channel. It accepts no promotion and sends no orders until the hold is released."""
UNHOLD_CHANNEL: Final = Step(name="channel.unhold", verbs=STOP_CHANNEL)
"""Release the hold on a channel."""
PROTECT_CHANNEL: Final = Step(name="channel.protect", verbs=RELEASE)
"""Protect a channel, change its protection, or remove it."""
APPROVE_REQUEST: Final = Step(name="request.approve", verbs=APPROVE)
"""Approve a request on a protected channel. The last approval carries it out."""
REJECT_REQUEST: Final = Step(name="request.reject", verbs=APPROVE)
"""Reject a request on a protected channel, with a reason."""
WITHDRAW_REQUEST: Final = Step(name="request.withdraw", verbs=READ)
"""Withdraw your own request."""
RUN_REQUEST: Final = Step(name="request.run", verbs=(Verb.RELEASE, Verb.APPROVE))
"""Carry out a request that enough people have approved."""
REVIEW_REQUEST: Final = Step(name="request.review", verbs=APPROVE)
"""Accept or dispute what another person did with break-glass."""
BREAK_GLASS: Final = Step(name="channel.break-glass", verbs=EMERGENCY)
"""Do at once what needs a second person on a protected channel. It is reviewed later."""
START_FREEZE: Final = Step(name="freeze.start", verbs=OPERATE, urgent=True)
"""Freeze some channels or all of them. They send no orders until the freeze ends."""
END_FREEZE: Final = Step(name="freeze.end", verbs=OPERATE)
"""End a freeze."""
CREATE_WINDOW: Final = Step(name="window.create", verbs=OPERATE)
"""Create a maintenance window: hosts get orders only then, or not then."""
EDIT_WINDOW: Final = Step(name="window.edit", verbs=OPERATE, version=DEMANDED)
"""Change a maintenance window."""
DELETE_WINDOW: Final = Step(name="window.delete", verbs=OPERATE, version=CHECKED)
"""Delete a maintenance window."""
LIFT_QUARANTINE: Final = Step(name="quarantine.lift", verbs=OPERATE)
"""Allow a quarantined artifact on a channel again."""
SET_BUDGET: Final = Step(name="budget.set", verbs=OPERATE)
"""Limit how many hosts of a selector may be in flight at once."""
REMOVE_BUDGET: Final = Step(name="budget.remove", verbs=OPERATE)
"""Remove such a limit."""
ENROLL_HOST: Final = Step(name="host.enroll", verbs=OPERATE)
"""Create a one-time token that enrolls a host."""
LABEL_HOST: Final = Step(name="host.label", verbs=OPERATE, version=CHECKED)
"""Replace the labels of a host."""
REVOKE_HOST: Final = Step(name="host.revoke", verbs=OPERATE, urgent=True)
"""Revoke a host's key. It can enroll again with a new one."""
RETIRE_HOST: Final = Step(name="host.retire", verbs=OPERATE)
"""Remove a host from the fleet, until it is enrolled again on purpose."""
RE_ENROLL_HOST: Final = Step(name="host.re-enroll", verbs=OPERATE)
"""Create a one-time token with which a re-imaged or retired host enrolls again under its name. Its
use revokes the old key.
"""
CREATE_JOIN_TOKEN: Final = Step(name="join.create", verbs=OPERATE)
"""Create a token that enrolls many new hosts."""
DELETE_JOIN_TOKEN: Final = Step(name="join.delete", verbs=OPERATE)
"""Delete a join token. The hosts that it enrolled stay."""

# The steps by which a second person approves something.
APPROVALS: Final = (APPROVE_REVISION, CARRY_OUT_DELETION, APPROVE_REQUEST, REVIEW_REQUEST)

STEPS: Final[Mapping[str, Step]] = MappingProxyType(
    {step.name: step for step in list(globals().values()) if isinstance(step, Step)}
)
