"""Rows as they are now: found by key, or listed in the order of an id or an index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec import Struct

from tidegate.errors import NotFound
from tidegate.kernel import codec, store as kernel_store
from tidegate.kernel.collections import Collection, entry
from tidegate.kernel.model import Key, Position

Row = TypeVar("Row", bound=Struct)


class Found(NamedTuple, Generic[Row]):
    """A row and the position that last wrote it."""

    row: Row
    version: Position
    id: str
    entry: str = ""  # in the index that it was found by, with its id: where a next page starts


class Reads:
    """Reads rows of one store. ``is_local``: a point read takes microseconds, not a round trip."""

    def __init__(self, store: kernel_store.Store, *, is_local: bool = False) -> None:
        self._store = store
        self.is_local = is_local

    def demand(self, key: Key, model: type[Row], missing: NotFound) -> Found[Row]:
        """The row of this key. Raises: ``missing``."""
        found = self.find(key, model)
        if found is None:
            raise missing
        return found

    def find(self, key: Key, model: type[Row]) -> Found[Row] | None:
        """The row of this key, or None."""
        (record,) = self._store.get(key)
        if record is None:
            return None
        return Found(codec.decode(record.data, model), record.version, record.key.id)

    def find_all(self, *wanted: tuple[Key, type[Any]]) -> tuple[Found[Any] | None, ...]:
        """Several rows of one moment each."""
        records = self._store.get(*(key for key, _ in wanted))
        return tuple(
            None
            if record is None
            else Found(codec.decode(record.data, model), record.version, record.key.id)
            for record, (_, model) in zip(records, wanted, strict=True)
        )

    def range(
        self,
        collection: Collection,
        *,
        index: str | None = None,
        of: tuple[str, ...] = (),
        prefix: str = "",
        after: str = "",
        limit: int,
        descending: bool = False,
    ) -> list[Found[Any]]:
        """Rows in the order of their id, or of those whose index columns are ``of``, then id.

        ``after`` is the id of the last row seen; ``descending`` turns the order around.
        """
        if index is not None:
            whole = len(of) == len(collection.index(index).columns)
            assert whole, "an index is asked for all of its columns"
            records = self._store.range(
                collection.name,
                index=index,
                prefix=entry(*of),
                after=entry(*of, after) if after else "",
                limit=limit,
                descending=descending,
            )
            records = tuple(r for r in records if self._entry(collection, index, r.data) == of)
        else:
            records = self._store.range(
                collection.name, prefix=prefix, after=after, limit=limit, descending=descending
            )
        return [
            Found(codec.decode(record.data, collection.model), record.version, record.key.id)
            for record in records
        ]

    def views(
        self, collection: Collection, view: type[Row], *, prefix: str = "", page_rows: int
    ) -> Iterator[list[Row]]:
        """All rows of a collection, or those whose id begins so, as ``view`` reads them: by pages.

        A view is a struct with some of the row's fields; build its decoder and that of a list.
        """
        for page in kernel_store.row_pages(
            self._store, collection.name, prefix=prefix, page_rows=page_rows
        ):
            yield codec.decode_all([record.data for record in page], view)

    def iterate(self, collection: Collection) -> Iterator[Found[Any]]:
        """All rows of a collection in the order of their id, read by pages."""
        for record in kernel_store.rows(self._store, collection.name):
            yield Found(codec.decode(record.data, collection.model), record.version, record.key.id)

    def newest(
        self,
        collection: Collection,
        index: str,
        *,
        of: tuple[str, ...] = (),
        after: str = "",
        limit: int,
    ) -> list[Found[Any]]:
        """Rows whose first index columns are ``of``, those with the greatest entry first.

        ``after`` is the ``entry`` of the last row seen.
        """
        records = self._store.range(
            collection.name,
            index=index,
            prefix=entry(*of, "") if of else "",
            after=after,
            limit=limit,
            descending=True,
        )
        return [
            Found(
                codec.decode(record.data, collection.model),
                record.version,
                record.key.id,
                entry(collection.entries(record.data)[index], record.key.id),
            )
            for record in records
        ]

    def first(self, collection: Collection, index: str, *, limit: int) -> list[Found[Any]]:
        """The first rows in the order of an index, whatever its columns hold."""
        records = self._store.range(collection.name, index=index, limit=limit)
        return [
            Found(codec.decode(record.data, collection.model), record.version, record.key.id)
            for record in records
        ]

    def _entry(self, collection: Collection, index: str, data: bytes) -> tuple[str, ...]:
        return tuple(collection.entries(data).get(index, "").split(entry("", "")))
