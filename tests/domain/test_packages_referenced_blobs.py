"""Which blobs packages reference, and for how long after a deletion."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.domain.package_log import PackageLog
from tidegate.control.storage.blobs import BLOB_KEPT, BlobMissing
from tidegate.control.storage.blobs.collect import collect
from tidegate.control.storage.blobs.files import FileBlobs
from tidegate.control.storage.referenced_blobs import CONTENT_KEPT, list_package_blobs
from tidegate.domain.content.manifests import FileManifest

BODIES = {"app.yaml": b"a: 1\n", "logo": b"\0\xff"}


@pytest.fixture
def blobs(package_log: PackageLog, tmp_path: Path) -> FileBlobs:
    return FileBlobs(tmp_path / "blobs", "log-of-this-test", clock=package_log.clock)


def uploaded(blobs: FileBlobs) -> FileManifest:
    """Put the bodies first, then the manifest, and only then commit the reference to them."""
    manifest = FileManifest.of(BODIES)
    for body in BODIES.values():
        blobs.put(body)
    blobs.put(manifest.blob)
    return manifest


def swept(package_log: PackageLog, blobs: FileBlobs) -> int:
    now = package_log.clock()
    return collect(blobs, lambda: list_package_blobs(package_log.store, blobs, now), now).removed


def test_deletes_blobs_that_were_put_and_never_referenced(
    package_log: PackageLog, blobs: FileBlobs
) -> None:
    uploaded(blobs)
    assert swept(package_log, blobs) == 0
    package_log.clock.advance(BLOB_KEPT + timedelta(seconds=1))

    assert swept(package_log, blobs) == len(BODIES) + 1


def test_keeps_the_content_of_a_deleted_revision_for_thirty_days(
    package_log: PackageLog, blobs: FileBlobs
) -> None:
    assert timedelta(days=30) == CONTENT_KEPT
    manifest = uploaded(blobs)
    name = package_log.create(files=manifest.files)
    package_log.clock.advance(timedelta(days=400))
    assert swept(package_log, blobs) == 0, "it is referenced"
    package_log.delete(name)
    package_log.clock.advance(CONTENT_KEPT - timedelta(seconds=1))
    assert swept(package_log, blobs) == 0
    package_log.clock.advance(timedelta(seconds=1))

    assert swept(package_log, blobs) == len(BODIES) + 1
    assert package_log.timeline(name)[0].digest == manifest.digest


def test_puts_a_blob_by_its_content_once(blobs: FileBlobs) -> None:
    first, second = blobs.put(b"same"), blobs.put(b"same")

    assert first == second
    assert blobs.get(first) == b"same"
    assert FileManifest.parse(uploaded(blobs).blob).digest == FileManifest.of(BODIES).digest


def test_deletes_nothing_when_a_manifest_cannot_be_read(
    package_log: PackageLog, blobs: FileBlobs
) -> None:
    """A lost manifest's references are unknown, so the collector must not guess."""
    package_log.create(files=FileManifest.of(BODIES).files)

    with pytest.raises(BlobMissing):
        list_package_blobs(package_log.store, blobs, package_log.clock())


def test_an_empty_revision_references_no_blob(package_log: PackageLog, blobs: FileBlobs) -> None:
    package_log.create()

    assert list_package_blobs(package_log.store, blobs, package_log.clock()) == frozenset()
