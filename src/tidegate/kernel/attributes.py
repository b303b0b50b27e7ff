"""How the fields of a row are named, stored and filled in.

A field has two names: the one in Python and the one under which it is stored. A caller may use
either. If they clash, the stored name wins, because policies and documents show it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec

from tidegate.decoders import fields_of, hints_of
from tidegate.errors import InvalidDefinition, InvalidInput

_ROOT = re.compile(r"[^\s.\[=,)]*")


class FieldRole(StrEnum):
    """What the kernel uses a field for, as an annotation: ``Annotated[int, FieldRole.TTL]``."""

    ID = "id"  # part of the row's id; several are joined by "/"
    VERSION = "version"  # 0 at first, increased by 1 with each write
    CREATED_AT = "created_at"
    UPDATED_AT = "updated_at"
    TTL = "ttl"  # when the row may be deleted; reads do not look at it


_ROLE_TYPES: Final[Mapping[FieldRole, tuple[type, ...]]] = MappingProxyType(
    {
        FieldRole.ID: (str,),
        FieldRole.VERSION: (int,),
        FieldRole.CREATED_AT: (datetime,),
        FieldRole.UPDATED_AT: (datetime,),
        FieldRole.TTL: (int, datetime),
    }
)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One field of a row's model."""

    member: str  # its name as stored
    field: str  # its name in Python
    hint: Any
    role: FieldRole | None
    default: Any  # NODEFAULT where the model requires a value

    @property
    def is_special(self) -> bool:
        """Whether the kernel guards the field itself, by its role or because it is named so."""
        return self.role is not None or bool({self.field, self.member} & set(FieldRole))


def attributes_of(model: type[msgspec.Struct]) -> dict[str, Attribute]:
    """Every field of the model, by its stored name.

    Raises:
        InvalidDefinition: a field's type does not fit its role, or two fields have one role.
    """
    hints = hints_of(model)
    found = {}
    roles: set[FieldRole] = set()
    for item in fields_of(model):
        role = _role(hints[item.name])
        if role is not None:
            arms = arms_of(hints[item.name])
            if not arms or not set(arms) <= set(_ROLE_TYPES[role]):
                raise InvalidDefinition(f"{model.__name__}.{item.name} cannot be its {role}")
            if role in roles and role is not FieldRole.ID:
                raise InvalidDefinition(f"{model.__name__} has two fields as its {role}")
            roles.add(role)
        found[item.encode_name] = Attribute(
            item.encode_name, item.name, hints[item.name], role, _default(item)
        )
    return found


def root(name: str) -> str:
    """The attribute at the start of a path or expression: ``pin`` of ``pin.value``."""
    match = _ROOT.match(name)
    assert match is not None, "the pattern matches the empty text"
    return match[0]


def names_of(names: Iterable[object]) -> tuple[str, ...]:
    """Strip, deduplicate and sort a caller's attribute names. Raises: InvalidInput."""
    if isinstance(names, str):
        raise InvalidInput(f"protected attributes are a list of names, found the text {names!r}")
    found = set()
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise InvalidInput(f"a protected attribute is named by a text, found {name!r}")
        found.add(name.strip())
    return tuple(sorted(found))


def arms_of(hint: Any) -> tuple[Any, ...]:
    """The types that a hint allows, without None."""
    if get_origin(hint) is Annotated:
        return arms_of(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return tuple(arm for part in get_args(hint) for arm in arms_of(part))
    return () if hint is NoneType else (hint,)


def _role(hint: Any) -> FieldRole | None:
    notes = getattr(hint, "__metadata__", ())
    inner = (_role(arm) for arm in get_args(hint) if get_origin(arm) is Annotated)
    return next((note for note in (*notes, *inner) if isinstance(note, FieldRole)), None)


def _default(item: msgspec.structs.FieldInfo) -> Any:
    if item.default_factory is not msgspec.NODEFAULT:
        return item.default_factory()
    return item.default
