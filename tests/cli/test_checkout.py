"""Files of a revision in a directory: never written outside, never lost, always verified."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest

from tidegate.cli.exit_codes import CommandExit, ExitCode
from tidegate.cli.revisions import checkout
from tidegate.cli.revisions.checkout import CheckoutMark, Files, manifest_of
from tidegate.cli.revisions.transfer import unpack_archive
from tidegate.domain.content import manifests
from tidegate.domain.content.manifests import FileManifest

Bodies = dict[str, tuple[bytes, bool]]  # content, and whether it is executable
FILES: Bodies = {
    "a.txt": (b"one\n", False),
    "dir/b.bin": (bytes(range(256)), True),
    "dir/ü.txt": (b"two\n", False),
}


def entries(bodies: Bodies) -> Files:
    programs = {path for path, (_, executable) in bodies.items() if executable}
    contents = {path: content for path, (content, _) in bodies.items()}
    return dict(FileManifest.of(contents, programs).by_path)


def write(place: Path, bodies: Bodies, mark: CheckoutMark) -> None:
    """Stage these files, and move them into place."""
    with checkout.staging(place) as stage:
        files = {
            path: checkout.stage_file(stage, path, [content], executable=executable)
            for path, (content, executable) in bodies.items()
        }
        checkout.write(place, stage, files, mark)


def mark_of(bodies: Bodies, name: str = "n", version: int = 1) -> CheckoutMark:
    content = manifest_of(entries(bodies)).content
    return CheckoutMark(name, version, content.digest, content.manifest)


MARK = mark_of(FILES, "default.web.v1", 7)


def test_reads_back_what_it_wrote(tmp_path: Path) -> None:
    write(tmp_path / "web", FILES, MARK)

    assert checkout.read(tmp_path / "web") == entries(FILES)
    assert (tmp_path / "web" / "dir" / "b.bin").read_bytes() == bytes(range(256))
    assert checkout.read_mark(tmp_path / "web") == MARK


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_makes_programs_executable_as_far_as_the_umask_allows(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path, FILES, MARK)
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "dir" / "b.bin").stat().st_mode) == 0o777 & ~umask
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o666 & ~umask


def test_removes_the_executable_bit_if_the_revision_has_none(tmp_path: Path) -> None:
    write(tmp_path, FILES, MARK)
    plain = {path: (content, False) for path, (content, _) in FILES.items()}

    write(tmp_path, plain, mark_of(plain))

    assert checkout.read(tmp_path) == entries(plain)


def test_sees_a_changed_mode_as_a_change_that_was_not_pushed(tmp_path: Path) -> None:
    write(tmp_path, FILES, MARK)
    (tmp_path / "a.txt").chmod(0o755)

    with pytest.raises(CommandExit) as stopped:
        checkout.check_free(tmp_path, MARK.name, discard=False)

    assert "changes that were not pushed" in stopped.value.detail


def test_refuses_file_names_that_no_revision_may_have(tmp_path: Path) -> None:
    (tmp_path / "a\nb").write_text("x")

    with pytest.raises(CommandExit) as stopped:
        checkout.read(tmp_path)

    assert "'a\\nb' is no path of a file in a package" in stopped.value.detail


def test_removes_files_that_a_newer_pull_does_not_have(tmp_path: Path) -> None:
    write(tmp_path, FILES, MARK)
    fewer = {"a.txt": (b"other\n", False)}

    write(tmp_path, fewer, mark_of(fewer))

    assert checkout.read(tmp_path) == entries(fewer)
    assert not (tmp_path / "dir").exists()


@pytest.mark.parametrize(
    "path",
    [
        *("../x", "/etc/x", "a/../../x", "", "a//b", "./a", "a\\b", "a\x00b", "a\nb"),
        *(".git/hooks/x", "a/.git/config", "a/.git", ".GIT/x"),
    ],
)
def test_writes_no_path_outside_the_directory(tmp_path: Path, path: str) -> None:
    files = {path: (b"x", False)}

    with pytest.raises(CommandExit) as stopped:
        write(tmp_path / "in", files, MARK)

    assert stopped.value.code is ExitCode.REFUSED

    assert list(tmp_path.rglob("*")) == []


def test_writes_through_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    empty = {"a": (b"", False)}
    write(tmp_path / "in", empty, mark_of(empty))
    (tmp_path / "in" / "dir").symlink_to(outside)
    files = {"dir/x": (b"x", False)}

    write(tmp_path / "in", files, mark_of(files))

    assert list(outside.iterdir()) == []
    assert (tmp_path / "in" / "dir" / "x").read_bytes() == b"x"


@pytest.mark.req("OP-11", engines=None, reason="a checkout is no engine")
def test_keeps_symlinks_as_they_are(tmp_path: Path) -> None:
    place = tmp_path / "web"
    (place / "lib").mkdir(parents=True)
    (place / "lib" / "run").write_text("#!/bin/sh")
    (place / "run").symlink_to("lib/run")
    (place / "current").symlink_to("lib")

    found = checkout.read(place)
    content = manifest_of(found).content
    mark = CheckoutMark("n", 1, content.digest, content.manifest)
    with checkout.staging(tmp_path / "again") as stage:
        checkout.stage_file(stage, "lib/run", [b"#!/bin/sh"], executable=False)
        checkout.write(tmp_path / "again", stage, found, mark)

    assert {path: file.link for path, file in found.items()} == {
        "current": "lib",
        "run": "lib/run",
        "lib/run": None,
    }
    assert checkout.read(tmp_path / "again") == found


def test_writes_nothing_that_differs_from_the_announced_hash(tmp_path: Path) -> None:
    with pytest.raises(CommandExit) as stopped:
        write(tmp_path / "in", FILES, mark_of({}))

    assert stopped.value.code is ExitCode.UNAVAILABLE
    assert not (tmp_path / "in").exists()


def test_skips_git_and_its_own_mark(tmp_path: Path) -> None:
    write(tmp_path, FILES, MARK)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("x")

    assert checkout.read(tmp_path) == entries(FILES)


def test_refuses_too_many_files_before_it_sends_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "FILES_MAX", 2)
    for number in range(3):
        (tmp_path / str(number)).touch()

    with pytest.raises(CommandExit) as stopped:
        checkout.read(tmp_path)

    assert stopped.value.code is ExitCode.REFUSED


def packed(name: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.type = kind
        member.linkname = "/etc/passwd"
        archive.addfile(member, io.BytesIO(b""))
    return buffer.getvalue()


def unpack(content: bytes, stage: Path, count: int = 10, total: int = 10) -> Files:
    stage.mkdir()
    return unpack_archive(io.BytesIO(content), stage, count, total)


@pytest.mark.parametrize(
    "content",
    [
        b"no tar",
        packed("x", tarfile.CHRTYPE),
        packed("x", tarfile.LNKTYPE),
        packed("x", tarfile.DIRTYPE),
        packed("../x"),
        packed("/x"),
        packed(".git/hooks/x"),
        packed("a/.git/x"),
    ],
)
def test_unpacks_only_files_from_an_archive(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(CommandExit):
        unpack(content, tmp_path / "stage")

    assert [*tmp_path.rglob("x")] == []


def test_unpacks_no_more_than_was_announced(tmp_path: Path) -> None:
    assert list(unpack(packed("x"), tmp_path / "fits", count=1, total=0)) == ["x"]
    with pytest.raises(CommandExit):
        unpack(packed("x"), tmp_path / "many", count=0)


def test_leaves_no_staged_file_behind(tmp_path: Path) -> None:
    write(tmp_path / "web", FILES, MARK)

    with suppress(TimeoutError), checkout.staging(tmp_path / "web") as stage:
        checkout.stage_file(stage, "a.txt", [b"half"], executable=False)
        raise TimeoutError("cut off")

    assert checkout.read(tmp_path / "web") == entries(FILES)
    assert [path.name for path in (tmp_path / "web").iterdir() if path.name.startswith(".t")] == [
        ".tidegate.json"
    ]


def test_similar_names_count_as_content(tmp_path: Path) -> None:
    named = {
        ".tidegate-notes/a.txt",
        "dir/.tidegate-pull-abcdefgh/b.txt",
        "dir/.tidegate.json",
        "dir/.tidegate-references.json",
    }
    for path in named:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")

    assert set(checkout.read(tmp_path)) == named


def killed_pull(place: Path) -> Path:
    """Leave what a pull leaves when it is killed."""
    with checkout.staging(place) as stage:
        left = stage.name
    (place / left).mkdir(parents=True)
    (place / left / "half.txt").write_text("half")
    return place / left


def test_a_pull_removes_the_remains_of_a_killed_one(tmp_path: Path) -> None:
    place = tmp_path / "web"
    write(place, FILES, MARK)
    left = killed_pull(place)

    assert checkout.read(place) == entries(FILES), "a push does not send it"
    write(place, FILES, MARK)

    assert not left.exists()
    assert checkout.read(place) == entries(FILES)


def test_a_killed_first_pull_does_not_block_the_next(tmp_path: Path) -> None:
    killed_pull(tmp_path / "web")

    checkout.check_free(tmp_path / "web", MARK.name, discard=False)


def test_a_pull_does_not_touch_that_of_another_process(tmp_path: Path) -> None:
    with checkout.staging(tmp_path) as one, checkout.staging(tmp_path) as other:
        assert one.is_dir()
        assert other.is_dir()


def test_pushes_no_file_from_the_directory_of_a_pull(tmp_path: Path) -> None:
    with pytest.raises(CommandExit, match="a pull does not write"):
        checkout.check_path(".tidegate-pull-abcdefgh/x")
    checkout.check_path("dir/.tidegate-pull-abcdefgh/x")
