"""Compare two revisions, file by file and line by line."""

from __future__ import annotations

from msgspec import Struct

from tidegate.control.storage import content_store
from tidegate.control.storage.blobs import Blobs
from tidegate.domain.content import differences, entries, manifests

PATCH_BYTES_MAX = 64 * 1024  # per side of a file that is shown line by line


PATCHES_MAX = 200


class FileChanged(Struct, frozen=True):
    """A file that differs between two revisions. ``patch`` is set if both sides are short texts
    that are stored here. It is empty if only ``executable`` differs. ``too_different``: the texts
    have too little in common to show them line by line.
    """

    path: str
    what: differences.FileChangeKind
    before: entries.File | None
    after: entries.File | None
    patch: str | None
    too_different: bool = False


def diff_files(
    blobs: Blobs, old: manifests.FileManifest, new: manifests.FileManifest
) -> tuple[FileChanged, ...]:
    """List the files that differ, with patches for a limited number of text files."""
    budget = differences.ComparisonBudget()
    changes = []
    for number, item in enumerate(differences.diff(old, new)):
        texts = _texts(blobs, item) if number < PATCHES_MAX else None
        patch = None if texts is None else differences.diff_lines(*texts, item.path, budget)
        is_too_different = texts is not None and patch is None
        changes.append(
            FileChanged(item.path, item.what, item.before, item.after, patch, is_too_different)
        )
    return tuple(changes)


def _texts(blobs: Blobs, item: differences.FileDifference) -> tuple[list[str], list[str]] | None:
    """Return the lines of both sides; None: a side is too long, not text, or not stored here."""
    sides: list[list[str]] = []
    for file in (item.before, item.after):
        if file is None:
            sides.append([])
            continue
        if file.bytes > PATCH_BYTES_MAX or not file.is_kept:
            return None
        try:
            text = content_store.read_content(blobs, file).decode()
        except UnicodeDecodeError:
            return None
        if "\0" in text:
            return None
        sides.append(text.splitlines(keepends=True))
    before, after = sides
    return before, after
