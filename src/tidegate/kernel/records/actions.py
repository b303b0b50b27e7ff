"""The actions of generic calls on rows, and how each becomes a guarded write.

    screen: before the row is read        policy, names, form
    plan:   on the row that was read      conditions, then one Put, Delete or Check at its version

Both are pure. One commit may hold the writes of several plans, and facts too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from tidegate.errors import ConditionFailed, InvalidInput, NotFound, VersionConflict
from tidegate.kernel import attributes, codec, model, store
from tidegate.kernel.collections import Collection
from tidegate.kernel.records import conditions, write_policy
from tidegate.kernel.records.changes import apply_change


@dataclass(frozen=True, slots=True, kw_only=True)
class _Action:
    """What every action may require of the existing row."""

    when: conditions.Condition | None = None
    expect: model.Position | None = None  # the row's version, as ``Stored.version`` shows it


@dataclass(frozen=True, slots=True)
class CreateRow(_Action):
    """Create a row that does not exist yet."""

    collection: str
    id: str
    value: msgspec.Struct


@dataclass(frozen=True, slots=True)
class PutRow(_Action):
    """Create or replace a row; only create it where the policy protects existing rows."""

    collection: str
    id: str
    value: msgspec.Struct


@dataclass(frozen=True, slots=True)
class SaveRow(_Action):
    """Create or replace a row."""

    collection: str
    id: str
    value: msgspec.Struct


@dataclass(frozen=True, slots=True)
class UpdateRow(_Action):
    """Change some attributes of an existing row, to plain values or by ``changes``.

    ``expected_version`` is compared with the model's own version attribute.
    """

    collection: str
    id: str
    changes: Mapping[str, Any]
    expected_version: int | None = field(default=None, kw_only=True)
    protected_attributes: Iterable[str] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True)
class DeleteRow(_Action):
    """Delete a row, which may be absent."""

    collection: str
    id: str


@dataclass(frozen=True, slots=True)
class CheckRow(_Action):
    """Make the transaction depend on a row without writing it."""

    collection: str
    id: str


Action = CreateRow | PutRow | SaveRow | UpdateRow | DeleteRow | CheckRow

_VERBS: Mapping[type[_Action], write_policy.RowVerb] = {
    CreateRow: write_policy.RowVerb.CREATE,
    PutRow: write_policy.RowVerb.PUT,
    SaveRow: write_policy.RowVerb.SAVE,
    UpdateRow: write_policy.RowVerb.UPDATE,
    DeleteRow: write_policy.RowVerb.DELETE,
    CheckRow: write_policy.RowVerb.CHECK,
}
_BATCHED: Mapping[write_policy.RowVerb, write_policy.RowVerb] = {
    write_policy.RowVerb.PUT: write_policy.RowVerb.BATCH_PUT,
    write_policy.RowVerb.DELETE: write_policy.RowVerb.BATCH_DELETE,
}


def key_of(action: Action) -> model.Key:
    return model.Key(action.collection, action.id)


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored row: its value, the position that last wrote it and the one that created it."""

    key: model.Key
    version: model.Position
    born: model.Position
    value: Any


# ── before the row is read ────────────────────────────────────────────────────────────────────────


def screen(schema: store.Schema, action: Action, *, batch: bool = False) -> None:
    """Refuse an action that cannot be valid for any row.

    Raises:
        InvalidInput: a key, name, value or condition has the wrong form.
        ImmutableRecord, ProtectedField: the policy does not allow the action.
    """
    collection = schema.collection(action.collection)
    model.check_text("a row id", action.id, model.ID_BYTES_MAX)
    collection.rule(_verb(action, batch=batch))
    if action.expect is not None:
        model.check_version("an expected version", action.expect)
    match action:
        case UpdateRow():
            _screen_update(collection, action)
        case CreateRow() | PutRow() | SaveRow():
            normalize(collection, action.value)
            collection.check_id(action.id, action.value)
        case CheckRow(when=None, expect=None):
            raise InvalidInput(f"a check of {action.collection}/{action.id} has no condition")
        case DeleteRow() | CheckRow():
            pass
    if action.when is not None:
        conditions.check_condition(action.when, collection)


def _verb(action: Action, *, batch: bool) -> write_policy.RowVerb:
    verb = _VERBS[type(action)]
    if not batch:
        return verb
    if verb not in _BATCHED or action.when is not None or action.expect is not None:
        raise InvalidInput("a batch takes puts and deletes without any condition")
    return _BATCHED[verb]


def _screen_update(collection: Collection, action: UpdateRow) -> None:
    """The order is part of the contract: a protected name is reported before an unknown one."""
    names = list(action.changes)
    if any(not isinstance(name, str) for name in names):
        raise InvalidInput(f"attributes are named by text, found {names!r}")
    collection.check_untouched(names, action.protected_attributes)
    found = [collection.known(name) for name in names]
    for attribute in found:
        match attribute.role:
            case (
                attributes.FieldRole.ID
                | attributes.FieldRole.VERSION
                | attributes.FieldRole.CREATED_AT
                | attributes.FieldRole.UPDATED_AT
            ):
                raise InvalidInput(
                    f"{collection.name}.{attribute.member} is the row's {attribute.role}; "
                    "no update sets it",
                    field=attribute.member,
                )
            case attributes.FieldRole.TTL | None:
                pass
    if len({attribute.member for attribute in found}) < len(found):
        raise InvalidInput(f"an update of {collection.name} names one attribute twice: {names}")
    if action.expected_version is not None:
        model.check_version("an expected version", action.expected_version)
        if collection.role(attributes.FieldRole.VERSION) is None:
            raise InvalidInput(f"{collection.name} has no version attribute to expect")
    if not found and collection.role(attributes.FieldRole.UPDATED_AT) is None:
        raise InvalidInput(f"an update of {collection.name} changes nothing")


# ── on the row that was read ──────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class PlannedWrite:
    """One write, guarded by the version that was read, and the value of the row after it."""

    write: model.Write
    value: msgspec.Struct | None
    born: model.Position

    def stored(self, receipt: model.Receipt) -> Stored | None:
        """The row after the commit; None if there is none."""
        match self.write:
            case model.Put(key=key, fact=cause):
                version = receipt.first + cause
                return Stored(key, version, self.born or version, self.value)
            case model.Check(key=key, expect=version) if version != model.ABSENT:
                return Stored(key, version, self.born, self.value)
        return None


def plan(
    schema: store.Schema, action: Action, record: model.Record | None, now: datetime
) -> PlannedWrite:
    """Turn a screened action into a write, given the row that was read.

    Raises:
        NotFound: the row of an update does not exist.
        VersionConflict, ConditionFailed: the row is not as the action requires.
        InvalidInput: a change does not fit the current value.
    """
    collection = schema.collection(action.collection)
    key = key_of(action)
    current = None if record is None else codec.decode(record.data, collection.model)
    version = model.ABSENT if record is None else record.version
    born = model.ABSENT if record is None else record.born
    _demand(collection, action, current, version, now)
    match action:
        case CreateRow() | PutRow() | SaveRow():
            value = _stamp(collection, action.value, current, now)
        case UpdateRow():
            assert current is not None, "an update of nothing is refused above"
            value = _stamp(collection, _update(collection, action, current), current, now)
        case DeleteRow():
            gone = model.Check(key, model.ABSENT) if record is None else model.Delete(key, version)
            return PlannedWrite(gone, None, born)
        case CheckRow():
            return PlannedWrite(model.Check(key, version), current, born)
    value = normalize(collection, value)
    return PlannedWrite(model.Put(key, codec.encode(value), version), value, born)


def _demand(
    collection: Collection,
    action: Action,
    current: msgspec.Struct | None,
    version: model.Position,
    now: datetime,
) -> None:
    where = f"{action.collection}/{action.id}"
    names = {"collection": action.collection, "id": action.id}
    ruling = collection.rule(_VERBS[type(action)])
    if isinstance(action, UpdateRow) and current is None:
        raise NotFound(f"{where} does not exist", **names)
    if ruling is write_policy.Ruling.IF_ABSENT and current is not None:
        raise ConditionFailed(f"{where} exists already", **names)
    if action.expect is not None and action.expect != version:
        raise VersionConflict(action.collection, action.id, action.expect, version)
    if isinstance(action, UpdateRow) and action.expected_version is not None:
        counter = collection.role(attributes.FieldRole.VERSION)
        assert counter is not None, "screened"
        counted = getattr(current, counter.field)
        if counted != action.expected_version:
            raise VersionConflict(action.collection, action.id, action.expected_version, counted)
    if action.when is not None and not conditions.holds(action.when, collection, current, now):
        raise ConditionFailed(f"the condition on {where} does not hold", **names)


def _update(collection: Collection, action: UpdateRow, current: msgspec.Struct) -> msgspec.Struct:
    fields = {}
    for name, change in action.changes.items():
        attribute = collection.known(name)
        fields[attribute.field] = apply_change(attribute, getattr(current, attribute.field), change)
    return msgspec.structs.replace(current, **fields)


def _stamp(
    collection: Collection, value: msgspec.Struct, current: msgspec.Struct | None, now: datetime
) -> msgspec.Struct:
    """Fill in the version and times. A version never decreases while its row exists."""
    fields: dict[str, Any] = {}
    if (
        counter := collection.role(attributes.FieldRole.VERSION)
    ) is not None and current is not None:
        fields[counter.field] = getattr(current, counter.field) + 1
    if (created := collection.role(attributes.FieldRole.CREATED_AT)) is not None:
        fields[created.field] = now if current is None else getattr(current, created.field)
    if (updated := collection.role(attributes.FieldRole.UPDATED_AT)) is not None:
        fields[updated.field] = now
    return msgspec.structs.replace(value, **fields) if fields else value


def normalize(collection: Collection, value: object) -> msgspec.Struct:
    """The value as it will be read back.

    A Struct checks no types when it is made. Without this, only the next reader would find a field
    of the wrong type.

    Raises:
        InvalidInput: it is not a valid value of the collection's model.
    """
    if type(value) is not collection.model:
        raise InvalidInput(
            f"{collection.name} keeps {collection.model.__name__}, found {type(value).__name__}"
        )
    assert isinstance(value, msgspec.Struct)
    try:
        return codec.decode(codec.encode(value), collection.model)
    except (TypeError, AttributeError) as error:
        raise InvalidInput(f"not a {collection.model.__name__}: {error}") from None
