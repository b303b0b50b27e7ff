"""An archive as files in one directory.

    <directory>/archive.json     whose archive this is
    <directory>/segments/…       the segments
    <directory>/incoming/…       files being written; ``sweep`` deletes those left by a crash

Only the owner has access: directories have mode 0700, files 0600.

A segment appears atomically: temporary file, fsync, rename, fsync of the directory.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import IO

from tidegate.control.storage.archive import segment_store
from tidegate.kernel.model import Position

Sync = Callable[[int], None]


class FileSegmentStore:
    """A directory, which several processes may share.

    ``sync`` makes an open file or directory durable. It is a parameter, so that a test can check
    the order of operations or crash between them.
    """

    def __init__(self, directory: str | Path, *, sync: Sync = os.fsync) -> None:
        self._home = Path(directory)
        self._segments = self._home / "segments"
        self._incoming = self._home / "incoming"
        self._sync = sync

    def claim(self, claim: segment_store.ArchiveClaim) -> None:
        owner = self._home / "archive.json"
        with self._answering():
            for directory in (self._home, self._segments, self._incoming):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not owner.exists():
                draft = self._draft(BytesIO(claim.text()))
                with suppress(FileExistsError):  # another process claimed it first: compare
                    os.link(draft, owner)
                draft.unlink()
            self._sync_directory(self._home)
            self._sync_directory(self._home.parent)
            found = owner.read_bytes()
        segment_store.check_claim(str(self._home), found, claim)

    def write(self, label: segment_store.SegmentName, content: IO[bytes]) -> None:
        with self._answering():
            self._draft(content).rename(self._path(label))
            self._sync_directory(self._segments)

    def read(self, label: segment_store.SegmentName) -> Iterator[bytes]:
        with self._answering():
            try:
                file = self._path(label).open("rb")
            except FileNotFoundError:
                raise segment_store.SegmentMissing(label) from None
            with file:
                while piece := file.read(segment_store.CHUNK_BYTES):
                    yield piece

    def names(self, start: Position | None = None) -> Iterator[str]:
        prefix = segment_store.prefix_of(start)
        with self._answering():
            found = [name for name in os.listdir(self._segments) if name.startswith(prefix)]
        yield from found

    def remove(self, label: segment_store.SegmentName) -> None:
        with self._answering():
            self._path(label).unlink(missing_ok=True)

    def sweep(self, *, before: datetime) -> int:
        """Delete unfinished files from before that time; return how many."""
        swept = 0
        with self._answering():
            for path in self._incoming.iterdir():
                with suppress(FileNotFoundError):
                    if path.stat().st_mtime < before.timestamp():
                        path.unlink()
                        swept += 1
        return swept

    def _draft(self, content: IO[bytes]) -> Path:
        """Write the content durably into a temporary file."""
        handle, name = tempfile.mkstemp(dir=self._incoming)
        try:
            with os.fdopen(handle, "wb") as file:
                shutil.copyfileobj(content, file)
                file.flush()
                self._sync(file.fileno())
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        return Path(name)

    def _sync_directory(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._sync(handle)
        finally:
            os.close(handle)

    def _path(self, label: segment_store.SegmentName) -> Path:
        """Return a segment's path. It is made of two numbers, so that outside names never become
        paths.
        """
        return self._segments / str(label)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise segment_store.ArchiveUnavailable(f"{self._home}: {error}") from error
