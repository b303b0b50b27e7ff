"""How the registry's facts become its rows. A row that is written once refuses its second fact."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from tidegate.domain.releases.facts import (
    Change,
    EvidenceKept,
    ReleaseRegistered,
    ReleaseRetired,
    ReleaseTransitioned,
)
from tidegate.domain.releases.rows import (
    ACTUAL,
    COMMANDS,
    EVENTS,
    EVIDENCE,
    Actual,
    DuplicateEvent,
    EventType,
    Executed,
    KeptEvidence,
    ReleaseEvent,
    Status,
    actual_key,
    command_key,
    event_id,
    evidence_key,
)
from tidegate.errors import IllegalTransition
from tidegate.kernel.folds import Fold

CHANGES = (ReleaseRegistered, ReleaseTransitioned, ReleaseRetired)


# ── what is current ───────────────────────────────────────────────────────────────────────────────


def step_actual(actual: Actual | None, fact: Change, now: datetime) -> Actual:
    """The scope's row after a change.

    Raises:
        IllegalTransition: the fact does not follow from where the row stands.
    """
    match actual, fact:
        case None, ReleaseRegistered():
            return Actual(
                scope=fact.scope,
                status=fact.status,
                pinned_release_id=fact.release_id,
                digest=fact.digest,
                provenance=fact.provenance,
                confidence=fact.confidence,
                updated_at=fact.recorded_at,
                version=0,
            )
        case Actual(), ReleaseTransitioned() if _follows(actual, fact):
            return replace(
                actual,
                status=fact.status,
                pinned_release_id=fact.release_id,
                previous_release_id=fact.moved_from or actual.previous_release_id,
                digest=fact.digest,
                provenance=fact.provenance,
                confidence=fact.confidence,
                updated_at=fact.recorded_at,
                version=fact.version,
            )
        case Actual(), ReleaseRetired() if _follows(actual, fact):
            return replace(
                actual, status=Status.RETIRED, updated_at=fact.recorded_at, version=fact.version
            )
        case _:
            state = "absent" if actual is None else f"{actual.status} {actual.version}"
            raise IllegalTransition("release", state, type(fact).__name__)


def _follows(actual: Actual, fact: ReleaseTransitioned | ReleaseRetired) -> bool:
    return actual.status is not Status.RETIRED and fact.version == actual.version + 1


# ── what happened ─────────────────────────────────────────────────────────────────────────────────


def event_of(fact: Change) -> str:
    return event_id(fact.scope, fact.recorded_at, fact.release_id, fact.command_id)


def step_event(event: ReleaseEvent | None, fact: Change, now: datetime) -> ReleaseEvent:
    """Raises: DuplicateEvent."""
    if event is not None:
        raise DuplicateEvent(event_of(fact))
    said = ReleaseEvent(
        scope=fact.scope,
        event_type=EventType.REGISTERED,
        release_id=fact.release_id,
        status=Status.RETIRED,
        registry_version=0,
        recorded_at=fact.recorded_at,
        command_id=fact.command_id,
        by=fact.by,
    )
    match fact:
        case ReleaseRetired():
            return replace(
                said,
                event_type=EventType.RETIRED,
                registry_version=fact.version,
                reason=fact.reason,
            )
        case ReleaseTransitioned():
            moved = fact.moved_from is not None
            said = replace(
                said,
                event_type=EventType.PROMOTED if moved else EventType.CONFIRMED,
                registry_version=fact.version,
                previous_release_id=fact.moved_from,
            )
        case ReleaseRegistered():
            pass
    return replace(
        said,
        status=fact.status,
        digest=fact.digest,
        provenance=fact.provenance,
        confidence=fact.confidence,
        reason=fact.reason or None,
    )


def step_evidence(row: KeptEvidence | None, fact: EvidenceKept, now: datetime) -> KeptEvidence:
    """Raises: DuplicateEvent."""
    if row is not None:
        raise DuplicateEvent(evidence_key(fact.scope, fact.source, fact.batch).id)
    return KeptEvidence(
        scope=fact.scope,
        source=fact.source,
        batch=fact.batch,
        authority=False,
        document=fact.document,
        reason=fact.reason,
        recorded_at=fact.recorded_at,
        command_id=fact.command_id,
        by=fact.by,
        matches=fact.matches,
    )


def step_command(row: Executed | None, fact: Change | EvidenceKept, now: datetime) -> Executed:
    """Raises: DuplicateEvent."""
    if row is not None:
        raise DuplicateEvent(row.row)
    match fact:
        case EvidenceKept():
            kept = evidence_key(fact.scope, fact.source, fact.batch).id
            return Executed(request=fact.request, row=kept)
        case ReleaseRegistered():
            return Executed(request=fact.request, row=event_of(fact), registry_version=0)
        case ReleaseTransitioned() | ReleaseRetired():
            return Executed(request=fact.request, row=event_of(fact), registry_version=fact.version)


release_actual = Fold(
    collection=ACTUAL,
    number=1,
    reads=CHANGES,
    ids=lambda fact: (actual_key(fact.scope).id,),
    start=lambda id, fact: None,
    step=step_actual,
)
release_events = Fold(
    collection=EVENTS,
    number=1,
    reads=CHANGES,
    ids=lambda fact: (event_of(fact),),
    start=lambda id, fact: None,
    step=step_event,
)
release_evidence = Fold(
    collection=EVIDENCE,
    number=1,
    reads=(EvidenceKept,),
    ids=lambda fact: (evidence_key(fact.scope, fact.source, fact.batch).id,),
    start=lambda id, fact: None,
    step=step_evidence,
)
release_commands = Fold(
    collection=COMMANDS,
    number=1,
    reads=(*CHANGES, EvidenceKept),
    ids=lambda fact: (command_key(fact.scope, fact.command_id).id,),
    start=lambda id, fact: None,
    step=step_command,
)

COLLECTIONS = (ACTUAL, EVENTS, EVIDENCE, COMMANDS)
FOLDS = (release_actual, release_events, release_evidence, release_commands)
