"""The three-way merge of an upgrade: a new upstream with local changes."""

from __future__ import annotations

from typing import Final

from tidegate.domain.content import (
    differences,
    entries,
    manifests,
    paths,
    refusals as content_refusals,
)
from tidegate.domain.packages import facts, refusals

WHOLE: Final = frozenset({facts.Strategy.FORCE_DELETE_REPLACE, facts.Strategy.FAST_FORWARD})


def merge(
    base: manifests.FileManifest,
    local: manifests.FileManifest,
    upstream: manifests.FileManifest,
    strategy: facts.Strategy = facts.Strategy.THREE_WAY,
) -> manifests.FileManifest:
    """Merge the changes from ``base`` to ``local`` into ``upstream``.

    Raises:
        UpgradeConflict: names every path for which the strategy makes no choice, or one link that
            leads nowhere in the merged tree.
    """
    if strategy is facts.Strategy.FAST_FORWARD and (changes := differences.diff(base, local)):
        raise refusals.UpgradeConflict(change.path for change in changes)
    if strategy in WHOLE:
        return upstream
    olds, ours, theirs = base.by_path, local.by_path, upstream.by_path
    merged: list[entries.File] = []
    conflicts: set[str] = set()
    for path in olds.keys() | ours.keys() | theirs.keys():
        old, our, their = olds.get(path), ours.get(path), theirs.get(path)
        if old not in (our, their) and our != their and strategy is facts.Strategy.THREE_WAY:
            conflicts.add(path)
        chosen = our if their == old else their
        if chosen is not None:
            merged.append(chosen)
    conflicts.update(paths.find_clashes(file.path for file in merged))
    if conflicts:
        raise refusals.UpgradeConflict(sorted(conflicts))
    try:
        return manifests.FileManifest(merged)
    except content_refusals.InvalidLink as broken:  # one side has the link, the other its target
        raise refusals.UpgradeConflict((broken.link,)) from broken
