"""Read current rows: by key, or in the order of an id or an index."""

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
    entry: str = ""  # its index columns and id, where the next page starts


class Reads:
    """Reads rows of one store. ``is_local``: a point read takes microseconds, no round trip."""

    def __init__(self, store: kernel_store.Store, *, is_local: bool = False) -> None:
        self._store = store
        self.is_local = is_local

    def demand(self, key: Key, model: type[Row], missing: NotFound) -> Found[Row]:
        """Return the row of this key. Raises: ``missing``."""
        found = self.find(key, model)
        if found is None:
            raise missing
        return found

    def find(self, key: Key, model: type[Row]) -> Found[Row] | None:
        """Return the row of this key, or None."""
        (record,) = self._store.get(key)
        if record is None:
            return None
        return Found(codec.decode(record.data, model), record.version, record.key.id)

    def find_all(self, *wanted: tuple[Key, type[Any]]) -> tuple[Found[Any] | None, ...]:
        """Return several rows. Each is consistent; together they may be of different moments."""
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
        """List rows by id; with ``index``, only those whose index columns equal ``of``.

        ``after`` is the id of the last row seen; ``descending`` reverses the order.
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
        """Yield all rows of a collection, or those with an id prefix, decoded as ``view``, by
        pages.

        A view is a struct with some of the row's fields. Build decoders for it and for a list of
        it.
        """
        for page in kernel_store.row_pages(
            self._store, collection.name, prefix=prefix, page_rows=page_rows
        ):
            yield codec.decode_all([record.data for record in page], view)

    def iterate(self, collection: Collection) -> Iterator[Found[Any]]:
        """Yield all rows of a collection by id, read in pages."""
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
        """List rows whose first index columns equal ``of``, greatest entry first.

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
        """List the first rows of an index, with any values in its columns."""
        records = self._store.range(collection.name, index=index, limit=limit)
        return [
            Found(codec.decode(record.data, collection.model), record.version, record.key.id)
            for record in records
        ]

    def _entry(self, collection: Collection, index: str, data: bytes) -> tuple[str, ...]:
        return tuple(collection.entries(data).get(index, "").split(entry("", "")))
