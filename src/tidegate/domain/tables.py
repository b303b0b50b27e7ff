"""The tables of seed 004 and what each is to an operator: what could be lost, and how it is remade.

    canonical          event_log: never lost, never changed, copied to the archive
    reducer cache      made again from the log by a start that finds it empty
    outbound queue     work in flight: refilled from what the caches say is owed
    derived            made again from the log, row by row as it was (``views rebuild``)
    security look-up   no history; rows go when nobody could profit from them any more

The table is the seed's; the collections declare their own class beside their columns, and a test
holds the two, and the tables of a database, against each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tidegate.domain.hosts.rows import HOST_RECORDS
from tidegate.domain.rollouts.rows import ROLLOUTS, TALLIES
from tidegate.kernel.collections import Nature
from tidegate.kernel.folds import Fold, Folds
from tidegate.kernel.model import Clause, Query
from tidegate.kernel.replay import rebuild
from tidegate.kernel.store import Schema, Store

LOG: Final = "event_log"

VIEWS: Final[Mapping[str, Nature]] = {
    LOG: Nature.CANONICAL,
    "host_rollout_records": Nature.CACHE,
    "dispatch_queue": Nature.QUEUE,
    "probe_failures": Nature.DERIVED,
    "rollouts": Nature.DERIVED,
    "quarantined_closures": Nature.DERIVED,
    "token_replay": Nature.LOOKUP,
    "cert_revocations": Nature.LOOKUP,
}

# What no rollout goes on without. Its rows are never deleted: one that is empty although the log
# holds a fact of it was lost.
_NEEDED: Final = (TALLIES.name, HOST_RECORDS.name)


def classes(schema: Schema) -> dict[str, Nature]:
    """Every table that a store of this schema shows, and its class."""
    return {LOG: Nature.CANONICAL} | {
        name: collection.nature for name, collection in schema.collections.items()
    }


def undeclared(schema: Schema, tables: Iterable[str]) -> tuple[str, ...]:
    """Those of a database's tables that nothing declares: nobody could say how to remake them."""
    return tuple(sorted(set(tables) - classes(schema).keys()))


def lost_caches(store: Store, folds: Folds) -> tuple[Fold, ...]:
    """The reducer caches, if some was emptied. Cheap where no rollout waits for its first host."""
    if not store.range(ROLLOUTS.name, limit=1):
        return ()
    caches = tuple(fold for fold in folds.folds if fold.collection.nature is Nature.CACHE)
    needed = (fold for fold in caches if fold.collection.name in _NEEDED)
    return caches if any(_is_lost(store, fold) for fold in needed) else ()


def _is_lost(store: Store, fold: Fold) -> bool:
    if store.range(fold.collection.name, limit=1):
        return False
    facts = Clause(frozenset(fact.__name__ for fact in fold.reads))
    return bool(store.read(Query((facts,)), limit=1).events)


def rebuild_lost(store: Store, folds: Folds) -> tuple[str, ...]:
    """Make the reducer caches again if some was emptied; their names.

    To be called at a start, before anything else writes, by a process that is alone with the log.
    """
    caches = lost_caches(store, folds)
    if caches:
        rebuild(store, folds, *caches)
    return tuple(fold.collection.name for fold in caches)
