"""Three revisions: how an upgrade brings a new upstream together with local changes."""

from __future__ import annotations

from typing import Final

from tidegate.domain.content.differences import diff
from tidegate.domain.content.entries import File
from tidegate.domain.content.manifests import FileManifest
from tidegate.domain.content.paths import find_clashes
from tidegate.domain.packages.facts import Strategy
from tidegate.domain.packages.refusals import UpgradeConflict

WHOLE: Final = frozenset({Strategy.FORCE_DELETE_REPLACE, Strategy.FAST_FORWARD})


def merge(
    base: FileManifest,
    local: FileManifest,
    upstream: FileManifest,
    strategy: Strategy = Strategy.THREE_WAY,
) -> FileManifest:
    """The content of an upgrade from ``base`` to ``upstream`` with what ``local`` changed.

    Raises:
        UpgradeConflict: names every path on which the strategy does not choose.
    """
    if strategy is Strategy.FAST_FORWARD and (changes := diff(base, local)):
        raise UpgradeConflict(change.path for change in changes)
    if strategy in WHOLE:
        return upstream
    olds, ours, theirs = base.by_path, local.by_path, upstream.by_path
    merged: list[File] = []
    conflicts: set[str] = set()
    for path in olds.keys() | ours.keys() | theirs.keys():
        old, our, their = olds.get(path), ours.get(path), theirs.get(path)
        if old not in (our, their) and our != their and strategy is Strategy.THREE_WAY:
            conflicts.add(path)
        chosen = our if their == old else their
        if chosen is not None:
            merged.append(chosen)
    conflicts.update(find_clashes(file.path for file in merged))
    if conflicts:
        raise UpgradeConflict(sorted(conflicts))
    return FileManifest(merged)
