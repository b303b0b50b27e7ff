"""Change rows behind the log's back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw


def tamper(data: Path, statement: str) -> int:
    """Do something to the database by hand; how many rows it changed."""
    with closing(apsw.Connection(str(data / "tidegate.db"))) as connection:
        connection.execute(statement)
        return connection.changes()
