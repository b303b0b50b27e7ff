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

from msgspec import Struct, structs

from tidegate.domain.packages.refusals import DigestMismatch
from tidegate.domain.releases import refusals, rows as release_rows
from tidegate.errors import NotFound
from tidegate.kernel.slices import Slice

PUBLISHED = "Published"
DELETION_PROPOSED = "DeletionProposed"  # one person's word: it still counts as published
TERMINATING = "Terminating"  # its deletion has begun and waits for finalizers
DELETED = "Deleted"
PINNABLE = frozenset({PUBLISHED, DELETION_PROPOSED})
ENDS = frozenset({DELETION_PROPOSED, TERMINATING, DELETED})  # what no pinned release comes to


def demand_pinnable(
    release: release_rows.KnownRelease | None, release_id: str, digest: str
) -> None:
    """That a scope may be pinned to the release now.

    Raises:
        NotFound, DigestMismatch, ReleaseNotPinnable.
    """
    if release is None:
        raise NotFound(f"there is no release {release_id}", release_id=release_id)
    if release.digest != digest:
        raise DigestMismatch(digest, release.digest)
    if release.lifecycle not in PINNABLE:
        raise refusals.ReleaseNotPinnable(
            f"{release_id} is {release.lifecycle}; only {PUBLISHED} releases take a new pin",
            release_id=release_id,
            lifecycle=release.lifecycle,
        )


def limit_to_visible(item: Slice, is_visible: Callable[[str], bool]) -> Slice:
    """The slice, deciding as if there were no releases but those that are visible.

    Whether one is visible may be asked of rows beside: which revision a release is never changes.
    """

    def seen(row: Struct | None) -> Struct | None:
        match row:
            case release_rows.KnownRelease(release_id=release_id):
                return row if is_visible(release_id) else None
            case release_rows.DigestMatches(release_ids=release_ids):
                return structs.replace(row, release_ids=tuple(filter(is_visible, release_ids)))
        return row

    def decide(rows: tuple[Struct | None, ...], command: Struct, now: datetime) -> Sequence[Struct]:
        return item.decide(tuple(map(seen, rows)), command, now)

    return dataclasses.replace(item, decide=decide)
