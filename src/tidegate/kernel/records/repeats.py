"""Lets a generic call with an idempotency key be repeated.

requested:  the actions as data; two calls that ask for the same have equal data
answer:     stored with the key: the rows after the commit, without the members that are in the
            actions anyway
repeat:     returns these rows again, even if they have changed since
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tidegate import decoders
from tidegate.errors import InvalidInput
from tidegate.kernel import attributes, codec, model, store
from tidegate.kernel.collections import Collection
from tidegate.kernel.records import actions as record_actions, changes as record_changes, conditions

# These actions contain the whole row, except for what the kernel fills in.
_WHOLE_ROW_ACTIONS = (record_actions.CreateRow, record_actions.PutRow, record_actions.SaveRow)
_FILLED_IN = (
    attributes.FieldRole.VERSION,
    attributes.FieldRole.CREATED_AT,
    attributes.FieldRole.UPDATED_AT,
)


# ── the request ───────────────────────────────────────────────────────────────────────────────────


class RequestedActions(msgspec.Struct, frozen=True):
    """Actions as lists of texts and numbers, each starting with the name of its class."""

    actions: tuple[Any, ...]


class _Leaf(msgspec.Struct, frozen=True):
    value: Any


def to_requested_actions(
    schema: store.Schema, actions: Iterable[record_actions.Action]
) -> RequestedActions:
    """Screened actions as data.

    ``protected_attributes`` is not part of it: it can only refuse a call, and did not.

    Raises:
        InvalidInput: a value has no portable form.
    """
    return RequestedActions(
        tuple(_to_data(schema.collection(one.collection), one) for one in actions)
    )


def _to_data(collection: Collection, action: record_actions.Action) -> list[Any]:
    when = None if action.when is None else _condition_to_data(collection, action.when)
    given = [type(action).__name__, action.collection, action.id, action.expect, when]
    match action:
        case record_actions.CreateRow() | record_actions.PutRow() | record_actions.SaveRow():
            return [
                *given,
                codec.encode(record_actions.normalize(collection, action.value)).decode(),
            ]
        case record_actions.UpdateRow():
            changes = {
                collection.known(name).member: _change_to_data(change)
                for name, change in action.changes.items()
            }
            return [*given, action.expected_version, changes]
        case record_actions.DeleteRow() | record_actions.CheckRow():
            return given


def _change_to_data(change: Any) -> list[Any]:
    name = type(change).__name__
    match change:
        case record_changes.Remove():
            return [name]
        case (
            record_changes.Add(value)
            | record_changes.IfAbsent(value)
            | record_changes.Append(value)
            | record_changes.Prepend(value)
            | record_changes.Discard(value)
        ):
            return [name, _text(value)]
    return ["", _text(change)]


def _condition_to_data(collection: Collection, condition: conditions.Condition) -> list[Any]:
    name = type(condition).__name__
    match condition:
        case conditions.Where(attribute, sign, value):
            compared = [] if isinstance(value, conditions.Now) else [_text(value)]
            return [name, collection.known(attribute).member, sign, *compared]
        case conditions.Absent(attribute):
            return [name, None if attribute is None else collection.known(attribute).member]
        case conditions.AllOf(parts) | conditions.AnyOf(parts):
            return [name, *(_condition_to_data(collection, part) for part in parts)]
        case conditions.Not(part):
            return [name, _condition_to_data(collection, part)]


def _text(value: object) -> str:
    """A value of any type as text, so that the nesting limit applies to each value alone."""
    try:
        return codec.encode(_Leaf(value)).decode()
    except TypeError as error:
        raise InvalidInput(f"{value!r} has no portable form: {error}") from None


# ── the answer ────────────────────────────────────────────────────────────────────────────────────


class _Row(msgspec.Struct, frozen=True, array_like=True):
    """A row after the commit: only the members that are not in its action, which may be all."""

    version: model.Position  # ABSENT means the position of the commit
    born: model.Position  # ABSENT means the version
    members: msgspec.Raw


_rows = decoders.build(tuple[_Row | None, ...])


def encode_answer(
    schema: store.Schema,
    actions: Iterable[record_actions.Action],
    planned: Iterable[record_actions.PlannedWrite],
) -> bytes:
    """Encode the rows after the commit, to store them with the key for a repeat."""
    found = zip(actions, planned, strict=True)
    return msgspec.json.encode(
        [_to_row(schema.collection(one.collection), one, item) for one, item in found]
    )


def rows_from_answer(
    schema: store.Schema, actions: Sequence[record_actions.Action], receipt: model.Receipt
) -> tuple[record_actions.Stored | None, ...]:
    """Decode the rows as they were after the first call."""
    rows = zip(actions, _rows.decode(receipt.answer), strict=True)
    return tuple(
        None
        if row is None
        else _to_stored(schema.collection(action.collection), action, row, receipt)
        for action, row in rows
    )


def _to_row(
    collection: Collection, action: record_actions.Action, planned: record_actions.PlannedWrite
) -> _Row | None:
    if planned.value is None:
        return None
    version = planned.write.expect if isinstance(planned.write, model.Check) else model.ABSENT
    if not isinstance(action, _WHOLE_ROW_ACTIONS):
        return _Row(version, planned.born, msgspec.Raw(codec.encode(planned.value)))
    roles = (collection.role(role) for role in _FILLED_IN)
    filled = {one.member: getattr(planned.value, one.field) for one in roles if one is not None}
    return _Row(version, planned.born, msgspec.Raw(msgspec.json.encode(filled)))


def _to_stored(
    collection: Collection, action: record_actions.Action, row: _Row, receipt: model.Receipt
) -> record_actions.Stored:
    members = bytes(row.members)
    if isinstance(action, _WHOLE_ROW_ACTIONS):
        given = msgspec.json.decode(codec.encode(action.value))
        members = msgspec.json.encode(given | msgspec.json.decode(members))
    version = row.version or receipt.first
    value = codec.decode(members, collection.model)
    return record_actions.Stored(record_actions.key_of(action), version, row.born or version, value)
