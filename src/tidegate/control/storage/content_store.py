"""Content on its way in and out: bytes become blobs before a commit names them, and back again."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Container, Iterable, Mapping

from tidegate.control.storage.blobs import BlobDamaged, BlobMissing, Blobs
from tidegate.domain.content.digests import DIGEST_PREFIX
from tidegate.domain.content.entries import File
from tidegate.domain.content.manifests import Content, FileManifest
from tidegate.domain.packages.refusals import ContentDamaged, FileByReference


def store_files(
    blobs: Blobs,
    files: Mapping[str, bytes],
    references: Iterable[File] = (),
    executables: Container[str] = (),
) -> FileManifest:
    """The manifest of these files and references; all that is ours, and itself, durable.

    ``executables``: the paths of those among the files that are programs.

    Raises:
        Invalid, TooLarge: before anything is written.
    """
    manifest = FileManifest((*FileManifest.of(files, executables).files, *references))
    for content in files.values():
        blobs.put(content)
    return store_manifest(blobs, manifest)


def store_manifest(blobs: Blobs, manifest: FileManifest) -> FileManifest:
    """A manifest whose files are stored, itself durable."""
    blobs.put(manifest.blob)
    return manifest


def read_manifest(blobs: Blobs, content: Content) -> FileManifest:
    """The files of some content. Raises: BlobMissing, BlobDamaged."""
    return (
        FileManifest.parse(blobs.get(content.manifest)) if content.file_count else FileManifest(())
    )


def verify_content(blobs: Blobs, name: str, content: Content) -> None:
    """Read every byte that is kept here of a revision, and compare it with its digest.

    References are not looked at: each agent compares what it fetches with the digest.

    Raises:
        ContentDamaged: names the first file that is lost or damaged.
    """
    what = "its list of files"
    try:
        for file in read_manifest(blobs, content).files:
            what = file.path
            if file.uri is None:
                for _ in blobs.stream(DIGEST_PREFIX + file.sha256):
                    pass
    except (BlobMissing, BlobDamaged) as error:
        is_missing = isinstance(error, BlobMissing)
        raise ContentDamaged(name, what, is_missing=is_missing) from error


def read_content(blobs: Blobs, file: File) -> bytes:
    """The bytes of a file.

    A reference is never looked for in the blob store, though its bytes may lie there: who knows a
    hash must not get by it what somebody else stored.

    Raises:
        FileByReference: they lie elsewhere. BlobMissing, BlobDamaged.
    """
    if file.uri is not None:
        raise FileByReference(file.path, file.uri, file.sha256, file.bytes)
    return blobs.get(DIGEST_PREFIX + file.sha256)


def to_tar(blobs: Blobs, manifest: FileManifest) -> bytes:
    """All files that are kept here as one tar, the same bytes for the same manifest."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for file in manifest.files:
            if file.uri is not None:
                continue
            entry = tarfile.TarInfo(file.path)
            entry.size = file.bytes
            entry.mode = file.mode
            tar.addfile(entry, io.BytesIO(read_content(blobs, file)))
    return buffer.getvalue()
