"""The states of intents and of drift, and the state that an intent requests."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class IntentState(StrEnum):
    """The state of an intent."""

    PENDING = "pending"
    DONE = "done"
    DEAD = "dead"  # given up: a dead letter
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"  # by an operator, with a reason


class DriftState(StrEnum):
    """Whether a drift of one operation is open."""

    OPEN = "open"
    REFUSED = "refused"
    REPAIRED = "repaired"


class ReconciliationFinding(StrEnum):
    """How the observed external state relates to the request."""

    CONFIRMED = "confirmed"  # it is as the newest intent requests
    MISSING = "missing"  # none of our effects is there
    BEHIND = "behind"  # the effect of an older intent is there
    CONFLICTING = "conflicting"  # something that we never requested is there
    ROW_DIFFERS = "row_differs"  # the registry's row does not match its history


class RequestedState(
    Struct,
    frozen=True,
    omit_defaults=True,
    rename="camel",
    forbid_unknown_fields=True,
    kw_only=True,
):
    """The requested state of an external system. It never contains credentials."""

    release_id: str
    status: str = ""
    digest: str = ""
    previous_release_id: str = ""
    channel: str = ""
