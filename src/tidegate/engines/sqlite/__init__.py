"""The store on one SQLite file: the default, with nothing to install or run beside it."""

from tidegate.engines.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
