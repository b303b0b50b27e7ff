"""UmaDB: the server from its wheel, in a process of its own, over loopback gRPC."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import umadb

from bench.speed.contender import ConditionFailed, batches
from bench.speed.log_cache import LogCache
from bench.speed.workload import TYPES, Condition, Entry, Layout
from tests.servers.process import serving

VERSION = version("umadb")
SERVE = "import sys, umadb; umadb.run_server_from_args(sys.argv)"
TUNED = ("--pipelined-writer", "true", "--page-cache-max-mb", "256")


class UmadbClient:
    """Threads share one connection, which measured faster than one for each."""

    def __init__(self, connection: umadb.Client) -> None:
        self._connection = connection

    def head(self, tags: tuple[str, ...]) -> int:
        _, head = self._connection.read(_query(tags)).collect_with_head()
        return head or 0

    def append(self, entries: Sequence[Entry], condition: Condition) -> int:
        guard = umadb.AppendCondition(_query(condition.tags), condition.after)
        try:
            return self._connection.append([_event(entry) for entry in entries], guard)
        except umadb.IntegrityError as error:
            raise ConditionFailed(str(error)) from error

    def read(self, tag: str) -> int:
        events, _ = self._connection.read(_query((tag,))).collect_with_head()
        for sequenced in events:
            event = sequenced.event
            assert event.event_type
            assert event.data
        return len(events)


class UmadbLog:
    """A running server."""

    def __init__(self, url: str, server: int) -> None:
        self.server = server
        self._connection = umadb.Client(url)

    def client(self) -> UmadbClient:
        return UmadbClient(self._connection)

    def fill(self, layout: Layout) -> None:
        for batch in batches(layout.entries()):
            self._connection.append([_event(entry) for entry in batch])


class Umadb:
    """UmaDB with its defaults, or with a page cache and its pipelined writer."""

    rows = False

    def __init__(self, log_cache: LogCache, *, tuned: bool = False) -> None:
        self._shelf = log_cache
        self._options = TUNED if tuned else ()
        self.name = "umadb-tuned" if tuned else "umadb"
        self.title = f"UmaDB {VERSION}" + (", page cache and pipelined writer" if tuned else "")

    @contextmanager
    def empty(self) -> Iterator[UmadbLog]:
        with self._shelf.copy() as home, _running(home, self._options) as log:
            yield log

    @contextmanager
    def filled(self, layout: Layout) -> Iterator[UmadbLog]:
        def fill(home: Path) -> None:
            with _running(home) as log:
                log.fill(layout)

        kept = self._shelf.kept(f"umadb-{VERSION}-{layout.events}", fill)
        with self._shelf.copy(kept) as home, _running(home, self._options) as log:
            yield log


@contextmanager
def _running(home: Path, options: Sequence[str] = ()) -> Iterator[UmadbLog]:
    port = _free_port()
    listen = ("--listen", f"127.0.0.1:{port}", "--db-path", str(home))
    with serving(
        [sys.executable, "-c", SERVE, *listen, *options],
        ready=lambda: _listens(port),
        log=home / "server.log",
        cwd=home,
        stop_signal=signal.SIGTERM,
    ) as process:
        yield UmadbLog(f"http://127.0.0.1:{port}", process.pid)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _event(entry: Entry) -> umadb.Event:
    return umadb.Event(entry.type, entry.payload, entry.tags)


def _query(tags: Sequence[str]) -> umadb.Query:
    return umadb.Query([umadb.QueryItem(TYPES, [tag]) for tag in tags])
