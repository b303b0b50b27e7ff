"""What an update may do to an attribute, other than set a new value.

    {"status": "warming", "attempts": Add(1), "opened_at": IfAbsent(now), "notes": Append("late")}

Each is computed from the row that was read, and the write is guarded by that row's version. So two
concurrent additions are both counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from tidegate.errors import InvalidInput
from tidegate.kernel.attributes import Attribute


@dataclass(frozen=True, slots=True)
class Remove:
    """Set the model's default. If the model omits defaults, this removes the member."""


@dataclass(frozen=True, slots=True)
class Add:
    """Add a number, which may be negative; an absent value counts as 0."""

    by: int = 1


@dataclass(frozen=True, slots=True)
class IfAbsent:
    """Set this value unless there is one already."""

    value: Any


@dataclass(frozen=True, slots=True, init=False)
class Append:
    """Add these at the end of a list, or to a set."""

    items: tuple[Any, ...]

    def __init__(self, *items: Any) -> None:
        object.__setattr__(self, "items", items)


@dataclass(frozen=True, slots=True, init=False)
class Prepend:
    """Add these at the beginning of a list."""

    items: tuple[Any, ...]

    def __init__(self, *items: Any) -> None:
        object.__setattr__(self, "items", items)


@dataclass(frozen=True, slots=True, init=False)
class Discard:
    """Remove these from a set or list; one that is not in it is ignored."""

    items: tuple[Any, ...]

    def __init__(self, *items: Any) -> None:
        object.__setattr__(self, "items", items)


Change = Remove | Add | IfAbsent | Append | Prepend | Discard


def apply_change(attribute: Attribute, current: Any, change: Any) -> Any:
    """Return the attribute's value after the change, or the plain value that it is set to.

    Its type is checked later, with the whole row.

    Raises:
        InvalidInput: the change does not fit the current value.
    """
    match change:
        case Remove():
            if attribute.default is msgspec.NODEFAULT:
                raise InvalidInput(f"{attribute.member} cannot be removed", field=attribute.member)
            return attribute.default
        case Add(by):
            if type(by) is not int or type(0 if current is None else current) is not int:
                raise _unfit(attribute, current, change)
            return by + (current or 0)
        case IfAbsent(value):
            return value if current is None else current
        case Append(items):
            return (*_elements(attribute, current, change), *items)
        case Prepend(items) if not isinstance(current, set | frozenset):
            return (*items, *_elements(attribute, current, change))
        case Discard(items):
            return tuple(
                kept for kept in _elements(attribute, current, change) if kept not in items
            )
        case Prepend():
            raise _unfit(attribute, current, change)
        case _:
            return change


def _elements(attribute: Attribute, current: Any, change: Change) -> tuple[Any, ...]:
    if current is None:
        return ()
    if not isinstance(current, tuple | list | set | frozenset):
        raise _unfit(attribute, current, change)
    return tuple(current)


def _unfit(attribute: Attribute, current: Any, change: Change) -> InvalidInput:
    name = type(change).__name__
    return InvalidInput(
        f"{name} does not fit {attribute.member}, which is {current!r}", field=attribute.member
    )
