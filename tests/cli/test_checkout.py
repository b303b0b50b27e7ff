"""Files of a revision in a directory: nothing lands outside, nothing is lost, all is checked."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from tidegate.cli.exit_codes import CommandExit, ExitCode
from tidegate.cli.revisions import checkout
from tidegate.cli.revisions.checkout import Body, CheckoutMark, Files, manifest_of
from tidegate.cli.revisions.transfer import encode_files, unpack_archive
from tidegate.domain.content.manifests import FileManifest

FILES = {
    "a.txt": Body(b"one\n"),
    "dir/b.bin": Body(bytes(range(256)), executable=True),
    "dir/ü.txt": Body(b"two\n"),
}


def mark_of(files: Files, name: str = "n", version: int = 1) -> CheckoutMark:
    content = manifest_of(files).content
    return CheckoutMark(name, version, content.digest, content.manifest)


MARK = mark_of(FILES, "default.web.v1", 7)


def test_reads_back_what_it_wrote(tmp_path: Path) -> None:
    checkout.write(tmp_path / "web", FILES, MARK)

    assert checkout.read(tmp_path / "web") == FILES
    assert checkout.read_mark(tmp_path / "web") == MARK


def test_names_content_as_the_server_does() -> None:
    contents = {path: body.content for path, body in FILES.items()}

    assert manifest_of(FILES).files == FileManifest.of(contents, {"dir/b.bin"}).files


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_makes_programs_executable_as_far_as_the_umask_allows(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        checkout.write(tmp_path, FILES, MARK)
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "dir" / "b.bin").stat().st_mode) == 0o777 & ~umask
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o666 & ~umask


def test_takes_the_bit_away_from_what_is_no_program_any_more(tmp_path: Path) -> None:
    checkout.write(tmp_path, FILES, MARK)
    plain = {path: Body(body.content) for path, body in FILES.items()}

    checkout.write(tmp_path, plain, mark_of(plain))

    assert checkout.read(tmp_path) == plain


def test_sees_a_changed_mode_as_a_change_that_was_not_pushed(tmp_path: Path) -> None:
    checkout.write(tmp_path, FILES, MARK)
    (tmp_path / "a.txt").chmod(0o755)

    with pytest.raises(CommandExit) as stopped:
        checkout.check_free(tmp_path, MARK.name, discard=False)

    assert "changes that were not pushed" in stopped.value.detail


def test_reads_no_file_whose_name_no_revision_takes(tmp_path: Path) -> None:
    (tmp_path / "a\nb").write_text("x")

    with pytest.raises(CommandExit) as stopped:
        checkout.read(tmp_path)

    assert "'a\\nb' is no path of a file in a package" in stopped.value.detail


def test_takes_away_what_a_newer_pull_does_not_have(tmp_path: Path) -> None:
    checkout.write(tmp_path, FILES, MARK)
    fewer = {"a.txt": Body(b"other\n")}

    checkout.write(tmp_path, fewer, mark_of(fewer))

    assert checkout.read(tmp_path) == fewer
    assert not (tmp_path / "dir").exists()


@pytest.mark.parametrize(
    "path",
    ["../x", "/etc/x", "a/../../x", "", "a//b", "./a", "a\\b", ".git/hooks/x", "a\x00b", "a\nb"],
)
def test_writes_no_path_that_leads_out(tmp_path: Path, path: str) -> None:
    files = {path: Body(b"x")}

    with pytest.raises(CommandExit) as stopped:
        checkout.write(tmp_path / "in", files, MARK)

    assert stopped.value.code is ExitCode.REFUSED

    assert list(tmp_path.rglob("*")) == []


def test_writes_through_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    checkout.write(tmp_path / "in", {"a": Body(b"")}, mark_of({"a": Body(b"")}))
    (tmp_path / "in" / "dir").symlink_to(outside)
    files = {"dir/x": Body(b"x")}

    with pytest.raises(CommandExit):
        checkout.write(tmp_path / "in", files, mark_of(files))

    assert list(outside.iterdir()) == []


def test_writes_nothing_that_is_not_what_was_announced(tmp_path: Path) -> None:
    with pytest.raises(CommandExit) as stopped:
        checkout.write(tmp_path / "in", FILES, mark_of({}))

    assert stopped.value.code is ExitCode.UNAVAILABLE
    assert not (tmp_path / "in").exists()


def test_leaves_git_and_its_own_mark_out(tmp_path: Path) -> None:
    checkout.write(tmp_path, FILES, MARK)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("x")

    assert checkout.read(tmp_path) == FILES


def test_refuses_too_many_files_before_it_sends_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkout, "FILES_MAX", 2)
    for number in range(3):
        (tmp_path / str(number)).touch()

    with pytest.raises(CommandExit) as stopped:
        checkout.read(tmp_path)

    assert stopped.value.code is ExitCode.REFUSED


def test_sends_text_as_text_and_the_rest_as_base64() -> None:
    sent = {item["path"]: item for item in encode_files(FILES)}

    assert sent["a.txt"]["text"] == "one\n"
    assert "base64" in sent["dir/b.bin"]
    assert [path for path in sent if "executable" in sent[path]] == ["dir/b.bin"]


def packed(name: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.type = kind
        member.linkname = "/etc/passwd"
        archive.addfile(member, io.BytesIO(b""))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content", [b"no tar", packed("x", tarfile.SYMTYPE), packed("x", tarfile.CHRTYPE)]
)
def test_takes_files_alone_out_of_an_archive(content: bytes) -> None:
    with pytest.raises(CommandExit):
        unpack_archive(content)
