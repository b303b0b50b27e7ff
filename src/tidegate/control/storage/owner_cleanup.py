"""The reaper: deletes the open revisions of an owner that no longer exists.

It deletes only Draft and Proposed revisions; published ones stay. It never runs automatically: an
administrator who knows that the owner is gone starts it.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from tidegate.control.runtime import Control
from tidegate.domain.packages import deletions, facts, rows, states
from tidegate.errors import Conflict, Forbidden, NotFound
from tidegate.kernel import codec, model
from tidegate.kernel.store import Store, row_pages

REAPED_MAX = 1_000  # per run, so that a run is bounded; the next one takes the rest
ACTOR = "reaper"
OPEN = frozenset({states.Lifecycle.DRAFT, states.Lifecycle.PROPOSED})


class Reaped(Struct, frozen=True):
    """The result of a run: what it deleted or began to delete, and what it had to keep."""

    deleted: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    position: model.Position = 0  # of the last deletion


def clean_up_owner(
    control: Control, owner: facts.OwnerReference, by: str, request: str = ""
) -> Reaped:
    """Delete the open revisions of an owner, each only if it has not changed since it was found.

    ``request`` is the id of the request. Raises:
        InvalidName: no owner is named. Unavailable, Unknown: the next run takes the rest.
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
            kept.append(name)  # it is protected, or has changed since it was found
        else:
            deleted.append(name)
            position = max(position, outcome.position)
    return Reaped(tuple(deleted), tuple(kept), position)


def _open_of(store: Store, owner: facts.OwnerReference) -> Iterator[tuple[str, model.Position]]:
    """Yield the owner's Draft and Proposed revisions with their versions."""
    for page in row_pages(store, rows.REVISION_OWNERS.name, prefix=rows.owner_prefix(owner.key)):
        names = [codec.decode(record.data, rows.RevisionOwner).revision for record in page]
        for record in store.get(*map(rows.revision_key, names)):
            row = None if record is None else codec.decode(record.data, rows.Revision)
            if record is None or row is None or row.lifecycle not in OPEN:
                continue
            if owner in row.metadata.owner_references:  # its index entry may match another
                yield record.key.id, record.version
