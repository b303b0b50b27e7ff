"""Our engines, through the writer that every caller uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from bench.speed.contender import ConditionFailed, batches
from bench.speed.databases import Databases
from bench.speed.log_cache import LogCache, fingerprint
from bench.speed.workload import TYPES, Condition, Entry, Layout
from tidegate.clock import system_clock
from tidegate.engines import connect
from tidegate.engines.group_commit import GroupCommit
from tidegate.errors import BoundaryMoved, TidegateError
from tidegate.kernel.collections import Collection
from tidegate.kernel.model import (
    ABSENT,
    FACTS_MAX,
    Boundary,
    Clause,
    Commit,
    CommitKey,
    Fact,
    Key,
    Meta,
    Put,
    Query,
    Receipt,
)
from tidegate.kernel.store import Schema, Store
from tidegate.kernel.tags import Cross, Partition
from tidegate.kernel.vocabulary import Vocabulary, facts

KIND = "order"
META = Meta(actor="bench")
STATE_ROWS = 50  # rows that one client writes repeatedly, each time at the version it knows


class OrderOpened(Struct, frozen=True):
    order_id: Annotated[str, Partition()]
    customer_id: Annotated[str, Cross()]
    note: str


class OrderChanged(Struct, frozen=True):
    order_id: Annotated[str, Partition()]
    customer_id: Annotated[str, Cross()]
    note: str


class OrderState(Struct, frozen=True):
    status: str
    note: str


class Message(Struct, frozen=True):
    topic: str
    note: str


STATES = Collection("order_states", OrderState)
OUTBOX = Collection("order_outbox", Message)
STATE_DATA = b'{"note":"' + b"." * 80 + b'","status":"open"}'
MESSAGE_DATA = b'{"note":"' + b"." * 80 + b'","topic":"orders"}'

_client_numbers = count(1)


def schema() -> Schema:
    vocabulary = Vocabulary(facts(KIND, OrderOpened, OrderChanged))
    assert set(TYPES) == set(vocabulary.types)
    return Schema(vocabulary, (STATES, OUTBOX))


class TidegateClient:
    """One thread's client; all clients of a log share its writer."""

    def __init__(self, store: Store, writer: GroupCommit) -> None:
        self.store = store
        self._writer = writer
        self._token = f"client-{next(_client_numbers)}"
        self._commits = 0
        self._versions = [ABSENT] * STATE_ROWS

    def head(self, tags: tuple[str, ...]) -> int:
        boundary = self.store.read(_query(tags)).boundary
        assert boundary is not None
        head: int = boundary.seen
        return head

    def append(self, entries: Sequence[Entry], condition: Condition) -> int:
        return self._committed(
            Commit(
                system_clock(),
                META,
                facts=tuple(_fact(entry) for entry in entries),
                boundaries=(_boundary(condition),),
            )
        ).last

    def append_with_rows(self, entries: Sequence[Entry], condition: Condition) -> int:
        self._commits += 1
        row = self._commits % STATE_ROWS
        state = Key(STATES.name, f"{self._token}-{row}")
        message = Key(OUTBOX.name, f"{self._token}-{self._commits}")
        receipt = self._committed(
            Commit(
                system_clock(),
                META,
                facts=tuple(_fact(entry) for entry in entries),
                boundaries=(_boundary(condition),),
                writes=(
                    Put(state, STATE_DATA, self._versions[row]),
                    Put(message, MESSAGE_DATA, ABSENT),
                ),
                once=CommitKey(message.id, sha256(entries[0].payload).digest(), b"{}"),
            )
        )
        self._versions[row] = receipt.first
        return receipt.last

    def read(self, tag: str) -> int:
        events = self.store.read(_query((tag,))).events
        for event in events:
            assert event.type
            assert event.body
        return len(events)

    def _committed(self, commit: Commit) -> Receipt:
        try:
            return self._writer.submit(commit).result()
        except BoundaryMoved as error:
            raise ConditionFailed(str(error)) from error


class TidegateLog:
    """A store and its one writer."""

    def __init__(self, store: Store, server: int | None = None) -> None:
        self.server = server
        self._store = store
        self._writer = GroupCommit(store)

    def client(self) -> TidegateClient:
        return TidegateClient(self._store, self._writer)

    def fill(self, layout: Layout) -> None:
        for batch in batches(layout.entries()):
            self.append(batch)

    def append(self, entries: Sequence[Entry]) -> None:
        """Append without a condition: several commits, one flush."""
        now = system_clock()
        commits = (
            Commit(now, META, facts=tuple(_fact(entry) for entry in part))
            for part in batches(entries, FACTS_MAX)
        )
        for result in self._store.commit(*commits):
            if isinstance(result, TidegateError):
                raise result

    def close(self) -> None:
        self._writer.close()
        self._store.close()


class Memory:
    """The memory engine: for trying out the harness, not for comparison."""

    name = "memory"
    title = "Tidegate, in memory"
    rows = True

    @contextmanager
    def empty(self) -> Iterator[TidegateLog]:
        with closing(TidegateLog(connect("memory:", schema()))) as log:
            yield log

    @contextmanager
    def filled(self, layout: Layout) -> Iterator[TidegateLog]:
        with self.empty() as log:
            log.fill(layout)
            yield log


class Sqlite:
    """Our SQLite engine as it opens by default: WAL, synchronous=FULL."""

    name = "sqlite"
    title = "Tidegate on SQLite"
    rows = True

    def __init__(self, log_cache: LogCache) -> None:
        self._shelf = log_cache

    @contextmanager
    def empty(self) -> Iterator[TidegateLog]:
        with self._shelf.copy() as home, closing(open_sqlite(home)) as log:
            yield log

    @contextmanager
    def filled(self, layout: Layout) -> Iterator[TidegateLog]:
        def fill(home: Path) -> None:
            with closing(open_sqlite(home)) as log:
                log.fill(layout)

        kept = self._shelf.kept(f"sqlite-{fingerprint()}-{layout.events}", fill)
        with self._shelf.copy(kept) as home, closing(open_sqlite(home)) as log:
            yield log


class Postgres:
    """Our PostgreSQL engine, on the server that the peers on PostgreSQL use too."""

    name = "postgres"
    rows = True

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self.title = f"Tidegate on PostgreSQL {databases.version}"

    @contextmanager
    def empty(self) -> Iterator[TidegateLog]:
        with self._databases.copy() as url, closing(self._open(url)) as log:
            yield log

    @contextmanager
    def filled(self, layout: Layout) -> Iterator[TidegateLog]:
        def fill(url: str) -> None:
            with closing(self._open(url)) as log:
                log.fill(layout)

        kept = self._databases.kept(f"tidegate_{fingerprint()}_{layout.events}", fill)
        with self._databases.copy(kept) as url, closing(self._open(url)) as log:
            yield log

    def _open(self, url: str) -> TidegateLog:
        return TidegateLog(connect(url, schema()), self._databases.server)


def open_sqlite(home: Path) -> TidegateLog:
    """Open the log in a directory of its own."""
    return TidegateLog(connect(f"sqlite:///{home.resolve() / 'log.db'}", schema()))


def _fact(entry: Entry) -> Fact:
    return Fact(KIND, entry.type, 1, entry.tags, entry.payload)


def _boundary(condition: Condition) -> Boundary:
    """As with the peers, the position that the client saw last is the boundary."""
    return Boundary(_query(condition.tags), condition.after)


_WANTED = frozenset(TYPES)


def _query(tags: Sequence[str]) -> Query:
    return Query(tuple(Clause(_WANTED, frozenset((tag,))) for tag in tags))
