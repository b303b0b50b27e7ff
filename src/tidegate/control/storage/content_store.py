"""Store the content of revisions as blobs before a commit references them, and read it."""

from __future__ import annotations

import tarfile
from collections.abc import Container, Iterable, Iterator, Mapping

from tidegate.control.storage.blobs import CHUNK_BYTES, BlobDamaged, BlobMissing, Blobs
from tidegate.domain.content import digests, entries, manifests
from tidegate.domain.content.limits import ContentLimits
from tidegate.domain.packages.refusals import ContentDamaged, FileByReference


def store_files(
    blobs: Blobs,
    files: Mapping[str, bytes],
    references: Iterable[entries.File] = (),
    executables: Container[str] = (),
    limits: ContentLimits | None = None,
) -> manifests.FileManifest:
    """Store these files, and a manifest of them and the references; return the manifest.

    ``references`` may include files whose bytes are already stored. ``executables``: the paths of
    the executable files.

    Raises:
        Invalid, TooLarge: before anything is written.
    """
    manifest = manifests.FileManifest(
        (*manifests.FileManifest.of(files, executables).files, *references)
    )
    if limits is not None:
        limits.check(manifest)
    for content in files.values():
        blobs.put(content)
    return store_manifest(blobs, manifest)


def store_manifest(blobs: Blobs, manifest: manifests.FileManifest) -> manifests.FileManifest:
    """Store a manifest whose files are already stored."""
    blobs.put(manifest.blob)
    return manifest


def read_manifest(blobs: Blobs, content: manifests.Content) -> manifests.FileManifest:
    """Read the manifest of some content. Raises: BlobMissing, BlobDamaged."""
    return (
        manifests.FileManifest.parse(blobs.get(content.manifest))
        if content.file_count
        else manifests.FileManifest(())
    )


def verify_content(blobs: Blobs, name: str, content: manifests.Content) -> None:
    """Read all stored bytes of a revision, and compare them with their digests.

    References are not checked: each agent compares what it fetches with the digest.

    Raises:
        ContentDamaged: names the first file that is lost or damaged.
    """
    what = "its list of files"
    try:
        for file in read_manifest(blobs, content).files:
            what = file.path
            if file.is_kept:
                for _ in blobs.stream(digests.DIGEST_PREFIX + file.sha256):
                    pass
    except (BlobMissing, BlobDamaged) as error:
        is_missing = isinstance(error, BlobMissing)
        raise ContentDamaged(name, what, is_missing=is_missing) from error


def read_content(blobs: Blobs, file: entries.File) -> bytes:
    """Read the bytes of a file.

    A reference is never read from the blob store, even if its bytes are there: knowing a hash must
    not be enough to get what another person stored.

    Raises:
        FileByReference: they are stored elsewhere. BlobMissing, BlobDamaged.
    """
    _demand_kept(file)
    if file.link is not None:
        return file.link.encode()
    return blobs.get(digests.DIGEST_PREFIX + file.sha256)


def open_content(blobs: Blobs, file: entries.File, start: int, stop: int) -> Iterator[bytes]:
    """Yield the bytes of a file from ``start`` to ``stop``, in pieces. Only a whole file is
    compared with its hash; a part cannot be.

    Raises:
        FileByReference, BlobMissing: at once. BlobDamaged: before the last piece.
    """
    _demand_kept(file)
    if file.link is not None:
        return iter((file.link.encode()[start:stop],))
    digest = digests.DIGEST_PREFIX + file.sha256
    if (start, stop) == (0, file.bytes):
        return blobs.stream(digest)
    return blobs.read(digest, start, stop)


def _demand_kept(file: entries.File) -> None:
    if file.uri is not None:
        raise FileByReference(file.path, file.uri, file.sha256, file.bytes)


class ContentArchive:
    """All stored files of a manifest as one tar; the same manifest gives the same bytes.

    It is never completely in memory: headers are made and files are read while it is sent.
    """

    def __init__(self, blobs: Blobs, manifest: manifests.FileManifest) -> None:
        self._blobs = blobs
        self._files = tuple(file for file in manifest.files if file.uri is None)
        self.size = sum(_length(part) for part in self._parts())

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes from ``start`` to ``stop``. Raises: BlobMissing, BlobDamaged."""
        return _gather(self._pieces(start, stop))

    def _pieces(self, start: int, stop: int) -> Iterator[bytes]:
        at = 0
        for part in self._parts():
            first, last = max(start - at, 0), min(stop - at, _length(part))
            at += _length(part)
            if first < last and isinstance(part, entries.File):
                yield from open_content(self._blobs, part, first, last)
            elif first < last and isinstance(part, bytes):
                yield part[first:last]
            if at >= stop:
                return

    def _parts(self) -> Iterator[bytes | entries.File]:
        total = 0
        for file in self._files:
            entry = tarfile.TarInfo(file.path)
            if file.link is not None:
                entry.type, entry.linkname = tarfile.SYMTYPE, file.link
                header = entry.tobuf(tarfile.PAX_FORMAT)
                yield header
                total += len(header)
                continue
            entry.size = file.bytes
            entry.mode = file.mode
            header = entry.tobuf(tarfile.PAX_FORMAT)
            padding = bytes(-file.bytes % tarfile.BLOCKSIZE)
            yield header
            yield file
            yield padding
            total += len(header) + file.bytes + len(padding)
        end = 2 * tarfile.BLOCKSIZE
        yield bytes(end + -(total + end) % tarfile.RECORDSIZE)


def _length(part: bytes | entries.File) -> int:
    return part.bytes if isinstance(part, entries.File) else len(part)


def _gather(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Join small pieces into larger ones."""
    gathered = bytearray()
    for piece in pieces:
        gathered += piece
        if len(gathered) >= CHUNK_BYTES:
            yield bytes(gathered)
            gathered.clear()
    if gathered:
        yield bytes(gathered)
