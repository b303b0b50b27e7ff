"""Files by reference with the command line: pushed, shown, compared, pulled and pushed again."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from tests.cli.conftest import Seat
from tests.cli.revision_files import files
from tidegate.cli.revisions import checkout
from tidegate.cli.revisions.checkout import REFERENCES, CheckoutMark, Files, Reference, manifest_of
from tidegate.domain.access.roles import Role
from tidegate.domain.content.entries import File
from tidegate.domain.content.manifests import FileManifest

HASH = sha256(b"bytes elsewhere").hexdigest()
URI, MIRROR = "https://cdn.example/app.bin", "https://mirror.example/app.bin"
FLAG = ("--reference", "bin/app", URI, HASH, "15")
APP = Reference("bin/app", URI, HASH, 15)


def test_pushes_a_reference_and_shows_it_everywhere(seat: Seat, tmp_path: Path) -> None:
    author, approver = seat(Role.AUTHOR), seat(Role.APPROVER)
    place = files(tmp_path / "web", app_conf="port = 80\n")
    author.run("rev", "create", "refs", "--workspace", "v1")

    pushed = author.run("rev", "push", "refs.v1", place, *FLAG)
    author.run("rev", "propose", "refs.v1")
    difference = approver.run("rev", "diff", "refs.v1")
    approved = approver.run("rev", "approve", "refs.v1")
    shown = author.run("rev", "show", "refs.v1")
    listed = author.run("rev", "files", "refs.v1")
    items = json.loads(author.run("rev", "files", "refs.v1", "-o", "json").out)

    assert (pushed.code, approved.code) == (0, 0), pushed.err
    assert "has 2 files, 1 by reference" in pushed.out
    assert f"+by reference {URI} sha256:{HASH}" in difference.out
    assert "+port = 80" in difference.out
    assert "1 by reference" in shown.out
    assert URI in listed.out
    assert items[1] == {"path": "bin/app", "sha256": HASH, "bytes": 15, "uri": URI}
    assert "uri" not in items[0]


def test_a_referenced_file_stays_executable_through_pull_and_push(
    seat: Seat, tmp_path: Path
) -> None:
    author = seat(Role.AUTHOR)
    place = files(tmp_path / "web", app_conf="port = 80\n")
    program = (*FLAG, "--executable", "bin/app")
    begun = author.run("rev", "create", "prog", "--workspace", "v1", "--from", place, *program)

    listed = author.run("rev", "files", "prog.v1", "-o", "json").json()
    author.run("rev", "pull", "prog.v1", str(tmp_path / "mine"))
    pushed = author.run("rev", "push", "prog.v1", str(tmp_path / "mine"))
    again = author.run("rev", "files", "prog.v1", "-o", "json").json()
    wrong = author.run("rev", "push", "prog.v1", place, "--executable", "app.conf")

    assert (begun.code, pushed.code) == (0, 0), (begun, pushed)
    assert listed == again
    assert [item.get("executable") for item in listed] == [None, True]
    assert (wrong.code, "app.conf, which is no reference" in wrong.err) == (2, True)


def test_pulls_references_as_a_list_that_a_push_sends_again(seat: Seat, tmp_path: Path) -> None:
    author = seat(Role.AUTHOR)
    place = files(tmp_path / "web", app_conf="port = 80\n")
    author.run("rev", "create", "round", "--workspace", "v1", "--from", place, *FLAG)
    mine, other = tmp_path / "mine", tmp_path / "other"
    pulled = author.run("rev", "pull", "round.v1", str(mine))
    author.run("rev", "pull", "round.v1", str(other))
    listed = json.loads((mine / REFERENCES).read_text())
    before = json.loads(author.run("rev", "show", "round.v1", "-o", "json").out)

    again = author.run("rev", "push", "round.v1", str(mine))
    same = json.loads(author.run("rev", "show", "round.v1", "-o", "json").out)
    (mine / REFERENCES).write_text(json.dumps([listed[0] | {"uri": MIRROR}]))
    losing = author.run("rev", "pull", "round.v1", str(mine))
    moved = author.run("rev", "push", "round.v1", str(mine))
    late = author.run("rev", "push", "round.v1", str(other))
    refreshed = author.run("rev", "pull", "round.v1", str(other))

    assert "1 are references" in pulled.out
    assert listed == [{"path": "bin/app", "uri": URI, "sha256": HASH, "bytes": 15}]
    assert not (mine / "bin").exists()
    assert (again.code, same["metadata"]) == (0, before["metadata"])
    assert (losing.code, "not pushed" in losing.err) == (3, True)
    assert moved.code == 0, moved.err
    assert (late.code, "another person pushed" in late.err) == (3, True)
    assert refreshed.code == 0
    assert checkout.read_references(other)[0].uri == MIRROR


def test_drops_a_reference_that_is_no_longer_listed(seat: Seat, tmp_path: Path) -> None:
    author = seat(Role.AUTHOR)
    place = files(tmp_path / "web", app_conf="port = 80\n")
    author.run("rev", "create", "drop", "--workspace", "v1", "--from", place, *FLAG)

    pushed = author.run("rev", "push", "drop.v1", place)

    assert "has 1 file;" in pushed.out


def test_reports_what_is_wrong_with_a_reference(seat: Seat, tmp_path: Path) -> None:
    author = seat(Role.AUTHOR)
    place = files(tmp_path / "web", app_conf="port = 80\n")
    author.run("rev", "create", "wrong", "--workspace", "v1")
    path, _, hashed, size = FLAG[1:]

    def push(*words: str, where: str = place) -> tuple[int, str]:
        ran = author.run("rev", "push", "wrong.v1", where, "--reference", *words)
        return ran.code, ran.err

    scheme = push(path, "ftp://cdn.example/a", hashed, size)
    twice = push("app.conf", URI, hashed, size)
    count = push(path, URI, hashed, "many")
    short = push(path, URI)
    alone = author.run("rev", "create", "alone", "--workspace", "v1", *FLAG)
    (tmp_path / "web" / REFERENCES).write_text('{"bin/app": 1}')
    broken = author.run("rev", "push", "wrong.v1", place)

    assert (scheme[0], "https, http or file" in scheme[1]) == (2, True), scheme
    assert (twice[0], "is a file in" in twice[1]) == (2, True)
    assert count[0] == short[0] == 2
    assert (alone.code, "--from" in alone.err) == (2, True)
    assert (broken.code, REFERENCES in broken.err) == (2, True)


def test_computes_the_same_digest_as_the_server() -> None:
    texts = {"app.conf": b"a", "dir/ü.txt": b"b"}
    manifest = FileManifest((*FileManifest.of(texts).files, File("bin/app", HASH, 15, URI)))

    files = dict(FileManifest.of(texts).by_path)
    assert manifest_of(files, (APP,)).content == manifest.content


def mark_of(files: Files, *references: Reference) -> CheckoutMark:
    content = manifest_of(files, references).content
    return CheckoutMark("n", 1, content.digest, content.manifest)


@pytest.mark.parametrize("program", [APP, replace(APP, executable=True)])
def test_writes_a_list_only_if_there_are_references(tmp_path: Path, program: Reference) -> None:
    texts = dict(FileManifest.of({"a": b"1"}).by_path)

    with checkout.staging(tmp_path) as stage:
        (stage / "a").write_bytes(b"1")
        checkout.write(tmp_path, stage, texts, mark_of(texts, program), (program,))
    assert checkout.read_references(tmp_path) == (program,)
    assert checkout.read(tmp_path) == texts
    checkout.check_free(tmp_path, "n", discard=False)
    with checkout.staging(tmp_path) as stage:
        (stage / "a").write_bytes(b"1")
        checkout.write(tmp_path, stage, texts, mark_of(texts))

    assert not (tmp_path / REFERENCES).exists()
