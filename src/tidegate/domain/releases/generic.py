"""A transition on rows of your own: state, event and outbox row in one transaction, or none of it.

    records.transaction(update ACTUAL, version + 1 · create EVENT# · create OUTBOX#)

For kept models under the generic write policy; Tidegate's own registry decides through its slices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.domain.provenance import BUILT_IN_RULES, Rules, claim
from tidegate.domain.releases.refusals import DuplicateEvent
from tidegate.errors import ConditionFailed, InvalidInput, VersionConflict
from tidegate.kernel.model import Key
from tidegate.kernel.records.actions import CreateRow, Stored, UpdateRow
from tidegate.kernel.records.records import Records


def transition_append_event(
    records: Records,
    actual: Key,
    changes: Mapping[str, Any],
    event: CreateRow,
    *,
    expected_version: int | None = None,
    outbox: CreateRow | None = None,
    rules: Rules = BUILT_IN_RULES,
) -> Stored:
    """Change a row that exists, add 1 to its version, and create the rows that tell of it.

    The version is checked when it is given. Changes that carry provenance or confidence must be
    authority. All rows share the partition of the actual one: its id up to the slash.

    Raises:
        InvalidInput, ImmutableRecord, ProtectedField, RejectedEvidence: before any I/O.
        NotFound: there is no actual row; it is never made here.
        VersionConflict: it is at another version. DuplicateEvent: an event or outbox row of this
            key stands already.
    """
    beside = [event] if outbox is None else [event, outbox]
    if not changes:
        raise InvalidInput("a transition sets nothing")
    for row in beside:
        if _partition(row.id) != _partition(actual.id):
            raise InvalidInput(f"{row.id} is not in the partition of {actual.id}", row=row.id)
    claim(changes, rules)
    update = UpdateRow(actual.collection, actual.id, changes, expected_version=expected_version)
    try:
        stored, *_ = records.transaction(update, *beside)
    except VersionConflict:
        raise
    except ConditionFailed as failure:
        raise DuplicateEvent(str(failure.facts.get("id"))) from failure
    assert stored is not None, "an update leaves its row"
    return stored


def _partition(id: str) -> str:
    return id.partition("/")[0]
