"""The classes of tables: what an operator could lose with each, and how it is rebuilt.

    canonical          event_log: never lost, never changed, copied to the archive
    reducer cache      rebuilt from the log by a start that finds it empty
    outbound queue     work in flight: refilled from the caches
    derived            rebuilt from the log, row by row (``views rebuild``)
    security look-up   no history; rows are deleted when nothing needs them any more

The collections declare their class next to their columns. A test compares both with the tables of
a database.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tidegate.kernel import collections, store

LOG: Final = "event_log"

SEED_TABLES: Final[Mapping[str, collections.Nature]] = {
    LOG: collections.Nature.CANONICAL,
    "host_rollout_records": collections.Nature.CACHE,
    "dispatch_queue": collections.Nature.QUEUE,
    "probe_failures": collections.Nature.DERIVED,
    "rollouts": collections.Nature.DERIVED,
    "quarantined_closures": collections.Nature.DERIVED,
    "token_replay": collections.Nature.LOOKUP,
    "cert_revocations": collections.Nature.LOOKUP,
}


def table_classes(schema: store.Schema) -> dict[str, collections.Nature]:
    """Every table that a store of this schema shows, and its class."""
    return {LOG: collections.Nature.CANONICAL} | {
        name: collection.nature for name, collection in schema.collections.items()
    }


def undeclared_tables(schema: store.Schema, tables: Iterable[str]) -> tuple[str, ...]:
    """The tables of a database that no collection declares, so nothing could rebuild them."""
    return tuple(sorted(set(tables) - table_classes(schema).keys()))
