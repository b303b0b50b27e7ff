"""Change rows without writing to the log."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw


def tamper(data: Path, statement: str) -> int:
    """Change the database by hand. Return how many rows that changed."""
    with closing(apsw.Connection(str(data / "tidegate.db"))) as connection:
        connection.execute(statement)
        return connection.changes()
