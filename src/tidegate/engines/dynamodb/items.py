"""The items of the table: their keys and attributes, and conversions in both directions.

    counter               -              n, and the era in which numbers are taken
    log#<n div 1000>      n              the slot of transaction n: its id and events, or VOID
                          n.01 …         further parts of the slot, if one item is too small
    index#<name>          position       the events of one commit that have this index
                          FENCE          high, and position and count by type (sorts after digits)
    record#<collection>   id             version, born, high, data; no version: the row is absent
    entry#<coll>#<index>  entry ␟ id     one index entry of a row
    key#<key>             -              an idempotency key: digest, answer, positions
    meta                  rules          the rules by which the events of each type are indexed
                          format         the number of the log's format
    presence              -              which processes have the log open (presence.py)

A position is n * 128 + ordinal. Slots and index items never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import msgspec

from tidegate import decoders
from tidegate.engines.dynamodb.transport import PK, SK, Item, ItemKey, Value
from tidegate.kernel import codec, model
from tidegate.kernel.collections import SEPARATOR

SPAN: Final = model.FACTS_MAX  # positions of one transaction
SEGMENT_SLOTS: Final = 1_000  # slots of one partition of the log
ITEM_BYTES_MAX = 350_000  # without names and keys; the service allows 409,600 with them
INLINE_BYTES_MAX = 16 * 1024  # an index item above this points to its slot
DIGITS: Final = 16  # of the largest position, 2**53 - 1

COUNTER: Final = ItemKey("counter", "-")
COUNT_ATTRIBUTE: Final = "n"
ERA: Final = "era"  # absent, which means 0, until a process was alone with the log
FENCE: Final = "FENCE"
FORMAT: Final = ItemKey("meta", "format")
FORMAT_ATTRIBUTE: Final = "format"


# ── the log ───────────────────────────────────────────────────────────────────────────────────────


class StoredEvent(msgspec.Struct, frozen=True, array_like=True):
    """A fact with its position, as it is encoded in slots and index items."""

    position: model.Position
    kind: str
    type: str
    schema: int
    tags: tuple[str, ...]
    body: bytes
    meta: model.Meta | None = None  # None: the commit's


class StoredCommit(msgspec.Struct, frozen=True, array_like=True):
    """Events of one commit, with the members that they share."""

    at: str
    meta: model.Meta
    once: str | None
    events: tuple[StoredEvent, ...]

    def unpacked(self) -> Iterable[model.Event]:
        at = codec.time_value(self.at)
        for one in self.events:
            meta = self.meta if one.meta is None else one.meta
            yield model.Event(
                one.position, at, one.kind, one.type, one.schema, one.tags, meta, one.body
            )


_encode = msgspec.msgpack.Encoder().encode
_slot_decoder = decoders.build_msgpack(tuple[StoredCommit, ...])
_commit_decoder = decoders.build_msgpack(StoredCommit)
_pointers_decoder = decoders.build_msgpack(tuple[tuple[model.Position, str], ...])


def pack_events(
    commit: model.Commit, facts: Iterable[tuple[model.Position, model.Fact]]
) -> StoredCommit:
    """Make the stored form of these facts of the commit."""
    events = tuple(
        StoredEvent(position, fact.kind, fact.type, fact.schema, fact.tags, fact.body, fact.meta)
        for position, fact in facts
    )
    once = None if commit.once is None else commit.once.key
    return StoredCommit(codec.time_text(commit.at), commit.meta, once, events)


def slot_place(number: int, part: int = 0) -> ItemKey:
    name = f"{number:0{DIGITS}}"
    return ItemKey(f"log#{number // SEGMENT_SLOTS}", f"{name}.{part:02}" if part else name)


def slot_items(number: int, tx: str, commits: Sequence[StoredCommit]) -> list[Item]:
    """The items of a slot: its first part, and further ones if the events need them."""
    content = _encode(commits)
    chunks = [
        content[start : start + ITEM_BYTES_MAX] for start in range(0, len(content), ITEM_BYTES_MAX)
    ]
    items = [_item(slot_place(number, part), events=chunk) for part, chunk in enumerate(chunks)]
    items[0] |= {"tx": tx, "parts": len(chunks)}
    return items


def void_slot(number: int) -> Item:
    """The item that voids a number, so that no transaction can use it any more."""
    return _item(slot_place(number), void=1)


def slot_transaction(slot: Item) -> str | None:
    """The id of the transaction that filled the slot; None if the slot is void."""
    tx = slot.get("tx")
    assert tx is None or isinstance(tx, str)
    return tx


def slot_number(place: ItemKey) -> tuple[int, int]:
    """The transaction's number and which part of its slot this is."""
    number, _, part = place.sk.partition(".")
    return int(number), int(part or 0)


def part_places(slot: Item) -> list[ItemKey]:
    """The keys of the further parts of a slot."""
    number, _ = slot_number(ItemKey(text(slot, PK), text(slot, SK)))
    return [slot_place(number, part) for part in range(1, integer(slot, "parts"))]


def slot_events(slot: Item, parts: Sequence[Item]) -> list[model.Event]:
    """The events of a slot and its further parts, in order; none if it is void."""
    if "void" in slot:
        return []
    content = b"".join(blob(item, "events") for item in (slot, *parts))
    return [event for commit in _slot_decoder.decode(content) for event in commit.unpacked()]


# ── indexes and their fences ──────────────────────────────────────────────────────────────────────


def index_partition(name: str) -> str:
    return f"index#{name}"


def index_item(name: str, commit: StoredCommit, *, inline: bool) -> Item:
    """The item of the commit's events in one index: whole if they are small, else positions."""
    place = ItemKey(index_partition(name), f"{commit.events[0].position:0{DIGITS}}")
    if inline and len(content := _encode(commit)) <= INLINE_BYTES_MAX:
        return _item(place, events=content)
    return _item(place, at_slot=_encode([(one.position, one.type) for one in commit.events]))


def index_events(item: Item) -> tuple[list[model.Event], tuple[model.Position, ...]]:
    """The events in an index item, and the positions of events that are only in their slot."""
    if "events" in item:
        return list(_commit_decoder.decode(blob(item, "events")).unpacked()), ()
    pointers = _pointers_decoder.decode(blob(item, "at_slot"))
    return [], tuple(position for position, _ in pointers)


def fence_place(name: str) -> ItemKey:
    return ItemKey(index_partition(name), FENCE)


def position_attribute(type_name: str | None) -> str:
    """The attribute of a fence with the newest position of a type, or of any type."""
    return "pos" if type_name is None else f"pos#{type_name}"


def count_attribute(type_name: str | None) -> str:
    """The attribute of a fence with the number of events of a type, or of any type."""
    return "count" if type_name is None else f"count#{type_name}"


@dataclass(frozen=True, slots=True)
class Fence:
    """The positions and counts of an index as of one moment; 0 where there are no events."""

    item: Mapping[str, Value] = field(default_factory=dict)

    def position(self, type_name: str | None) -> model.Position:
        return integer(self.item, position_attribute(type_name))

    @property
    def high(self) -> int:
        """The highest number of a transaction that wrote or consumed the index."""
        return integer(self.item, "high")

    def count(self, type_name: str | None) -> int:
        return integer(self.item, count_attribute(type_name))


# ── rows, their entries, idempotency keys ─────────────────────────────────────────────────────────


def row_partition(collection: str) -> str:
    return f"record#{collection}"


def row_place(key: model.Key) -> ItemKey:
    return ItemKey(row_partition(key.collection), key.id)


def row_version(item: Mapping[str, Value]) -> model.Position:
    """The version of a row item; ABSENT if it has none."""
    return integer(item, "version") or model.ABSENT


def row_record(collection: str, item: Mapping[str, Value]) -> model.Record | None:
    version = row_version(item)
    if version == model.ABSENT:
        return None
    key = model.Key(collection, text(item, SK))
    return model.Record(key, version, integer(item, "born"), blob(item, "data"))


def row_item(record: model.Record) -> Item:
    """The item of a row, for a rebuild."""
    high = record.version // SPAN
    place = row_place(record.key)
    return _item(place, version=record.version, born=record.born, high=high, data=record.data)


def entry_partition(collection: str, index: str) -> str:
    return f"entry#{collection}#{index}"


def entry_item(key: model.Key, index: str, entry: str) -> Item:
    place = ItemKey(entry_partition(key.collection, index), entry + SEPARATOR + key.id)
    return _item(place, id=key.id)


def once_place(key: str) -> ItemKey:
    return ItemKey(f"key#{key}", "-")


def once_item(commit: model.Commit, receipt: model.Receipt, now: float) -> Item:
    """The item of a commit's idempotency key. It expires by the service's clock."""
    assert commit.once is not None
    return _item(
        once_place(commit.once.key),
        digest=commit.once.digest,
        answer=commit.once.answer,
        first=receipt.first,
        last=receipt.last,
        at=codec.time_text(receipt.at),
        expires=expiry(now, model.ONCE_KEPT),
    )


def once_receipt(item: Item) -> model.Receipt:
    """The receipt of the first commit with this key."""
    at = codec.time_value(text(item, "at"))
    first, last = integer(item, "first"), integer(item, "last")
    answer, digest = blob(item, "answer"), blob(item, "digest")
    return model.Receipt(first, last, at, answer, replayed=True, digest=digest)


def expiry(now: float, kept: timedelta) -> int:
    """The time after which the service may delete an item that is kept this long."""
    return int(now + kept.total_seconds())


# ── attributes ────────────────────────────────────────────────────────────────────────────────────


def _item(place: ItemKey, **attributes: Value) -> Item:
    return {PK: place.pk, SK: place.sk, **attributes}


def text(item: Mapping[str, Value], name: str) -> str:
    value = item[name]
    assert isinstance(value, str), f"{name} is {value!r}"
    return value


def blob(item: Mapping[str, Value], name: str) -> bytes:
    value = item[name]
    assert isinstance(value, bytes), f"{name} is {value!r}"
    return value


def integer(item: Mapping[str, Value], name: str) -> int:
    """An integer attribute; 0 if it is absent."""
    value = item.get(name, 0)
    assert isinstance(value, int), f"{name} is {value!r}"
    return value


def size(item: Mapping[str, Value]) -> int:
    """The bytes of an item as the service counts them, with numbers at their maximum."""
    return sum(len(name.encode()) + _value_size(value) for name, value in item.items())


def _value_size(value: Value) -> int:
    if isinstance(value, str):
        return len(value.encode())
    return len(value) if isinstance(value, bytes) else 21
