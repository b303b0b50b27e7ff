"""The folds of the registry. A row that is written once refuses a second fact."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from tidegate.domain.releases import catalog, facts, refusals, rows
from tidegate.errors import IllegalTransition
from tidegate.kernel.folds import Fold

CHANGES = (facts.ReleaseRegistered, facts.ReleaseTransitioned, facts.ReleaseRetired)


# ── current ───────────────────────────────────────────────────────────────────────────────────────


SCOPES_NAMED_MAX = 16  # of the scopes that are pinned to one release
MATCHES_MAX = 64  # releases with one content; with more, none is the one match


def step_actual(
    actual: rows.Actual | None, fact: facts.RegistryChange, now: datetime
) -> rows.Actual:
    """The scope's row after a change.

    Raises:
        IllegalTransition: the fact does not fit the state of the row.
    """
    match actual, fact:
        case None, facts.ReleaseRegistered():
            return rows.Actual(
                scope=fact.scope,
                status=fact.status,
                pinned_release_id=fact.release_id,
                digest=fact.digest,
                provenance=fact.provenance,
                confidence=fact.confidence,
                updated_at=fact.recorded_at,
                version=0,
            )
        case rows.Actual(), facts.ReleaseTransitioned() if _follows(actual, fact):
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
        case rows.Actual(), facts.ReleaseRetired() if _follows(actual, fact):
            return replace(
                actual,
                status=facts.PinStatus.RETIRED,
                updated_at=fact.recorded_at,
                version=fact.version,
            )
        case _:
            state = "absent" if actual is None else f"{actual.status} {actual.version}"
            raise IllegalTransition("release", state, type(fact).__name__)


def _follows(actual: rows.Actual, fact: facts.ReleaseTransitioned | facts.ReleaseRetired) -> bool:
    return actual.status is not facts.PinStatus.RETIRED and fact.version == actual.version + 1


# ── past ──────────────────────────────────────────────────────────────────────────────────────────


def event_of(fact: facts.RegistryChange) -> str:
    return rows.event_id(fact.scope, fact.recorded_at, fact.release_id, fact.command_id)


def step_event(
    event: rows.ReleaseEvent | None, fact: facts.RegistryChange, now: datetime
) -> rows.ReleaseEvent:
    """Raises: DuplicateEvent."""
    if event is not None:
        raise refusals.DuplicateEvent(event_of(fact))
    event_row = rows.ReleaseEvent(
        scope=fact.scope,
        event_type=rows.EventType.REGISTERED,
        release_id=fact.release_id,
        status=facts.PinStatus.RETIRED,
        registry_version=0,
        recorded_at=fact.recorded_at,
        command_id=fact.command_id,
        by=fact.by,
    )
    match fact:
        case facts.ReleaseRetired():
            return replace(
                event_row,
                event_type=rows.EventType.RETIRED,
                registry_version=fact.version,
                reason=fact.reason,
            )
        case facts.ReleaseTransitioned():
            moved = fact.moved_from is not None
            event_row = replace(
                event_row,
                event_type=rows.EventType.PROMOTED if moved else rows.EventType.CONFIRMED,
                registry_version=fact.version,
                previous_release_id=fact.moved_from,
            )
        case facts.ReleaseRegistered():
            pass
    return replace(
        event_row,
        status=fact.status,
        digest=fact.digest,
        provenance=fact.provenance,
        confidence=fact.confidence,
        reason=fact.reason or None,
    )


def step_evidence(
    row: rows.KeptEvidence | None, fact: facts.EvidenceKept, now: datetime
) -> rows.KeptEvidence:
    """Raises: DuplicateEvent."""
    if row is not None:
        raise refusals.DuplicateEvent(rows.evidence_key(fact.scope, fact.source, fact.batch).id)
    return rows.KeptEvidence(
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
    row: rows.ExecutedCommand | None, fact: facts.RegistryChange | facts.EvidenceKept, now: datetime
) -> rows.ExecutedCommand:
    """Raises: DuplicateEvent."""
    if row is not None:
        raise refusals.DuplicateEvent(row.row)
    match fact:
        case facts.EvidenceKept():
            kept = rows.evidence_key(fact.scope, fact.source, fact.batch).id
            return rows.ExecutedCommand(request=fact.request, row=kept)
        case facts.ReleaseRegistered():
            return rows.ExecutedCommand(
                request=fact.request, row=event_of(fact), registry_version=0
            )
        case facts.ReleaseTransitioned() | facts.ReleaseRetired():
            return rows.ExecutedCommand(
                request=fact.request, row=event_of(fact), registry_version=fact.version
            )


release_actual = Fold(
    collection=rows.ACTUAL,
    number=1,
    reads=CHANGES,
    ids=lambda fact: (rows.actual_key(fact.scope).id,),
    start=lambda id, fact: None,
    step=step_actual,
)
release_events = Fold(
    collection=rows.EVENTS,
    number=1,
    reads=CHANGES,
    ids=lambda fact: (event_of(fact),),
    start=lambda id, fact: None,
    step=step_event,
)
release_evidence = Fold(
    collection=rows.EVIDENCE,
    number=1,
    reads=(facts.EvidenceKept,),
    ids=lambda fact: (rows.evidence_key(fact.scope, fact.source, fact.batch).id,),
    start=lambda id, fact: None,
    step=step_evidence,
)
release_commands = Fold(
    collection=rows.COMMANDS,
    number=1,
    reads=(*CHANGES, facts.EvidenceKept),
    ids=lambda fact: (rows.command_key(fact.scope, fact.command_id).id,),
    start=lambda id, fact: None,
    step=step_command,
)


Pinned = (
    facts.ReleaseOffered
    | facts.ReleaseRegistered
    | facts.ReleaseTransitioned
    | facts.ReleaseRetired
    | facts.RollbackRungsChanged
)


def step_known(
    row: rows.KnownRelease | None, fact: facts.ReleaseOffered, now: datetime
) -> rows.KnownRelease:
    """Raises: ReleaseTaken: two revisions would share one release and its lifecycle."""
    if row is not None and row.revision != fact.revision:
        raise refusals.ReleaseTaken(fact.release_id, row.revision)
    return rows.KnownRelease(fact.release_id, fact.digest, fact.lifecycle, fact.revision)


def pin_ids(fact: Pinned) -> tuple[str, ...]:
    """The releases whose pins a fact changes or reads."""
    match fact:
        case facts.ReleaseTransitioned(moved_from=None):
            return ()
        case facts.ReleaseTransitioned(moved_from=str(left)):
            return fact.release_id, left
        case facts.RollbackRungsChanged(added=added, removed=removed):
            return (*added, *removed)
        case _:
            return (fact.release_id,)


def step_pins(row: rows.ReleasePins, fact: Pinned, now: datetime) -> rows.ReleasePins:
    """Raises: StillPinned, StillRollbackTarget."""
    match fact:
        case facts.ReleaseOffered(lifecycle=lifecycle):
            if lifecycle not in catalog.ENDS:
                return row
            proposed = lifecycle == catalog.DELETION_PROPOSED
            if row.pins:
                raise refusals.StillPinned(row.release_id, row.pins, row.scopes, proposed=proposed)
            if row.rungs:
                raise refusals.StillRollbackTarget(
                    row.release_id, row.rungs, row.channels, proposed=proposed
                )
            return row
        case facts.ReleaseRetired():
            scopes = tuple(scope for scope in row.scopes if scope != fact.scope)
            return replace(row, pins=row.pins - 1, scopes=scopes)
        case facts.RollbackRungsChanged(channel=channel, added=added):
            others = tuple(name for name in row.channels if name != channel)
            if row.release_id not in added:
                return replace(row, rungs=row.rungs - 1, channels=others)
            return replace(row, rungs=row.rungs + 1, channels=(*others, channel)[:SCOPES_NAMED_MAX])
        case facts.ReleaseTransitioned() if row.release_id != fact.release_id:
            scopes = tuple(scope for scope in row.scopes if scope != fact.scope)
            return replace(row, pins=row.pins - 1, scopes=scopes)
        case facts.ReleaseRegistered() | facts.ReleaseTransitioned():
            scopes = (*row.scopes, fact.scope)[:SCOPES_NAMED_MAX]
            return replace(row, pins=row.pins + 1, scopes=scopes)


def _match(
    row: rows.DigestMatches, fact: facts.ReleaseOffered, now: datetime
) -> rows.DigestMatches:
    others = tuple(found for found in row.release_ids if found != fact.release_id)
    if fact.lifecycle not in catalog.PINNABLE:
        return replace(row, release_ids=others)
    if len(others) >= MATCHES_MAX:
        return replace(row, crowded=True)
    return replace(row, release_ids=tuple(sorted((*others, fact.release_id))))


known_releases = Fold(
    collection=rows.KNOWN,
    number=1,
    reads=(facts.ReleaseOffered,),
    ids=lambda fact: (fact.release_id,),
    start=lambda id, fact: None,
    step=step_known,
)


release_pins = Fold(
    collection=rows.PINS,
    number=3,  # version 3 counts rollback targets
    reads=(
        facts.ReleaseOffered,
        facts.ReleaseRegistered,
        facts.ReleaseTransitioned,
        facts.ReleaseRetired,
        facts.RollbackRungsChanged,
    ),
    ids=pin_ids,
    start=lambda id, fact: rows.ReleasePins(id),
    step=step_pins,
)


release_matches = Fold(
    collection=rows.MATCHES,
    number=2,  # in version 2 a release whose deletion is proposed is a match
    reads=(facts.ReleaseOffered,),
    ids=lambda fact: (fact.digest,),
    start=lambda id, fact: rows.DigestMatches(fact.digest),
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
