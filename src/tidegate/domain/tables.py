"""The tables, and what each is to an operator: what could be lost, and how it is rebuilt.

    canonical          event_log: never lost, never changed, copied to the archive
    reducer cache      made again from the log by a start that finds it empty
    outbound queue     work in flight: refilled from what the caches say is owed
    derived            made again from the log, row by row as it was (``views rebuild``)
    security look-up   no history; rows go when nobody could profit from them any more

The collections declare their own class beside their columns, and a test
holds the two, and the tables of a database, against each other.
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
    """Those of a database's tables that nothing declares: nobody could say how to remake them."""
    return tuple(sorted(set(tables) - table_classes(schema).keys()))
