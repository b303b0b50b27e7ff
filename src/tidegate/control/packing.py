"""Content on its way in and out: bytes become blobs before a commit names them, and back again."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping

from tidegate.control.blobs import Blobs
from tidegate.domain.packages.content import (
    DIGEST_PREFIX,
    Content,
    File,
    Manifest,
)

MODE = 0o644


def stored(blobs: Blobs, files: Mapping[str, bytes]) -> Manifest:
    """The manifest of these files, all of them and itself durable. Raises: Invalid, TooLarge."""
    manifest = Manifest.of(files)  # refuses bad paths before anything is written
    for content in files.values():
        blobs.put(content)
    return listed(blobs, manifest)


def listed(blobs: Blobs, manifest: Manifest) -> Manifest:
    """A manifest whose files are stored, itself durable."""
    blobs.put(manifest.blob)
    return manifest


def manifest_of(blobs: Blobs, content: Content) -> Manifest:
    """The files of some content. Raises: BlobMissing, BlobDamaged."""
    return Manifest.parse(blobs.get(content.manifest)) if content.file_count else Manifest(())


def content_of(blobs: Blobs, file: File) -> bytes:
    """The bytes of a file. Raises: BlobMissing, BlobDamaged."""
    return blobs.get(DIGEST_PREFIX + file.sha256)


def archive(blobs: Blobs, manifest: Manifest) -> bytes:
    """All files as one tar, the same bytes for the same content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for file in manifest.files:
            entry = tarfile.TarInfo(file.path)
            entry.size = file.bytes
            entry.mode = MODE
            tar.addfile(entry, io.BytesIO(content_of(blobs, file)))
    return buffer.getvalue()
