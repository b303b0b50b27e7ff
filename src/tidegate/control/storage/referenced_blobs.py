"""Which blobs the content of packages references: the collector must keep them.

an existing revision        its manifest, and every stored file in the manifest, not the
                            bytes of references
a deleted revision          the same for 30 more days; its digests stay forever
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from tidegate.control.storage.blobs import BlobMissing, Blobs
from tidegate.domain.content.digests import DIGEST_PREFIX
from tidegate.domain.content.manifests import Content, FileManifest
from tidegate.domain.packages.rows import REVISION_TOMBSTONES, REVISIONS, Revision, Tombstone
from tidegate.kernel.store import Store, values

CONTENT_KEPT: Final = timedelta(days=30)  # for a deleted revision


def list_package_blobs(
    store: Store, blobs: Blobs, now: datetime, *, may_lack_manifests: bool = False
) -> frozenset[str]:
    """List the digests of all manifests and stored files that must be kept.

    Raises:
        BlobMissing, BlobDamaged: a manifest cannot be read, so its files are unknown.
            With ``may_lack_manifests``, a missing manifest is skipped.
    """
    manifests = {content.manifest for content in _contents(store, now) if content.file_count}
    named = set(manifests)
    for digest in manifests:
        try:
            content = blobs.get(digest)
        except BlobMissing:
            if may_lack_manifests:
                continue
            raise
        files = FileManifest.parse(content).files
        named.update(DIGEST_PREFIX + file.sha256 for file in files if file.is_kept)
    return frozenset(named)


def _contents(store: Store, now: datetime) -> Iterator[Content]:
    for revision in values(store, REVISIONS.name, Revision):
        yield revision.content
    for tombstone in values(store, REVISION_TOMBSTONES.name, Tombstone):
        if now < tombstone.deleted_at + CONTENT_KEPT:
            yield tombstone.content
