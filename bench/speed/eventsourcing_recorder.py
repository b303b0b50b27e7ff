"""eventsourcing's PostgreSQL DCB recorder with a table of tags ("TT")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version

from eventsourcing.dcb.api import DCBAppendCondition, DCBEvent, DCBQuery, DCBQueryItem
from eventsourcing.dcb.postgres_tt import PostgresDCBRecorderTT
from eventsourcing.persistence import IntegrityError
from eventsourcing.postgres import PostgresDatastore
from psycopg.conninfo import conninfo_to_dict

from bench.speed.contender import ConditionFailed, batches
from bench.speed.databases import Databases
from bench.speed.workload import CLIENTS, TYPES, Condition, Entry, Layout

VERSION = version("eventsourcing")


class RecorderClient:
    """Threads share the recorder; each has a connection in its pool."""

    def __init__(self, recorder: PostgresDCBRecorderTT) -> None:
        self._recorder = recorder

    def head(self, tags: tuple[str, ...]) -> int:
        return self._recorder.read(_query(tags)).head or 0

    def append(self, entries: Sequence[Entry], condition: Condition) -> int:
        guard = DCBAppendCondition(_query(condition.tags), condition.after)
        try:
            position: int = self._recorder.append([_event(entry) for entry in entries], guard)
        except IntegrityError as error:
            raise ConditionFailed(str(error)) from error
        return position

    def read(self, tag: str) -> int:
        found = 0
        for sequenced in self._recorder.read(_query((tag,))):
            assert sequenced.event.type
            assert sequenced.event.data
            found += 1
        return found


class RecorderLog:
    """A recorder on one database."""

    def __init__(self, url: str, server: int) -> None:
        self.server = server
        known = conninfo_to_dict(url)
        self._datastore = PostgresDatastore(
            dbname=str(known["dbname"]),
            host=str(known["host"]),
            port=str(known["port"]),
            user=str(known["user"]),
            password=str(known.get("password", "")),
            pool_size=max(CLIENTS),
        )
        self._recorder = PostgresDCBRecorderTT(self._datastore)
        self._recorder.create_table()

    def client(self) -> RecorderClient:
        return RecorderClient(self._recorder)

    def fill(self, layout: Layout) -> None:
        for batch in batches(layout.entries()):
            self._recorder.append([_event(entry) for entry in batch])

    def close(self) -> None:
        self._datastore.close()


class Eventsourcing:
    """The recorder on the same server as our own engine."""

    name = "eventsourcing"
    rows = False

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self.title = f"eventsourcing {VERSION} on PostgreSQL {databases.version}"

    @contextmanager
    def empty(self) -> Iterator[RecorderLog]:
        with self._databases.copy() as url, _opened(url, self._databases.server) as log:
            yield log

    @contextmanager
    def filled(self, layout: Layout) -> Iterator[RecorderLog]:
        server = self._databases.server

        def fill(url: str) -> None:
            with _opened(url, server) as log:
                log.fill(layout)

        name = f"eventsourcing_{VERSION.replace('.', '_')}_{layout.events}"
        kept = self._databases.kept(name, fill)
        with self._databases.copy(kept) as url, _opened(url, server) as log:
            yield log


@contextmanager
def _opened(url: str, server: int) -> Iterator[RecorderLog]:
    log = RecorderLog(url, server)
    try:
        yield log
    finally:
        log.close()


def _event(entry: Entry) -> DCBEvent:
    return DCBEvent(entry.type, entry.payload, list(entry.tags))


def _query(tags: Sequence[str]) -> DCBQuery:
    return DCBQuery([DCBQueryItem(list(TYPES), [tag]) for tag in tags])
