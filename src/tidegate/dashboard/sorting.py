"""Sorted lists: headings that are links, and pages that stay stable.

`?sort=name` sorts ascending, `?sort=-name` descending. A page starts after the sort key of the last
row of the page before, not at a count, so rows that come and go in between change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from tidegate import decoders
from tidegate.dashboard.components import Heading, address

Row = TypeVar("Row")
SortKey = str | int | datetime | None

KEY_CHARS_MAX: Final = 200  # of a text in a cursor
DIGITS: Final = 12  # numbers in a name are padded to this length, so that web-2 precedes web-10
_NUMBER = re.compile(r"\d+")


class SortColumn(msgspec.Struct, Generic[Row], frozen=True, kw_only=True):
    """A column of a list. Without a key, the list cannot be sorted by it."""

    label: str
    name: str = ""
    key: Callable[[Row], SortKey] | None = None
    newest_first: bool = False  # what the first click does
    classes: str = ""


class SortOrder(msgspec.Struct, Generic[Row], frozen=True):
    """The column that a list is sorted by, and the direction."""

    column: SortColumn[Row]
    descending: bool

    @property
    def text(self) -> str:
        return f"-{self.column.name}" if self.descending else self.column.name


class SortColumns(Generic[Row]):
    """The columns of a list, and its default order."""

    def __init__(self, default: str, *columns: SortColumn[Row]) -> None:
        self._by_name = {column.name: column for column in columns if column.key is not None}
        self._default = default
        self.columns = columns

    def order(self, wanted: str) -> SortOrder[Row]:
        """Parse ``?sort=``. A column that does not exist gives the default order."""
        name = wanted.removeprefix("-")
        if name not in self._by_name:
            wanted, name = self._default, self._default.removeprefix("-")
        return SortOrder(self._by_name[name], wanted.startswith("-"))

    def headings(self, order: SortOrder[Row], path: str, **filters: str) -> tuple[Heading, ...]:
        """A heading per column that sorts by it; the current one reverses the order."""
        return tuple(self._heading(column, order, path, filters) for column in self.columns)

    def _heading(
        self, column: SortColumn[Row], order: SortOrder[Row], path: str, filters: dict[str, str]
    ) -> Heading:
        if column.key is None:
            return Heading(label=column.label, classes=column.classes)
        here = column.name == order.column.name
        turned = not order.descending if here else column.newest_first
        wanted = f"-{column.name}" if turned else column.name
        direction = "descending" if order.descending else "ascending"
        return Heading(
            label=column.label,
            href=address(path, **filters, sort=wanted),
            sorted=direction if here else "none",
            classes=column.classes,
        )


class _SortKey(msgspec.Struct, frozen=True, array_like=True):
    """The sort key of a row. Rows without a value are last in both directions."""

    missing: bool
    key: str | int
    id: str


_SORT_KEYS: Final = decoders.build(_SortKey)


class SortedPage(NamedTuple, Generic[Row]):
    """Rows in order, and where the next page starts; None: there is none."""

    rows: tuple[Row, ...]
    last: str | None


def list_page(
    rows: Iterable[Row], order: SortOrder[Row], id_of: Callable[[Row], str], after: str, limit: int
) -> SortedPage[Row]:
    """The rows after a place, in order, at most ``limit``."""
    keyed = [(_sort_key(row, order, id_of), row) for row in rows]
    known = [item for item in keyed if not item[0].missing]
    known.sort(key=lambda item: (item[0].key, item[0].id), reverse=order.descending)
    unknown = sorted((item for item in keyed if item[0].missing), key=lambda item: item[0].id)
    ordered = [*known, *unknown]
    if after:
        last = _sort_key_from(after)
        ordered = [item for item in ordered if _is_after(item[0], last, order.descending)]
    page = ordered[:limit]
    is_last = len(page) == len(ordered)
    return SortedPage(
        tuple(row for _, row in page),
        None if is_last else msgspec.json.encode(page[-1][0]).decode(),
    )


def id_after(cursor: str) -> str:
    """The id of the row that a page starts after; empty: the beginning."""
    return _sort_key_from(cursor).id if cursor else ""


def cursor_at(row_id: str) -> str:
    """The cursor of a list that is sorted by id."""
    return msgspec.json.encode(_SortKey(False, row_id, row_id)).decode()


def _sort_key_from(cursor: str) -> _SortKey:
    return _SORT_KEYS.decode(cursor)


def _is_after(place: _SortKey, last: _SortKey, descending: bool) -> bool:
    if place.missing or last.missing:
        return place.missing and (not last.missing or place.id > last.id)
    here, there = (place.key, place.id), (last.key, last.id)
    return here < there if descending else here > there


def _sort_key(row: Row, order: SortOrder[Row], id_of: Callable[[Row], str]) -> _SortKey:
    key = None if order.column.key is None else order.column.key(row)
    match key:
        case None:
            return _SortKey(True, "", id_of(row))
        case datetime():
            return _SortKey(False, int(key.timestamp() * 1_000_000), id_of(row))
        case str():
            return _SortKey(False, natural(key), id_of(row))
    return _SortKey(False, key, id_of(row))


def natural(text: str) -> str:
    """A sort key in which numbers sort by value: web-2 precedes web-10."""
    return _NUMBER.sub(lambda found: found[0].zfill(DIGITS), text.casefold())[:KEY_CHARS_MAX]
