"""The commands that move a pin: register, transition, retire. Each needs evidence or a reason.

    register ──▶ version 0 ──▶ transition ──▶ version 1 ──▶ … ──▶ retire
    one commit: ACTUAL, its event, and the intents for effects outside

The caller must give the row's version. A repeat of a command finds the first result and changes
nothing. The error says which check failed: ``version_conflict`` (the row has changed),
``duplicate_event`` (another command had this id), ``rejected_evidence``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from msgspec import Struct

from tidegate import errors
from tidegate.domain.outbox import facts as outbox_facts, names, states
from tidegate.domain.provenance import Authority, Rules, Subject, authority_for
from tidegate.domain.releases import catalog, facts, refusals, rows as release_rows
from tidegate.kernel import codec, model

NAME_BYTES_MAX = 128
OPERATIONS_MAX = 8  # effects outside that one change requests
REASON_BYTES_MAX = 1_024
_NAMES: Final = {
    "scope": re.compile(r"[a-z0-9][a-z0-9-]*"),
    "release_id": re.compile(r"[a-z0-9][a-z0-9._-]*"),
    "command_id": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*"),
    "source": re.compile(r"[a-z0-9][a-z0-9._-]*"),
    "batch": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*"),
}

Document = dict[str, Any]  # as it was sent, with the fields provenance and confidence


class RegisterRelease(Struct, frozen=True, kw_only=True):
    """Open a scope with its first pin."""

    scope: str
    release_id: str
    digest: str
    authority: Document
    command_id: str
    by: str
    status: facts.PinStatus = facts.PinStatus.ACTIVE
    operations: tuple[str, ...] = ()  # the effects outside that it requests


class TransitionRelease(Struct, frozen=True, kw_only=True):
    """Pin a scope to a release, or confirm the pin with another status."""

    scope: str
    release_id: str
    digest: str
    authority: Document
    command_id: str
    by: str
    expected_version: int | None = None
    status: facts.PinStatus = facts.PinStatus.ACTIVE
    operations: tuple[str, ...] = ()


class RetireRelease(Struct, frozen=True, kw_only=True):
    """Close a scope. Nothing of it is deleted."""

    scope: str
    reason: str
    command_id: str
    by: str
    expected_version: int | None = None


Pinning = RegisterRelease | TransitionRelease


# ── common checks ─────────────────────────────────────────────────────────────────────────────────


def check_names(command: Struct) -> None:
    """Check that names fit into keys and an actor is given. Raises: InvalidInput, LimitExceeded."""
    for name, pattern in _NAMES.items():
        text = getattr(command, name, None)
        if text is not None:
            model.check_text(name, text, NAME_BYTES_MAX)
            if not pattern.fullmatch(text):
                raise errors.InvalidInput(
                    f"{name} is {text!r}, allowed is {pattern.pattern}", field=name
                )
    model.check_text("by", getattr(command, "by", None), NAME_BYTES_MAX)


def request_of(command: Struct) -> str:
    """The hash by which a repeat of the command is recognised."""
    return sha256(codec.encode(command)).hexdigest()


def is_repeat(executed: release_rows.ExecutedCommand | None, command: Struct) -> bool:
    """Whether this command was executed before.

    Raises:
        DuplicateEvent: its id was, for something else.
    """
    if executed is None:
        return False
    if executed.request != request_of(command):
        raise refusals.DuplicateEvent(executed.row)
    return True


def demand_version(
    actual: release_rows.Actual | None, scope: str, expected: int | None
) -> release_rows.Actual:
    """Return the row if the caller expects its current version.

    Raises:
        VersionRequired, NotFound, StaleVersion. IllegalTransition: the scope is retired.
    """
    if expected is None:
        raise errors.VersionRequired(f"say which version of {scope} you saw", scope=scope)
    if actual is None:
        raise errors.NotFound(f"{scope} is not registered", scope=scope)
    if actual.version != expected:
        raise errors.StaleVersion(expected, actual.version)
    if actual.status is facts.PinStatus.RETIRED:
        raise errors.IllegalTransition("release", actual.status, "a change")
    return actual


def demand_authority(command: Pinning, now: datetime, rules: Rules) -> Authority:
    """Read the authority of the command. Unknown fields at the top of the document are refused.

    Raises:
        InvalidInput, LimitExceeded, RejectedEvidence.
    """
    unknown = sorted(set(command.authority) - {"provenance", "confidence"})
    if unknown:
        raise errors.InvalidInput(f"a registry row has no member {unknown[0]!r}", field=unknown[0])
    subject = Subject(command.scope, command.release_id, command.digest)
    return authority_for(command.authority, subject, now, rules)


def check_operations(operations: tuple[str, ...]) -> None:
    """Raises: InvalidInput, LimitExceeded."""
    model.at_most("operations of a change", len(operations), OPERATIONS_MAX)
    if len(set(operations)) != len(operations):
        raise errors.InvalidInput(f"a change owes each operation once: {operations!r}")
    for operation in operations:
        names.check_name("operation", operation)


def check_status(status: str) -> None:
    """Raises: InvalidInput: a pin cannot have this status."""
    if status not in (facts.PinStatus.ACTIVE, facts.PinStatus.WARMING):
        raise errors.InvalidInput(f"a release is not pinned as {status!r}", field="status")


def _check_pinning(command: Pinning) -> None:
    check_names(command)
    check_operations(command.operations)
    check_status(command.status)


# ── decisions ─────────────────────────────────────────────────────────────────────────────────────

PinningRows = tuple[
    release_rows.Actual | None,
    release_rows.ExecutedCommand | None,
    release_rows.KnownRelease | None,
]


def rows_of_pinning(command: Pinning) -> tuple[model.Key, ...]:
    """The rows that a change of the pin reads. Raises: InvalidInput, LimitExceeded."""
    _check_pinning(command)
    return (
        release_rows.actual_key(command.scope),
        release_rows.command_key(command.scope, command.command_id),
        release_rows.known_key(command.release_id),
    )


def decide_register(
    rows: PinningRows, command: RegisterRelease, now: datetime, *, rules: Rules
) -> Sequence[Struct]:
    actual, executed, release = rows
    if is_repeat(executed, command):
        return ()
    if actual is not None:
        raise errors.ConditionFailed(f"{command.scope} is registered already", scope=command.scope)
    catalog.demand_pinnable(release, command.release_id, command.digest)
    authority = demand_authority(command, now, rules)
    registered = facts.ReleaseRegistered(
        scope=command.scope,
        command_id=command.command_id,
        request=request_of(command),
        by=command.by,
        recorded_at=now,
        release_id=command.release_id,
        digest=command.digest,
        status=command.status,
        provenance=authority.provenance,
        confidence=authority.confidence,
    )
    return (registered, *intents_of(registered, 0, command.operations))


def decide_transition(
    rows: PinningRows, command: TransitionRelease, now: datetime, *, rules: Rules
) -> Sequence[Struct]:
    actual, executed, release = rows
    if is_repeat(executed, command):
        return ()
    actual = demand_version(actual, command.scope, command.expected_version)
    catalog.demand_pinnable(release, command.release_id, command.digest)
    authority = demand_authority(command, now, rules)
    return transition_facts(actual, command, request_of(command), authority, now)


def transition_facts(
    actual: release_rows.Actual,
    command: TransitionRelease,
    request: str,
    authority: Authority,
    now: datetime,
) -> tuple[Struct, ...]:
    """The facts of a transition that passed all checks; ``request`` is the hash of its command."""
    moves = command.release_id != actual.pinned_release_id
    fact = facts.ReleaseTransitioned(
        scope=command.scope,
        command_id=command.command_id,
        request=request,
        by=command.by,
        recorded_at=now,
        release_id=command.release_id,
        digest=command.digest,
        status=command.status,
        version=actual.version + 1,
        provenance=authority.provenance,
        confidence=authority.confidence,
        moved_from=actual.pinned_release_id if moves else None,
    )
    return (fact, *intents_of(fact, fact.version, command.operations))


def intents_of(
    fact: facts.ReleaseRegistered | facts.ReleaseTransitioned,
    version: int,
    operations: tuple[str, ...],
) -> tuple[outbox_facts.IntentRequested, ...]:
    """The intents for the commit of a change. The worker carries them out later."""
    state = states.RequestedState(
        release_id=fact.release_id, status=fact.status, digest=fact.digest
    )
    return tuple(
        outbox_facts.request_intent(
            scope=fact.scope,
            operation=operation,
            release_id=fact.release_id,
            version=version,
            command_id=fact.command_id,
            state=state,
            now=fact.recorded_at,
        )
        for operation in operations
    )


def rows_of_retirement(command: RetireRelease) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    check_names(command)
    model.check_text("a reason", command.reason.strip(), REASON_BYTES_MAX)
    return release_rows.actual_key(command.scope), release_rows.command_key(
        command.scope, command.command_id
    )


def decide_retirement(
    rows: tuple[release_rows.Actual | None, release_rows.ExecutedCommand | None],
    command: RetireRelease,
    now: datetime,
) -> Sequence[Struct]:
    actual, executed = rows
    if is_repeat(executed, command):
        return ()
    actual = demand_version(actual, command.scope, command.expected_version)
    retired = facts.ReleaseRetired(
        scope=command.scope,
        command_id=command.command_id,
        request=request_of(command),
        by=command.by,
        recorded_at=now,
        release_id=actual.pinned_release_id,
        version=actual.version + 1,
        reason=command.reason,
    )
    return (retired,)
