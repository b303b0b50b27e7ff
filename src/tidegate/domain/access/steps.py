"""The table of steps: each verb of an operator, who may take it, and what it asks of a request.

API routes, dashboard forms and the operations themselves read this table, so that a permission is
written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from tidegate.domain.access.roles import Verb


class VersionRule(Enum):
    """Whether a request names the version that its client saw."""

    IGNORED = "ignored"
    CHECKED = "checked"  # if it is given
    DEMANDED = "demanded"  # 428 without one


class Step(Struct, frozen=True, kw_only=True):
    """One verb of an operator.

    A step without ``verbs`` is for everyone, about themselves: the operation says what it asks for.
    """

    name: str  # noun.verb
    verbs: tuple[Verb, ...]  # one is needed, on the scope that the arguments name; may be none
    version: VersionRule = VersionRule.IGNORED
    urgent: bool = False  # it stops something: it has a rate limit of its own


def _steps(steps: Iterable[Step]) -> Mapping[str, Step]:
    return MappingProxyType({step.name: step for step in steps})


READ = (Verb.READ,)
AUTHOR = (Verb.AUTHOR,)
APPROVE = (Verb.APPROVE,)
AUTHOR_OR_APPROVE = (Verb.AUTHOR, Verb.APPROVE)
OPERATE = (Verb.OPERATE,)
RELEASE = (Verb.RELEASE,)
ADMINISTER = (Verb.ADMINISTER,)
CHECKED = VersionRule.CHECKED
DEMANDED = VersionRule.DEMANDED

PAUSE_ROLLOUT: Final = Step(name="rollout.pause", verbs=OPERATE, version=CHECKED, urgent=True)
RESUME_ROLLOUT: Final = Step(name="rollout.resume", verbs=OPERATE, version=CHECKED)
ABORT_ROLLOUT: Final = Step(name="rollout.abort", verbs=OPERATE, version=CHECKED, urgent=True)
CLEAR_ROLLOUT: Final = Step(name="rollout.clear", verbs=OPERATE, version=CHECKED)
RETRY_ROLLOUT: Final = Step(name="rollout.retry", verbs=OPERATE, version=CHECKED)
PROMOTE: Final = Step(name="channel.promote", verbs=RELEASE, version=CHECKED)
ROLL_BACK: Final = Step(name="channel.rollback", verbs=RELEASE, version=CHECKED)

# ── revisions and packages: on the repository ──
# Which of these an update or a deletion takes depends on the revision: domain/packages/permissions.
READ_REVISION: Final = Step(name="revision.read", verbs=READ)
CREATE_REVISION: Final = Step(name="revision.create", verbs=AUTHOR)
EDIT_REVISION: Final = Step(name="revision.edit", verbs=AUTHOR, version=DEMANDED)
UPDATE_REVISION: Final = Step(name="revision.update", verbs=AUTHOR_OR_APPROVE, version=DEMANDED)
SET_CONDITIONS: Final = Step(name="revision.set_condition", verbs=AUTHOR, version=DEMANDED)
PROPOSE_REVISION: Final = Step(name="revision.propose", verbs=AUTHOR, version=DEMANDED)
WITHDRAW_PROPOSAL: Final = Step(name="revision.withdraw", verbs=AUTHOR, version=DEMANDED)
APPROVE_REVISION: Final = Step(name="revision.approve", verbs=APPROVE, version=DEMANDED)
REJECT_PROPOSAL: Final = Step(name="revision.reject", verbs=APPROVE, version=DEMANDED)
PROPOSE_DELETION: Final = Step(name="revision.propose_deletion", verbs=AUTHOR, version=DEMANDED)
REJECT_DELETION: Final = Step(name="revision.reject_deletion", verbs=APPROVE, version=DEMANDED)
DELETE_REVISION: Final = Step(name="revision.delete", verbs=AUTHOR_OR_APPROVE, version=CHECKED)
DELETE_OPEN: Final = Step(name="revision.delete_open", verbs=AUTHOR)  # a draft, one's own proposal
CARRY_OUT_DELETION: Final = Step(name="revision.carry_out_deletion", verbs=APPROVE)
CLEAN_UP_OWNER: Final = Step(name="revision.clean_up_owner", verbs=ADMINISTER)
DELETE_PACKAGE: Final = Step(name="package.delete", verbs=ADMINISTER, version=DEMANDED)
IMPORT_PACKAGE: Final = Step(name="package.import", verbs=ADMINISTER)
CREATE_REPOSITORY: Final = Step(name="repository.create", verbs=ADMINISTER)
CHANGE_REPOSITORY: Final = Step(name="repository.change", verbs=ADMINISTER, version=DEMANDED)

# ── releases: on the channel that a scope is named after ──
REGISTER_RELEASE: Final = Step(name="release.register", verbs=RELEASE)
TRANSITION_RELEASE: Final = Step(name="release.transition", verbs=RELEASE, version=DEMANDED)
RETIRE_RELEASE: Final = Step(name="release.retire", verbs=RELEASE, version=DEMANDED)
KEEP_EVIDENCE: Final = Step(name="release.keep_evidence", verbs=RELEASE)
IMPORT_MANIFEST: Final = Step(name="release.import_manifest", verbs=RELEASE, version=CHECKED)

# outbox, targets, publications
REDRIVE_INTENT: Final = Step(name="outbox.redrive", verbs=OPERATE)
CANCEL_INTENT: Final = Step(name="outbox.cancel", verbs=OPERATE)
TEST_TARGET: Final = Step(name="target.test", verbs=OPERATE)
ROLL_BACK_PUBLICATION: Final = Step(name="publication.roll_back", verbs=RELEASE)
COLLECT_PUBLICATIONS: Final = Step(name="publication.collect", verbs=OPERATE)

# access
ADD_USER: Final = Step(name="user.add", verbs=ADMINISTER)
GRANT_ROLE: Final = Step(name="user.grant", verbs=ADMINISTER)
REVOKE_ROLE: Final = Step(name="user.revoke", verbs=ADMINISTER)
DISABLE_USER: Final = Step(name="user.disable", verbs=ADMINISTER)
ENABLE_USER: Final = Step(name="user.enable", verbs=ADMINISTER)
ERASE_USER: Final = Step(name="user.erase", verbs=ADMINISTER)
SET_PASSWORD: Final = Step(name="user.set_password", verbs=ADMINISTER)  # another user's
CHANGE_PASSWORD: Final = Step(name="user.change_password", verbs=())  # your own
CREATE_TOKEN: Final = Step(name="token.create", verbs=())
REVOKE_TOKEN: Final = Step(name="token.revoke", verbs=())
SET_UP: Final = Step(name="installation.set_up", verbs=())
SIGN_IN: Final = Step(name="session.sign_in", verbs=())
SIGN_OUT: Final = Step(name="session.sign_out", verbs=())
# Channels, freezes, quarantine, budgets, hosts.
STOP_CHANNEL = (Verb.OPERATE, Verb.RELEASE)
CREATE_CHANNEL: Final = Step(name="channel.create", verbs=RELEASE)
EDIT_CHANNEL: Final = Step(name="channel.edit", verbs=RELEASE, version=DEMANDED)
HOLD_CHANNEL: Final = Step(name="channel.hold", verbs=STOP_CHANNEL, urgent=True)
UNHOLD_CHANNEL: Final = Step(name="channel.unhold", verbs=STOP_CHANNEL)
START_FREEZE: Final = Step(name="freeze.start", verbs=OPERATE, urgent=True)
END_FREEZE: Final = Step(name="freeze.end", verbs=OPERATE)
LIFT_QUARANTINE: Final = Step(name="quarantine.lift", verbs=OPERATE)
SET_BUDGET: Final = Step(name="budget.set", verbs=OPERATE)
REMOVE_BUDGET: Final = Step(name="budget.remove", verbs=OPERATE)
ENROLL_HOST: Final = Step(name="host.enroll", verbs=OPERATE)
LABEL_HOST: Final = Step(name="host.label", verbs=OPERATE, version=CHECKED)
REVOKE_HOST: Final = Step(name="host.revoke", verbs=OPERATE, urgent=True)
RETIRE_HOST: Final = Step(name="host.retire", verbs=OPERATE)

STEPS: Final = _steps(
    (
        PAUSE_ROLLOUT,
        RESUME_ROLLOUT,
        ABORT_ROLLOUT,
        CLEAR_ROLLOUT,
        RETRY_ROLLOUT,
        PROMOTE,
        ROLL_BACK,
        READ_REVISION,
        CREATE_REVISION,
        EDIT_REVISION,
        UPDATE_REVISION,
        SET_CONDITIONS,
        PROPOSE_REVISION,
        WITHDRAW_PROPOSAL,
        APPROVE_REVISION,
        REJECT_PROPOSAL,
        PROPOSE_DELETION,
        REJECT_DELETION,
        DELETE_REVISION,
        DELETE_OPEN,
        CARRY_OUT_DELETION,
        CLEAN_UP_OWNER,
        DELETE_PACKAGE,
        IMPORT_PACKAGE,
        CREATE_REPOSITORY,
        CHANGE_REPOSITORY,
        REGISTER_RELEASE,
        TRANSITION_RELEASE,
        RETIRE_RELEASE,
        KEEP_EVIDENCE,
        IMPORT_MANIFEST,
        # outbox, targets, publications
        REDRIVE_INTENT,
        CANCEL_INTENT,
        TEST_TARGET,
        ROLL_BACK_PUBLICATION,
        COLLECT_PUBLICATIONS,
        # access
        ADD_USER,
        GRANT_ROLE,
        REVOKE_ROLE,
        DISABLE_USER,
        ENABLE_USER,
        ERASE_USER,
        SET_PASSWORD,
        CHANGE_PASSWORD,
        CREATE_TOKEN,
        REVOKE_TOKEN,
        SET_UP,
        SIGN_IN,
        SIGN_OUT,
        CREATE_CHANNEL,
        EDIT_CHANNEL,
        HOLD_CHANNEL,
        UNHOLD_CHANNEL,
        START_FREEZE,
        END_FREEZE,
        LIFT_QUARANTINE,
        SET_BUDGET,
        REMOVE_BUDGET,
        ENROLL_HOST,
        LABEL_HOST,
        REVOKE_HOST,
        RETIRE_HOST,
    )
)
