"""The store on PostgreSQL: one log per schema, commits one after another under an advisory lock.

store     the kernel's ``Store``; each read is one statement
writer    two round trips per batch of commits, and recovery when the connection is lost
batch     what a batch looks up in the database, and its decisions; no I/O
log_tail  the newest facts, cached by the writer
queries   reads and ranges as SQL, and their rows as values
layout    the tables: created and extended when a store opens
indexing  how each fact type is indexed, as stored in the log
sessions  connections that send all statements of a round trip at once
failures  the driver's errors as ours
presence  which processes have the log open
"""

from tidegate.engines.postgres.layout import Setting
from tidegate.engines.postgres.store import PostgresStore

__all__ = ["PostgresStore", "Setting"]
