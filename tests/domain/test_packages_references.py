"""Files by reference: the same content digest, another manifest, and no bytes stored here."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from tests.domain.package_log import FOLDS, PackageLog
from tidegate.control.storage.blobs import BLOB_KEPT
from tidegate.control.storage.blobs.collect import collect
from tidegate.control.storage.blobs.files import FileBlobs
from tidegate.control.storage.content_store import (
    ContentArchive,
    read_content,
    read_manifest,
    store_files,
)
from tidegate.control.storage.referenced_blobs import list_package_blobs
from tidegate.domain.content.differences import FileChangeKind, diff
from tidegate.domain.content.digests import digest_of
from tidegate.domain.content.entries import CONTENT_BYTES_MAX, File
from tidegate.domain.content.manifests import FileManifest
from tidegate.domain.content.references import URI_CHARS_MAX
from tidegate.domain.content.refusals import ContentTooLarge, InvalidDigest, InvalidReference
from tidegate.domain.packages.facts import Strategy
from tidegate.domain.packages.merging import merge
from tidegate.domain.packages.refusals import FileByReference, UpgradeConflict
from tidegate.kernel.replay import differences

HERE = File("bin/app", "ab" * 32, 7)
THERE = msgspec.structs.replace(HERE, uri="https://cdn.example/app-1.bin?v=1")
MOVED = msgspec.structs.replace(HERE, uri="https://mirror.example/app-1.bin")
TEXT = File("app.conf", "cd" * 32, 3)


# ── what it is named by ──


def test_the_digest_covers_what_hosts_get_and_not_where_from() -> None:
    kept, referenced = FileManifest((TEXT, HERE)), FileManifest((TEXT, THERE))

    assert kept.digest == referenced.digest == FileManifest((MOVED, TEXT)).digest
    manifests = {each.content.manifest for each in (kept, referenced, FileManifest((TEXT, MOVED)))}
    assert len(manifests) == 3
    assert (kept.content.references, referenced.content.references) == (0, 1)
    assert kept.total_bytes == referenced.total_bytes == 10


def test_reads_back_the_address_that_it_wrote() -> None:
    odd = File("with space @ x", "ef" * 32, 0, "http://[::1]:8080/a@b%20c")
    written = FileManifest((TEXT, THERE, odd))

    assert FileManifest.parse(written.blob).files == written.files
    assert written.references == (THERE, odd)


def test_manifests_facts_and_commands_without_references_do_not_change() -> None:
    manifest = FileManifest((TEXT, HERE))

    assert manifest.blob == (f"f {'cd' * 32} 3 app.conf\nf {'ab' * 32} 7 bin/app\n").encode()
    assert msgspec.json.decode(msgspec.json.encode(HERE)) == {
        "path": "bin/app",
        "sha256": "ab" * 32,
        "bytes": 7,
    }
    assert set(msgspec.json.decode(msgspec.json.encode(manifest.content))) == {
        *("digest", "manifest", "file_count", "total_bytes")
    }
    assert manifest.content.manifest == digest_of(manifest.blob)


# ── malformed references ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "uri",
    [
        "https://cdn.example/a",
        "https://cdn.example:8443/a/b%20c?x=1&y=[2]",
        "http://127.0.0.1:8080/a",
        "http://[::1]/a",
        "https://cdn.example",
        "file:///mnt/releases/app.bin",
        "file:///mnt/releases/app%20one.bin",
        "https://a.example/" + "x" * (URI_CHARS_MAX - 18),
    ],
)
def test_accepts_addresses_that_agents_can_fetch(uri: str) -> None:
    (file,) = FileManifest.parse(FileManifest((File("a", "0" * 64, 0, uri),)).blob).files

    assert file.uri == uri


@pytest.mark.parametrize(
    ("uri", "found"),
    [
        ("", "0 characters"),
        ("https://a.example/" + "x" * (URI_CHARS_MAX - 17), f"{URI_CHARS_MAX + 1} characters"),
        ("/mnt/app.bin", "without a scheme"),
        ("cdn.example/app", "without a scheme"),
        ("ftp://cdn.example/app", "'ftp'"),
        ("HTTPS://cdn.example/app", "'HTTPS'"),
        ("javascript:alert(1)", "'javascript'"),
        ("https:app", "no host"),
        ("https://", "no host"),
        ("https:///app", "no host"),
        ("https://:443/app", "no host"),
        ("https://a.example:99999/app", "no host or port"),
        ("https://a.example:x/app", "no host or port"),
        ("https://[::1/app", "no host or port"),
        ("https://-a.example/app", "no host"),
        ("https://a..example/app", "no host"),
        ("https://a.example./app", "no host"),
        (f"https://{'a' * 64}.example/app", "no host"),
        ("https://ann:secret@a.example/app", "user information"),
        ("https://ann@a.example/app", "user information"),
        ("https://a.example/app#part", "fragment"),
        ("https://a.example/a b", "character"),
        ("https://a.example/a\nb", "character"),
        ("https://a.example/a\x7f", "character"),
        ("https://a.example/ü", "character"),
        ("https://a.example/%zz", "character"),
        ("https://a.example/a\\b", "character"),
        ("file:app.bin", "plain"),
        ("file://host/app.bin", "plain"),
        ("file:///", "plain"),
        ("file:///a/../b", "plain"),
        ("file:///a/%2e%2e/b", "plain"),
        ("file:///a//b", "plain"),
        ("file:///a?b", "plain"),
        ("file:///a%00b", "plain"),
    ],
)
def test_explains_what_is_wrong_with_an_address_and_what_is_allowed(uri: str, found: str) -> None:
    with pytest.raises(InvalidReference) as refused:
        FileManifest((File("bin/app", "0" * 64, 0, uri),))

    assert found in refused.value.detail
    assert "allowed is" in refused.value.detail
    assert "bin/app" in refused.value.detail
    assert "secret" not in refused.value.detail


def test_counts_a_reference_like_any_other_file() -> None:
    uri = "https://cdn.example/a"

    with pytest.raises(ContentTooLarge):
        FileManifest((File("a", "0" * 64, CONTENT_BYTES_MAX + 1, uri),))
    with pytest.raises(ContentTooLarge):
        FileManifest((File("a", "0" * 64, CONTENT_BYTES_MAX, uri), File("b", "0" * 64, 1)))
    with pytest.raises(InvalidDigest):
        FileManifest((File("a", "0" * 63, 1, uri),))


# ── two and three revisions ──


def test_shows_that_a_file_moved() -> None:
    (became,) = diff(FileManifest((TEXT, HERE)), FileManifest((TEXT, THERE)))
    (moved,) = diff(FileManifest((THERE,)), FileManifest((MOVED,)))

    assert (became.what, became.before, became.after) == (FileChangeKind.CHANGED, HERE, THERE)
    assert (moved.what, moved.before, moved.after) == (FileChangeKind.CHANGED, THERE, MOVED)


def test_keeps_a_reference_through_an_upgrade_and_reports_two_moves() -> None:
    base = FileManifest((TEXT, THERE))
    upstream = FileManifest((msgspec.structs.replace(TEXT, sha256="11" * 32), THERE))

    assert merge(base, FileManifest((TEXT, MOVED)), upstream).by_path["bin/app"] == MOVED
    with pytest.raises(UpgradeConflict):
        merge(base, FileManifest((TEXT, MOVED)), FileManifest((TEXT, HERE)), Strategy.THREE_WAY)


# ── on a log with blobs ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def blobs(package_log: PackageLog, tmp_path: Path) -> FileBlobs:
    return FileBlobs(tmp_path / "blobs", "log-of-this-test", clock=package_log.clock)


def test_records_a_moved_reference_as_a_change_of_content(package_log: PackageLog) -> None:
    name = package_log.create(files=(TEXT, THERE))
    before = package_log.revision(name).content

    version = package_log.version(name)
    package_log.push(name, (TEXT, THERE))
    assert package_log.version(name) == version, (
        "an update that repeats the content changes nothing"
    )
    package_log.push(name, (TEXT, MOVED))

    after = package_log.revision(name).content
    assert (after.digest, after.references) == (before.digest, 1)
    assert after.manifest != before.manifest
    assert differences(package_log.store, FOLDS) == []


def test_stores_the_manifest_and_checks_no_bytes_of_a_reference(
    package_log: PackageLog, blobs: FileBlobs
) -> None:
    manifest = store_files(blobs, {"app.conf": b"a=1"}, (THERE,))
    name = package_log.create(files=manifest.files)
    package_log.clock.advance(BLOB_KEPT + timedelta(seconds=1))

    named = list_package_blobs(package_log.store, blobs, package_log.clock())
    swept = collect(blobs, lambda: named, package_log.clock())

    assert named == {digest_of(b"a=1"), digest_of(manifest.blob)}
    assert swept.removed == 0
    assert read_manifest(blobs, package_log.revision(name).content).files == manifest.files


def test_knowing_a_hash_gives_no_access_to_stored_content(blobs: FileBlobs) -> None:
    secret = b"of another repository"
    blobs.put(secret)
    hashed = digest_of(secret).removeprefix("sha256:")
    manifest = store_files(blobs, {}, (File("a", hashed, len(secret), "https://cdn.example/a"),))

    with pytest.raises(FileByReference) as refused:
        read_content(blobs, manifest.files[0])

    assert refused.value.facts["uri"] == "https://cdn.example/a"
    archive = ContentArchive(blobs, manifest)
    assert secret not in b"".join(archive.read(0, archive.size))


def test_stores_nothing_of_a_push_with_a_bad_address(blobs: FileBlobs) -> None:
    with pytest.raises(InvalidReference):
        store_files(blobs, {"app.conf": b"a=1"}, (File("a", "0" * 64, 0, "ftp://x/a"),))

    assert list(blobs.iterate()) == []
