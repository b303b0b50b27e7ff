"""``archive verify`` finds changes that did not go through the log; ``archive rebuild`` repairs
them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.operations.processes import opened, prepared, run
from tidegate.control.storage.archive import Archive
from tidegate.control.storage.archive.files import FileSegmentStore
from tidegate.domain.packages.slices import CreateRepository, create_repository
from tidegate.kernel.model import Meta


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """An installation whose log is mirrored, except for its last fact."""
    data = tmp_path / "data"
    prepared(data)
    with opened(data) as installation:
        place = FileSegmentStore(tmp_path / "mirror")
        archive = Archive(
            installation.store, place, log_id=installation.log_id, clock=installation.clock
        )
        archive.work()
        command = CreateRepository(name="late", by="user_admin0000")
        installation.execute.run(create_repository, command, meta=Meta(actor="user_admin0000"))
    return data


def archived(verb: str, data: Path, mirror: str = "mirror") -> tuple[int, str]:
    ran = run("archive", verb, "--data", str(data), "--archive", str(data.parent / mirror))
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.req("RS-12", engines=None, reason="the commands; the archive is tested on each engine")
def test_finds_changes_in_the_mirror_and_repairs_it(data: Path) -> None:
    """RS-12: "it can be rebuilt from the log"."""
    (segment,) = (data.parent / "mirror" / "segments").iterdir()
    whole = segment.read_bytes()

    well = archived("verify", data)
    segment.write_bytes(whole.replace(b"SetUp", b"Setup", 1) + b"{}\n")
    changed = archived("verify", data)
    rebuilt = archived("rebuild", data)
    mended = archived("verify", data)
    segment.unlink()
    missing = archived("verify", data)

    assert well[0] == 0
    assert "what the log says, up to position" in well[1]
    assert "1 events wait to be archived" in well[1]
    assert changed[0] == 1
    assert f"different: {segment.name}" in changed[1]
    assert "try: tidegate archive rebuild" in changed[1]
    assert (rebuilt[0], "1 segments were written again" in rebuilt[1]) == (0, True)
    assert mended[0] == 0
    assert (missing[0], f"missing: {segment.name}" in missing[1]) == (1, True)
    assert archived("rebuild", data)[0] == 0
    assert segment.read_bytes() == whole


def test_reports_a_missing_archive(data: Path) -> None:
    nowhere = archived("verify", data, "nowhere")
    unset = run("archive", "rebuild", "--data", str(data))
    log_missing = run(
        *("archive", "verify", "--data", str(data / "no"), "--archive", str(data.parent / "mirror"))
    )

    assert (nowhere[0], "there is no archive" in nowhere[1]) == (4, True)
    assert not (data.parent / "nowhere").exists()
    assert (unset.returncode, "--archive DIR" in unset.stderr) == (2, True)
    assert log_missing.returncode == 4


def test_refuses_the_mirror_of_another_log(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    prepared(other)

    code, said = archived("verify", other)

    assert code == 6
    assert "archive_foreign" in said
