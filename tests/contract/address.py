"""The address of a test's log, in a form that can be passed to a spawned process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

from tests.contract.world import SCHEMA
from tidegate.engines.memory import MemoryStore
from tidegate.kernel.store import Schema, Store

# Imported lazily, so that a missing driver fails only the tests of its engine.
CLASSES = {
    "sqlite": ("tidegate.engines.sqlite", "SqliteStore"),
    "postgres": ("tidegate.engines.postgres", "PostgresStore"),
    "dynamodb": ("tidegate.engines.dynamodb", "DynamoStore"),
}


@dataclass(frozen=True, slots=True)
class Address:
    """One log of one engine. Each ``open`` returns a separate handle, as another process would
    have.
    """

    engine: str
    where: str  # a file, a database URL, or the URL of a table
    namespace: str = ""

    def open(self, schema: Schema) -> Store:
        """Open a new handle on the log, and create the log if it does not exist."""
        return OPENERS[self.engine](self, schema)


def engine_class(engine: str) -> Any:
    """Return the store class of an engine that lives outside this process."""
    module, name = CLASSES[engine]
    return getattr(import_module(module), name)


def _sqlite(address: Address, schema: Schema) -> Store:
    return cast(Store, engine_class("sqlite")(address.where, schema))


def _postgres(address: Address, schema: Schema) -> Store:
    made = engine_class("postgres")(address.where, schema, namespace=address.namespace)
    return cast(Store, made)


def _dynamodb(address: Address, schema: Schema) -> Store:
    return cast(Store, engine_class("dynamodb").from_url(address.where, schema))


# Memory has no entry: its log is a single object, so every handle is that object (see conftest).
OPENERS: dict[str, Callable[[Address, Schema], Store]] = {
    "sqlite": _sqlite,
    "postgres": _postgres,
    "dynamodb": _dynamodb,
}


Connect = Callable[[], Store]


def address_of(request: pytest.FixtureRequest, engine: str, home: Path) -> Address | None:
    """Return the address of a fresh log, or None for memory, which has no address outside this
    process.
    """
    name = f"contract_{uuid4().hex[:16]}"
    match engine:
        case "sqlite":
            return Address(engine, str(home / f"{name}.db"))
        case "postgres":
            return Address(engine, request.getfixturevalue("postgres_url"), name)
        case "dynamodb":
            endpoint = request.getfixturevalue("dynamodb_url")
            return Address(engine, f"dynamodb://{name}?region=local&endpoint={endpoint}")
    return None


def opener(address: Address | None) -> Connect:
    """Return a function that opens handles on one log: new ones, except for memory, where the
    object is the log.
    """
    if address is None:
        store = MemoryStore(SCHEMA)
        return lambda: store
    return lambda: address.open(SCHEMA)
