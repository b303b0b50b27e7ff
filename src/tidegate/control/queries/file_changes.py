"""How two revisions differ, file by file and line by line."""

from __future__ import annotations

from difflib import unified_diff

from msgspec import Struct

from tidegate.control.storage.blobs import Blobs
from tidegate.control.storage.content_store import (
    read_content,
)
from tidegate.domain.content.differences import FileChangeKind, FileDifference, diff
from tidegate.domain.content.entries import File
from tidegate.domain.content.manifests import FileManifest

PATCH_BYTES_MAX = 64 * 1024  # of each side of a file that is shown line by line


PATCHES_MAX = 200


class FileChanged(Struct, frozen=True):
    """A file that is not the same in two revisions; ``patch`` where both sides are short text that
    is kept here. It is empty where the bytes are the same: then ``executable`` differs.
    """

    path: str
    what: FileChangeKind
    before: File | None
    after: File | None
    patch: str | None


def diff_files(blobs: Blobs, old: FileManifest, new: FileManifest) -> tuple[FileChanged, ...]:
    """What differs, with the lines of the first so many text files."""
    found = diff(old, new)
    return tuple(
        FileChanged(
            item.path,
            item.what,
            item.before,
            item.after,
            _patch(blobs, item) if number < PATCHES_MAX else None,
        )
        for number, item in enumerate(found)
    )


def _patch(blobs: Blobs, item: FileDifference) -> str | None:
    sides: list[list[str]] = []
    for file in (item.before, item.after):
        if file is None:
            sides.append([])
            continue
        if file.bytes > PATCH_BYTES_MAX or file.uri is not None:
            return None
        try:
            text = read_content(blobs, file).decode()
        except UnicodeDecodeError:
            return None
        if "\0" in text:
            return None
        sides.append(text.splitlines(keepends=True))
    before, after = sides
    lines = unified_diff(before, after, fromfile=f"a/{item.path}", tofile=f"b/{item.path}")
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
