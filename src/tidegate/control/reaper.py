"""The reaper: it deletes what is still open in the name of an owner that is gone, when told so.

Only Draft and Proposed; what was published stays, whatever became of its owner. Nothing runs this
by itself: somebody who knows that the owner is gone says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from tidegate.control.runtime import Control
from tidegate.domain.packages.deletions import DeleteRevision, delete_revision
from tidegate.domain.packages.facts import OwnerReference
from tidegate.domain.packages.lifecycle import Lifecycle
from tidegate.domain.packages.rows import REVISIONS, Revision
from tidegate.errors import Conflict, Forbidden, NotFound
from tidegate.kernel import codec
from tidegate.kernel.model import Meta, Position
from tidegate.kernel.policy import entry
from tidegate.kernel.store import Store

PAGE = 500
REAPED_MAX = 1_000  # in one run, so that one run has an end; the next takes the rest
ACTOR = "reaper"


class Reaped(Struct, frozen=True):
    """What a run did: what it deleted or began to delete, and what it was not allowed to."""

    deleted: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def reap(control: Control, owner: OwnerReference, by: str) -> Reaped:
    """Delete the open revisions of an owner, each at the version at which it was found open.

    Raises:
        InvalidName: nobody is named. Unavailable, Unknown: the next run takes the rest.
    """
    deleted: list[str] = []
    kept: list[str] = []
    for name, version in _open_of(control.store, owner):
        if len(deleted) + len(kept) >= REAPED_MAX:
            break
        command = DeleteRevision(name=name, by=by, expected_version=version)
        try:
            control.execute(delete_revision, command, meta=Meta(actor=ACTOR, on_behalf_of=by))
        except (Conflict, Forbidden, NotFound):
            kept.append(name)  # it is protected, or it moved on since it was found
        else:
            deleted.append(name)
    return Reaped(tuple(deleted), tuple(kept))


def _open_of(store: Store, owner: OwnerReference) -> Iterator[tuple[str, Position]]:
    """The owner's revisions that are Draft or Proposed, with their versions."""
    for state in (Lifecycle.DRAFT, Lifecycle.PROPOSED):
        prefix, after = entry(state, ""), ""
        while page := store.range(
            REVISIONS.name, index="by_lifecycle", prefix=prefix, after=after, limit=PAGE
        ):
            for record in page:
                after = entry(state, record.key.id)
                if owner in codec.decode(record.data, Revision).metadata.owner_references:
                    yield record.key.id, record.version
