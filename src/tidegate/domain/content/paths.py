"""Paths of files in a release. They mean the same file everywhere and never leave the release."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from tidegate.domain.content.refusals import InvalidFilePath

FILE_PATH_BYTES_MAX = 1_024
FILE_SEGMENT_BYTES_MAX = 255  # the limit of common file systems


def check_file_path(path: str) -> None:
    """Check that a path means the same file everywhere and never leaves its package's directory.

    Raises:
        InvalidFilePath: absolute, ``..``, ``.``, empty segment, backslash, control character, too
            long, or text without a UTF-8 form.
    """
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise InvalidFilePath(path, "it holds a lone surrogate") from None
    if not 0 < size <= FILE_PATH_BYTES_MAX:
        raise InvalidFilePath(path, f"it needs 1 to {FILE_PATH_BYTES_MAX} bytes")
    if path.startswith("/"):
        raise InvalidFilePath(path, "it must be relative")
    if "\\" in path:
        raise InvalidFilePath(path, "segments are separated by /, never by a backslash")
    if any(ord(char) < 32 or ord(char) == 127 for char in path):
        raise InvalidFilePath(path, "it holds a control character")
    for segment in path.split("/"):
        if segment in ("", ".", ".."):
            raise InvalidFilePath(path, "no segment may be empty, . or ..")
        if len(segment.encode()) > FILE_SEGMENT_BYTES_MAX:
            raise InvalidFilePath(path, f"a segment is longer than {FILE_SEGMENT_BYTES_MAX} bytes")


def find_clashes(paths: Iterable[str]) -> tuple[str, ...]:
    """Find paths that clash with others: equal after Unicode normalisation, or the directory of
    another file.
    """
    seen: dict[str, str] = {}
    clash: set[str] = set()
    for path in paths:
        normal = unicodedata.normalize("NFC", path)
        if normal in seen:
            clash.add(path)
        seen[normal] = path
    for normal in seen:
        parent, slash, _ = normal.rpartition("/")
        while slash:
            if parent in seen:
                clash.add(seen[parent])
            parent, slash, _ = parent.rpartition("/")
    return tuple(sorted(clash))
