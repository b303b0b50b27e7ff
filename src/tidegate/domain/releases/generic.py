"""A transition on rows of your own: state, event and outbox row in one transaction.

    records.transaction(update ACTUAL, version + 1 · create EVENT# · create OUTBOX#)

It is for kept models under the generic write policy. Tidegate's own registry uses its slices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidegate.domain.provenance import BUILT_IN_RULES, Rules, Subject, bind, check_made, claim
from tidegate.domain.releases.refusals import DuplicateEvent
from tidegate.errors import ConditionFailed, InvalidInput, VersionConflict
from tidegate.kernel.model import Key
from tidegate.kernel.records.actions import CreateRow, Stored, UpdateRow
from tidegate.kernel.records.changes import Change
from tidegate.kernel.records.records import Records

AUTHORITY: Final = frozenset({"provenance", "confidence"})  # as they are stored


def transition_append_event(
    records: Records,
    actual: Key,
    changes: Mapping[str, Any],
    event: CreateRow,
    *,
    expected_version: int | None = None,
    outbox: CreateRow | None = None,
    protected_attributes: Iterable[str] = (),
    subject: Subject | None = None,
    rules: Rules = BUILT_IN_RULES,
) -> Stored:
    """Change an existing row, add 1 to its version, and create its event and outbox rows.

    The version is checked if it is given. Changes that carry provenance or confidence, under their
    stored or their Python names, must have authority by the rules of the registry; with a
    ``subject``, for this release in this scope. All rows share the partition of the actual row: its
    id up to the slash. ``protected_attributes`` protects further attributes in this call.

    Raises:
        InvalidInput, ImmutableRecord, ProtectedField, RejectedEvidence: before any I/O.
        NotFound: the actual row does not exist; it is never created here.
        VersionConflict: it is at another version. DuplicateEvent: an event or outbox row with this
            key exists already.
    """
    new_rows = [event] if outbox is None else [event, outbox]
    if not changes:
        raise InvalidInput("a transition sets nothing")
    for row in new_rows:
        if _partition(row.id) != _partition(actual.id):
            raise InvalidInput(f"{row.id} is not in the partition of {actual.id}", row=row.id)
    _check_authority(records, actual, changes, subject, rules)
    update = UpdateRow(
        actual.collection,
        actual.id,
        changes,
        expected_version=expected_version,
        protected_attributes=protected_attributes,
    )
    try:
        stored, *_ = records.transaction(update, *new_rows)
    except VersionConflict:
        raise
    except ConditionFailed as failure:
        raise DuplicateEvent(str(failure.facts.get("id"))) from failure
    assert stored is not None, "an update leaves its row"
    return stored


def _check_authority(
    records: Records, actual: Key, changes: Mapping[str, Any], subject: Subject | None, rules: Rules
) -> None:
    """Raises: InvalidInput, RejectedEvidence."""
    collection = records.schema.collection(actual.collection)
    stored: dict[str, Any] = {}
    for name, value in changes.items():
        known = collection.attribute(name) or collection.attribute(name.partition(".")[0])
        member = name if known is None else known.member
        if member in AUTHORITY and (isinstance(value, Change) or "." in name):
            raise InvalidInput(f"{member} is set whole or not at all", field=member)
        stored[member] = value
    authority = claim(stored, rules)
    if authority is None:
        return
    if subject is None:
        check_made(authority, records.clock(), rules)
    else:
        bind(authority, subject, records.clock(), rules)


def _partition(id: str) -> str:
    return id.partition("/")[0]
