"""The releases that may be pinned: the interface between the registry and publishers.

    known_releases     a release and its lifecycle: read to pin it
    release_pins       the scopes that are pinned to it: read to delete it
    release_matches    the pinnable releases with the same content

A publisher records ``ReleaseOffered`` in the commit that publishes, and again when the lifecycle
changes. The registry reads only these rows, never those of packages. The pins are in a row apart
from the release, so that several scopes can pin one release at once without conflicts.
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
DELETION_PROPOSED = "DeletionProposed"  # the release still counts as published
TERMINATING = "Terminating"  # its deletion has begun and waits for finalizers
DELETED = "Deleted"
PINNABLE = frozenset({PUBLISHED, DELETION_PROPOSED})
ENDS = frozenset({DELETION_PROPOSED, TERMINATING, DELETED})  # what no pinned release reaches


def demand_pinnable(
    release: release_rows.KnownRelease | None, release_id: str, digest: str
) -> None:
    """Check that a scope may be pinned to the release now.

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
    """Wrap a slice so that it decides as if only the visible releases existed.

    ``is_visible`` may read other rows than the decision, because a release is always the same
    revision.
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
