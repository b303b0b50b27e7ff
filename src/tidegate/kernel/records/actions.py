"""What a generic call asks of a row, and the guarded write that it becomes.

    screen: before the row is read        policy, names, form
    plan:   on the row that was read      conditions, then one Put, Delete or Check at its version

Both are pure. Writes of several plans may go into one commit, beside facts too.
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
    """What every action may demand of the row that it finds."""

    when: conditions.Condition | None = None
    expect: model.Position | None = None  # the row's version, as ``Stored.version`` shows it


@dataclass(frozen=True, slots=True)
class CreateRow(_Action):
    """A row that is not there yet."""

    collection: str
    id: str
    value: msgspec.Struct


@dataclass(frozen=True, slots=True)
class PutRow(_Action):
    """This row, over whatever is there; a create, where the policy guards what is there."""

    collection: str
    id: str
    value: msgspec.Struct


@dataclass(frozen=True, slots=True)
class SaveRow(_Action):
    """This row, over whatever is there."""

    collection: str
    id: str
    value: msgspec.Struct


@dataclass(frozen=True, slots=True)
class UpdateRow(_Action):
    """Some attributes of a row that is there: plain values or ``changes``.

    ``expected_version`` is the count in the model's version attribute.
    """

    collection: str
    id: str
    changes: Mapping[str, Any]
    expected_version: int | None = field(default=None, kw_only=True)
    protected_attributes: Iterable[str] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True)
class DeleteRow(_Action):
    """No row, whether or not one was there."""

    collection: str
    id: str


@dataclass(frozen=True, slots=True)
class CheckRow(_Action):
    """Nothing is written, but all of it depends on this row."""

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
    """A row as it is kept: its value, the position that wrote it and the one that created it."""

    key: model.Key
    version: model.Position
    born: model.Position
    value: Any


# ── before the row is read ────────────────────────────────────────────────────────────────────────


def screen(schema: store.Schema, action: Action, *, batch: bool = False) -> None:
    """Refuse what no row could make right.

    Raises:
        InvalidInput: a key, name, value or condition of the wrong form.
        ImmutableRecord, ProtectedField: the policy says no.
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
            raise InvalidInput(f"a check of {action.collection}/{action.id} demands nothing")
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
    """The order is part of the contract: a protected name is told before an unknown one."""
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
    """One write, pinned to the row that was read, and the value that will then stand there."""

    write: model.Write
    value: msgspec.Struct | None
    born: model.Position

    def stored(self, receipt: model.Receipt) -> Stored | None:
        """The row as the commit left it; None where there is none."""
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
    """The write of a screened action, given the row as it was read.

    Raises:
        NotFound: an update of nothing; it never creates.
        VersionConflict, ConditionFailed: the row is not as the action demands.
        InvalidInput: a change that does not fit what is there.
    """
    collection = schema.collection(action.collection)
    key = key_of(action)
    current = None if record is None else codec.decode(record.data, collection.model)
    version = model.ABSENT if record is None else record.version
    born = model.ABSENT if record is None else record.born
    _demand(collection, action, current, version, now)
    match action:
        case CreateRow() | PutRow() | SaveRow():
            value = _stamped(collection, action.value, current, now)
        case UpdateRow():
            assert current is not None, "an update of nothing is refused above"
            value = _stamped(collection, _updated(collection, action, current), current, now)
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


def _updated(collection: Collection, action: UpdateRow, current: msgspec.Struct) -> msgspec.Struct:
    fields = {}
    for name, change in action.changes.items():
        attribute = collection.known(name)
        fields[attribute.field] = apply_change(attribute, getattr(current, attribute.field), change)
    return msgspec.structs.replace(current, **fields)


def _stamped(
    collection: Collection, value: msgspec.Struct, current: msgspec.Struct | None, now: datetime
) -> msgspec.Struct:
    """The value with what the kernel fills in. A version never goes back while its row lives."""
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
    """The value as it will be read back. Raises: InvalidInput: it is not one of this model.

    A Struct checks nothing when it is made, so a field of the wrong type would be found by the
    next reader only.
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
