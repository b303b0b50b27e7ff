"""The facts of the registry. All facts of a scope are in its partition."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Struct

from tidegate.domain.provenance import Confidence, Provenance
from tidegate.kernel import tags, vocabulary


class RegistryFact(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The common fields: the scope, the command and its actor, and when it was decided."""

    scope: Annotated[str, tags.Partition()]
    command_id: Annotated[str, tags.Untagged()]
    request: str  # SHA-256 of the command, which identifies a repeat
    by: str
    recorded_at: datetime


class ReleaseRegistered(RegistryFact, frozen=True, kw_only=True):
    """A scope was created with its first pin, at version 0."""

    release_id: Annotated[str, tags.Untagged()]
    digest: str
    status: PinStatus
    provenance: Provenance
    confidence: Confidence
    reason: str = ""  # of the promotion, if a person promoted it


class ReleaseTransitioned(RegistryFact, frozen=True, kw_only=True):
    """The pin moved or was confirmed, with accepted evidence."""

    release_id: Annotated[str, tags.Untagged()]
    digest: str
    status: PinStatus
    version: int  # of the scope's row, after this
    provenance: Provenance
    confidence: Confidence
    moved_from: Annotated[str | None, tags.Untagged()] = None  # None: the pin did not move
    reason: str = ""


class ReleaseRetired(RegistryFact, frozen=True, kw_only=True):
    """The scope was closed for further releases. Its row and history stay."""

    release_id: Annotated[str, tags.Untagged()]
    version: int
    reason: str


class EvidenceKept(RegistryFact, frozen=True, kw_only=True):
    """Evidence without authority was stored. The pin did not move."""

    source: str
    batch: str
    document: dict[str, Any]
    reason: str
    matches: tuple[str, ...] = ()


RegistryChange = ReleaseRegistered | ReleaseTransitioned | ReleaseRetired


class PinStatus(StrEnum):
    """The requested state of the pinned release."""

    ACTIVE = "active"
    WARMING = "warming"
    RETIRED = "retired"  # the scope is closed; its row and history stay


class RollbackRungsChanged(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The releases that a rollback of the channel would choose changed. These cannot be deleted."""

    channel: Annotated[str, tags.Partition()]
    at: datetime
    added: Annotated[tuple[str, ...], tags.Untagged()] = ()
    removed: Annotated[tuple[str, ...], tags.Untagged()] = ()


class ReleaseOffered(Struct, frozen=True, omit_defaults=True):
    """A revision was published as this release, or its lifecycle changed."""

    release_id: Annotated[str, tags.Partition("release_id")]
    digest: str
    lifecycle: str
    revision: str = ""  # the revision's name, if the release is a revision


FACTS = vocabulary.facts(
    "release",
    ReleaseRegistered,
    ReleaseTransitioned,
    ReleaseRetired,
    EvidenceKept,
    ReleaseOffered,
    RollbackRungsChanged,
)
