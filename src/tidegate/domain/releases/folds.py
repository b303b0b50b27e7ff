"""How the registry's facts become its rows. A row that is written once refuses its second fact."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from tidegate.domain.releases.catalog import DELETION_PROPOSED, ENDS, PINNABLE
from tidegate.domain.releases.facts import (
    EvidenceKept,
    PinStatus,
    RegistryChange,
    ReleaseOffered,
    ReleaseRegistered,
    ReleaseRetired,
    ReleaseTransitioned,
    RollbackRungsChanged,
)
from tidegate.domain.releases.refusals import (
    DuplicateEvent,
    ReleaseTaken,
    StillPinned,
    StillRollbackTarget,
)
from tidegate.domain.releases.rows import (
    ACTUAL,
    COMMANDS,
    EVENTS,
    EVIDENCE,
    KNOWN,
    MATCHES,
    PINS,
    Actual,
    DigestMatches,
    EventType,
    ExecutedCommand,
    KeptEvidence,
    KnownRelease,
    ReleaseEvent,
    ReleasePins,
    actual_key,
    command_key,
    event_id,
    evidence_key,
)
from tidegate.errors import IllegalTransition
from tidegate.kernel.folds import Fold

CHANGES = (ReleaseRegistered, ReleaseTransitioned, ReleaseRetired)


# ── what is current ───────────────────────────────────────────────────────────────────────────────


SCOPES_NAMED_MAX = 16  # of those that are pinned to one release
MATCHES_MAX = 64  # releases of one content that are told apart; beyond it none is the one


def step_actual(actual: Actual | None, fact: RegistryChange, now: datetime) -> Actual:
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
                actual, status=PinStatus.RETIRED, updated_at=fact.recorded_at, version=fact.version
            )
        case _:
            state = "absent" if actual is None else f"{actual.status} {actual.version}"
            raise IllegalTransition("release", state, type(fact).__name__)


def _follows(actual: Actual, fact: ReleaseTransitioned | ReleaseRetired) -> bool:
    return actual.status is not PinStatus.RETIRED and fact.version == actual.version + 1


# ── what happened ─────────────────────────────────────────────────────────────────────────────────


def event_of(fact: RegistryChange) -> str:
    return event_id(fact.scope, fact.recorded_at, fact.release_id, fact.command_id)


def step_event(event: ReleaseEvent | None, fact: RegistryChange, now: datetime) -> ReleaseEvent:
    """Raises: DuplicateEvent."""
    if event is not None:
        raise DuplicateEvent(event_of(fact))
    said = ReleaseEvent(
        scope=fact.scope,
        event_type=EventType.REGISTERED,
        release_id=fact.release_id,
        status=PinStatus.RETIRED,
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


def step_command(
    row: ExecutedCommand | None, fact: RegistryChange | EvidenceKept, now: datetime
) -> ExecutedCommand:
    """Raises: DuplicateEvent."""
    if row is not None:
        raise DuplicateEvent(row.row)
    match fact:
        case EvidenceKept():
            kept = evidence_key(fact.scope, fact.source, fact.batch).id
            return ExecutedCommand(request=fact.request, row=kept)
        case ReleaseRegistered():
            return ExecutedCommand(request=fact.request, row=event_of(fact), registry_version=0)
        case ReleaseTransitioned() | ReleaseRetired():
            return ExecutedCommand(
                request=fact.request, row=event_of(fact), registry_version=fact.version
            )


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


Pinned = (
    ReleaseOffered | ReleaseRegistered | ReleaseTransitioned | ReleaseRetired | RollbackRungsChanged
)


def step_known(row: KnownRelease | None, fact: ReleaseOffered, now: datetime) -> KnownRelease:
    """Raises: ReleaseTaken: two revisions would be one release, and each other's lifecycle."""
    if row is not None and row.revision != fact.revision:
        raise ReleaseTaken(fact.release_id, row.revision)
    return KnownRelease(fact.release_id, fact.digest, fact.lifecycle, fact.revision)


def pin_ids(fact: Pinned) -> tuple[str, ...]:
    """The releases whose pins a fact counts or asks for."""
    match fact:
        case ReleaseTransitioned(moved_from=None):
            return ()
        case ReleaseTransitioned(moved_from=str(left)):
            return fact.release_id, left
        case RollbackRungsChanged(added=added, removed=removed):
            return (*added, *removed)
        case _:
            return (fact.release_id,)


def step_pins(row: ReleasePins, fact: Pinned, now: datetime) -> ReleasePins:
    """Raises: StillPinned, StillRollbackTarget."""
    match fact:
        case ReleaseOffered(lifecycle=lifecycle):
            if lifecycle not in ENDS:
                return row
            proposed = lifecycle == DELETION_PROPOSED
            if row.pins:
                raise StillPinned(row.release_id, row.pins, row.scopes, proposed=proposed)
            if row.rungs:
                raise StillRollbackTarget(
                    row.release_id, row.rungs, row.channels, proposed=proposed
                )
            return row
        case ReleaseRetired():
            scopes = tuple(scope for scope in row.scopes if scope != fact.scope)
            return replace(row, pins=row.pins - 1, scopes=scopes)
        case RollbackRungsChanged(channel=channel, added=added):
            others = tuple(name for name in row.channels if name != channel)
            if row.release_id not in added:
                return replace(row, rungs=row.rungs - 1, channels=others)
            return replace(row, rungs=row.rungs + 1, channels=(*others, channel)[:SCOPES_NAMED_MAX])
        case ReleaseTransitioned() if row.release_id != fact.release_id:
            scopes = tuple(scope for scope in row.scopes if scope != fact.scope)
            return replace(row, pins=row.pins - 1, scopes=scopes)
        case ReleaseRegistered() | ReleaseTransitioned():
            scopes = (*row.scopes, fact.scope)[:SCOPES_NAMED_MAX]
            return replace(row, pins=row.pins + 1, scopes=scopes)


def _match(row: DigestMatches, fact: ReleaseOffered, now: datetime) -> DigestMatches:
    others = tuple(found for found in row.release_ids if found != fact.release_id)
    if fact.lifecycle not in PINNABLE:
        return replace(row, release_ids=others)
    if len(others) >= MATCHES_MAX:
        return replace(row, crowded=True)
    return replace(row, release_ids=tuple(sorted((*others, fact.release_id))))


known_releases = Fold(
    collection=KNOWN,
    number=1,
    reads=(ReleaseOffered,),
    ids=lambda fact: (fact.release_id,),
    start=lambda id, fact: None,
    step=step_known,
)


release_pins = Fold(
    collection=PINS,
    number=3,  # since then it counts rollback targets
    reads=(
        ReleaseOffered,
        ReleaseRegistered,
        ReleaseTransitioned,
        ReleaseRetired,
        RollbackRungsChanged,
    ),
    ids=pin_ids,
    start=lambda id, fact: ReleasePins(id),
    step=step_pins,
)


release_matches = Fold(
    collection=MATCHES,
    number=2,  # since then a release whose deletion is proposed is a match
    reads=(ReleaseOffered,),
    ids=lambda fact: (fact.digest,),
    start=lambda id, fact: DigestMatches(fact.digest),
    step=_match,
)


FOLDS = (
    release_actual,
    release_events,
    release_evidence,
    release_commands,
    known_releases,
    release_pins,
    release_matches,
)
