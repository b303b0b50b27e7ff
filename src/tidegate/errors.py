"""Errors: a family answers "what should the caller do?", a leaf answers "what happened?".

Code catches families and raises leaves. Only the edges (HTTP, CLI, agent) map families to statuses,
exit codes or retries.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, dataclass_transform


class TidegateError(Exception):
    """The base class of all our errors. Catch a family, raise a leaf."""

    code: ClassVar[str] = "error"

    def __init__(self, detail: str, **facts: str | int | tuple[str, ...] | None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.facts = facts


@dataclass_transform()
class Formatted:
    """A leaf that declares its facts as fields and its message as a template of them:

        class ChannelNotFound(Formatted, NotFound):
            code = "channel_not_found"
            message = "there is no channel {channel}"
            channel: str

    Raise it with the values of its fields, in their order: ``ChannelNotFound("web-stable")``.
    """

    message: ClassVar[str]
    _names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._names = (*cls._names, *cls.__annotations__)

    def __init__(self, *values: Any, **named: Any) -> None:
        facts = dict(zip(self._names, values, strict=False)) | named
        if len(values) + len(named) != len(self._names) or facts.keys() != {*self._names}:
            raise TypeError(f"{type(self).__name__} takes {', '.join(self._names)}")
        vars(self).update(facts)
        super().__init__(self.message.format_map(facts), **facts)  # type: ignore[call-arg]


# ── families ──────────────────────────────────────────────────────────────────────────────────────


class Invalid(TidegateError):
    """Fix the request; sending it again unchanged cannot work."""

    code = "invalid"


class NotFound(TidegateError):
    """Check the name; nothing is stored under it."""

    code = "not_found"


class Forbidden(TidegateError):
    """Ask a person who has the permission; yours does not cover this."""

    code = "forbidden"


class Gone(TidegateError):
    """It was there and will not come back; drop the reference."""

    code = "gone"


class TooLarge(TidegateError):
    """Send less at once."""

    code = "too_large"


class PreconditionRequired(TidegateError):
    """Send the version that you saw; nothing is overwritten blindly."""

    code = "precondition_required"


class Refused(TidegateError):
    """A rule does not allow this in the current state; change the state first."""

    code = "refused"


class Conflict(TidegateError):
    """Something that the request was based on has changed; read again and decide again."""

    code = "conflict"


class Unavailable(TidegateError):
    """The request could not be applied now; nothing was applied, and a retry may work later."""

    code = "unavailable"


class Unknown(TidegateError):
    """The request may have been applied; repeat it with the same idempotency key."""

    code = "outcome_unknown"


# ── leaves of the kernel ──────────────────────────────────────────────────────────────────────────


class InvalidInput(Invalid):
    """A value does not have the form that its field requires."""

    code = "invalid_input"


class InvalidDefinition(Invalid):
    """A type, slice, fold or collection is declared in a way that cannot work."""

    code = "invalid_definition"


class UnfencedQuery(Invalid):
    """The query can be read but not guarded: some clause has no index that covers all its types."""

    code = "unfenced_query"


class LimitExceeded(TooLarge):
    """A limit was exceeded; the error names it, what was found and what is allowed."""

    code = "limit_exceeded"

    def __init__(self, limit: str, found: int, allowed: int, says: str = "") -> None:
        super().__init__(
            says or f"{limit}: found {found}, allowed {allowed}",
            limit=limit,
            found=found,
            allowed=allowed,
        )


class IllegalTransition(Refused):
    """The state machine does not accept this event in this state."""

    code = "invalid_transition"

    def __init__(self, machine: str, state: str, event: str, says: str = "") -> None:
        super().__init__(
            says or f"{machine} in state {state} does not accept {event}",
            machine=machine,
            state=state,
            event=event,
        )


class ImmutableRecord(Refused):
    """The row is written once; no generic call may change, replace or delete it."""

    code = "immutable_record"


class ProtectedField(Refused):
    """The field is protected; no generic call may change it."""

    code = "protected_field"


class IdempotencyMismatch(Formatted, Refused):
    """The key was used before, for another request."""

    code = "idempotency_mismatch"
    message = "idempotency key {key!r} was used for another request"
    key: str


class BoundaryMoved(Conflict):
    """An event that the decision depends on was committed after the decision read the log.

    Or a restore or a failover has removed the last commits since. ``clause`` is the one that
    changed; its newest event is at ``position``, 0 if it has none.
    """

    code = "boundary_moved"

    def __init__(self, clause: object, position: int) -> None:
        super().__init__(
            f"{clause} has changed since it was read; its newest event is at position {position}",
            clause=str(clause),
            position=position,
        )
        self.clause = clause
        self.position = position


class ConditionFailed(Conflict):
    """A condition on a row did not hold."""

    code = "condition_failed"


class VersionConflict(Formatted, ConditionFailed):
    """The row does not have the expected version. Version 0 means that it does not exist."""

    code = "version_conflict"
    message = "{collection}/{id} is at version {found}, expected {expected}"
    collection: str
    id: str
    expected: int
    found: int


class StaleVersion(Conflict):
    """The object changed since you read it; read it again and decide again."""

    code = "version_conflict"

    def __init__(self, expected: int, current: int) -> None:
        super().__init__(
            "the object has been modified; please apply your changes to the latest version "
            "and try again",
            expected=expected,
            current=current,
        )


class VersionRequired(PreconditionRequired):
    """The request must name the version of the object that you saw."""

    code = "version_required"


class AttemptsExhausted(Conflict):
    """Every attempt conflicted with another commit; send the command again."""

    code = "attempts_exhausted"


class LeaseHeld(ConditionFailed):
    """Another process holds the lease until it expires or is released."""

    code = "lease_held"


class LeaseLost(ConditionFailed):
    """You no longer hold the lease: it expired, was released or was taken over."""

    code = "lease_lost"


class StoreUnavailable(Unavailable):
    """The database did not accept the commit; nothing of it was applied."""

    code = "store_unavailable"


class WriterClosed(StoreUnavailable):
    """A flush of the log failed, so this process no longer writes; restart it."""

    code = "writer_closed"


class InsufficientStorage(Unavailable):
    """A file cannot be written; free some space, or repair the disk."""

    code = "insufficient_storage"


class StoreRefused(Unavailable):
    """The database cannot be used as it is set up; the error says what to change."""

    code = "store_refused"


class OutcomeUnknown(Unknown):
    """The database did not report whether the commit was applied."""

    code = "outcome_unknown"


# A loop of the worker logs these and tries again in its next round.
TRANSIENT: Final = (Unavailable, Unknown, Conflict)
