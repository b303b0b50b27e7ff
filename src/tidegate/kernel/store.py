"""The interface of every engine. An engine may be faster than another, never different."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, Protocol, TypeVar

from msgspec import Struct

from tidegate.errors import InvalidInput, StoreRefused, TidegateError, UnfencedQuery
from tidegate.kernel import codec, collections as kernel_collections, commit_limits, model
from tidegate.kernel.vocabulary import Vocabulary

PAGE_ROWS = 500  # rows per page when a whole collection is read
# Increased whenever an older program would misread the log: its layout, its facts or what they
# mean. 2: content digests of domain/content, outcomes.
LOG_FORMAT = 2

Row = TypeVar("Row", bound=Struct)


def check_format(found: int) -> None:
    """Refuse a log that this version would misread.

    Raises:
        StoreRefused: an older or a newer version wrote the log.
    """
    if found < LOG_FORMAT:
        raise StoreRefused(
            f"this log has format {found}, which only versions before the first release wrote; "
            f"this version reads format {LOG_FORMAT}: start with an empty store",
            found=found,
        )
    if found > LOG_FORMAT:
        raise StoreRefused(
            f"this log has format {found}, written by a newer version; "
            f"this version reads format {LOG_FORMAT}: upgrade Tidegate",
            found=found,
        )


class FoldNumber(Struct, frozen=True):
    """The ``Fold.number`` of the fold that wrote a collection."""

    number: int


FOLD_NUMBERS = kernel_collections.Collection(
    "fold_numbers", FoldNumber, nature=kernel_collections.Nature.KEPT
)


class Schema:
    """What a store needs to know about its content: fact types, slices, collections."""

    def __init__(
        self, vocabulary: Vocabulary, collections: Iterable[kernel_collections.Collection] = ()
    ) -> None:
        self.vocabulary = vocabulary
        self.collections = kernel_collections.by_name((FOLD_NUMBERS, *collections))
        self._kinds = commit_limits.portable_kinds(
            {name: one.kind for name, one in vocabulary.types.items()}
        )
        self.kinds = frozenset(self._kinds.values())  # the only ones that a log accepts
        self._entries_max = max(len(found.indexes) for found in self.collections.values())

    def collection(self, name: str) -> kernel_collections.Collection:
        """Raises: InvalidInput."""
        found = self.collections.get(name)
        if found is None:
            raise InvalidInput(f"collection {name!r} is not declared")
        return found

    def check(self, commit: model.Commit, cost_max: int) -> None:
        """Check everything about a commit that needs no database.

        Raises:
            InvalidInput, LimitExceeded. UnfencedQuery: no read made such a boundary.
        """
        size = commit_limits.check_commit(commit, cost_max, self._kinds)
        for boundary in commit.boundaries:
            for clause in boundary.clauses:
                if self.vocabulary.index(clause) is None:
                    raise UnfencedQuery(f"{clause} has no index: it cannot be a condition")
        for write in commit.writes:
            collection = self.collection(write.key.collection)
            if isinstance(write, model.Put):
                collection.check_row(write.key.id, write.data)
            if (
                collection.writers is kernel_collections.Writers.FOLDED
                and not isinstance(write, model.Check)
                and not commit.facts
            ):
                raise InvalidInput(f"{write.key} is folded: no fact, no write")
        if self._cost_bound(commit, size) > cost_max:
            model.at_most("storage items of a commit", self.cost(commit), cost_max)

    def cost(self, commit: model.Commit) -> int:
        """How many storage items a commit would be on DynamoDB.

        These are the log's slots, two per index written, one per index only checked, the rows
        with their index entries, and the idempotency key.
        """
        written = {name for fact in commit.facts for name in self.vocabulary.indexes(fact)}
        checked = {
            self.vocabulary.index(clause)
            for boundary in commit.boundaries
            for clause in boundary.clauses
        }
        rows = sum(self._row_cost(write) for write in commit.writes)
        indexes = 2 * len(written) + len(checked - written)
        return _slots(commit) + indexes + rows + (commit.once is not None)

    def _cost_bound(self, commit: model.Commit, size: int) -> int:
        """An upper bound of ``cost``, cheap to compute. It is low enough for most commits."""
        bound = 1 + model.slots(size + model.SLOT_FACT_BYTES * len(commit.facts))
        for fact in commit.facts:
            bound += 2 * (len(fact.tags) + 2)
        for boundary in commit.boundaries:
            bound += len(boundary.clauses)
        return bound + (1 + 2 * self._entries_max) * len(commit.writes)

    def _row_cost(self, write: model.Write) -> int:
        entries = len(self.collection(write.key.collection).indexes)
        match write:
            case model.Put(expect=0):
                return 1 + entries
            case model.Put():
                return 1 + 2 * entries  # the old entry is deleted, the new one is written
            case model.Delete():
                return 1 + entries
            case model.Check():
                return 1


def _slots(commit: model.Commit) -> int:
    return model.slots(sum(map(model.slot_bytes, commit.facts)))


class Store(Protocol):
    """One log and its rows. Synchronous, without threads of its own; threads may share it."""

    schema: Schema
    pack_cost_max: ClassVar[int]  # what a lane may put into one commit; COST_MAX for all others

    def read(
        self,
        query: model.Query,
        *,
        guard: model.Query | None = None,
        after: model.Position = 0,
        limit: int | None = None,
    ) -> model.EventPage:
        """The events that match, in position order, from one consistent view.

        The events of ``guard`` are not returned, but a boundary of an empty page covers them too.
        A page has no boundary if the limit cut it or a clause has no index; then
        ``EventPage.boundary`` raises. Pages that are read with a limit follow each other without a
        gap. Use a page without a limit for decisions only: on DynamoDB, where the query needs
        several indexes, an event may later be appended below its last one.
        """
        ...

    def get(self, *keys: model.Key) -> tuple[model.Record | None, ...]:
        """The rows as of one moment; None where there is no row.

        With more than 100 keys, only each 100 rows are from one moment: DynamoDB reads them so.
        """
        ...

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
        """Rows in the order of their ids, or of their index entries and then their ids.

        Without an index, ``prefix`` and ``after`` are compared with the id. With one, ``prefix`` is
        compared with the entry, and ``after`` is ``entry(…, id)`` of the last row of the page
        before. ``descending`` reverses the order; ``after`` has the same meaning.
        """
        ...

    def commit(self, *commits: model.Commit) -> tuple[model.Receipt | TidegateError, ...]:
        """Apply the commits in order, each atomic on its own, with one flush for all.

        An error is returned in the commit's place. If several guards fail, the first one is
        reported: idempotency key, boundaries, writes.
        """
        ...

    def receipt(self, key: str) -> model.Receipt | None:
        """The receipt of the commit with this idempotency key; None if there is none."""
        ...

    def head(self) -> model.Position:
        """The last position that was allocated: no event committed before this call is above it.

        There may be no event at it. On DynamoDB a commit in progress may still be applied at or
        below it: to miss nothing, follow the feed from the last event that you saw.
        """
        ...

    def feed(self, *, after: model.Position, limit: int) -> model.EventPage:
        """All events in position order, without gaps: no event is added later below the last."""
        ...

    def restore(self, collection: str, records: Iterable[model.Record]) -> None:
        """Replace all rows of a collection, with versions and ``born``. For rebuilds only."""
        ...

    def close(self) -> None: ...


def row_pages(
    store: Store, collection: str, *, prefix: str = "", page_rows: int | None = None
) -> Iterator[tuple[model.Record, ...]]:
    """Yield the rows of a collection whose ids start with ``prefix``, page by page, in id order."""
    limit = page_rows or PAGE_ROWS
    after = ""
    while page := store.range(collection, prefix=prefix, after=after, limit=limit):
        yield page
        if len(page) < limit:
            return
        after = page[-1].key.id


def rows(store: Store, collection: str, *, prefix: str = "") -> Iterator[model.Record]:
    """Yield the rows of a collection whose ids start with ``prefix``, in id order."""
    for page in row_pages(store, collection, prefix=prefix):
        yield from page


def values(store: Store, collection: str, kind: type[Row]) -> Iterator[Row]:
    """Yield the rows of a collection, decoded as ``kind``, in id order."""
    return (codec.decode(record.data, kind) for record in rows(store, collection))


def check_range(after: object, limit: object) -> None:
    """Check the ``after`` and ``limit`` of a read; a limit of None means all.

    Raises:
        InvalidInput.
    """
    model.check_version("after", after)
    if limit is not None and (type(limit) is not int or limit < 0):
        raise InvalidInput(f"a limit is an integer from 0 on, found {limit!r}", field="limit")


def is_fenced(schema: Schema, query: model.Query) -> bool:
    """Whether every clause has an index, so that the query can be a boundary.

    Raises:
        InvalidInput: a clause names a tag key or type that is not declared.
    """
    return None not in [schema.vocabulary.index(clause) for clause in query.clauses]


def demand_boundary(page: model.EventPage, query: model.Query) -> model.Boundary:
    """The page's boundary. Raises: UnfencedQuery."""
    if not page.has_boundary:
        raise UnfencedQuery(f"{query} can be read, but no index covers it as a condition")
    return page.boundary
