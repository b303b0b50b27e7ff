"""The reaper: it deletes what is still open in the name of an owner that is gone, when told so.

Only Draft and Proposed; what was published stays, whatever became of its owner. Nothing runs this
by itself: somebody who knows that the owner is gone says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from tidegate.control.runtime import Control
from tidegate.domain.packages import deletions, facts, rows, states
from tidegate.errors import Conflict, Forbidden, NotFound
from tidegate.kernel import codec, model
from tidegate.kernel.store import Store, row_pages

REAPED_MAX = 1_000  # in one run, so that one run has an end; the next takes the rest
ACTOR = "reaper"
OPEN = frozenset({states.Lifecycle.DRAFT, states.Lifecycle.PROPOSED})


class Reaped(Struct, frozen=True):
    """What a run did: what it deleted or began to delete, and what it was not allowed to."""

    deleted: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    position: model.Position = 0  # of the last deletion


def clean_up_owner(
    control: Control, owner: facts.OwnerReference, by: str, request: str = ""
) -> Reaped:
    """Delete the open revisions of an owner, each at the version at which it was found open.

    ``request`` is the id of what asked for it. Raises:
        InvalidName: nobody is named. Unavailable, Unknown: the next run takes the rest.
    """
    deleted: list[str] = []
    kept: list[str] = []
    position: model.Position = 0
    meta = model.Meta(actor=ACTOR, on_behalf_of=by, request=request)
    for name, version in _open_of(control.store, owner):
        if len(deleted) + len(kept) >= REAPED_MAX:
            break
        command = deletions.DeleteRevision(name=name, by=by, expected_version=version)
        try:
            outcome = control.execute(deletions.delete_revision, command, meta=meta)
        except (Conflict, Forbidden, NotFound):
            kept.append(name)  # it is protected, or it moved on since it was found
        else:
            deleted.append(name)
            position = max(position, outcome.position)
    return Reaped(tuple(deleted), tuple(kept), position)


def _open_of(store: Store, owner: facts.OwnerReference) -> Iterator[tuple[str, model.Position]]:
    """The owner's revisions that are Draft or Proposed, with their versions."""
    for page in row_pages(store, rows.REVISION_OWNERS.name, prefix=rows.owner_prefix(owner.key)):
        names = [codec.decode(record.data, rows.RevisionOwner).revision for record in page]
        for record in store.get(*map(rows.revision_key, names)):
            row = None if record is None else codec.decode(record.data, rows.Revision)
            if record is None or row is None or row.lifecycle not in OPEN:
                continue
            if owner in row.metadata.owner_references:  # the row, not what its key may also mean
                yield record.key.id, record.version
