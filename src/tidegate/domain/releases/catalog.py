"""The releases that may be pinned: the seam between the registry and what publishes revisions.

    known_releases     what a release is and how it stands: what a pin depends on
    release_pins       which scopes are pinned to it: what its end depends on
    release_matches    the pinnable releases of one content

Whoever publishes says ``ReleaseOffered`` in the commit in which it does, and again when the
lifecycle changes; the registry asks these rows only, never those of packages. Pins stand beside
the release, so that scopes which pin one release at once do not wait for each other's decision.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from tidegate.domain.packages.refusals import DigestMismatch
from tidegate.domain.releases.facts import ReleaseRegistered, ReleaseTransitioned
from tidegate.errors import Conflict, Forbidden, NotFound, Refused
from tidegate.kernel.collections import Collection, Nature, Writers
from tidegate.kernel.folds import Fold
from tidegate.kernel.model import Key
from tidegate.kernel.slices import Slice
from tidegate.kernel.tags import Partition
from tidegate.kernel.vocabulary import facts

PUBLISHED = "Published"
DELETION_PROPOSED = "DeletionProposed"  # one person's word: it still counts as published
TERMINATING = "Terminating"  # its deletion has begun and waits for finalizers
DELETED = "Deleted"
PINNABLE = frozenset({PUBLISHED, DELETION_PROPOSED})
ENDS = frozenset({DELETION_PROPOSED, TERMINATING, DELETED})  # what no pinned release comes to
SCOPES_NAMED_MAX = 16  # of those that are pinned to one release
MATCHES_MAX = 64  # releases of one content that are told apart; beyond it none is the one


class ReleaseNotPinnable(Refused):
    """Only a published release takes a new pin; the deletion of this one was carried out."""

    code = "release_not_pinnable"


class ReleaseTaken(Conflict):
    """Another revision is this release already; publish under another package path."""

    code = "release_taken"

    def __init__(self, release_id: str, revision: str) -> None:
        super().__init__(
            f"{release_id} is {revision} already", release_id=release_id, revision=revision
        )


class StillPinned(Forbidden):
    """A channel is pinned to the release; promote another release there first."""

    code = "still_pinned"

    def __init__(self, release_id: str, pins: int, channels: tuple[str, ...]) -> None:
        more = f" and {pins - len(channels)} more" if pins > len(channels) else ""
        super().__init__(
            f"{release_id} is pinned on {', '.join(channels)}{more}; "
            "promote another release there first",
            release_id=release_id,
            pins=pins,
            channels=channels,
        )


class ReleaseOffered(Struct, frozen=True, omit_defaults=True):
    """A revision is published as this release, or moved on in its lifecycle."""

    release_id: Annotated[str, Partition("release_id")]
    digest: str
    lifecycle: str
    revision: str = ""  # the name of what it is, where releases are revisions


class KnownRelease(Struct, frozen=True, omit_defaults=True):
    """A release as the registry needs it."""

    release_id: str
    digest: str
    lifecycle: str
    revision: str = ""


class ReleasePins(Struct, frozen=True, omit_defaults=True):
    """Which scopes a release is authoritative for. A retired scope keeps its last pin."""

    release_id: str
    pins: int = 0
    scopes: tuple[str, ...] = ()  # the first of them, for the message


Pinned = ReleaseOffered | ReleaseRegistered | ReleaseTransitioned


class DigestMatches(Struct, frozen=True, omit_defaults=True):
    """The pinnable releases of one content."""

    digest: str
    release_ids: tuple[str, ...] = ()
    crowded: bool = False  # there were more than MATCHES_MAX: for good, none of them is the one


KNOWN = Collection(
    "known_releases",
    KnownRelease,
    writers=Writers.FOLDED,
    nature=Nature.DERIVED,
    columns=("release_id", "digest", "lifecycle"),
)
PINS = Collection(
    "release_pins",
    ReleasePins,
    writers=Writers.FOLDED,
    nature=Nature.DERIVED,
    columns=("release_id", "pins"),
)
MATCHES = Collection(
    "release_matches",
    DigestMatches,
    writers=Writers.FOLDED,
    nature=Nature.DERIVED,
    columns=("digest",),
)


def known_key(release_id: str) -> Key:
    return Key(KNOWN.name, release_id)


def pins_key(release_id: str) -> Key:
    return Key(PINS.name, release_id)


def matches_key(digest: str) -> Key:
    return Key(MATCHES.name, digest)


def demand_pinnable(release: KnownRelease | None, release_id: str, digest: str) -> None:
    """That a scope may be pinned to the release now.

    Raises:
        NotFound, DigestMismatch, ReleaseNotPinnable.
    """
    if release is None:
        raise NotFound(f"there is no release {release_id}", release_id=release_id)
    if release.digest != digest:
        raise DigestMismatch(digest, release.digest)
    if release.lifecycle not in PINNABLE:
        raise ReleaseNotPinnable(
            f"{release_id} is {release.lifecycle}; only {PUBLISHED} releases take a new pin",
            release_id=release_id,
            lifecycle=release.lifecycle,
        )


def among(item: Slice, is_visible: Callable[[str], bool]) -> Slice:
    """The slice, deciding as if there were no releases but those that are visible.

    Whether one is visible may be asked of rows beside: which revision a release is never changes.
    """

    def seen(row: Struct | None) -> Struct | None:
        match row:
            case KnownRelease(release_id=release_id):
                return row if is_visible(release_id) else None
            case DigestMatches(release_ids=release_ids):
                return replace(row, release_ids=tuple(filter(is_visible, release_ids)))
        return row

    def decide(rows: tuple[Struct | None, ...], command: Struct, now: datetime) -> Sequence[Struct]:
        return item.decide(tuple(map(seen, rows)), command, now)

    return dataclasses.replace(item, decide=decide)


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
        case _:
            return (fact.release_id,)


def step_pins(row: ReleasePins, fact: Pinned, now: datetime) -> ReleasePins:
    """Raises: StillPinned."""
    match fact:
        case ReleaseOffered(lifecycle=lifecycle):
            if row.pins and lifecycle in ENDS:
                raise StillPinned(row.release_id, row.pins, row.scopes)
            return row
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
    number=2,  # since then it names the scopes
    reads=(ReleaseOffered, ReleaseRegistered, ReleaseTransitioned),
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

FACTS = facts("release", ReleaseOffered)
COLLECTIONS = (KNOWN, PINS, MATCHES)
FOLDS = (known_releases, release_pins, release_matches)
