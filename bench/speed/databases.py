"""One PostgreSQL server with fsync on, for all contenders that need one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from tests.servers import postgres

# Settings that would make commits cheaper than in production.
DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}

COPY_PREFIX = "run_"


class Databases:
    """Databases of one running server: copied from kept ones, dropped after use."""

    def __init__(self, url: str, demanded: Mapping[str, str] = DURABLE) -> None:
        self._url = url
        self._numbers = count(1)
        with self._connection() as connection:
            for name, wanted in demanded.items():
                found = _shown(connection, name)
                if found != wanted:
                    raise RuntimeError(f"the server has {name}={found}, measured is {wanted}")
            self.version = _shown(connection, "server_version").partition(" ")[0]
            pid_file = Path(_shown(connection, "data_directory")) / "postmaster.pid"
        self.server = int(pid_file.read_text().splitlines()[0])

    def kept(self, name: str, fill: Callable[[str], None]) -> str:
        """The name of a filled database; if it does not exist, `fill` gets the URL of a new one."""
        draft = f"{name}_draft"
        with self._connection() as connection:
            if not _exists(connection, name):
                _execute(connection, "DROP DATABASE IF EXISTS {}", draft)
                _execute(connection, "CREATE DATABASE {}", draft)
                fill(self.url(draft))
                with psycopg.connect(self.url(draft), autocommit=True) as filled:
                    filled.execute("VACUUM (ANALYZE)")
                _execute(connection, "ALTER DATABASE {} RENAME TO {}", draft, name)
                connection.execute("CHECKPOINT")
        return name

    @contextmanager
    def copy(self, original: str = "template0") -> Iterator[str]:
        """The URL of a new copy, dropped after the block."""
        name = f"{COPY_PREFIX}{os.getpid()}_{next(self._numbers)}"
        with self._connection() as connection:
            # Before version 15 a database was always copied file by file.
            strategy = "STRATEGY FILE_COPY" if connection.info.server_version >= 150_000 else ""
            _execute(connection, f"CREATE DATABASE {{}} TEMPLATE {{}} {strategy}", name, original)
        try:
            yield self.url(name)
        finally:
            with self._connection() as connection:
                _execute(connection, "DROP DATABASE {} (FORCE)", name)

    def drop_copies(self) -> None:
        """Drop the databases of runs that were killed."""
        with self._connection() as connection:
            names = "SELECT datname FROM pg_database WHERE starts_with(datname, %s)"
            for (name,) in connection.execute(names, (COPY_PREFIX,)).fetchall():
                _execute(connection, "DROP DATABASE {} (FORCE)", name)

    def url(self, name: str) -> str:
        return urlsplit(self._url)._replace(path=f"/{name}").geturl()

    def _connection(self) -> psycopg.Connection[tuple[str, ...]]:
        return psycopg.connect(self._url, autocommit=True)


@contextmanager
def serving(home: Path) -> Iterator[Databases]:
    """Run a server whose cluster stays in `home` for the next run."""
    with postgres.running(durable=True, keep=home) as url:
        databases = Databases(url)
        databases.drop_copies()
        yield databases


def _shown(connection: psycopg.Connection[tuple[str, ...]], name: str) -> str:
    row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
    assert row is not None
    return row[0]


def _exists(connection: psycopg.Connection[tuple[str, ...]], name: str) -> bool:
    found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
    return found.fetchone() is not None


def _execute(connection: psycopg.Connection[tuple[str, ...]], statement: str, *names: str) -> None:
    connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
