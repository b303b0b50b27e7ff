"""Find reducer caches that were emptied, and rebuild them."""

from __future__ import annotations

from typing import Final

from tidegate.domain.hosts.rows import HOST_RECORDS
from tidegate.domain.rollouts.rows import ROLLOUTS, TALLIES
from tidegate.kernel import folds as kernel_folds, model, replay
from tidegate.kernel.collections import Nature
from tidegate.kernel.store import Store

# The caches that every rollout needs. Their rows are never deleted, so a cache that is empty
# although the log has a fact of it was lost.
_NEEDED: Final = (TALLIES.name, HOST_RECORDS.name)


def lost_caches(store: Store, folds: kernel_folds.Folds) -> tuple[kernel_folds.Fold, ...]:
    """Return the reducer caches if one was emptied. Cheap unless a rollout waits for its first
    host.
    """
    if not store.range(ROLLOUTS.name, limit=1):
        return ()
    caches = tuple(fold for fold in folds.folds if fold.collection.nature is Nature.CACHE)
    needed = (fold for fold in caches if fold.collection.name in _NEEDED)
    return caches if any(_is_lost(store, fold) for fold in needed) else ()


def _is_lost(store: Store, fold: kernel_folds.Fold) -> bool:
    if store.range(fold.collection.name, limit=1):
        return False
    facts = model.Clause(frozenset(fact.__name__ for fact in fold.reads))
    return bool(store.read(model.Query((facts,)), limit=1).events)


def rebuild_lost(store: Store, folds: kernel_folds.Folds) -> tuple[str, ...]:
    """Rebuild the reducer caches if one was emptied; return their names.

    Call this at a start, before anything else writes, in the only process that uses the log.
    """
    caches = lost_caches(store, folds)
    if caches:
        replay.rebuild(store, folds, *caches)
    return tuple(fold.collection.name for fold in caches)
