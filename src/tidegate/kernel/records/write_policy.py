"""What generic calls may do to the rows of a collection: ``MATRIX`` has a ruling for each verb."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from tidegate.errors import InvalidDefinition, InvalidInput
from tidegate.kernel.attributes import names_of


class WriteMode(StrEnum):
    """Whether rows may change after they were created."""

    MUTABLE = "mutable"
    WRITE_ONCE = "write_once"


@dataclass(frozen=True, slots=True)
class WritePolicy:
    """What generic calls may do to rows. By default they are mutable, and nothing is protected.

    Raises:
        InvalidDefinition: the mode is unknown, or the names are not a list of texts.
    """

    mode: WriteMode = WriteMode.MUTABLE
    protected_attributes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.mode or WriteMode.MUTABLE) not in list(WriteMode):
            raise InvalidDefinition(f"a write policy has no mode {self.mode!r}")
        try:
            names = names_of(self.protected_attributes)
        except InvalidInput as error:
            raise InvalidDefinition(error.detail) from None
        object.__setattr__(self, "mode", WriteMode(self.mode or WriteMode.MUTABLE))
        object.__setattr__(self, "protected_attributes", names)


class RowVerb(StrEnum):
    """What a generic call does to a row, also inside a transaction."""

    CREATE = "create"
    PUT = "put"
    SAVE = "save"
    UPDATE = "update"
    DELETE = "delete"
    BATCH_PUT = "batch put"
    BATCH_DELETE = "batch delete"
    CHECK = "check"


class Guarding(StrEnum):
    """How far a collection's rows are guarded: a column of the matrix."""

    PLAIN = "plain"
    PROTECTED = "mutable, with protected attributes"
    WRITE_ONCE = "write once"
    FOLDED = "folded"


class Ruling(StrEnum):
    """A cell of the matrix."""

    ALLOWED = "allowed"
    IF_ABSENT = "allowed where no row is yet"  # else ConditionFailed, as for any create
    IF_UNTOUCHED = "allowed unless it names a protected attribute"
    PROTECTED = "refused: it could overwrite a protected attribute"
    IMMUTABLE = "refused: the row does not change"


_OK, _NEW, _REST, _PIN, _NO = Ruling

# A batch has no conditions, and a save replaces any row. Neither can keep a protected attribute
# unchanged, so both are refused, even if the value would stay the same. Deletes are refused because
# a caller could delete the row and create it again with another value.
_RULINGS: Final[Mapping[RowVerb, tuple[Ruling, Ruling, Ruling, Ruling]]] = {
    # plain, protected, write once, folded
    RowVerb.CREATE: (_NEW, _NEW, _NEW, _NO),
    RowVerb.PUT: (_OK, _NEW, _NEW, _NO),
    RowVerb.SAVE: (_OK, _PIN, _NO, _NO),
    RowVerb.UPDATE: (_REST, _REST, _NO, _NO),
    RowVerb.DELETE: (_OK, _PIN, _NO, _NO),
    RowVerb.BATCH_PUT: (_OK, _PIN, _NO, _NO),
    RowVerb.BATCH_DELETE: (_OK, _PIN, _NO, _NO),
    RowVerb.CHECK: (_OK, _OK, _OK, _OK),
}


MATRIX: Final[Mapping[tuple[RowVerb, Guarding], Ruling]] = MappingProxyType(
    {
        (verb, guarding): ruling
        for verb, rulings in _RULINGS.items()
        for guarding, ruling in zip(Guarding, rulings, strict=True)
    }
)
