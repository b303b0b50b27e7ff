"""Opens a database file so that a commit that SQLite acknowledges is on the disk.

One connection writes, any number read. The settings that durability and the guards depend on are
read back after they were set. A store where one of them is wrong is refused.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import IO, TypeVar

import apsw

from tidegate.errors import StoreRefused, StoreUnavailable

# Before 3.51.3 a WAL reset could race with a checkpoint and lose commits; since 3.53.0 the CHECK
# of a table can be widened in place.
VERSION_MIN = (3, 53, 0)
BUSY_TIMEOUT_MS = 10_000  # a backstop: our own writers queue at the lock file
# Small, because SQLite walks the whole cache at every commit that split a page. Other pages are
# still in the cache of the operating system.
CACHE_KIB = 16 * 1024
READER_CACHE_KIB = 8 * 1024  # every commit empties it; pages outside the WAL are mapped anyway
MMAP_BYTES = 2**31 - 2**16  # the most that SQLite maps; it is not memory of this process
JOURNAL_BYTES_MAX = 128 * 1024 * 1024
CHECKPOINT_PAGES = 16_000  # rare, so that a page that many commits change is moved only once
WAL_ROOM_MIN = 128 * 1024
WAL_ROOM_MAX = 1024 * 1024  # of one step, so that no single flush takes long
WAL_ROOM_USES_MIN = 4  # flushes that a step should be enough for
WAL_BYTES_MAX = 64 * 1024 * 1024  # about where a checkpoint restarts the WAL
STATEMENTS_MAX = 256  # prepared statements that a connection caches

LOCK_SECONDS_MAX = 5.0  # how long a writer waits for the lock, as on PostgreSQL
LOCK_POLL_SECONDS_FIRST, LOCK_POLL_SECONDS_MAX = 0.000_05, 0.001

T = TypeVar("T")

# A WAL needs memory that processes share. These file systems break that between machines.
NETWORK_FILE_SYSTEMS = frozenset(
    {"afs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "gfs2", "lustre", "ncpfs"}
    | {"nfs", "nfs4", "ocfs2", "smb3", "smbfs"}
)
MOUNTS = Path("/proc/self/mountinfo")

_DEMANDED = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "recursive_triggers": 1}


def check_platform(path: str, mounts: Path = MOUNTS) -> None:
    """Raises: StoreRefused: SQLite is too old, or the path is on a network file system."""
    found = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if found < VERSION_MIN:
        wanted = ".".join(map(str, VERSION_MIN))
        raise StoreRefused(
            f"SQLite {apsw.sqlite_lib_version()} is too old; install {wanted} or newer"
        )
    file_system = _file_system(path, mounts)
    if file_system in NETWORK_FILE_SYSTEMS:
        raise StoreRefused(f"{path} is on {file_system}; SQLite needs a local file system")


def version() -> str:
    """The version of the SQLite library in use."""
    return apsw.sqlite_lib_version()


def _file_system(path: str, mounts: Path) -> str:
    """The type of the file system that holds the path; empty if it is unknown."""
    if not mounts.exists():
        return ""
    longest, found = "", ""
    for line in mounts.read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = before.split(" ")[4].replace("\\040", " ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(longest):
            longest, found = point, after.split(" ")[0]
    return found


def open_writer(path: str) -> apsw.Connection:
    """Open the connection that commits and checkpoints. Raises: StoreRefused."""
    try:
        connection = _open(path)
        # Mapped pages would count as memory of this process, more and more as the log grows.
        connection.execute("PRAGMA mmap_size = 0").fetchall()
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_BYTES_MAX}").fetchall()
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}").fetchall()
    except apsw.Error as error:
        raise StoreRefused(f"cannot open {path}: {error}") from error
    for name, wanted in _DEMANDED.items():
        found = connection.pragma(name)
        if found != wanted:
            connection.close()
            raise StoreRefused(f"{path}: PRAGMA {name} is {found!r}, it must be {wanted!r}")
    return connection


def open_reader(path: str) -> apsw.Connection:
    """Open a connection that never writes and never checkpoints.

    Only one thread may use it at a time. Without SQLite's own mutex, which it would lock for every
    column of every row, reads are faster.
    """
    connection = _open(path, apsw.SQLITE_OPEN_NOMUTEX)
    connection.execute(f"PRAGMA mmap_size = {MMAP_BYTES}").fetchall()
    connection.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}").fetchall()
    connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    connection.execute("PRAGMA query_only = ON").fetchall()
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return connection


def _open(path: str, threads: int = apsw.SQLITE_OPEN_FULLMUTEX) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | threads
    connection = apsw.Connection(path, flags=flags, statementcachesize=STATEMENTS_MAX)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    # Otherwise SQLite may plan a statement again for new values, which takes longer than running it
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    for pragma in (
        "synchronous = FULL",
        "foreign_keys = ON",
        "recursive_triggers = ON",  # so that the triggers on history see the delete of a REPLACE
        "temp_store = MEMORY",
        f"cache_size = -{CACHE_KIB}",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


class WalRoom:
    """Grows the WAL ahead of time, so that most flushes do not change the size of the file.

    To flush a file that grew, the system must also flush its own journal, which takes twice as
    long. So zeros are written after the end, in large steps. SQLite overwrites them like the old
    frames of a WAL that was restarted. It never takes zeros for a frame, because the checksum does
    not match.
    """

    def __init__(self, path: str) -> None:
        self._path = f"{path}-wal"
        self._end = 0  # the size of the file at the last check

    def make(self) -> None:
        """Add room if the WAL has grown past the last one.

        Call it only inside a write transaction, when no other process can write to the WAL.
        """
        try:
            size = os.stat(self._path).st_size
            if size > self._end:
                size += self._add(size, size - self._end)
        except OSError:
            return  # no harm: the WAL grows when it is written, only slower
        self._end = size

    def _add(self, size: int, grown: int) -> int:
        step = min(max(size, WAL_ROOM_MIN), WAL_ROOM_MAX)
        # Not worth it: a checkpoint will restart the WAL soon, or flushes are as large as a step.
        if size >= WAL_BYTES_MAX or grown * WAL_ROOM_USES_MIN > step:
            return 0
        with open(self._path, "r+b", buffering=0) as wal:
            wal.seek(-min(size, WAL_ROOM_MIN // 2), os.SEEK_END)
            if not wal.read().strip(b"\0"):
                return 0  # another handle has added room already
            return wal.write(bytes(step))


# An open file description lock on the first byte of the lock file: see ``WriterLock``.
_FLOCK = "hhxxxxqqixxxx"  # struct flock of Linux: type, whence, start, length, process
_TAKE_NEXT = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
_FREE_NEXT = struct.pack(_FLOCK, fcntl.F_UNLCK, os.SEEK_SET, 0, 1, 0)


class WriterLock:
    """Serializes writers: first the threads of this handle, then handles and processes.

    SQLite's own wait is a poll that starves some writers for a second. This class polls too, so
    that a writer can give up: a process that was stopped inside its commit holds the lock forever.
    But a waiting writer holds a second lock on the file, *next*. Every writer takes *next* before
    the first lock and releases it after it got that one. So a writer that has just finished cannot
    overtake one that waits. The system releases both locks of a process that died.

    In the main thread a signal handler may raise after every call, and at the start of every
    function. So each lock is released by the first call of the ``finally`` whose ``try`` took it,
    and that call goes into C: an exception comes after such a call, not instead of it.
    """

    def __init__(self, path: str) -> None:
        """Raises: OSError."""
        self._threads = RLock()  # it knows its owner: releasing it without having it only raises
        self._is_held = False
        self._process = os.getpid()
        self._path = path
        self._file = self._open()

    def _open(self) -> IO[bytes]:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        return os.fdopen(os.open(self._path, flags, 0o600), "ab")

    def run(self, work: Callable[[], T]) -> T:
        """Do the work while no other thread or process writes.

        Raises:
            StoreRefused: the handle was opened before a fork.
            StoreUnavailable: the handle is closed, or the lock was not free in time.
            All that the work raises.
        """
        self.check_process()
        deadline = time.monotonic() + LOCK_SECONDS_MAX
        seconds = LOCK_SECONDS_MAX
        try:
            if not self._threads.acquire(timeout=seconds):
                raise _lock_timeout("another thread")
            if self._is_held:
                raise StoreUnavailable("this thread is already writing a commit")
            return self._run(work, deadline)
        finally:
            try:  # noqa: SIM105 - no other call may come before this one
                self._threads.release()
            except RuntimeError:
                pass  # we did not get it

    def _run(self, work: Callable[[], T], deadline: float) -> T:
        try:
            self._is_held = True
            self._take(deadline)
            return work()
        finally:
            self._is_held = False
            try:
                try:
                    fcntl.flock(self._file, fcntl.LOCK_UN)
                finally:
                    fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _FREE_NEXT)
            except (OSError, ValueError):
                self._open_again()

    def _take(self, deadline: float) -> None:
        """Take *next* and the lock, then release *next*. Raises: StoreUnavailable."""
        if self._file.closed:
            raise StoreUnavailable("the store is closed")
        try:
            _poll(lambda: fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _TAKE_NEXT), deadline)
            _poll(lambda: fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB), deadline)
        except OSError as error:
            raise StoreUnavailable(f"cannot lock {self._path}: {error}") from error
        with suppress(OSError):
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _FREE_NEXT)

    def _open_again(self) -> None:
        """Open the lock file again. Closing it releases its locks too; commits are not lost."""
        if not self._file.closed:
            with suppress(OSError):
                self._file.close()
                self._file = self._open()

    def check_process(self) -> None:
        """Raises: StoreRefused: a forked child would share this lock with its parent."""
        if os.getpid() != self._process:
            raise StoreRefused("this handle was opened before a fork; open one in this process")

    def close(self) -> None:
        """Refuse further writes. A thread that is writing now finishes."""
        is_ours = self._threads.acquire(timeout=LOCK_SECONDS_MAX)
        self._file.close()
        if is_ours:
            self._threads.release()


def _poll(take: Callable[[], object], deadline: float) -> None:
    """Call ``take`` until it succeeds.

    Raises:
        StoreUnavailable: it did not succeed before the deadline. OSError.
    """
    pause = LOCK_POLL_SECONDS_FIRST
    while True:
        try:
            take()
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise _lock_timeout("another process") from None
        time.sleep(pause)
        pause = min(2 * pause, LOCK_POLL_SECONDS_MAX)


def _lock_timeout(holder: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{holder} has held the lock on the log for {LOCK_SECONDS_MAX:g} s; "
        "if a process was stopped inside its commit, continue or end it"
    )
