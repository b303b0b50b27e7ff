"""The file list of a revision: all of its files, checked, and identified by one digest.

The bytes are in the blob store, or elsewhere if a file is a reference (ADR-0013). This module
handles only the manifest, with one entry per file. Facts carry the digest, the sizes and the
digest of the manifest's blob.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from hashlib import sha256
from typing import Final

from msgspec import Struct

from tidegate.domain.content import digests, entries, paths, refusals
from tidegate.domain.content.links import check_links

FILES_MAX = 50_000  # installations allow less, see limits.py
REFERENCE_MARK: Final = "@"  # no type begins with it
TARGET_MARK: Final = "\t"  # no path contains it


class Content(Struct, frozen=True, omit_defaults=True):
    """A revision's content as facts carry it."""

    digest: str
    manifest: str  # the digest of the blob that lists the files
    file_count: int
    total_bytes: int  # including references
    references: int = 0  # the number of files that are references


class FileManifest:
    """The files of a revision, checked and in the order of their paths' UTF-8 bytes.

    Raises:
        InvalidFilePath: a path is unsafe, occurs twice, or is a directory of another.
        InvalidDigest: a hash or size is malformed.
        InvalidReference: the address of a reference is not allowed.
        InvalidLink: a link leads out of the tree, to nothing, or in a circle.
        ContentTooLarge: there are more files or bytes than a revision may have.
    """

    def __init__(self, files: Iterable[entries.File]) -> None:
        self.files = tuple(sorted(files, key=lambda file: file.path.encode(errors="surrogatepass")))
        if len(self.files) > FILES_MAX:
            raise refusals.ContentTooLarge(
                f"{len(self.files)} files, at most {FILES_MAX} are allowed",
                found=len(self.files),
                allowed=FILES_MAX,
            )
        for file in self.files:
            entries.check_file(file)
        self.total_bytes = sum(file.bytes for file in self.files)
        if self.total_bytes > entries.CONTENT_BYTES_MAX:
            raise refusals.ContentTooLarge(
                f"{self.total_bytes} bytes, at most {entries.CONTENT_BYTES_MAX} are allowed",
                found=self.total_bytes,
                allowed=entries.CONTENT_BYTES_MAX,
            )
        clash = paths.find_clashes(file.path for file in self.files)
        if clash:
            raise refusals.InvalidFilePath(clash[0], "another file has this path, or lies below it")
        links = {file.path: file.link for file in self.files if file.link is not None}
        check_links((file.path for file in self.files), links)

    @property
    def digest(self) -> str:
        """The digest of the files, in the format that ``digests`` describes.

        It depends only on what hosts get: a file contributes the same bytes whether it is stored or
        is a reference.
        """
        return digests.digest_of(digests.encode(self.files))

    @property
    def blob(self) -> bytes:
        """The manifest's blob: one line per file with its type, hash, size and path.

        The line of a reference begins with ``@``, its address and a space. The line of a link ends
        with a tab, which no path contains, and its target.
        """
        return "".join(map(_line, self.files)).encode()

    @property
    def content(self) -> Content:
        return Content(
            self.digest,
            digests.digest_of(self.blob),
            len(self.files),
            self.total_bytes,
            len(self.references),
        )

    @property
    def references(self) -> tuple[entries.File, ...]:
        """The files that are stored elsewhere."""
        return tuple(file for file in self.files if file.uri is not None)

    @property
    def by_path(self) -> dict[str, entries.File]:
        return {file.path: file for file in self.files}

    @classmethod
    def parse(cls, blob: bytes) -> FileManifest:
        """Parse a blob that ``blob`` returned. Raises: Invalid, ContentTooLarge."""
        files = []
        for line in blob.decode().split("\n")[:-1]:
            uri = None
            if line.startswith(REFERENCE_MARK):
                address, line = line.split(" ", 1)
                uri = address.removeprefix(REFERENCE_MARK)
            type_, hashed, size, path = line.split(" ", 3)
            link = None
            if type_ == entries.LINK:
                path, link = path.split(TARGET_MARK)
            files.append(
                entries.File(path, hashed, int(size), uri, entries.IS_EXECUTABLE[type_], link)
            )
        return cls(files)

    @classmethod
    def of(cls, files: Mapping[str, bytes], executables: Container[str] = ()) -> FileManifest:
        """Build the manifest of files from their bytes; ``executables`` are paths among them."""
        return cls(
            entries.File(path, sha256(data).hexdigest(), len(data), executable=path in executables)
            for path, data in files.items()
        )


def _line(file: entries.File) -> str:
    path = file.path if file.link is None else f"{file.path}{TARGET_MARK}{file.link}"
    line = f"{file.type} {file.sha256} {file.bytes} {path}\n"
    return line if file.uri is None else f"{REFERENCE_MARK}{file.uri} {line}"
