"""The one digest form: what it covers, byte by byte, and that no two file sets share a digest."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, strategies as st

from tests.docs.blocks import ROOT, blocks_of
from tidegate.domain.content.differences import FileChangeKind, diff
from tidegate.domain.content.digests import FORM, encode
from tidegate.domain.content.entries import File
from tidegate.domain.content.manifests import FileManifest
from tidegate.domain.content.refusals import InvalidFilePath
from tidegate.domain.packages.merging import merge
from tidegate.domain.packages.refusals import UpgradeConflict

TEXT = {"app.yaml": b"a: 1\n"}
THREE = {"Z": b"", "bin/run": b"#!/bin/sh\n", "é.txt": b"\xff"}

# Made with printf and sha256sum, not with the code under test.
GOLDEN: list[tuple[dict[str, bytes], set[str], str]] = [
    ({}, set(), "ad3ee330675cc7af279efd76defc64cde6750079924f1cb12d68d6cd521ad182"),
    (TEXT, set(), "5b08b7ba487147be4a22fc4321ca477ac7e8f355c405dd3d7a2ecb67459b7d8d"),
    (TEXT, set(TEXT), "ec13e0aaab82c88dd274ddbe646728db73d350b8e31adf351373a8c250df4205"),
    (THREE, {"bin/run"}, "fd9e0e989094a071673f449f05ac69c3f497d5de3b34c2f77c06dc8527fc6a42"),
]


@pytest.mark.parametrize(("files", "executables", "digest"), GOLDEN)
def test_names_content_by_the_documented_form(
    files: dict[str, bytes], executables: set[str], digest: str
) -> None:
    assert FileManifest.of(files, executables).digest == f"sha256:{digest}"


def test_writes_type_path_and_hash_with_their_lengths() -> None:
    found = encode(FileManifest.of(TEXT, TEXT).files)

    hashed = sha256(TEXT["app.yaml"]).digest()
    path = b"\0\0\0\0\0\0\0\x08app.yaml"
    assert found == b"tidegate.content.v2\nx" + path + b"\0\0\0\0\0\0\0\x20" + hashed


def test_the_program_on_the_packages_page_computes_the_same_digest(tmp_path: Path) -> None:
    (block,) = (
        block
        for block in blocks_of(ROOT / "docs" / "packages.md")
        if "def content_digest" in block.text
    )
    for path, data in THREE.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(data)
    (tmp_path / "bin" / "run").chmod(0o755)
    made: dict[str, Any] = {}
    exec(block.text, made)

    assert made["content_digest"](tmp_path) == FileManifest.of(THREE, {"bin/run"}).digest


def test_encodes_a_file_alike_stored_and_by_reference() -> None:
    stored = FileManifest.of(TEXT, TEXT)
    (file,) = stored.files
    there = File(file.path, file.sha256, file.bytes, "https://example.com/a", executable=True)

    assert FileManifest((there,)).digest == stored.digest
    assert FileManifest((there,)).content.manifest != stored.content.manifest


# ── no two file sets share a digest ───────────────────────────────────────────────────────────────

hashes = st.sampled_from([sha256(bytes([number])).hexdigest() for number in range(3)])
# Any text, including paths that once produced the lines of two files.
paths = st.text(max_size=8).filter(lambda text: text.isascii() or _is_utf8(text)) | st.builds(
    "{}\n{}  {}".format, st.sampled_from("ab"), hashes, st.sampled_from("ab")
)
entries = st.builds(File, paths, hashes, st.just(0), executable=st.booleans())
file_sets = st.dictionaries(paths, entries, max_size=4).map(
    lambda found: frozenset(
        File(path, file.sha256, 0, executable=file.executable) for path, file in found.items()
    )
)
X = sha256(b"\0").hexdigest()


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@given(file_sets, file_sets)
@example(frozenset({File("a", X, 0), File("b", X, 0)}), frozenset({File(f"a\n{X}  b", X, 0)}))
def test_encodes_two_file_sets_in_the_same_way_only_if_they_are_the_same(
    one: frozenset[File], other: frozenset[File]
) -> None:
    """For any paths: the form does not rely on which paths are allowed."""
    assert (encode(one) == encode(other)) == (one == other)


@given(file_sets)
def test_reads_the_file_set_back_from_its_encoding(files: frozenset[File]) -> None:
    """An encoding that can be decoded in only one way belongs to one file set."""
    assert _decoded(encode(files)) == {(file.type, file.path, file.sha256) for file in files}


@given(file_sets, st.data())
def test_every_single_change_of_an_entry_changes_the_encoding(
    files: frozenset[File], data: st.DataObject
) -> None:
    assume(files)
    file = data.draw(st.sampled_from(sorted(files)))
    rest = files - {file}
    flipped = File(file.path, file.sha256, 0, executable=not file.executable)
    moved = File(file.path + "/", file.sha256, 0, executable=file.executable)

    found = {encode(files), encode(rest), encode(rest | {flipped}), encode(rest | {moved})}

    assert len(found) == 4 or moved in rest


def _decoded(data: bytes) -> set[tuple[str, str, str]]:
    """Decode as the page of packages describes."""
    assert data.startswith(FORM)
    at = len(FORM)
    found = set()
    while at < len(data):
        kind, at = data[at : at + 1].decode(), at + 1
        parts = []
        for _ in range(2):
            length, at = int.from_bytes(data[at : at + 8], "big"), at + 8
            parts.append(data[at : at + length])
            at += length
        found.add((kind, parts[0].decode(), parts[1].hex()))
    return found


def test_refuses_a_newline_before_there_is_a_digest() -> None:
    with pytest.raises(InvalidFilePath, match="control character"):
        FileManifest((File(f"a\n{X}  b", X, 1),))


# ── the bit is content ────────────────────────────────────────────────────────────────────────────


def test_keeps_the_executable_bit_in_the_stored_manifest() -> None:
    there = File("there", "0" * 64, 3, "https://example.com/a", executable=True)
    written = FileManifest((*FileManifest.of(THREE, {"bin/run"}).files, there))

    assert FileManifest.parse(written.blob).files == written.files
    assert [file.path for file in written.files if file.mode == 0o755] == ["bin/run", "there"]


def test_refuses_an_unknown_type() -> None:
    device = f"c {'0' * 64} 0 a\n".encode()

    with pytest.raises(KeyError):
        FileManifest.parse(device)


def test_shows_a_changed_executable_bit_as_a_change() -> None:
    (change,) = diff(FileManifest.of(TEXT), FileManifest.of(TEXT, TEXT))

    assert (change.path, change.what) == ("app.yaml", FileChangeKind.CHANGED)
    sides = (change.before, change.after)
    assert [side.executable for side in sides if side is not None] == [False, True]


def test_merges_a_changed_executable_bit_like_any_other_change() -> None:
    plain, program, other = (
        FileManifest.of(TEXT),
        FileManifest.of(TEXT, TEXT),
        FileManifest.of({"app.yaml": b"a: 2\n"}),
    )

    assert merge(plain, plain, program).files == program.files
    assert merge(plain, program, plain).files == program.files
    with pytest.raises(UpgradeConflict):
        merge(plain, program, other)
