"""What a generic call under an idempotency key asked, and how a repeat of it is answered.

asked:    the actions as data, equal where they ask for the same
answer:   the rows as the commit leaves them, without what the actions say themselves
answered: these rows again, whatever became of them meanwhile
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from tidegate import decoders
from tidegate.errors import InvalidInput
from tidegate.kernel import codec
from tidegate.kernel.attributes import FieldRole
from tidegate.kernel.collections import Collection
from tidegate.kernel.model import ABSENT, Check, Position, Receipt
from tidegate.kernel.records.actions import (
    Action,
    CheckRow,
    CreateRow,
    DeleteRow,
    PlannedWrite,
    PutRow,
    SaveRow,
    Stored,
    UpdateRow,
    key_of,
    normalize,
)
from tidegate.kernel.records.changes import Add, Append, Discard, IfAbsent, Prepend, Remove
from tidegate.kernel.records.conditions import Absent, AllOf, AnyOf, Condition, Not, Now, Where
from tidegate.kernel.store import Schema

_SAYING_ALL = (CreateRow, PutRow, SaveRow)  # but for what the kernel fills in
_FILLED_IN = (FieldRole.VERSION, FieldRole.CREATED_AT, FieldRole.UPDATED_AT)


# ── what was asked ────────────────────────────────────────────────────────────────────────────────


class RequestedActions(Struct, frozen=True):
    """Actions as lists of texts and numbers, each headed by the name of what it is."""

    actions: tuple[Any, ...]


class _Leaf(Struct, frozen=True):
    value: Any


def to_requested_actions(schema: Schema, actions: Iterable[Action]) -> RequestedActions:
    """Screened actions as data. What a call protects beside its policy is not part of it: that
    only refuses, and has passed.

    Raises:
        InvalidInput: a value without a portable form.
    """
    return RequestedActions(
        tuple(_asked(schema.collection(one.collection), one) for one in actions)
    )


def _asked(collection: Collection, action: Action) -> list[Any]:
    when = None if action.when is None else _condition(collection, action.when)
    said = [type(action).__name__, action.collection, action.id, action.expect, when]
    match action:
        case CreateRow() | PutRow() | SaveRow():
            return [*said, codec.encode(normalize(collection, action.value)).decode()]
        case UpdateRow():
            changes = {
                collection.known(name).member: _change(change)
                for name, change in action.changes.items()
            }
            return [*said, action.expected_version, changes]
        case DeleteRow() | CheckRow():
            return said


def _change(change: Any) -> list[Any]:
    name = type(change).__name__
    match change:
        case Remove():
            return [name]
        case Add(value) | IfAbsent(value) | Append(value) | Prepend(value) | Discard(value):
            return [name, _text(value)]
    return ["", _text(change)]


def _condition(collection: Collection, condition: Condition) -> list[Any]:
    name = type(condition).__name__
    match condition:
        case Where(attribute, sign, value):
            compared = [] if isinstance(value, Now) else [_text(value)]
            return [name, collection.known(attribute).member, sign, *compared]
        case Absent(attribute):
            return [name, None if attribute is None else collection.known(attribute).member]
        case AllOf(parts) | AnyOf(parts):
            return [name, *(_condition(collection, part) for part in parts)]
        case Not(part):
            return [name, _condition(collection, part)]


def _text(value: object) -> str:
    """A value of whatever type, so that how deep it is nested counts for itself alone."""
    try:
        return codec.encode(_Leaf(value)).decode()
    except TypeError as error:
        raise InvalidInput(f"{value!r} has no portable form: {error}") from None


# ── how it is answered ────────────────────────────────────────────────────────────────────────────


class _Row(Struct, frozen=True, array_like=True):
    """A row as it was: members that its action does not say, which may be all."""

    version: Position  # ABSENT: the position of the commit
    born: Position  # ABSENT: the version
    members: Raw


_rows = decoders.build(tuple[_Row | None, ...])


def encode_answer(
    schema: Schema, actions: Iterable[Action], planned: Iterable[PlannedWrite]
) -> bytes:
    """What to keep with the key, to answer a repeat from."""
    found = zip(actions, planned, strict=True)
    return msgspec.json.encode(
        [_row(schema.collection(one.collection), one, item) for one, item in found]
    )


def rows_from_answer(
    schema: Schema, actions: Sequence[Action], receipt: Receipt
) -> tuple[Stored | None, ...]:
    """The rows as the first copy of these actions left them."""
    rows = zip(actions, _rows.decode(receipt.answer), strict=True)
    return tuple(
        None if row is None else _stored(schema.collection(action.collection), action, row, receipt)
        for action, row in rows
    )


def _row(collection: Collection, action: Action, planned: PlannedWrite) -> _Row | None:
    if planned.value is None:
        return None
    version = planned.write.expect if isinstance(planned.write, Check) else ABSENT
    if not isinstance(action, _SAYING_ALL):
        return _Row(version, planned.born, Raw(codec.encode(planned.value)))
    roles = (collection.role(role) for role in _FILLED_IN)
    filled = {one.member: getattr(planned.value, one.field) for one in roles if one is not None}
    return _Row(version, planned.born, Raw(msgspec.json.encode(filled)))


def _stored(collection: Collection, action: Action, row: _Row, receipt: Receipt) -> Stored:
    members = bytes(row.members)
    if isinstance(action, _SAYING_ALL):
        said = msgspec.json.decode(codec.encode(action.value))
        members = msgspec.json.encode(said | msgspec.json.decode(members))
    version = row.version or receipt.first
    value = codec.decode(members, collection.model)
    return Stored(key_of(action), version, row.born or version, value)
