"""The kernel's store on each database. Only this package imports database drivers."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from tidegate.errors import InvalidInput
from tidegate.kernel.store import Schema, Store

FORMS = "sqlite:///path, postgresql://…, dynamodb://table?region=…&endpoint=…, memory:"


def connect(url: str, schema: Schema) -> Store:
    """Open the log at this URL, and create it if it does not exist.

    Each driver is imported only here, so that you need only the one that you use.

    Raises:
        InvalidInput: no engine has such a URL. StoreRefused, Unavailable: from the engine.
    """
    parts = urlsplit(url)
    match parts.scheme:
        case "sqlite" if not parts.netloc and len(parts.path) > 1:
            from tidegate.engines.sqlite import SqliteStore

            return SqliteStore(unquote(parts.path[1:]), schema)
        case "postgresql" | "postgres":
            from tidegate.engines.postgres import PostgresStore

            return PostgresStore(url, schema)
        case "dynamodb" if parts.netloc:
            from tidegate.engines.dynamodb import DynamoStore

            return DynamoStore.from_url(url, schema)
        case "memory":
            from tidegate.engines.memory import MemoryStore

            return MemoryStore(schema)
    raise InvalidInput(f"{url!r} names no engine; use one of {FORMS}", field="url")
