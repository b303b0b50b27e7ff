"""The states of intents and of drift, and the state that an intent requests."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class IntentState(StrEnum):
    """Where an intent stands."""

    PENDING = "pending"
    DONE = "done"
    DEAD = "dead"  # given up, and shown so
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"  # by an operator, with a reason


class DriftState(StrEnum):
    """What is known about the world and one operation."""

    OPEN = "open"
    REFUSED = "refused"
    REPAIRED = "repaired"


class ReconciliationFinding(StrEnum):
    """What the reconciler saw outside, against what was asked for."""

    CONFIRMED = "confirmed"  # it is as the newest intent asks
    MISSING = "missing"  # nothing of ours is there
    BEHIND = "behind"  # an older intent of ours is there
    CONFLICTING = "conflicting"  # something is there that we never asked for
    ROW_DIFFERS = "row_differs"  # the registry's row is not what its history says


class RequestedState(
    Struct,
    frozen=True,
    omit_defaults=True,
    rename="camel",
    forbid_unknown_fields=True,
    kw_only=True,
):
    """What the external system shall look like: a snapshot, never a credential to reach it."""

    release_id: str
    status: str = ""
    digest: str = ""
    previous_release_id: str = ""
    channel: str = ""
