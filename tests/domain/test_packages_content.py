"""Names, file paths and content of packages: their form, their differences and their merges."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tidegate.domain.content.differences import FileChangeKind, diff
from tidegate.domain.content.digests import digest_of
from tidegate.domain.content.entries import CONTENT_BYTES_MAX, File
from tidegate.domain.content.manifests import FILES_MAX, FileManifest
from tidegate.domain.content.paths import FILE_PATH_BYTES_MAX
from tidegate.domain.content.refusals import ContentTooLarge, InvalidDigest, InvalidFilePath
from tidegate.domain.packages.facts import Strategy
from tidegate.domain.packages.merging import merge
from tidegate.domain.packages.names import (
    PACKAGE_CHARS_MAX,
    Identity,
    ancestors,
    identity,
    parse,
)
from tidegate.domain.packages.refusals import InvalidName, UpgradeConflict
from tidegate.domain.releases.from_packages import release_id_of
from tidegate.domain.releases.slices import NAME_BYTES_MAX
from tidegate.kernel.canonical_json import INTEGER_MAX

PURE = "a rule about values, decided before any engine is asked"


def manifest(**texts: str) -> FileManifest:
    return FileManifest.of({name: text.encode() for name, text in texts.items()})


# ── names ─────────────────────────────────────────────────────────────────────────────────────────

labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)


@given(labels, st.lists(labels, min_size=1, max_size=5), labels)
def test_parses_a_name_into_its_parts(repository: str, path: list[str], workspace: str) -> None:
    place = identity(repository, "/".join(path), workspace)

    assert parse(place.name) == place


def test_writes_names_with_dots() -> None:
    assert identity("blueprints", "networking/vpc", "v1").name == "blueprints.networking.vpc.v1"
    assert parse("blueprints.web.ws1") == Identity("blueprints", "web", "ws1")
    assert identity("blueprints", "a/x", "v1").package == "blueprints/a/x"
    assert ancestors("blueprints/a/b/c") == ("blueprints/a", "blueprints/a/b")
    assert ancestors("blueprints/a") == ()


def test_the_longest_package_still_has_releases_that_can_be_named() -> None:
    repository, path = "r" * 63, "/".join("a" * 16)
    longest = f"{path}{'a' * (PACKAGE_CHARS_MAX - len(repository) - 1 - len(path))}"

    package = identity(repository, longest, "v1").package

    assert len(release_id_of(package, INTEGER_MAX)) == NAME_BYTES_MAX
    with pytest.raises(InvalidName):
        identity(repository, f"{longest}a", "v1")


@pytest.mark.parametrize(
    ("repository", "path", "workspace"),
    [
        ("", "web", "v1"),
        ("Blueprints", "web", "v1"),
        ("blue.prints", "web", "v1"),
        ("-b", "web", "v1"),
        ("b", "", "v1"),
        ("b", "a//b", "v1"),
        ("b", "/a", "v1"),
        ("b", "a/", "v1"),
        ("b", "..", "v1"),
        ("b", "a/../b", "v1"),
        ("b", "a\\b", "v1"),
        ("b", "a" * 64, "v1"),
        ("b", "/".join(["abcdefgh"] * 8), "v1"),
        ("b", "/".join("a" * 17), "v1"),
        ("b", "web", ""),
        ("b", "web", "v1.0"),
        ("b", "web", "v1\n"),
        ("b", "wéb", "v1"),
    ],
)
def test_refuses_malformed_names(repository: str, path: str, workspace: str) -> None:
    with pytest.raises(InvalidName) as refusal:
        identity(repository, path, workspace)

    assert refusal.value.code == "invalid_argument"


@pytest.mark.parametrize("name", ["", "web", "a.b", "a..b.c", "a.b.c.", ".a.b", "a/b.c.d"])
def test_refuses_a_dotted_name_that_names_no_revision(name: str) -> None:
    with pytest.raises(InvalidName):
        parse(name)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "..",
        "../x",
        "a/../b",
        "a/./b",
        "./a",
        "a//b",
        "a/",
        "a\\b",
        "C:\\x",
        "a\x00b",
        "a\nb",
        "a\x7f",
        "\ud800",
        "x" * (FILE_PATH_BYTES_MAX + 1),
        "é" * 513,
        "s" * 256,
    ],
)
def test_refuses_file_paths_that_could_escape_or_mislead(path: str) -> None:
    with pytest.raises(InvalidFilePath) as refusal:
        FileManifest((File(path, "0" * 64, 0),))

    assert refusal.value.code == "invalid_argument"


@pytest.mark.parametrize(
    "paths",
    [("a", "a"), ("a", "a/b"), ("a", "a/b/c"), ("caf\u00e9", "cafe\u0301")],
    ids=["twice", "directory", "deep directory", "after normalisation"],
)
def test_refuses_paths_that_cannot_exist_together(paths: tuple[str, str]) -> None:
    with pytest.raises(InvalidFilePath):
        FileManifest(File(path, "0" * 64, 0) for path in paths)


def test_accepts_paths_that_only_look_alike() -> None:
    paths = ("a", "a.b", "ab/c", "...", ".hidden", "a b", "ü", "A")

    assert {file.path for file in FileManifest(File(p, "0" * 64, 0) for p in paths).files} == set(
        paths
    )


# ── digest ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("files", "digest"),
    [
        (
            {"app.yaml": b"a: 1\n"},
            "5b08b7ba487147be4a22fc4321ca477ac7e8f355c405dd3d7a2ecb67459b7d8d",
        ),
        (
            {"app.yaml": b"a: 2\n"},
            "6827e37318b0755c44babb2b3034d35d4000e87907c976d71d2c2c17aa79dbd2",
        ),
        (
            {"app.yaml": b"a: 1\n", "conf/x.txt": b"x\n"},
            "eaad05099031696532c80f055ee38350fbd7e9e4113742921b32eb4d909243de",
        ),
        ({}, "ad3ee330675cc7af279efd76defc64cde6750079924f1cb12d68d6cd521ad182"),
    ],
)
def test_names_content_by_the_digest_of_its_manifest(files: dict[str, bytes], digest: str) -> None:
    assert FileManifest.of(files).digest == f"sha256:{digest}"


def test_orders_a_manifest_by_the_utf8_bytes_of_its_paths() -> None:
    files = FileManifest.of({"é": b"", "z": b"", "a": b"", "Z": b""}).files

    assert [file.path for file in files] == ["Z", "a", "z", "é"]


@given(
    st.dictionaries(st.sampled_from(["a", "b/c", "b/d", "é", "x\u2028y"]), st.binary(max_size=4))
)
def test_reads_the_manifest_that_it_wrote(files: dict[str, bytes]) -> None:
    written = FileManifest.of(files)

    assert FileManifest.parse(written.blob).files == written.files
    assert written.content.manifest == digest_of(written.blob)
    assert written.content.total_bytes == sum(map(len, files.values()))
    assert written.content.file_count == len(files)


def test_refuses_more_than_a_revision_may_hold() -> None:
    with pytest.raises(ContentTooLarge) as many:
        FileManifest(File(str(number), "0" * 64, 0) for number in range(FILES_MAX + 1))
    with pytest.raises(ContentTooLarge):
        FileManifest((File("a", "0" * 64, CONTENT_BYTES_MAX), File("b", "0" * 64, 1)))
    with pytest.raises(ContentTooLarge):
        FileManifest((File("a", "0" * 64, -1),))

    assert many.value.code == "too_large"
    assert FileManifest((File("a", "0" * 64, CONTENT_BYTES_MAX),)).total_bytes == CONTENT_BYTES_MAX


@pytest.mark.parametrize("hashed", ["", "0" * 63, "0" * 65, "A" * 64, "g" * 64])
def test_refuses_malformed_hashes(hashed: str) -> None:
    with pytest.raises(InvalidDigest):
        FileManifest((File("a", hashed, 0),))


# ── two: difference ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("LC-10", engines=None, reason=PURE)
def test_lists_the_differences_between_two_revisions() -> None:
    """The trail must show the difference between two revisions."""
    old, new = manifest(a="1", b="1", c="1"), manifest(a="1", b="2", d="1")

    assert [(change.path, change.what) for change in diff(old, new)] == [
        ("b", FileChangeKind.CHANGED),
        ("c", FileChangeKind.REMOVED),
        ("d", FileChangeKind.ADDED),
    ]
    assert diff(old, old) == ()


# ── three: upgrade ────────────────────────────────────────────────────────────────────────────────

BASE = manifest(same="0", upstream="0", local="0", both="0", gone="0", dropped="0")
LOCAL = manifest(same="0", upstream="0", local="L", both="L", gone="0", mine="L")
UPSTREAM = manifest(same="0", upstream="U", local="0", both="U", dropped="0", theirs="U")


def test_reports_conflicts_of_an_upgrade_and_resolves_none() -> None:
    with pytest.raises(UpgradeConflict) as refusal:
        merge(BASE, LOCAL, UPSTREAM)

    assert refusal.value.facts["paths"] == "both"
    assert refusal.value.code == "upgrade_conflict"


def test_merges_changes_of_both_sides_that_do_not_overlap() -> None:
    upstream = manifest(same="0", upstream="U", local="0", both="L", dropped="0", theirs="U")

    merged = merge(BASE, LOCAL, upstream)

    assert (
        merged.files
        == manifest(same="0", upstream="U", local="L", both="L", mine="L", theirs="U").files
    )


@pytest.mark.parametrize(
    ("local", "upstream"),
    [
        (manifest(a="L"), manifest(a="U")),
        (manifest(), manifest(a="U")),
        (manifest(a="L"), manifest()),
        (manifest(a="0", b="L"), manifest(a="0", b="U")),
    ],
    ids=["both changed", "deleted here", "deleted there", "both added"],
)
def test_detects_each_kind_of_conflict(local: FileManifest, upstream: FileManifest) -> None:
    with pytest.raises(UpgradeConflict):
        merge(manifest(a="0"), local, upstream)


def test_detects_a_file_that_became_a_directory() -> None:
    local = FileManifest.of({"x": b"0"})
    upstream = FileManifest.of({"x/y": b"0"})

    for strategy in (Strategy.THREE_WAY, Strategy.COPY_MERGE):
        with pytest.raises(UpgradeConflict):
            merge(manifest(), local, upstream, strategy)


def test_upstream_wins_on_request() -> None:
    merged = merge(BASE, LOCAL, UPSTREAM, Strategy.COPY_MERGE)

    assert (
        merged.files
        == manifest(same="0", upstream="U", local="L", both="U", mine="L", theirs="U").files
    )
    assert merge(BASE, LOCAL, UPSTREAM, Strategy.FORCE_DELETE_REPLACE).files == UPSTREAM.files


def test_fast_forwards_only_unchanged_files() -> None:
    assert merge(BASE, BASE, UPSTREAM, Strategy.FAST_FORWARD).files == UPSTREAM.files
    with pytest.raises(UpgradeConflict) as refusal:
        merge(BASE, LOCAL, UPSTREAM, Strategy.FAST_FORWARD)
    assert refusal.value.facts["paths"] == "both, dropped, local, mine"


texts = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("012"))


@given(texts, texts, texts)
def test_a_merge_that_succeeds_holds_every_change_of_both_sides(
    base: dict[str, str], local: dict[str, str], upstream: dict[str, str]
) -> None:
    old, ours, theirs = manifest(**base), manifest(**local), manifest(**upstream)
    clash = {
        path
        for path in "abcd"
        if base.get(path) != local.get(path) != upstream.get(path) != base.get(path)
    }

    if clash:
        with pytest.raises(UpgradeConflict) as refusal:
            merge(old, ours, theirs)
        assert set(str(refusal.value.facts["paths"]).split(", ")) == clash
        return
    merged = merge(old, ours, theirs).by_path
    for change in (*diff(old, ours), *diff(old, theirs)):
        assert merged.get(change.path) == change.after
    assert merge(old, theirs, ours).by_path == merged
