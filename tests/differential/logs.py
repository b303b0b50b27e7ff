"""Fresh logs of one engine, as many as a test needs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from uuid import uuid4

from tests.contract.address import Address
from tests.servers import shared
from tidegate.engines.memory import MemoryStore
from tidegate.kernel.store import Schema, Store

DENSE = frozenset({"memory", "sqlite", "postgres"})  # positions without gaps

Connect = Callable[[], Store]


class Logs:
    """Where the logs of one test are: in a directory, or under names of their own on a server."""

    def __init__(self, engine: str, home: Path) -> None:
        self.engine = engine
        self._home = home
        self._name = f"logs_{uuid4().hex[:12]}"
        self._numbers = count(1)
        self._open = ExitStack()

    def address(self) -> Address:
        """Return the address of a log that no other test uses."""
        name = f"{self._name}_{next(self._numbers)}"
        match self.engine:
            case "sqlite":
                return Address(self.engine, str(self._home / f"{name}.db"))
            case "postgres":
                return Address(self.engine, shared.url("postgres"), name)
            case "dynamodb":
                endpoint = shared.url("dynamodb")
                return Address(self.engine, f"dynamodb://{name}?region=local&endpoint={endpoint}")
            case other:
                raise AssertionError(f"{other} has no place outside this process")

    def store(self, schema: Schema) -> Store:
        """Open one handle on a fresh log, and close it at the end of the test."""
        return self._open.enter_context(closing(self.fresh(schema)()))

    def close(self) -> None:
        self._open.close()

    def fresh(self, schema: Schema) -> Connect:
        """Return a function that opens handles on one fresh log; the caller closes them."""
        if self.engine == "memory":
            store = MemoryStore(schema)
            return lambda: store
        address = self.address()
        return lambda: address.open(schema)
