"""Files of a revision in a directory: nothing lands outside, nothing is lost, all is checked."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from tidegate.cli import checkout
from tidegate.cli.checkout import Mark, digest_of
from tidegate.cli.exits import Exit, Stop
from tidegate.cli.transfer import archived, encoded

FILES = {"a.txt": b"one\n", "dir/b.bin": bytes(range(256)), "dir/ü.txt": b"two\n"}
MARK = Mark("default.web.v1", 7, digest_of(FILES))


def test_reads_back_what_it_wrote(tmp_path: Path) -> None:
    checkout.write(tmp_path / "web", FILES, MARK)

    assert checkout.read(tmp_path / "web") == FILES
    assert checkout.marked(tmp_path / "web") == MARK


def test_names_content_as_sha256sum_does(tmp_path: Path) -> None:
    checkout.write(tmp_path, FILES, MARK)
    (tmp_path / checkout.MARK).unlink()

    command = "find . -type f -printf '%P\\0' | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"
    said = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)

    assert digest_of(FILES) == f"sha256:{said.stdout.split()[0]}"


def test_takes_away_what_a_newer_pull_does_not_have(tmp_path: Path) -> None:
    checkout.write(tmp_path, FILES, MARK)
    fewer = {"a.txt": b"other\n"}

    checkout.write(tmp_path, fewer, Mark(MARK.name, 8, digest_of(fewer)))

    assert checkout.read(tmp_path) == fewer
    assert not (tmp_path / "dir").exists()


@pytest.mark.parametrize(
    "path", ["../x", "/etc/x", "a/../../x", "", "a//b", "./a", "a\\b", ".git/hooks/x", "a\x00b"]
)
def test_writes_no_path_that_leads_out(tmp_path: Path, path: str) -> None:
    files = {path: b"x"}

    with pytest.raises(Stop):
        checkout.write(tmp_path / "in", files, Mark("n", 1, digest_of(files)))

    assert list(tmp_path.rglob("*")) == []


def test_writes_through_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    checkout.write(tmp_path / "in", {"a": b""}, Mark("n", 1, digest_of({"a": b""})))
    (tmp_path / "in" / "dir").symlink_to(outside)
    files = {"dir/x": b"x"}

    with pytest.raises(Stop):
        checkout.write(tmp_path / "in", files, Mark("n", 2, digest_of(files)))

    assert list(outside.iterdir()) == []


def test_writes_nothing_that_is_not_what_was_announced(tmp_path: Path) -> None:
    with pytest.raises(Stop) as stopped:
        checkout.write(tmp_path / "in", FILES, Mark("n", 1, digest_of({})))

    assert stopped.value.code is Exit.UNAVAILABLE
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

    with pytest.raises(Stop) as stopped:
        checkout.read(tmp_path)

    assert stopped.value.code is Exit.REFUSED


def test_sends_text_as_text_and_the_rest_as_base64() -> None:
    sent = {item["path"]: item for item in encoded(FILES)}

    assert sent["a.txt"]["text"] == "one\n"
    assert "base64" in sent["dir/b.bin"]


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
    with pytest.raises(Stop):
        archived(content)
