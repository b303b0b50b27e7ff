"""The rows of the registry, current and past: docs/design/releases.md.

    RELEASE#service-a/ACTUAL                                       one per scope; the pin
    RELEASE#service-a/EVENT#2026-04-24T19:00:00.000000Z#web.2#c1   one per change of the pin's row
    RELEASE#service-a/EVIDENCE#factory#batch-2026-04-24            stored, never authority
    RELEASE#service-a/COMMAND#c1                                   the result of a command

Only folds write them, so no generic write can change a pin, an event or evidence. ACTUAL accepts
only its declared fields: a note is no authority.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from tidegate.domain.provenance import Confidence, Provenance
from tidegate.domain.releases import facts
from tidegate.kernel import codec, collections as kernel_collections, model
from tidegate.kernel.records.write_policy import WriteMode, WritePolicy


class EventType(StrEnum):
    """The kind of a change."""

    REGISTERED = "registered"
    PROMOTED = "promoted"  # the pin moved
    CONFIRMED = "confirmed"  # the pin stayed; its status or evidence is new
    RETIRED = "retired"


class Actual(
    Struct,
    frozen=True,
    omit_defaults=True,
    rename="camel",
    forbid_unknown_fields=True,
    kw_only=True,
):
    """The current pin of a scope and its authority. ``version`` counts 0, 1, 2 …"""

    scope: str
    status: facts.PinStatus
    pinned_release_id: str
    digest: str
    provenance: Provenance
    confidence: Confidence
    updated_at: datetime
    version: int
    previous_release_id: str | None = None


class ReleaseEvent(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """One change of a scope's row. Written once."""

    scope: str
    event_type: EventType
    release_id: str
    status: facts.PinStatus
    registry_version: int
    recorded_at: datetime
    command_id: str
    by: str
    previous_release_id: str | None = None
    digest: str | None = None
    provenance: Provenance | None = None
    confidence: Confidence | None = None
    reason: str | None = None


class KeptEvidence(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """Evidence as it was sent. Visible, never authority. Written once."""

    scope: str
    source: str
    batch: str
    authority: bool
    document: dict[str, Any]
    reason: str  # why it has no authority
    recorded_at: datetime
    command_id: str
    by: str
    matches: tuple[str, ...] = ()


class ExecutedCommand(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """The result of a command, by which a repeat is recognised. Written once."""

    request: str  # SHA-256 of the command
    row: str  # the id of the event or evidence that it wrote
    registry_version: int | None = None  # of the scope afterwards; None: the row did not change


_ONCE = WritePolicy(WriteMode.WRITE_ONCE)

ACTUAL = kernel_collections.Collection(
    "release_actual",
    Actual,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    policy=WritePolicy(protected_attributes=("pinnedReleaseId",)),
    columns=("scope", "status", "pinnedReleaseId", "previousReleaseId"),
    allowed={"status": frozenset(facts.PinStatus)},
)
EVENTS = kernel_collections.Collection(
    "release_events",
    ReleaseEvent,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    policy=_ONCE,
    columns=("scope", "eventType", "releaseId"),
    allowed={"eventType": frozenset(EventType)},
)
EVIDENCE = kernel_collections.Collection(
    "release_evidence",
    KeptEvidence,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    policy=_ONCE,
    columns=("scope", "source", "batch"),
)
COMMANDS = kernel_collections.Collection(
    "release_commands",
    ExecutedCommand,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    policy=_ONCE,
)


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────


def row_id(scope: str, sort_key: str = "") -> str:
    """The id of a scope's row with this sort key, or a prefix of several."""
    return f"RELEASE#{scope}/{sort_key}"


def actual_key(scope: str) -> model.Key:
    return model.Key(ACTUAL.name, row_id(scope, "ACTUAL"))


def event_id(scope: str, at: datetime, release_id: str, command_id: str) -> str:
    return row_id(scope, f"EVENT#{codec.time_text(at)}#{release_id}#{command_id}")


def evidence_key(scope: str, source: str, batch: str) -> model.Key:
    return model.Key(EVIDENCE.name, row_id(scope, f"EVIDENCE#{source}#{batch}"))


def command_key(scope: str, command_id: str) -> model.Key:
    return model.Key(COMMANDS.name, row_id(scope, f"COMMAND#{command_id}"))


class KnownRelease(Struct, frozen=True, omit_defaults=True):
    """A release and its lifecycle, as far as the registry needs them."""

    release_id: str
    digest: str
    lifecycle: str
    revision: str = ""


class ReleasePins(Struct, frozen=True, omit_defaults=True):
    """What blocks the deletion of a release: scopes that are pinned to it and channels that would
    roll back to it.
    """

    release_id: str
    pins: int = 0
    scopes: tuple[str, ...] = ()  # the first scopes, for the message
    rungs: int = 0
    channels: tuple[str, ...] = ()  # the first channels, for the message


class DigestMatches(Struct, frozen=True, omit_defaults=True):
    """The pinnable releases with one content."""

    digest: str
    release_ids: tuple[str, ...] = ()
    crowded: bool = False  # there were more than MATCHES_MAX, so from now on there is no one match


KNOWN = kernel_collections.Collection(
    "known_releases",
    KnownRelease,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("release_id", "digest", "lifecycle"),
)


PINS = kernel_collections.Collection(
    "release_pins",
    ReleasePins,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("release_id", "pins"),
)


MATCHES = kernel_collections.Collection(
    "release_matches",
    DigestMatches,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("digest",),
)


def known_key(release_id: str) -> model.Key:
    return model.Key(KNOWN.name, release_id)


def matches_key(digest: str) -> model.Key:
    return model.Key(MATCHES.name, digest)


COLLECTIONS = (ACTUAL, EVENTS, EVIDENCE, COMMANDS, KNOWN, PINS, MATCHES)
