"""The kernel on PostgreSQL: one log per schema, commits in a row under one advisory lock.

store     the narrow waist; each read is one statement
writer    two round trips per batch of commits, and what to say when the answer is lost
batch     what a batch asks of the database and decides from the answer; no I/O
recent    what the writer remembers of the end of the log
queries   reads and ranges as SQL, and their answers as values
layout    the tables: made and extended when they are opened
indexing  how each fact type is indexed, as the log remembers it
sessions  connections, spoken to in whole round trips
failures  driver errors as ours
"""

from tidegate.engines.postgres.layout import Setting
from tidegate.engines.postgres.store import PostgresStore

__all__ = ["PostgresStore", "Setting"]
