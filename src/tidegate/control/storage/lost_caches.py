"""Find reducer caches that were emptied, and rebuild them."""

from __future__ import annotations

from typing import Final

from tidegate.domain.hosts.rows import HOST_RECORDS
from tidegate.domain.rollouts.rows import ROLLOUTS, TALLIES
from tidegate.kernel import folds as kernel_folds, model, replay
from tidegate.kernel.collections import Nature
from tidegate.kernel.store import Store

# What no rollout goes on without. Its rows are never deleted: one that is empty although the log
# holds a fact of it was lost.
_NEEDED: Final = (TALLIES.name, HOST_RECORDS.name)


def lost_caches(store: Store, folds: kernel_folds.Folds) -> tuple[kernel_folds.Fold, ...]:
    """The reducer caches, if some was emptied. Cheap where no rollout waits for its first host."""
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
    """Make the reducer caches again if some was emptied; their names.

    To be called at a start, before anything else writes, by a process that is alone with the log.
    """
    caches = lost_caches(store, folds)
    if caches:
        replay.rebuild(store, folds, *caches)
    return tuple(fold.collection.name for fold in caches)
