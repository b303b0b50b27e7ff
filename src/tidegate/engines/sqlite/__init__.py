"""The store on one SQLite file: the default, with no other service to install or run."""

from tidegate.engines.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
