"""What a collection is: its rows' type, who may write them, and by which fields they are found.

The write policy belongs to the collection, that is, to the kind of row that a key names: no caller
can reach a row through another one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import msgspec

from tidegate import decoders
from tidegate.errors import ImmutableRecord, InvalidDefinition, InvalidInput, ProtectedField
from tidegate.kernel import attributes as kernel_attributes, codec
from tidegate.kernel.model import at_most
from tidegate.kernel.records import write_policy

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")

_SURROGATES = range(0xD800, 0xE000)  # no text holds them
_CONTROL = re.compile(r"[\x00-\x1f]")

RESERVED = frozenset({"id", "version", "born", "data"})
STAMPS = frozenset({"version", "born"})  # positions that every row carries
# The engines' own tables: no collection can be called so, and no call on rows can name them.
LOG_TABLES = re.compile(r"(event|log|sqlite|pg)_.*|idempotency_keys")
ENTRY_BYTES_MAX = 500  # with the id behind it, it is a key on DynamoDB

SEPARATOR = "\x1f"  # between the parts of an index entry; no key text holds a control character


class Writers(StrEnum):
    """Who writes a collection."""

    FOLDED = "folded"  # folds only: every generic write is refused, `differences` covers it
    KEPT = "kept"  # generic calls under its policy; no history


class Nature(StrEnum):
    """What a table is to an operator: which of them could be lost and made again, and how."""

    CANONICAL = "canonical"
    DERIVED = "derived"
    CACHE = "reducer cache"
    QUEUE = "outbound queue"
    LOOKUP = "security look-up"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Index:
    """Rows in the order of some columns, then of their id. A row that lacks one is not in it."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Collection:
    """A table of rows of one type.

    ``columns`` are members of the row's JSON object that the SQL engines show as columns;
    ``required`` are those that every row has: they are NOT NULL there. ``allowed`` narrows a column
    to some values, on every engine. ``stamps`` shows a row's version or ``born`` under another name
    there, as a column of its own.
    """

    name: str
    model: type[msgspec.Struct]
    writers: Writers = Writers.KEPT
    nature: Nature = Nature.KEPT
    policy: write_policy.WritePolicy = field(default_factory=write_policy.WritePolicy)
    columns: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    allowed: dict[str, frozenset[str]] = field(default_factory=dict)
    indexes: tuple[Index, ...] = ()
    stamps: Mapping[str, str] = field(default_factory=dict)  # name shown → "version" or "born"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidDefinition(f"a collection is named [a-z][a-z0-9_]*, found {self.name!r}")
        if LOG_TABLES.fullmatch(self.name):
            raise InvalidDefinition(f"{self.name} is the log's, not a collection of rows")
        codec.prepare(self.model)
        kernel_attributes.attributes_of(self.model)  # refuses roles that its fields cannot play
        for name in self.columns:
            if name not in self.members or name in RESERVED or not _COLUMN.fullmatch(name):
                raise InvalidDefinition(f"{self.name} has no member {name!r} to show as a column")
        for name in set(self.required) - set(self.columns):
            raise InvalidDefinition(f"{self.name}.{name} is required, but is no column")
        for name in self.allowed:
            if self.column_types.get(name) is not str:
                raise InvalidDefinition(f"{self.name}.{name} must be a text column to be narrowed")
        for index in self.indexes:
            if not index.columns:
                raise InvalidDefinition(f"index {index.name} of {self.name} has no columns")
            for name in index.columns:
                if self.column_types.get(name) is not str:
                    raise InvalidDefinition(
                        f"index {index.name} of {self.name} needs {name!r} as a text column"
                    )
        self._check_stamps()
        self._check_protected()
        self._projection  # noqa: B018 - built now, so that no request builds it

    # ── members and columns ──

    @cached_property
    def members(self) -> dict[str, str]:
        """JSON member name → field name of the model."""
        return {item.encode_name: item.name for item in decoders.fields_of(self.model)}

    @cached_property
    def column_types(self) -> dict[str, type]:
        """Each column's type as a database sees it: text or integer."""
        return {name: _column_type(self.attributes[name].hint) for name in self.columns}

    @cached_property
    def attributes(self) -> dict[str, kernel_attributes.Attribute]:
        """Every field of the model, by the name under which it is stored."""
        return kernel_attributes.attributes_of(self.model)

    def attribute(self, name: str) -> kernel_attributes.Attribute | None:
        """The attribute stored under this name, else the one of the field called so."""
        found = self.attributes.get(name)
        if found is None:
            found = next((item for item in self.attributes.values() if item.field == name), None)
        return found

    def known(self, name: str) -> kernel_attributes.Attribute:
        """As ``attribute``. Raises: InvalidInput: there is none."""
        found = self.attribute(name)
        if found is None:
            raise InvalidInput(f"{self.name} has no attribute {name!r}", field=name)
        return found

    def role(self, role: kernel_attributes.FieldRole) -> kernel_attributes.Attribute | None:
        """The attribute of this role; of several, the first."""
        return next((item for item in self.attributes.values() if item.role is role), None)

    # ── policy ──

    @cached_property
    def guarding(self) -> write_policy.Guarding:
        """This collection's column of the matrix. Write-once outranks protected attributes."""
        if self.writers is Writers.FOLDED:
            return write_policy.Guarding.FOLDED
        if self.policy.mode is write_policy.WriteMode.WRITE_ONCE:
            return write_policy.Guarding.WRITE_ONCE
        return write_policy.Guarding.PROTECTED if self.protected else write_policy.Guarding.PLAIN

    @cached_property
    def protected(self) -> frozenset[str]:
        """The protected attributes, by their stored names."""
        found = (self.attribute(name) for name in self.policy.protected_attributes)
        return frozenset(item.member for item in found if item is not None)

    def rule(self, verb: write_policy.RowVerb) -> write_policy.Ruling:
        """What the matrix says about this verb here.

        Raises:
            ImmutableRecord, ProtectedField: it says no, whatever the row holds.
        """
        ruling = write_policy.MATRIX[verb, self.guarding]
        if ruling is write_policy.Ruling.IMMUTABLE:
            written = "written by folds alone" if self.writers is Writers.FOLDED else "written once"
            raise ImmutableRecord(
                f"{verb}: a row of {self.name} is {written}", collection=self.name, operation=verb
            )
        if ruling is write_policy.Ruling.PROTECTED:
            raise ProtectedField(
                f"{verb}: {self.name} protects {sorted(self.protected)}",
                collection=self.name,
                operation=verb,
            )
        return ruling

    def check_untouched(self, names: Iterable[str], also_protected: Iterable[str] = ()) -> None:
        """Whether a change may name these attributes, spelt in whatever way.

        ``also_protected`` tightens the policy for one call; nothing loosens it.

        Raises:
            ProtectedField: one is protected.
            InvalidInput: ``also_protected`` is malformed or names what does not exist, which
                would protect nothing.
        """
        tightened = {self.known(name).member for name in kernel_attributes.names_of(also_protected)}
        for name in names:
            found = self.attribute(kernel_attributes.root(name))
            if found is not None and found.member in self.protected | tightened:
                raise ProtectedField(
                    f"{self.name}.{found.member} is protected",
                    collection=self.name,
                    field=found.member,
                )

    def check_id(self, id: str, value: msgspec.Struct) -> None:
        """Raises: InvalidInput: the row shows another id than it is stored under."""
        parts = [
            item.field
            for item in self.attributes.values()
            if item.role is kernel_attributes.FieldRole.ID
        ]
        shown = "/".join(str(getattr(value, part)) for part in parts)
        if parts and shown != id:
            raise InvalidInput(f"a row of {self.name} shows the id {shown!r}, its key is {id!r}")

    def _check_stamps(self) -> None:
        taken = {name.lower() for name in (*RESERVED, *self.members)}
        for name, stamp in self.stamps.items():
            if stamp not in STAMPS:
                raise InvalidDefinition(f"{self.name}.{name} shows {stamp!r}, which is no stamp")
            if name.lower() in taken or not _COLUMN.fullmatch(name):
                raise InvalidDefinition(f"{self.name} cannot show a stamp as {name!r}")

    def _check_protected(self) -> None:
        for name in self.policy.protected_attributes:
            found = self.attribute(name)
            if found is None:
                raise InvalidDefinition(f"{self.name} protects {name!r}, which it does not have")
            # Rows would freeze, or the kernel would have to break the rule with every write.
            if found.is_special:
                raise InvalidDefinition(
                    f"{self.name}.{name} is an id, a version, a time of the row or its ttl; "
                    "the kernel guards these itself"
                )

    # ── indexes ──

    @cached_property
    def _projection(self) -> msgspec.json.Decoder[Any]:
        """Decodes just the members that are narrowed or indexed, out of any JSON object."""
        wanted = {*self.allowed, *(name for index in self.indexes for name in index.columns)}
        members = [(name, Any, None) for name in sorted(wanted)]
        return decoders.build(msgspec.defstruct("Projection", members))

    @cached_property
    def _short(self) -> int:
        """As many bytes in each column fit into every index."""
        return ENTRY_BYTES_MAX // max([len(index.columns) for index in self.indexes], default=1)

    def check_row(self, id: str, data: bytes) -> None:
        """Raises: InvalidInput: not a row that every engine can hold; names the row."""
        try:
            if not data.isascii():
                data.decode()  # the decoder passes over members that it does not know
            row = self._projection.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{self.name}/{id} is not a JSON object: {error}") from None
        except RecursionError:
            raise InvalidInput(f"{self.name}/{id} is nested too deeply") from None
        self._check_allowed(row)
        short = self._short
        for text in msgspec.structs.astuple(row):
            if type(text) is str and not (
                len(text) < short and text.isascii() and text.isprintable()
            ):
                self.entries(data)  # looks closer: nearly all are short and plain
                return

    def entries(self, data: bytes) -> dict[str, str]:
        """Index name → the row's entry in it: its column values, joined, without the id.

        Raises:
            InvalidInput: a narrowed column with another value, an indexed one with a control
                character.
        """
        row = self._projection.decode(data)
        self._check_allowed(row)
        entries = {}
        for index in self.indexes:
            parts = [part for name in index.columns if isinstance(part := getattr(row, name), str)]
            if len(parts) == len(index.columns):
                if any(map(_CONTROL.search, parts)):
                    raise InvalidInput(f"{self.name}.{index.name} holds a control character")
                entries[index.name] = SEPARATOR.join(parts)
                size = len(entries[index.name].encode())
                at_most(f"bytes of an entry in {self.name}.{index.name}", size, ENTRY_BYTES_MAX)
        return entries

    def _check_allowed(self, row: Any) -> None:
        for name, values in self.allowed.items():
            found = getattr(row, name)
            if found is not None and found not in values:
                raise InvalidInput(
                    f"{self.name}.{name} is {found!r}, allowed are {sorted(values)}", field=name
                )

    def index(self, name: str) -> Index:
        """Raises: InvalidInput."""
        for index in self.indexes:
            if index.name == name:
                return index
        raise InvalidInput(f"{self.name} has no index {name!r}; it has {self._index_names()}")

    def _index_names(self) -> list[str]:
        return [index.name for index in self.indexes]


def entry(*parts: str) -> str:
    """The text of an index entry, or of its beginning: what ``range`` takes as a prefix."""
    return SEPARATOR.join(parts)


def least_above(beginning: str) -> str | None:
    """The least text that is greater than every text with this beginning; None if there is none."""
    kept = beginning.rstrip(chr(sys.maxunicode))
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    if following in _SURROGATES:
        following = _SURROGATES.stop
    return kept[:-1] + chr(following)


def by_name(collections: Iterable[Collection]) -> dict[str, Collection]:
    """Raises: InvalidDefinition: two collections of one name."""
    found: dict[str, Collection] = {}
    for collection in collections:
        if collection.name in found:
            raise InvalidDefinition(f"collection {collection.name} is declared twice")
        found[collection.name] = collection
    return found


def _column_type(hint: Any) -> type:
    return int if kernel_attributes.arms_of(hint)[0] in (int, bool) else str
