"""The kernel's ``Store`` on one DynamoDB table: fences guard decisions, slots order the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

from tidegate.engines.dynamodb import client, items, rows, rules, transport as dynamodb_transport
from tidegate.engines.dynamodb.commit import DynamoWriter
from tidegate.engines.dynamodb.hints import FenceHints
from tidegate.engines.dynamodb.log import SlotLog
from tidegate.engines.dynamodb.pace import RetryPace
from tidegate.engines.dynamodb.read import IndexReader
from tidegate.errors import InvalidInput, TidegateError
from tidegate.kernel import model, store


class DynamoStore:
    """A handle on one log and its rows. Threads may share it; it starts no thread."""

    pack_cost_max: ClassVar[int] = dynamodb_transport.ITEMS_MAX

    def __init__(
        self,
        table: str,
        schema: store.Schema,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        transport: dynamodb_transport.Transport | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        random: Random | None = None,
    ) -> None:
        """Open the table, and create it if it does not exist. A ``transport`` has its own table.

        Raises:
            StoreRefused: the table is not ours, holds a log of another format, or holds events that
                today's types would index differently.
            StoreUnavailable: the service does not respond.
        """
        self.schema = schema
        pace = RetryPace(clock, sleep, random)
        self._transport = transport or _open(table, region, endpoint, pace)
        counter = _check_counter(self._transport, pace)
        # Read before anything else: what is read later may be written only in this era.
        era = items.integer(counter, items.ERA)
        hints = FenceHints()
        log = SlotLog(self._transport, pace)
        self._pace = pace
        self._log = log
        self._reader = IndexReader(self._transport, schema, pace, hints, log)
        self._writer = DynamoWriter(self._transport, schema, pace, hints, era)
        self._rows = rows.Rows(self._transport, schema, pace, era)
        rules.update_rules(self._transport, pace, schema.vocabulary, log)

    @classmethod
    def from_url(cls, url: str, schema: store.Schema) -> DynamoStore:
        """Open ``dynamodb://table?region=…&endpoint=…``; without them boto3's environment decides.

        Raises:
            InvalidInput: the URL has another form.
        """
        table, region, endpoint = _parse_url(url)
        return cls(table, schema, region=region, endpoint=endpoint)

    def read(
        self,
        query: model.Query,
        *,
        guard: model.Query | None = None,
        after: model.Position = 0,
        limit: int | None = None,
    ) -> model.EventPage:
        store.check_range(after, limit)
        return self._reader.read(query, guard, after, limit)

    def get(self, *keys: model.Key) -> tuple[model.Record | None, ...]:
        return self._rows.get(keys)

    def range(
        self,
        collection: str,
        *,
        index: str | None = None,
        prefix: str = "",
        after: str = "",
        limit: int,
        descending: bool = False,
    ) -> tuple[model.Record, ...]:
        store.check_range(0, limit)
        return self._rows.range(collection, index, prefix, after, limit, descending=descending)

    def commit(self, *commits: model.Commit) -> tuple[model.Receipt | TidegateError, ...]:
        return self._writer.commit(commits)

    def receipt(self, key: str) -> model.Receipt | None:
        try:
            model.check_text("an idempotency key", key, model.ONCE_KEY_BYTES_MAX)
        except TidegateError:
            return None  # no commit can have such a key
        place = items.once_place(key)
        # Serialized with transactions, so that a commit that is being applied is not missed.
        found = self._pace.retry(partial(self._transport.get, [place], together=True))
        return items.once_receipt(found[place]) if place in found else None

    def head(self) -> model.Position:
        return self._log.last_position()

    def feed(self, *, after: model.Position, limit: int) -> model.EventPage:
        store.check_range(after, limit)
        return model.EventPage(self._log.feed(after, limit) if limit > 0 else ())

    def restore(self, collection: str, records: Iterable[model.Record]) -> None:
        """Not atomic on this engine: call it at start, before anything reads the collection."""
        self._rows.restore(collection, records)

    def close(self) -> None:
        self._transport.close()


def open_table(url: str, pace: RetryPace) -> dynamodb_transport.Transport:
    """Open the table of a URL, and create it if it does not exist.

    Raises:
        InvalidInput, StoreRefused.
    """
    return _open(*_parse_url(url), pace)


def _open(
    table: str, region: str | None, endpoint: str | None, pace: RetryPace
) -> dynamodb_transport.Transport:
    transport = client.BotoTransport(table, region=region, endpoint=endpoint)
    transport.open_table(pace)
    return transport


def _parse_url(url: str) -> tuple[str, str | None, str | None]:
    """Parse the table, region and endpoint of a URL. Raises: InvalidInput."""
    parts = urlsplit(url)
    given = parse_qs(parts.query, keep_blank_values=True)
    if parts.scheme != "dynamodb" or not parts.netloc or parts.path.strip("/"):
        raise InvalidInput(f"{url!r} is not dynamodb://table?region=…&endpoint=…", field="url")
    if unknown := sorted(set(given) - {"region", "endpoint"}):
        raise InvalidInput(f"{url!r} has the unknown parameters {unknown}", field="url")
    region, endpoint = (given.get(name, [None])[-1] for name in ("region", "endpoint"))
    return unquote(parts.netloc), region, endpoint


def _check_counter(
    transport: dynamodb_transport.Transport, pace: RetryPace
) -> dynamodb_transport.Item:
    """Check the log's format, mark a new log with ours, and return the counter's item.

    Raises:
        StoreRefused: the log has another format.
    """
    found = pace.retry(partial(transport.get, [items.COUNTER, items.FORMAT]))
    counter = found.get(items.COUNTER, {})
    mark = found.get(items.FORMAT)
    if mark is None and not items.integer(counter, items.COUNT_ATTRIBUTE):
        mark = {
            dynamodb_transport.PK: items.FORMAT.pk,
            dynamodb_transport.SK: items.FORMAT.sk,
            items.FORMAT_ATTRIBUTE: store.LOG_FORMAT,
        }
        mark = pace.retry(partial(transport.put_absent, mark)) or mark
    store.check_format(
        1 if mark is None else items.integer(mark, items.FORMAT_ATTRIBUTE)
    )  # format 1 had no mark
    return counter
