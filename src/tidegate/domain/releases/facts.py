"""What happens in the registry. All facts of a scope stand in its partition."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Struct

from tidegate.domain.provenance import Confidence, Provenance
from tidegate.kernel import tags, vocabulary


class RegistryFact(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What all of them say: where, by whose command, and when it was decided."""

    scope: Annotated[str, tags.Partition()]
    command_id: Annotated[str, tags.Untagged()]
    request: str  # SHA-256 of the command, by which its repeat is known
    by: str
    recorded_at: datetime


class ReleaseRegistered(RegistryFact, frozen=True, kw_only=True):
    """A scope came into being with its first pin, at version 0."""

    release_id: Annotated[str, tags.Untagged()]
    digest: str
    status: PinStatus
    provenance: Provenance
    confidence: Confidence
    reason: str = ""  # why somebody promoted it, where somebody did


class ReleaseTransitioned(RegistryFact, frozen=True, kw_only=True):
    """The pin moved or was confirmed, by accepted evidence."""

    release_id: Annotated[str, tags.Untagged()]
    digest: str
    status: PinStatus
    version: int  # of the scope's row, after this
    provenance: Provenance
    confidence: Confidence
    moved_from: Annotated[str | None, tags.Untagged()] = None  # None: the pin stayed
    reason: str = ""


class ReleaseRetired(RegistryFact, frozen=True, kw_only=True):
    """The scope takes no further release. Its row and history stay."""

    release_id: Annotated[str, tags.Untagged()]
    version: int
    reason: str


class EvidenceKept(RegistryFact, frozen=True, kw_only=True):
    """Something was observed that is no authority; the pin stayed as it was."""

    source: str
    batch: str
    document: dict[str, Any]
    reason: str
    matches: tuple[str, ...] = ()


RegistryChange = ReleaseRegistered | ReleaseTransitioned | ReleaseRetired


class PinStatus(StrEnum):
    """What is wanted of the pinned release."""

    ACTIVE = "active"
    WARMING = "warming"
    RETIRED = "retired"  # the scope is closed; its row and history stay


class RollbackRungsChanged(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Which releases a rollback of the channel would take next: these are not deleted."""

    channel: Annotated[str, tags.Partition()]
    at: datetime
    added: Annotated[tuple[str, ...], tags.Untagged()] = ()
    removed: Annotated[tuple[str, ...], tags.Untagged()] = ()


class ReleaseOffered(Struct, frozen=True, omit_defaults=True):
    """A revision is published as this release, or moved on in its lifecycle."""

    release_id: Annotated[str, tags.Partition("release_id")]
    digest: str
    lifecycle: str
    revision: str = ""  # the name of what it is, where releases are revisions


FACTS = vocabulary.facts(
    "release",
    ReleaseRegistered,
    ReleaseTransitioned,
    ReleaseRetired,
    EvidenceKept,
    ReleaseOffered,
    RollbackRungsChanged,
)
