"""A file system for SQLite that fails on demand."""

from __future__ import annotations

import apsw

BASE = "unix"


class FailingFiles(apsw.VFS):
    """A file system in which some of the next writes or flushes of the WAL fail."""

    def __init__(self) -> None:
        super().__init__("failing", BASE, makedefault=True)
        self.failing_syncs = 0
        self.failing_writes = 0

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return FailingFile(self, name, flags)


class FailingFile(apsw.VFSFile):
    def __init__(
        self, files: FailingFiles, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        super().__init__(BASE, name, flags)
        self._files = files
        self._is_wal = bool(flags[0] & apsw.SQLITE_OPEN_WAL)

    def xSync(self, flags: int) -> None:
        if self._is_wal and self._files.failing_syncs > 0:
            self._files.failing_syncs -= 1
            raise apsw.IOError("the disk went away")
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        if self._is_wal and self._files.failing_writes > 0:
            self._files.failing_writes -= 1
            raise apsw.FullError("the disk is full")
        super().xWrite(data, offset)
