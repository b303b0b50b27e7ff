"""JSON that many routes return: pages of a list, positions of writes, problem documents."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

Item = TypeVar("Item")


class Listed(Struct, Generic[Item], frozen=True):
    """One page of a list. ``next`` is the cursor of the next page; null on the last one."""

    items: tuple[Item, ...]
    next: str | None = None


class Written(Struct, frozen=True):
    """A change that was saved, where there is nothing more to show."""

    position: int


class FieldError(Struct, frozen=True):
    """One invalid field of a request, and why it is invalid."""

    field: str
    detail: str


class Problem(Struct, frozen=True, omit_defaults=True):
    """A problem document of RFC 9457 with a stable code, and members for what was found."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    instance: str = ""
    errors: tuple[FieldError, ...] = ()
