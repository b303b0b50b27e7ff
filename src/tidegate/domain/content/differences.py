"""How the files of two revisions differ."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from tidegate.domain.content.entries import File
from tidegate.domain.content.manifests import FileManifest


class FileChangeKind(StrEnum):
    """What happened to a file between two revisions."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class FileDifference(Struct, frozen=True):
    """One file that is not the same in two revisions."""

    path: str
    what: FileChangeKind
    before: File | None
    after: File | None


def diff(old: FileManifest, new: FileManifest) -> tuple[FileDifference, ...]:
    """The files that differ, in the order of their paths."""
    before, after = old.by_path, new.by_path
    found = []
    for path in sorted(before.keys() | after.keys(), key=str.encode):
        left, right = before.get(path), after.get(path)
        if left == right:
            continue
        what = FileChangeKind.CHANGED
        if left is None:
            what = FileChangeKind.ADDED
        elif right is None:
            what = FileChangeKind.REMOVED
        found.append(FileDifference(path, what, left, right))
    return tuple(found)
