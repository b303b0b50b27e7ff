"""Conditions on one row, as a tree. Nothing is parsed, so operator precedence cannot surprise.

    AllOf(Where("lease_token", "==", token), Where("lease_expires_at", ">", NOW))

They are evaluated in Python on the row that was read, and the write is guarded by its version. A
comparison with an absent value is false under every operator; use ``Absent`` to accept one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

import msgspec

from tidegate import decoders
from tidegate.errors import InvalidInput
from tidegate.kernel.attributes import arms_of
from tidegate.kernel.collections import Collection

DEPTH_MAX = 16

_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = MappingProxyType(
    {
        "==": operator.eq,
        "!=": operator.ne,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
    }
)
_ORDERED = (int, str, datetime)


@dataclass(frozen=True, slots=True)
class Now:
    """The time of the attempt, for comparisons with a time attribute."""


NOW: Final = Now()


@dataclass(frozen=True, slots=True)
class Where:
    """Compares an attribute with a value. Raises: InvalidInput: an unknown operator."""

    name: str
    operator: str
    value: Any

    def __post_init__(self) -> None:
        if self.operator not in _OPERATORS:
            raise InvalidInput(f"no operator {self.operator!r}; known are {[*_OPERATORS]}")


@dataclass(frozen=True, slots=True)
class Absent:
    """True if the row has no value for this attribute; without a name: if there is no row."""

    name: str | None = None


@dataclass(frozen=True, slots=True, init=False)
class AllOf:
    """True if each of these is."""

    conditions: tuple[Condition, ...]

    def __init__(self, *conditions: Condition) -> None:
        object.__setattr__(self, "conditions", conditions)


@dataclass(frozen=True, slots=True, init=False)
class AnyOf:
    """True if at least one of these is."""

    conditions: tuple[Condition, ...]

    def __init__(self, *conditions: Condition) -> None:
        object.__setattr__(self, "conditions", conditions)


@dataclass(frozen=True, slots=True)
class Not:
    """True if this is false."""

    condition: Condition


Condition = Where | Absent | AllOf | AnyOf | Not


def check_condition(condition: Condition, collection: Collection, depth: int = 0) -> None:
    """Check everything about a condition that needs no row.

    A value of another type than the attribute's would compare as false, and as true inside ``Not``.
    So it is refused: a mistake must not disable a guard.

    Raises:
        InvalidInput.
    """
    if depth > DEPTH_MAX:
        raise InvalidInput(f"a condition is nested deeper than {DEPTH_MAX}")
    match condition:
        case Where():
            _check_comparison(condition, collection)
        case Absent(name):
            if name is not None:
                collection.known(name)
        case AllOf(conditions) | AnyOf(conditions):
            if not conditions:
                raise InvalidInput(f"{type(condition).__name__} needs at least one condition")
            for part in conditions:
                check_condition(part, collection, depth + 1)
        case Not(part):
            check_condition(part, collection, depth + 1)
        case _:
            raise InvalidInput(f"not a condition: {condition!r}")


def holds(
    condition: Condition, collection: Collection, row: msgspec.Struct | None, now: datetime
) -> bool:
    """Whether a checked condition is true for the row; None means that there is no row."""
    match condition:
        case Where(name, sign, value):
            found = _value(collection, row, name)
            if found is None:
                return False
            if isinstance(value, Now):
                return _OPERATORS[sign](found, now)
            # Convert to the attribute's type, so that a list compares as equal to a stored tuple.
            return _OPERATORS[sign](found, decoders.convert(value, collection.known(name).hint))
        case Absent(None):
            return row is None
        case Absent(str(name)):
            return _value(collection, row, name) is None
        case AllOf(conditions):
            return all(holds(part, collection, row, now) for part in conditions)
        case AnyOf(conditions):
            return any(holds(part, collection, row, now) for part in conditions)
        case Not(part):
            return not holds(part, collection, row, now)
    raise AssertionError(f"unchecked condition {condition!r}")


def _value(collection: Collection, row: msgspec.Struct | None, name: str) -> Any:
    return None if row is None else getattr(row, collection.known(name).field)


def _check_comparison(condition: Where, collection: Collection) -> None:
    attribute = collection.known(condition.name)
    where = f"{collection.name}.{attribute.member}"
    arms = arms_of(attribute.hint)
    if condition.operator not in ("==", "!=") and not set(arms) <= set(_ORDERED):
        raise InvalidInput(f"{where} has no order to compare by {condition.operator!r}")
    if isinstance(condition.value, Now):
        if arms != (datetime,):
            raise InvalidInput(f"{where} is not a time to compare with now")
        return
    if condition.value is None:
        raise InvalidInput(f"{where} is compared with None; say Absent({condition.name!r})")
    try:
        value = decoders.convert(condition.value, attribute.hint)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{where} is compared with {condition.value!r}: {error}") from None
    if isinstance(value, datetime) and value.tzinfo is None:
        raise InvalidInput(f"{where} is compared with a naive datetime")
