"""Blobs as files in one directory, which several processes may share.

    <directory>/log                  the id of the log whose blobs these are
    <directory>/sha256/ab/cdef…      a blob; its modification time is that of its last put
    <directory>/incoming/…           files being written; ``sweep`` deletes those left by a crash
    <directory>/lock                 taken shared by a put, exclusively by a removal

Only the owner has access: directories have mode 0700, files 0600.

A blob appears atomically: temporary file, fsync, rename, fsync of the directory. What ``put``
returned survives a power cut.
"""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final

from tidegate.clock import Clock, system_clock
from tidegate.control.storage import blobs as storage_blobs
from tidegate.errors import InsufficientStorage

PREFIX_DIGITS: Final = 2  # 256 directories, so that none gets so large that look-ups become slow
MICROSECOND: Final = 1_000  # in nanoseconds

PROBE: Final = b"x" * 4_096  # written and deleted to check whether a failed disk works again

Sync = Callable[[int], None]
# The disk is full or failing. It may work again soon.
DISK_FAULTS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG})


class FileBlobs:
    """The blobs of one log in one directory.

    ``sync`` makes an open file or directory durable. It is a parameter, so that a test can check
    the order of operations or crash between them.

    Raises:
        BlobsForeign: the directory carries the id of another log.
    """

    def __init__(
        self,
        directory: str | Path,
        log_id: str,
        *,
        clock: Clock = system_clock,
        sync: Sync = os.fsync,
    ) -> None:
        self._home = Path(directory)
        self._clock = clock
        self._sync = sync
        self._incoming = self._home / "incoming"
        self._root = self._home / storage_blobs.ALGORITHM
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._is_failing = False  # the last put failed, and no write has succeeded since
        self._lock = self._home / "lock"
        self._lock.touch(mode=0o600)
        self._claim(log_id)

    def put(self, content: storage_blobs.Content) -> str:
        return storage_blobs.put_pieces(self.draft(), content)

    def draft(self) -> FileDraft:
        return FileDraft(self)

    def write_fault(self) -> str:
        if self._is_failing:
            draft = None
            try:
                draft = self.draft()
                draft.write(PROBE)
                draft.sync()
            except InsufficientStorage as error:
                return str(getattr(error.__cause__, "strerror", "") or error.detail)
            finally:
                if draft is not None:
                    draft.discard()
            self._is_failing = False
        return ""

    def get(self, digest: str) -> bytes:
        return b"".join(self.stream(digest))

    def stream(self, digest: str) -> Iterator[bytes]:
        return storage_blobs.verify_pieces(digest, _parts(self._open(digest)))

    def read(self, digest: str, start: int, stop: int) -> Iterator[bytes]:
        file = self._open(digest)
        file.seek(start)
        return _parts(file, stop - start)

    def _open(self, digest: str) -> BinaryIO:
        try:
            return self._path(digest).open("rb")
        except FileNotFoundError:
            raise storage_blobs.BlobMissing(digest) from None

    def exists(self, digest: str) -> bool:
        return self._path(digest).is_file()

    def iterate(self) -> Iterator[storage_blobs.Blob]:
        for shelf in os.scandir(self._root):
            for item in os.scandir(shelf):
                with suppress(FileNotFoundError):  # collected meanwhile
                    put_at = _time_of(item.stat().st_mtime_ns)
                    yield storage_blobs.Blob(
                        f"{storage_blobs.ALGORITHM}:{shelf.name}{item.name}", put_at
                    )

    def discard(self, digest: str, *, before: datetime) -> bool:
        path = self._path(digest)
        with self._locked(fcntl.LOCK_EX):
            try:
                if _put_at(path) >= before:
                    return False
                path.unlink()
            except FileNotFoundError:
                return False
        return True

    def sweep(self, *, before: datetime) -> int:
        """Delete unfinished files from before that time; return how many."""
        swept = 0
        for path in self._incoming.iterdir():
            with suppress(FileNotFoundError):
                if _put_at(path) < before:
                    path.unlink()
                    swept += 1
        return swept

    def link(self, digest: str, other: FileBlobs) -> bool:
        """Hard-link a blob from another directory; False: it is missing there, or on another file
        system. Its bytes are not verified here; readers compare them with the digest.
        """
        path = self._path(digest)
        try:
            os.link(other._path(digest), path)
        except FileExistsError:
            return True
        except OSError:
            return False
        self._sync_directory(path.parent)
        return True

    # ── writing ──

    @contextmanager
    def watch_disk(self) -> Iterator[None]:
        """Remember that the disk is full or failing. Raises: InsufficientStorage."""
        try:
            yield
        except OSError as error:
            if error.errno not in DISK_FAULTS:
                raise
            self._is_failing = True
            raise InsufficientStorage(f"A file cannot be written: {error.strerror}.") from error

    def open_draft(self) -> tuple[BinaryIO, Path]:
        """Open a temporary file."""
        handle, name = tempfile.mkstemp(dir=self._incoming)
        return os.fdopen(handle, "wb"), Path(name)

    def sync_draft(self, file: BinaryIO, path: Path) -> None:
        file.flush()
        self._renew(path)
        self._sync(file.fileno())

    def name_draft(self, path: Path, digest: str) -> None:
        with self._locked(fcntl.LOCK_SH):
            self._settle(path, self._path(digest))
        self._is_failing = False

    def _settle(self, draft: Path, path: Path) -> None:
        """Rename the draft to its final name. An existing file is replaced, which renews its time
        and repairs damaged bytes.
        """
        draft.rename(path)
        self._sync_directory(path.parent)

    def _renew(self, path: Path) -> None:
        at = int(self._clock().timestamp() * 1_000_000) * MICROSECOND
        os.utime(path, ns=(at, at))

    def _sync_directory(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._sync(handle)
        finally:
            os.close(handle)

    # ── who else is here ──

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        """Hold the lock: shared by puts, exclusive for a removal."""
        with self._lock.open("rb") as file:
            fcntl.flock(file, how)
            yield

    def _claim(self, log_id: str) -> None:
        owner = self._home / "log"
        with self._locked(fcntl.LOCK_EX):
            if not owner.exists():
                self._lay_out(owner, log_id)
            if (found := owner.read_text()) != log_id:
                raise storage_blobs.BlobsForeign(str(self._home), found, log_id)

    def _lay_out(self, owner: Path, log_id: str) -> None:
        """Make all directories durably, the owner file last, so that puts need not check them."""
        self._incoming.mkdir(mode=0o700, exist_ok=True)
        self._root.mkdir(mode=0o700, exist_ok=True)
        for number in range(16**PREFIX_DIGITS):
            (self._root / f"{number:0{PREFIX_DIGITS}x}").mkdir(mode=0o700, exist_ok=True)
        self._sync_directory(self._root)
        draft = self._incoming / "log"
        draft.touch(mode=0o600)
        with draft.open("w") as file:
            file.write(log_id)
            file.flush()
            self._sync(file.fileno())
        draft.rename(owner)
        self._sync_directory(self._home)

    def _path(self, digest: str) -> Path:
        digits = storage_blobs.hex_of(digest)
        return self._root / digits[:PREFIX_DIGITS] / digits[PREFIX_DIGITS:]


class FileDraft:
    """A blob that is being written: a file in ``incoming`` that is renamed when complete."""

    def __init__(self, blobs: FileBlobs) -> None:
        self._blobs = blobs
        self._known = sha256()
        with blobs.watch_disk():
            self._file, self._path = blobs.open_draft()

    @property
    def digest(self) -> str:
        return f"{storage_blobs.ALGORITHM}:{self._known.hexdigest()}"

    def write(self, piece: bytes) -> None:
        self._known.update(piece)
        with self._blobs.watch_disk():
            self._file.write(piece)

    def sync(self) -> None:
        """Make what was written durable, before it gets its final name."""
        with self._blobs.watch_disk():
            self._blobs.sync_draft(self._file, self._path)

    def keep(self) -> str:
        self.sync()
        with self._blobs.watch_disk():
            self._blobs.name_draft(self._path, self.digest)
        return self.digest

    def discard(self) -> None:
        with suppress(OSError):  # the data is discarded anyway
            self._file.close()
        self._path.unlink(missing_ok=True)  # after ``keep`` it has another path


def _parts(file: BinaryIO, bytes_max: int = -1) -> Iterator[bytes]:
    """Yield the rest of the file in pieces, up to ``bytes_max`` bytes if that is given."""
    left = bytes_max
    with file:
        while part := file.read(
            storage_blobs.CHUNK_BYTES if left < 0 else min(left, storage_blobs.CHUNK_BYTES)
        ):
            yield part
            if left >= 0:
                left -= len(part)


def _put_at(path: Path) -> datetime:
    return _time_of(path.stat().st_mtime_ns)


def _time_of(nanoseconds: int) -> datetime:
    seconds, rest = divmod(nanoseconds // MICROSECOND, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)
