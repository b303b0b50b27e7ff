"""What a collection is: the type of its rows, who may write them, and its indexes.

The write policy belongs to the collection, and a row's key names its collection. So no caller can
choose another policy for a row.
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

_SURROGATES = range(0xD800, 0xE000)  # no valid text holds these characters
_CONTROL = re.compile(r"[\x00-\x1f]")

RESERVED = frozenset({"id", "version", "born", "data"})
STAMPS = frozenset({"version", "born"})  # positions that every row has
# The engines' own tables: no collection can have such a name, so no call on rows can reach them.
LOG_TABLES = re.compile(r"(event|log|sqlite|pg)_.*|idempotency_keys")
ENTRY_BYTES_MAX = 500  # on DynamoDB the entry and the id after it are one key

SEPARATOR = "\x1f"  # between the parts of an index entry; no key text holds a control character


class Writers(StrEnum):
    """Who writes a collection."""

    FOLDED = "folded"  # folds only: every generic write is refused, and `differences` checks it
    KEPT = "kept"  # generic calls under its write policy; without history


class Nature(StrEnum):
    """What a table is to an operator: whether it can be rebuilt if it is lost, and how."""

    CANONICAL = "canonical"  # the event log alone: never lost, never changed, copied to the archive
    DERIVED = "derived"  # rebuilt from the log, row by row (`views rebuild`)
    CACHE = "reducer cache"  # rebuilt from the log by a start that finds it empty
    QUEUE = "outbound queue"  # work in flight: refilled from the caches
    LOOKUP = "security look-up"  # rows are deleted when nothing needs them any more
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Index:
    """Rows in the order of some columns, then of their ids.

    A row that has no value in one of the columns is not in the index.
    """

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Collection:
    """A table of rows of one type.

    ``columns`` are the members of the row's JSON object that are columns on the SQL engines. Those
    in ``required`` are NOT NULL there. ``allowed`` limits a column to some values, on every engine.
    ``stamps`` adds a column there that shows a row's version or ``born`` under another name.
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
        self._projection  # noqa: B018 - build it now, so that no request has to

    # ── members and columns ──

    @cached_property
    def members(self) -> dict[str, str]:
        """JSON member name → field name of the model."""
        return {item.encode_name: item.name for item in decoders.fields_of(self.model)}

    @cached_property
    def column_types(self) -> dict[str, type]:
        """Each column's type in a database: text or integer."""
        return {name: _column_type(self.attributes[name].hint) for name in self.columns}

    @cached_property
    def attributes(self) -> dict[str, kernel_attributes.Attribute]:
        """Every field of the model, by the name under which it is stored."""
        return kernel_attributes.attributes_of(self.model)

    def attribute(self, name: str) -> kernel_attributes.Attribute | None:
        """The attribute that is stored under this name, else the one with this field name."""
        found = self.attributes.get(name)
        if found is None:
            found = next((item for item in self.attributes.values() if item.field == name), None)
        return found

    def known(self, name: str) -> kernel_attributes.Attribute:
        """The attribute with this stored name or field name. Raises: InvalidInput: none has it."""
        found = self.attribute(name)
        if found is None:
            raise InvalidInput(f"{self.name} has no attribute {name!r}", field=name)
        return found

    def role(self, role: kernel_attributes.FieldRole) -> kernel_attributes.Attribute | None:
        """The first attribute with this role."""
        return next((item for item in self.attributes.values() if item.role is role), None)

    # ── policy ──

    @cached_property
    def guarding(self) -> write_policy.Guarding:
        """This collection's column of the matrix. Write-once wins over protected attributes."""
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
        """The matrix's ruling on this verb for this collection.

        Raises:
            ImmutableRecord, ProtectedField: the verb is refused for every row.
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
        """Check that a change names no protected attribute, by its stored name or field name.

        ``also_protected`` protects more attributes for one call. No call can protect fewer.

        Raises:
            ProtectedField: one is protected.
            InvalidInput: ``also_protected`` is malformed, or names an attribute that does not
                exist and so would protect nothing.
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
        """Raises: InvalidInput: the id in the row is not the id of its key."""
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
            # The kernel itself writes these, so either no row could change, or each write would
            # break the policy.
            if found.is_special:
                raise InvalidDefinition(
                    f"{self.name}.{name} is an id, a version, a time of the row or its ttl; "
                    "the kernel guards these itself"
                )

    # ── indexes ──

    @cached_property
    def _projection(self) -> msgspec.json.Decoder[Any]:
        """Decodes only the members of a row that are limited or indexed."""
        wanted = {*self.allowed, *(name for index in self.indexes for name in index.columns)}
        members = [(name, Any, None) for name in sorted(wanted)]
        return decoders.build(msgspec.defstruct("Projection", members))

    @cached_property
    def _short(self) -> int:
        """Columns of at most this many bytes fit into every index."""
        return ENTRY_BYTES_MAX // max([len(index.columns) for index in self.indexes], default=1)

    def check_row(self, id: str, data: bytes) -> None:
        """Raises: InvalidInput, naming the row: not every engine can store it."""
        try:
            if not data.isascii():
                data.decode()  # the projection skips other members, so it would miss bad UTF-8
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
                self.entries(data)  # the full check; nearly all columns are short and plain
                return

    def entries(self, data: bytes) -> dict[str, str]:
        """Index name → the row's entry in it: its column values, joined, without the id.

        Raises:
            InvalidInput: a column has a value that is not allowed, or an indexed one has a control
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
    """Join values to an index entry, or to the beginning of one as a prefix for ``range``."""
    return SEPARATOR.join(parts)


def least_above(beginning: str) -> str | None:
    """The smallest text above every text with this beginning; None if there is none."""
    kept = beginning.rstrip(chr(sys.maxunicode))
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    if following in _SURROGATES:
        following = _SURROGATES.stop
    return kept[:-1] + chr(following)


def by_name(collections: Iterable[Collection]) -> dict[str, Collection]:
    """Map the collections by name. Raises: InvalidDefinition: two have the same name."""
    found: dict[str, Collection] = {}
    for collection in collections:
        if collection.name in found:
            raise InvalidDefinition(f"collection {collection.name} is declared twice")
        found[collection.name] = collection
    return found


def _column_type(hint: Any) -> type:
    return int if kernel_attributes.arms_of(hint)[0] in (int, bool) else str
