"""What a revision holds: files by path, named by one digest; how two differ and how three merge.

The bytes lie in the blob store, or elsewhere if the file is a reference (ADR-0013). Here content is
its manifest, one entry per file, and facts carry only the digest, the sizes and where the manifest
lies.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Final

from msgspec import Struct

from tidegate.domain.packages.names import check_file_path
from tidegate.domain.packages.references import check_uri
from tidegate.domain.packages.refusals import (
    ContentTooLarge,
    InvalidFilePath,
    InvalidMember,
    UpgradeConflict,
)

FILES_MAX = 10_000
CONTENT_BYTES_MAX = 32 * 1024 * 1024
DIGEST_PREFIX = "sha256:"
HEX_CHARS = 64
REFERENCE_MARK: Final = "@"  # no line of a stored file begins with it


class File(Struct, frozen=True, order=True, omit_defaults=True):
    """One file of a manifest: where it lies, the SHA-256 of its bytes in hex, and their number.

    With a ``uri`` it is a reference: its bytes are there, and never in our blob store.
    """

    path: str
    sha256: str
    bytes: int
    uri: str | None = None


class Content(Struct, frozen=True, omit_defaults=True):
    """All of a revision's content, as facts carry it."""

    digest: str
    manifest: str  # digest of the blob that lists the files
    file_count: int
    total_bytes: int  # of references, too
    references: int = 0  # of its files


class Manifest:
    """The files of a revision, checked and in the order of their paths' UTF-8 bytes.

    Raises:
        InvalidFilePath: a path that is unsafe, is there twice, or is a directory of another.
        InvalidMember: a hash or size that cannot be one.
        InvalidReference: an address that hosts are not sent to.
        ContentTooLarge: more files or bytes than a revision may have.
    """

    def __init__(self, files: Iterable[File]) -> None:
        self.files = tuple(sorted(files, key=lambda file: file.path.encode(errors="surrogatepass")))
        if len(self.files) > FILES_MAX:
            raise ContentTooLarge(
                f"{len(self.files)} files, at most {FILES_MAX} are allowed",
                found=len(self.files),
                allowed=FILES_MAX,
            )
        for file in self.files:
            _check_file(file)
        self.total_bytes = sum(file.bytes for file in self.files)
        if self.total_bytes > CONTENT_BYTES_MAX:
            raise ContentTooLarge(
                f"{self.total_bytes} bytes, at most {CONTENT_BYTES_MAX} are allowed",
                found=self.total_bytes,
                allowed=CONTENT_BYTES_MAX,
            )
        clash = clashing(file.path for file in self.files)
        if clash:
            raise InvalidFilePath(clash[0], "another file has this path, or lies below it")

    @property
    def digest(self) -> str:
        """SHA-256 over lines ``<hex sha256 of the file>  <path>``: what ``sha256sum`` prints.

        It names what hosts get, so a file has the same part in it stored and by reference.
        """
        lines = "".join(f"{file.sha256}  {file.path}\n" for file in self.files)
        return digest_of(lines.encode())

    @property
    def blob(self) -> bytes:
        """The manifest as it lies in the blob store: hash, size and path, a line per file.

        The line of a reference begins with ``@`` and its address.
        """
        return "".join(map(_line, self.files)).encode()

    @property
    def content(self) -> Content:
        return Content(
            self.digest,
            digest_of(self.blob),
            len(self.files),
            self.total_bytes,
            len(self.references),
        )

    @property
    def references(self) -> tuple[File, ...]:
        """The files whose bytes lie elsewhere."""
        return tuple(file for file in self.files if file.uri is not None)

    @property
    def by_path(self) -> dict[str, File]:
        return {file.path: file for file in self.files}

    @classmethod
    def parse(cls, blob: bytes) -> Manifest:
        """The manifest of a blob that ``blob`` wrote. Raises: InvalidMember, InvalidFilePath."""
        files = []
        for line in blob.decode().split("\n")[:-1]:
            uri = None
            if line.startswith(REFERENCE_MARK):
                address, line = line.split(" ", 1)
                uri = address.removeprefix(REFERENCE_MARK)
            hashed, size, path = line.split(" ", 2)
            files.append(File(path, hashed, int(size), uri))
        return cls(files)

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> Manifest:
        """The manifest of files whose bytes are at hand."""
        return cls(File(path, sha256(data).hexdigest(), len(data)) for path, data in files.items())


def _line(file: File) -> str:
    line = f"{file.sha256} {file.bytes} {file.path}\n"
    return line if file.uri is None else f"{REFERENCE_MARK}{file.uri} {line}"


def digest_of(data: bytes) -> str:
    """The name of these bytes in the blob store."""
    return DIGEST_PREFIX + sha256(data).hexdigest()


def check_digest(digest: str) -> None:
    """Raises: InvalidMember."""
    hashed = digest.removeprefix(DIGEST_PREFIX)
    if hashed == digest or not _is_hash(hashed):
        raise InvalidMember("a digest is sha256: and 64 hexadecimal digits in lower case")


def clashing(paths: Iterable[str]) -> tuple[str, ...]:
    """Paths that cannot lie beside the others: the same after Unicode normalisation, or the
    directory of another file.
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


def _check_file(file: File) -> None:
    check_file_path(file.path)
    if not _is_hash(file.sha256):
        raise InvalidMember(
            "a file's sha256 is 64 hexadecimal digits in lower case", path=file.path
        )
    if not 0 <= file.bytes <= CONTENT_BYTES_MAX:
        raise ContentTooLarge(
            f"{file.path} has {file.bytes} bytes, at most {CONTENT_BYTES_MAX} are allowed",
            found=file.bytes,
            allowed=CONTENT_BYTES_MAX,
        )
    if file.uri is not None:
        check_uri(file.path, file.uri)


def _is_hash(text: str) -> bool:
    return len(text) == HEX_CHARS and set(text) <= set("0123456789abcdef")


# ── two revisions: what differs ───────────────────────────────────────────────────────────────────


class Difference(StrEnum):
    """What happened to a file between two revisions."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class FileDifference(Struct, frozen=True):
    """One file that is not the same in two revisions."""

    path: str
    what: Difference
    before: File | None
    after: File | None


def diff(old: Manifest, new: Manifest) -> tuple[FileDifference, ...]:
    """The files that differ, in the order of their paths."""
    before, after = old.by_path, new.by_path
    found = []
    for path in sorted(before.keys() | after.keys(), key=str.encode):
        left, right = before.get(path), after.get(path)
        if left == right:
            continue
        what = Difference.CHANGED
        if left is None:
            what = Difference.ADDED
        elif right is None:
            what = Difference.REMOVED
        found.append(FileDifference(path, what, left, right))
    return tuple(found)


# ── three revisions: an upgrade ───────────────────────────────────────────────────────────────────


class Strategy(StrEnum):
    """How an upgrade brings a new upstream together with local changes."""

    THREE_WAY = "three-way"  # both sides' changes; where they meet, a conflict that is reported
    COPY_MERGE = "copy-merge"  # both sides' changes; where they meet, upstream wins
    FORCE_DELETE_REPLACE = "force-delete-replace"  # upstream as it is; local changes are lost
    FAST_FORWARD = "fast-forward"  # upstream as it is, only if nothing was changed locally


WHOLE: Final = frozenset({Strategy.FORCE_DELETE_REPLACE, Strategy.FAST_FORWARD})


def merge(
    base: Manifest, local: Manifest, upstream: Manifest, strategy: Strategy = Strategy.THREE_WAY
) -> Manifest:
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
    conflicts.update(clashing(file.path for file in merged))
    if conflicts:
        raise UpgradeConflict(sorted(conflicts))
    return Manifest(merged)
