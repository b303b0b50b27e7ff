"""JSON that many routes answer: pages of a list, written positions, problem details."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

Item = TypeVar("Item")


class Listed(Struct, Generic[Item], frozen=True):
    """One page. ``next`` is the cursor of the page behind it; none: this is the last."""

    items: tuple[Item, ...]
    next: str | None = None


class Written(Struct, frozen=True):
    """A change that landed, where there is nothing more to show."""

    position: int


class FieldError(Struct, frozen=True):
    """One thing wrong with a request: where, and why."""

    field: str
    detail: str


class Problem(Struct, frozen=True, omit_defaults=True):
    """RFC 9457, with a stable code. Further members say what was found and what is allowed."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    instance: str = ""
    errors: tuple[FieldError, ...] = ()
