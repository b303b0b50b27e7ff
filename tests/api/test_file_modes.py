"""Only the owner can read an installation's files, wherever they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from stat import S_IMODE

import pytest

from tests.api.people import People
from tests.api.serving import serving
from tidegate.commands.startup import open_store_alone
from tidegate.control.storage.archive.files import FileSegmentStore
from tidegate.control.storage.archive.segment_store import ArchiveClaim, SegmentName
from tidegate.control.storage.blobs.files import FileBlobs


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def readable_by_others(directory: Path) -> list[str]:
    """Files that another user may read, and directories that they may enter, below this one."""
    found = []
    for path in sorted(directory.rglob("*")):
        mode = S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            found.append(f"{path.name} {mode:o}")
    return found


def test_only_the_owner_can_read_the_database_and_the_bodies(tmp_path: Path) -> None:
    """Also if the database is outside the data directory."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    data = tmp_path / "data"
    with (
        open_store_alone(data),
        serving(data, store=f"sqlite:///{elsewhere}/log.db") as served,
    ):
        people = People(served)
        people.draft()
        people.push("default.web.v1", index_html="one")
        while_running = readable_by_others(elsewhere)

    assert while_running == []
    assert readable_by_others(data) == []
    assert S_IMODE(data.stat().st_mode) == 0o700


def test_only_the_owner_can_read_blobs_and_the_archive_anywhere(tmp_path: Path) -> None:
    FileBlobs(tmp_path / "blobs", "log-1").put(b"content")
    archive = FileSegmentStore(tmp_path / "archive")
    archive.claim(ArchiveClaim("log-1", 100))
    archive.write(SegmentName(1, 2), BytesIO(b"a segment"))

    assert readable_by_others(tmp_path) == []
