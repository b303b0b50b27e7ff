"""Reads rows by key, by id order or by index, and replaces the rows of a collection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from tidegate.engines.dynamodb import items as dynamodb_items, transport as dynamodb_transport
from tidegate.engines.dynamodb.pace import RetryPace
from tidegate.errors import Invalid, StoreUnavailable, TooLarge
from tidegate.kernel import model, store
from tidegate.kernel.collections import SEPARATOR, least_above

RANGES_MAX = 10  # how often a range is read if rows change their place in the index meanwhile
PAGE_ITEMS_MIN, PAGE_ITEMS_MAX = 16, 1_000


class Rows:
    """The rows of one table."""

    def __init__(
        self,
        transport: dynamodb_transport.Transport,
        schema: store.Schema,
        pace: RetryPace,
        era: int,
    ) -> None:
        self._transport = transport
        self._schema = schema
        self._pace = pace
        self._era = era

    def get(self, keys: Sequence[model.Key]) -> tuple[model.Record | None, ...]:
        for key in keys:
            self._schema.collection(key.collection)
        places = list(
            dict.fromkeys(dynamodb_items.row_place(key) for key in keys if _is_storable(key.id))
        )
        found = self._fetch(places)
        return tuple(
            dynamodb_items.row_record(key.collection, found.get(dynamodb_items.row_place(key), {}))
            for key in keys
        )

    def _fetch(
        self, places: list[dynamodb_transport.ItemKey]
    ) -> dict[dynamodb_transport.ItemKey, dynamodb_transport.Item]:
        """Items; each 100 of them are from one moment. Raises: StoreUnavailable."""
        found: dict[dynamodb_transport.ItemKey, dynamodb_transport.Item] = {}
        for start in range(0, len(places), dynamodb_transport.ITEMS_MAX):
            asked = places[start : start + dynamodb_transport.ITEMS_MAX]
            together = len(places) > 1
            found |= self._pace.retry(partial(self._transport.get, asked, together=together))
        return found

    def range(
        self,
        collection: str,
        index: str | None,
        prefix: str,
        after: str,
        limit: int,
        *,
        descending: bool,
    ) -> tuple[model.Record, ...]:
        declared = self._schema.collection(collection)
        if index is None:
            items = self._items(
                dynamodb_items.row_partition(collection), prefix, after, limit, descending
            )
            rows = (dynamodb_items.row_record(collection, item) for item in items)
            return tuple(islice((row for row in rows if row is not None), limit))
        declared.index(index)
        for waits in range(RANGES_MAX):
            entries, found = self._by_index(collection, index, prefix, after, limit, descending)
            if len(found) == len(entries):
                return found
            self._pace.wait(waits)  # a row changed between the two reads
        raise StoreUnavailable(f"{collection}.{index} changed at each of {RANGES_MAX} reads")

    def _by_index(
        self, collection: str, index: str, prefix: str, after: str, limit: int, descending: bool
    ) -> tuple[list[dynamodb_transport.Item], tuple[model.Record, ...]]:
        """Entries of an index, and those rows that still have them."""
        declared = self._schema.collection(collection)
        items = self._items(
            dynamodb_items.entry_partition(collection, index), prefix, after, limit, descending
        )
        entries = list(islice(items, limit))
        places = [
            dynamodb_items.row_place(model.Key(collection, dynamodb_items.text(item, "id")))
            for item in entries
        ]
        found = self._pace.retry(partial(self._transport.get, places)) if places else {}
        rows = [dynamodb_items.row_record(collection, found.get(place, {})) for place in places]
        return entries, tuple(
            row
            for item, row in zip(entries, rows, strict=True)
            if row is not None
            and (entry := declared.entries(row.data).get(index)) is not None
            and entry + SEPARATOR + row.key.id == item[dynamodb_transport.SK]
        )

    def _items(
        self, pk: str, prefix: str, after: str, limit: int, descending: bool = False
    ) -> Iterator[dynamodb_transport.Item]:
        """Yield items of a partition whose keys start with the prefix and come after ``after``."""
        low, high = prefix, least_above(prefix)
        if after and descending:
            high = after if high is None else min(after, high)
        elif after:
            low = max(low, after)
        if high is not None and high < low:
            return  # the service refuses such bounds
        start: str | None = None
        limit = min(max(limit + 1, PAGE_ITEMS_MIN), PAGE_ITEMS_MAX)
        query = partial(self._transport.query, pk, low=low, high=high, descending=descending)
        while True:
            page = self._pace.retry(partial(query, start=start, limit=limit))
            for item in page.items:
                if (
                    dynamodb_items.text(item, dynamodb_transport.SK).startswith(prefix)
                    and item[dynamodb_transport.SK] != after
                ):
                    yield item
            start = page.next
            if start is None:
                return

    def restore(self, collection: str, records: Iterable[model.Record]) -> None:
        """Replace all rows of a collection, in batches. Nothing may read them meanwhile."""
        declared = self._schema.collection(collection)
        partitions = [dynamodb_items.row_partition(collection)]
        partitions += [
            dynamodb_items.entry_partition(collection, index.name) for index in declared.indexes
        ]
        old = {
            dynamodb_transport.key_of_item(item)
            for pk in partitions
            for item in self._items(pk, "", "", dynamodb_transport.ITEMS_MAX)
        }
        batch = OverwriteBatch(self._transport, self._pace, self._era)
        for record in records:
            entries = declared.entries(record.data).items()
            items = [
                dynamodb_items.row_item(record),
                *(dynamodb_items.entry_item(record.key, *entry) for entry in entries),
            ]
            for item in items:
                old.discard(dynamodb_transport.key_of_item(item))
                batch.add(dynamodb_transport.ReplaceItem(item), dynamodb_items.size(item))
        for place in sorted(old):
            batch.add(dynamodb_transport.RemoveItem(place), 0)
        batch.flush()


class OverwriteBatch:
    """Sends unconditional actions in large transactions, which fail if the era has changed."""

    def __init__(self, transport: dynamodb_transport.Transport, pace: RetryPace, era: int) -> None:
        self._transport = transport
        self._pace = pace
        self._fence: list[dynamodb_transport.Action] = []
        if era:  # era 0 has no attribute yet, so there is nothing to compare
            self._fence.append(
                dynamodb_transport.UpdateItem(
                    dynamodb_items.COUNTER,
                    {dynamodb_items.ERA: era},
                    sets={dynamodb_items.ERA: era},
                )
            )
        self._actions: list[dynamodb_transport.Action] = []
        self._bytes = 0

    def add(self, action: dynamodb_transport.Action, bytes_: int) -> None:
        most = dynamodb_transport.ITEMS_MAX - len(self._fence)
        if (
            len(self._actions) == most
            or self._bytes + bytes_ > dynamodb_transport.TRANSACTION_BYTES_MAX
        ):
            self.flush()
        self._actions.append(action)
        self._bytes += bytes_

    def flush(self) -> None:
        if self._actions:
            actions = [*self._fence, *self._actions]
            self._pace.retry(
                partial(dynamodb_transport.overwrite, self._transport, actions, self._pace.new_id())
            )
        self._actions, self._bytes = [], 0


def _is_storable(id_: str) -> bool:
    """Whether a row can have this id. The service refuses look-ups of other ids."""
    try:
        model.check_text("a row id", id_, model.ID_BYTES_MAX)
    except (Invalid, TooLarge):
        return False
    return True
