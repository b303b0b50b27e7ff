"""The narrow waist: what every engine does, no more; an engine may be faster, never different."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, Protocol

from msgspec import Struct

from tidegate.errors import InvalidInput, StoreRefused, TidegateError, UnfencedQuery
from tidegate.kernel import collections as kernel_collections, commit_limits, model
from tidegate.kernel.vocabulary import Vocabulary

# Raised whenever a program that knows only the number before would misread what the log holds: its
# layout, the facts in it, or what they mean. 2: content digests of domain/content, outcomes.
PAGE_ROWS = 500  # that one read of a collection asks for
LOG_FORMAT = 2


def check_format(found: int) -> None:
    """Refuse a log that this program would misread.

    Raises:
        StoreRefused: the log was written by an older or a newer program.
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
    """Which number of a fold wrote its collection."""

    number: int


FOLD_NUMBERS = kernel_collections.Collection(
    "fold_numbers", FoldNumber, nature=kernel_collections.Nature.KEPT
)


class Schema:
    """All that a store is told about what it holds: fact types, slices, collections."""

    def __init__(
        self, vocabulary: Vocabulary, collections: Iterable[kernel_collections.Collection] = ()
    ) -> None:
        self.vocabulary = vocabulary
        self.collections = kernel_collections.by_name((FOLD_NUMBERS, *collections))
        self._kinds = commit_limits.portable_kinds(
            {name: one.kind for name, one in vocabulary.types.items()}
        )
        self.kinds = frozenset(self._kinds.values())  # the only ones that a log takes
        self._entries_max = max(len(found.indexes) for found in self.collections.values())

    def collection(self, name: str) -> kernel_collections.Collection:
        """Raises: InvalidInput."""
        found = self.collections.get(name)
        if found is None:
            raise InvalidInput(f"collection {name!r} is not declared")
        return found

    def check(self, commit: model.Commit, cost_max: int) -> None:
        """All that can be wrong with a commit before the database is asked.

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
        """Storage items that DynamoDB would be sent: the log's slots, two per index written, one
        per index only checked, the rows with their index entries, the idempotency key.
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
        """No commit of so many bytes costs more; it is cheap to tell, and mostly settles it."""
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
                return 1 + 2 * entries  # the old entry goes, the new one comes
            case model.Delete():
                return 1 + entries
            case model.Check():
                return 1


def _slots(commit: model.Commit) -> int:
    return model.slots(sum(map(model.slot_bytes, commit.facts)))


class Store(Protocol):
    """One log and its rows. Synchronous, no thread inside; a handle may be shared by threads."""

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

        ``guard`` is observed for the boundary, not returned, and kept in it only if the page is
        empty. The page has no boundary, and raises when it is asked for, if the limit
        cut it or a clause has no index. Pages that are read with a limit follow each other without
        a gap. A page without a limit is for a decision: on DynamoDB, where the query needs several
        indexes, an event may still land below its last one.
        """
        ...

    def get(self, *keys: model.Key) -> tuple[model.Record | None, ...]:
        """The rows, None where there is none, as of one moment.

        Of more than 100 rows, each 100 are: no engine but DynamoDB makes use of that.
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
        """Rows in order of their id, or of an index entry then id.

        Without an index, ``prefix`` and ``after`` are of the id. With one, ``prefix`` is of the
        entry and ``after`` is ``entry(…, id)`` of the last row seen. ``descending`` turns the
        order around: the last row comes first, and ``after`` is still the last row seen.
        """
        ...

    def commit(self, *commits: model.Commit) -> tuple[model.Receipt | TidegateError, ...]:
        """Each in order, each atomic on its own, one flush for all. Errors are returned.

        Of several reasons the first counts: idempotency key, boundaries, writes.
        """
        ...

    def receipt(self, key: str) -> model.Receipt | None:
        """What became of the commit with this idempotency key."""
        ...

    def head(self) -> model.Position:
        """The last position that was given out: no event committed before this call is above it.

        It may be no event's. On DynamoDB a commit that is on its way may still land at or below it:
        to miss nothing, follow the feed from the last event that you saw.
        """
        ...

    def feed(self, *, after: model.Position, limit: int) -> model.EventPage:
        """All events in position order, without gaps: nothing appears later below the last one."""
        ...

    def restore(self, collection: str, records: Iterable[model.Record]) -> None:
        """Replace all rows of a collection by these, stamps included. For rebuilds alone."""
        ...

    def close(self) -> None: ...


def row_pages(
    store: Store, collection: str, *, prefix: str = "", page_rows: int | None = None
) -> Iterator[tuple[model.Record, ...]]:
    """All rows of a collection, or those whose id begins so, page by page in order of their ids."""
    limit = page_rows or PAGE_ROWS
    after = ""
    while page := store.range(collection, prefix=prefix, after=after, limit=limit):
        yield page
        if len(page) < limit:
            return
        after = page[-1].key.id


def rows(store: Store, collection: str, *, prefix: str = "") -> Iterator[model.Record]:
    """All rows of a collection, or those whose id begins so, in order of their ids."""
    for page in row_pages(store, collection, prefix=prefix):
        yield from page


def check_range(after: object, limit: object) -> None:
    """From where and how many, as every read takes them; no limit means all.

    Raises:
        InvalidInput.
    """
    model.check_version("after", after)
    if limit is not None and (type(limit) is not int or limit < 0):
        raise InvalidInput(f"a limit is an integer from 0 on, found {limit!r}", field="limit")


def is_fenced(schema: Schema, query: model.Query) -> bool:
    """Whether every clause has an index, so that the query can be a boundary.

    Raises:
        InvalidInput: some clause names a tag key or type that is not declared.
    """
    return None not in [schema.vocabulary.index(clause) for clause in query.clauses]


def demand_boundary(page: model.EventPage, query: model.Query) -> model.Boundary:
    """The page's boundary. Raises: UnfencedQuery."""
    if not page.has_boundary:
        raise UnfencedQuery(f"{query} can be read, but no index covers it as a condition")
    return page.boundary
