"""What a revision holds: all of its files, checked, and named by one digest.

The bytes lie in the blob store, or elsewhere if the file is a reference (ADR-0013). Here content is
its manifest, one entry per file, and facts carry only the digest, the sizes and where the manifest
lies.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from hashlib import sha256
from typing import Final

from msgspec import Struct

from tidegate.domain.content import digests, entries, paths, refusals
from tidegate.domain.content.links import check_links

FILES_MAX = 50_000  # installations allow less: see limits
REFERENCE_MARK: Final = "@"  # no type begins with it
TARGET_MARK: Final = "\t"  # no path holds it


class Content(Struct, frozen=True, omit_defaults=True):
    """All of a revision's content, as facts carry it."""

    digest: str
    manifest: str  # digest of the blob that lists the files
    file_count: int
    total_bytes: int  # of references, too
    references: int = 0  # of its files


class FileManifest:
    """The files of a revision, checked and in the order of their paths' UTF-8 bytes.

    Raises:
        InvalidFilePath: a path that is unsafe, is there twice, or is a directory of another.
        InvalidDigest: a hash or size that cannot be one.
        InvalidReference: an address that hosts are not sent to.
        InvalidLink: a link that leads out of the tree, to nothing, or in a circle.
        ContentTooLarge: more files or bytes than a revision may have.
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
        """What the files are named by, in the form that ``digests`` describes.

        It names what hosts get, so a file has the same part in it stored and by reference.
        """
        return digests.digest_of(digests.encode(self.files))

    @property
    def blob(self) -> bytes:
        """The manifest as it lies in the blob store: type, hash, size and path, a line per file.

        The line of a reference begins with ``@``, its address and a space. The line of a link ends
        with a tab, which no path holds, and its target.
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
        """The files whose bytes lie elsewhere."""
        return tuple(file for file in self.files if file.uri is not None)

    @property
    def by_path(self) -> dict[str, entries.File]:
        return {file.path: file for file in self.files}

    @classmethod
    def parse(cls, blob: bytes) -> FileManifest:
        """The manifest of a blob that ``blob`` wrote. Raises: Invalid, ContentTooLarge."""
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
        """The manifest of files whose bytes are at hand; ``executables`` are paths among them."""
        return cls(
            entries.File(path, sha256(data).hexdigest(), len(data), executable=path in executables)
            for path, data in files.items()
        )


def _line(file: entries.File) -> str:
    path = file.path if file.link is None else f"{file.path}{TARGET_MARK}{file.link}"
    line = f"{file.type} {file.sha256} {file.bytes} {path}\n"
    return line if file.uri is None else f"{REFERENCE_MARK}{file.uri} {line}"
