"""Fresh PostgreSQL logs with many collections, copied as whole databases.

Creating the domain's tables takes PostgreSQL five times as long as copying a database that has
them. For a log with a few collections, a schema of its own is cheaper.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg

from tests.contract.address import Address
from tidegate.kernel.store import Schema

NAMESPACE = "log"
STRATEGY_SINCE = 150_000  # older servers have only this strategy, and no keyword for it


class Template:
    """A database with an empty log. No session may be connected to it while it is copied."""

    def __init__(self, url: str, schema: Schema) -> None:
        self._url = url
        self._name = f"template_{uuid4().hex[:16]}"
        self._execute(f"CREATE DATABASE {self._name}")
        self._at(self._name).open(schema).close()

    @contextmanager
    def clone(self) -> Iterator[Address]:
        """Copy the log for one test, and drop the copy at the end of the block."""
        name = f"contract_{uuid4().hex[:16]}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {self._name}", " STRATEGY FILE_COPY")
        try:
            yield self._at(name)
        finally:
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def close(self) -> None:
        self._execute(f"DROP DATABASE {self._name}")

    def _at(self, name: str) -> Address:
        return Address(
            "postgres", urlsplit(self._url)._replace(path=f"/{name}").geturl(), NAMESPACE
        )

    def _execute(self, statement: str, strategy: str = "") -> None:
        with closing(psycopg.connect(self._url, autocommit=True)) as connection:
            if connection.info.server_version < STRATEGY_SINCE:
                strategy = ""
            connection.execute(f"{statement}{strategy}".encode())
