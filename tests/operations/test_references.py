"""Files by reference in operation: content that is stored elsewhere is not reported missing
here.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tests.operations.processes import opened, prepared, run
from tidegate.control.storage.blobs import BLOB_KEPT
from tidegate.control.storage.blobs.collect import collect
from tidegate.control.storage.content_store import read_manifest, store_files
from tidegate.control.storage.referenced_blobs import list_package_blobs
from tidegate.domain.content.entries import File
from tidegate.domain.packages.rows import Revision, revision_key
from tidegate.domain.packages.slices import CreateRevision, create_revision
from tidegate.kernel.model import Meta

ADMIN = "user_admin0000"
REFERENCE = File("bin/app", "ab" * 32, 7, "https://cdn.example/app.bin")


def test_maintenance_works_on_an_installation_with_references(tmp_path: Path) -> None:
    data, place, again = tmp_path / "data", tmp_path / "backup", tmp_path / "again"
    prepared(data)
    with opened(data) as installation:
        manifest = store_files(installation.blobs, {"app.conf": b"a=1\n"}, (REFERENCE,))
        command = CreateRevision(
            repository="default",
            package="web",
            workspace="v1",
            uid="u" * 26,
            by=ADMIN,
            files=manifest.files,
        )
        installation.execute.run(create_revision, command, meta=Meta(actor=ADMIN))

    done = {
        " ".join(words[:2]): run(*words)
        for words in (
            ("doctor", "--data", str(data)),
            ("views", "verify", "--data", str(data)),
            ("backup", str(place), "--data", str(data)),
            ("restore", str(place), "--data", str(again)),
        )
    }

    assert {name: ran.returncode for name, ran in done.items()} == dict.fromkeys(done, 0), done
    with opened(again) as restored:
        found = restored.reads.find(revision_key("default.web.v1"), Revision)
        assert found is not None
        assert read_manifest(restored.blobs, found.row.content).references == (REFERENCE,)
        assert restored.health.differences() == []
        later = restored.clock() + BLOB_KEPT + timedelta(hours=1)
        named = list_package_blobs(restored.store, restored.blobs, later)
        assert {blob.digest for blob in restored.blobs.iterate()} >= named
        collect(restored.blobs, lambda: named, later)
        assert {blob.digest for blob in restored.blobs.iterate()} == named
