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

from tidegate.kernel.collections import Nature
from tidegate.kernel.store import Schema

LOG: Final = "event_log"

SEED_TABLES: Final[Mapping[str, Nature]] = {
    LOG: Nature.CANONICAL,
    "host_rollout_records": Nature.CACHE,
    "dispatch_queue": Nature.QUEUE,
    "probe_failures": Nature.DERIVED,
    "rollouts": Nature.DERIVED,
    "quarantined_closures": Nature.DERIVED,
    "token_replay": Nature.LOOKUP,
    "cert_revocations": Nature.LOOKUP,
}


def table_classes(schema: Schema) -> dict[str, Nature]:
    """Every table that a store of this schema shows, and its class."""
    return {LOG: Nature.CANONICAL} | {
        name: collection.nature for name, collection in schema.collections.items()
    }


def undeclared_tables(schema: Schema, tables: Iterable[str]) -> tuple[str, ...]:
    """The tables of a database that no collection declares, so nothing could rebuild them."""
    return tuple(sorted(set(tables) - table_classes(schema).keys()))
