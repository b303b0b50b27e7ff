"""A simulated disk: what may remain of recorded writes after a power loss.

    recorded calls ─▶ Disk.apply ─▶ Disk.cut(random) ─▶ one of the trees that a crash may leave

Synced data is kept. Of the rest any part may remain: each 512-byte sector of each write is kept,
lost or garbage. Names (create, rename, remove, mkdir) are kept in order, as by file systems with a
journal: a sync of a directory keeps every name that was given before it, and a sync of a file keeps
no name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path, PurePosixPath
from random import Random
from struct import Struct

SECTOR = 512
GARBAGE_SHARE = 0.03
_HEAD = Struct("=BIqQ")


class Kind(IntEnum):
    """The calls that recorder.c records."""

    CREATE = 1
    WRITE = 2
    TRUNCATE = 3
    SYNC = 4
    RENAME = 5
    UNLINK = 6
    MKDIR = 7
    RMDIR = 8
    LINK = 9


@dataclass(frozen=True, slots=True)
class FileCall:
    """One call. ``offset``: the new length of a truncation; ``data``: the new name of a rename."""

    kind: Kind
    path: str  # relative to the recorded directory
    offset: int
    data: bytes


def recorded(log: Path, under: Path) -> list[FileCall]:
    """The calls in a log of recorder.c."""
    content, at, found = log.read_bytes(), 0, []
    cut = len(str(under)) + 1
    while at < len(content):
        kind, path_length, offset, length = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        path = content[at : at + path_length].decode()[cut:]
        at += path_length
        data = content[at : at + length]
        at += length
        if kind in (Kind.RENAME, Kind.LINK):
            data = data[cut:]
        found.append(FileCall(Kind(kind), path, offset, data))
    return found


@dataclass(slots=True)
class _File:
    """The synced bytes, and the writes and truncations since."""

    safe: bytes = b""
    pending: list[FileCall] = field(default_factory=list)

    def now(self) -> bytes:
        content = bytearray(self.safe)
        for call in self.pending:
            _carry_out(content, call)
        return bytes(content)


def _carry_out(content: bytearray, call: FileCall) -> None:
    if call.kind == Kind.TRUNCATE:
        _resize(content, call.offset)
        return
    _resize(content, max(len(content), call.offset + len(call.data)))
    content[call.offset : call.offset + len(call.data)] = call.data


def _resize(content: bytearray, length: int) -> None:
    if length < len(content):
        del content[length:]
    else:
        content.extend(bytes(length - len(content)))


@dataclass(frozen=True, slots=True)
class _Naming:
    """A file or a directory (None) gets a name, a name is removed, or both."""

    given: str
    file: _File | None
    taken: str = ""


class Disk:
    """The files and names of one directory, and which of them are synced."""

    def __init__(self, tree: dict[str, bytes] | None = None) -> None:
        """A disk on which this tree is synced; the name of a directory ends with a slash."""
        self._safe: dict[str, _File | None] = {
            path.rstrip("/"): None if path.endswith("/") else _File(content)
            for path, content in (tree or {}).items()
        }
        self._names = dict(self._safe)
        self._journal: list[_Naming] = []  # names since the last sync of a directory

    def apply(self, call: FileCall) -> None:
        match call.kind:
            case Kind.CREATE:
                self._journal_name(_Naming(call.path, _File()))
            case Kind.MKDIR:
                self._journal_name(_Naming(call.path, None))
            case Kind.UNLINK | Kind.RMDIR:
                self._journal_name(_Naming("", None, taken=call.path))
            case Kind.RENAME:
                file = self._names[call.path]
                self._journal_name(_Naming(call.data.decode(), file, taken=call.path))
            case Kind.LINK:
                self._journal_name(_Naming(call.data.decode(), self._names[call.path]))
            case Kind.SYNC:
                self._sync(call.path)
            case Kind.WRITE | Kind.TRUNCATE:
                file = self._names.get(call.path)
                if file is not None:
                    file.pending.append(call)

    def _journal_name(self, naming: _Naming) -> None:
        self._journal.append(naming)
        _replay(self._names, [naming])

    def _sync(self, path: str) -> None:
        file = self._names.get(path)
        if file is not None:
            file.safe, file.pending = file.now(), []
            return
        _replay(self._safe, self._journal)
        self._journal = []

    def cut(self, random: Random) -> dict[str, bytes]:
        """A tree that a power loss at this point may leave."""
        fate = random.choice(("nothing", "everything", "beginning", "sectors", "sectors"))
        names = dict(self._safe)
        kept = {
            "nothing": 0,
            "everything": len(self._journal),
        }.get(fate, random.randint(0, len(self._journal)))
        _replay(names, self._journal[:kept])
        share = random.random()
        tree: dict[str, bytes] = {}
        for path, file in names.items():
            if any(parent not in names for parent in _parents(path)):
                continue  # its directory is lost
            if file is None:
                tree[f"{path}/"] = b""
            else:
                tree[path] = _left(file, fate, share, random)
        return tree


def _replay(names: dict[str, _File | None], journal: list[_Naming]) -> None:
    for naming in journal:
        if naming.taken:
            names.pop(naming.taken, None)
        if naming.given:
            names[naming.given] = naming.file


def _parents(path: str) -> Iterator[str]:
    return (str(parent) for parent in PurePosixPath(path).parents if str(parent) != ".")


def _left(file: _File, fate: str, share: float, random: Random) -> bytes:
    """What may remain of one file."""
    if fate == "nothing" or not file.pending:
        return file.safe
    if fate == "everything":
        return file.now()
    content = bytearray(file.safe)
    if fate == "beginning":
        count = random.randrange(len(file.pending) + 1)
        for call in file.pending[:count]:
            _carry_out(content, call)
        if count < len(file.pending):
            _tear(content, file.pending[count], random)
        return bytes(content)
    for call in file.pending:
        if call.kind == Kind.TRUNCATE:
            if random.random() < share:
                _carry_out(content, call)
        else:
            _scatter(content, call, share, random)
    return bytes(content)


def _tear(content: bytearray, call: FileCall, random: Random) -> None:
    """Carry out the beginning of a call."""
    if call.kind == Kind.TRUNCATE:
        return
    size = random.randrange(len(call.data) // SECTOR + 1) * SECTOR
    if size:
        _carry_out(content, FileCall(call.kind, call.path, call.offset, call.data[:size]))


def _scatter(content: bytearray, call: FileCall, share: float, random: Random) -> None:
    """Keep some sectors of a write, lose some, corrupt some."""
    at, end = call.offset, call.offset + len(call.data)
    while at < end:
        stop = min(end, (at // SECTOR + 1) * SECTOR)
        chance = random.random()
        part = call.data[at - call.offset : stop - call.offset]
        if chance < GARBAGE_SHARE:
            part = random.randbytes(stop - at)
        if chance < max(share, GARBAGE_SHARE):
            _carry_out(content, FileCall(call.kind, call.path, at, part))
        at = stop


def write_tree(tree: dict[str, bytes], home: Path) -> None:
    """Write the tree below a directory, readable by its owner only."""
    for path in sorted(tree):
        place = home / path
        if path.endswith("/"):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        else:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            place.write_bytes(tree[path])
            place.chmod(0o600)
