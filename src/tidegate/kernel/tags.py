"""Tags: the fields by which a fact is found, declared as annotations of its type.

    class OrderPlaced(Struct, frozen=True):
        order_id: Annotated[str, Partition()]     indexed under order_id:…
        customer_id: Annotated[str, Cross()]      indexed under customer_id:… too
        product_ids: tuple[str, ...]              a plain tag per element: carried, not indexed
        invoice_id: Annotated[str, Untagged()]    payload

Fields named ``…_id``, ``…Id`` and their plurals are tags by default. The key is the field's JSON
name in the singular, so a list element and a scalar field name the same tag.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from operator import add, attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from msgspec import Struct

from tidegate.decoders import fields_of, hints_of
from tidegate.errors import InvalidDefinition, InvalidInput
from tidegate.kernel.model import TAG_BYTES_MAX, TAGS_MAX, at_most, check_tag

ALL_INDEX = "all:*"
TAGGED_MAX = 8_192  # cached tags of facts, shared by types with the same tag fields
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")  # no digit first: so no tag looks like a set name


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag that events carry without being indexed under it; ``key`` overrides the name."""

    key: str | None = None


@dataclass(frozen=True, slots=True)
class Partition(Tag):
    """The one tag under which every event of this type is indexed."""


@dataclass(frozen=True, slots=True)
class Cross(Tag):
    """A tag for reads across partitions: every event that carries it is indexed under it."""


@dataclass(frozen=True, slots=True)
class Untagged:
    """Marks a field as payload although its name looks like an id."""


class Scope(StrEnum):
    """Whether and how an event is indexed under a tag that it carries."""

    PARTITION = "partition"
    CROSS = "cross-partition"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class TagField:
    """One tagged field of a fact or a command."""

    name: str
    key: str
    scope: Scope
    many: bool
    optional: bool
    is_text: bool = False  # a single ``str``, so the tag is just the key and this text

    def tags(self, value: Struct) -> tuple[str, ...]:
        """The tags that this field gives the value, distinct, in order. Raises: InvalidInput."""
        content = getattr(value, self.name)
        if self.many:
            return tuple(dict.fromkeys(self._tag(element) for element in content))
        return () if content is None else (self._tag(content),)

    def _tag(self, content: object) -> str:
        if content == "":
            raise InvalidInput(f"{self.name} is empty; as a tag it needs a value", field=self.name)
        tag = f"{self.key}:{content}"
        check_tag(tag)
        return tag


@cache
def tag_fields(struct: type[Struct]) -> tuple[TagField, ...]:
    """The tagged fields of a fact or command type, in field order.

    Raises:
        InvalidDefinition: a tagged field has no text form, two fields have one key, or there are
            two partition tags.
    """
    hints = hints_of(struct)
    found = []
    for item in fields_of(struct):
        hint, notes = annotations_of(hints[item.name])
        note = next((n for n in notes if isinstance(n, Tag | Untagged)), None)
        if isinstance(note, Untagged) or (note is None and not _is_id(item.encode_name)):
            continue
        found.append(_tag_field(struct, item.name, item.encode_name, hint, note))
    keys = [tag.key for tag in found]
    if len(set(keys)) != len(keys):
        raise InvalidDefinition(f"{struct.__name__} has two fields for one tag key: {keys}")
    if len(found) == 1 and found[0].scope is Scope.PLAIN and not found[0].many:
        # The only tag of a type is its partition tag.
        found = [replace(found[0], scope=Scope.PARTITION)]
    partitions = [tag for tag in found if tag.scope is Scope.PARTITION]
    if len(partitions) > 1:
        raise InvalidDefinition(f"{struct.__name__} has more than one partition tag")
    if any(tag.many or tag.optional for tag in partitions):
        raise InvalidDefinition(f"the partition tag of {struct.__name__} must be one plain value")
    return tuple(found)


@cache
def tagging(fields: tuple[TagField, ...]) -> Callable[[Struct], tuple[str, ...]]:
    """Make the function that returns the tags of a fact with these fields.

    It caches them by the values of the fields, because the facts of one host or revision have the
    same tags.
    """

    def tags_of(value: Struct) -> tuple[str, ...]:
        tags = [tag for found in fields for tag in found.tags(value)]
        at_most("tags of a fact", len(tags), TAGS_MAX)
        return tuple(sorted(tags))  # they are distinct: no two fields have the same key

    if len(fields) < 2 or not all(found.is_text for found in fields):
        return tags_of
    # No key with its colon is a prefix of another one, so sorting the keys sorts the tags.
    prefixes, names = zip(*sorted((f"{found.key}:", found.name) for found in fields), strict=True)
    members = attrgetter(*names)
    short = TAG_BYTES_MAX - max(map(len, prefixes))
    made: dict[tuple[str, ...], tuple[str, ...]] = {}

    def cached_tags_of(value: Struct) -> tuple[str, ...]:
        texts = members(value)
        try:
            tags = made.get(texts)
            if tags is not None:
                return tags
            together = "".join(texts)
        except TypeError:  # a value is None, or not a text although its type says so
            return tags_of(value)
        plain = len(together) <= short and together.isascii() and together.isprintable()
        tags = tuple(map(add, prefixes, texts)) if plain and all(texts) else tags_of(value)
        if len(made) >= TAGGED_MAX:
            made.clear()
        made[texts] = tags
        return tags

    return cached_tags_of


def _tag_field(
    struct: type[Struct], name: str, encode_name: str, hint: Any, note: Tag | Untagged | None
) -> TagField:
    optional = False
    if get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint):
        optional = True
        hint, _ = annotations_of(next(arm for arm in get_args(hint) if arm is not NoneType))
    many = get_origin(hint) in (tuple, list, frozenset, set)
    element = annotations_of(get_args(hint)[0])[0] if many else hint
    if not (isinstance(element, type) and issubclass(element, str | int)):
        raise InvalidDefinition(
            f"{struct.__name__}.{name} is a tag but has no text form: {hint}; mark it Untagged()"
        )
    scope = Scope.PLAIN
    if isinstance(note, Partition):
        scope = Scope.PARTITION
    elif isinstance(note, Cross):
        scope = Scope.CROSS
    key = getattr(note, "key", None) or _singular(encode_name)
    if ":" in key:
        raise InvalidDefinition(f"the tag key {key!r} of {struct.__name__}.{name} holds a colon")
    if not _KEY.fullmatch(key) or key == ALL_INDEX.partition(":")[0]:
        raise InvalidDefinition(f"{struct.__name__}.{name} cannot have the tag key {key!r}")
    return TagField(name, key, scope, many, optional, is_text=element is str and not many)


def annotations_of(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        deeper, more = annotations_of(inner)
        return deeper, (*more, *notes)
    if hasattr(hint, "__supertype__"):
        return annotations_of(hint.__supertype__)
    return hint, ()


def _is_id(name: str) -> bool:
    return name.endswith(("_id", "_ids", "Id", "Ids"))


def _singular(name: str) -> str:
    return name[:-1] if name.endswith(("_ids", "Ids")) else name
