"""The agent's journal: twins and reports in one append-only file, synced before they take effect.

    T  a twin                  an order was taken, or the twin was replaced
    S  a report                and the twin after it; it waits for the server's confirmation
    C  confirmed               the server has all reports of a rollout up to this number
    G  given up                pending reports of a rollout are void; its twin is replaced or gone

A line is ``<crc32 of the rest> <kind> <json>``. A crash can leave half of the last line; nothing
was done because of it, so it is cut off. A bad line before good ones is damage and stops the agent.
"""

from __future__ import annotations

import os
from binascii import crc32
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from tidegate import decoders, errors
from tidegate.agent.errors import JournalDamaged
from tidegate.domain.hosts import agent_side, facts, report_json, rows, states

FILE: Final = "journal"
BYTES_MAX: Final = 4 * 1024 * 1024  # of one file: then it is rewritten without finished orders
TWINS_MAX: Final = 64  # of finished orders, kept so that a repeated order is recognized
CRC_CHARS: Final = 8


class TwinLine(msgspec.Struct, frozen=True):
    record: rows.HostRecord
    content: str  # where the artifact is fetched


class ReportLine(msgspec.Struct, frozen=True):
    event: dict[str, Any]  # as it is sent
    after: rows.HostRecord


class ConfirmedLine(msgspec.Struct, frozen=True):
    rollout_id: str
    through: int


class GivenUpLine(msgspec.Struct, frozen=True):
    rollout_id: str
    record: rows.HostRecord | None
    numbered: int  # the last report of the rollout that counts


JournalLine = TwinLine | ReportLine | ConfirmedLine | GivenUpLine
KINDS: Final[Mapping[str, type[JournalLine]]] = MappingProxyType(
    {"T": TwinLine, "S": ReportLine, "C": ConfirmedLine, "G": GivenUpLine}
)
_LETTERS: Final = {kind: letter for letter, kind in KINDS.items()}
_decoders: Final = {letter: decoders.build(kind) for letter, kind in KINDS.items()}


@dataclass(frozen=True, slots=True)
class PendingReport:
    """A report that the server has not confirmed, and the twin before it."""

    event: facts.AgentEvent
    before: rows.HostRecord


class Journal:
    """Twins by rollout, and the reports that the server has not confirmed, in order.

    Raises:
        JournalDamaged: the file is not one that an agent of this version wrote.
    """

    def __init__(self, directory: Path, *, bytes_max: int = BYTES_MAX) -> None:
        self._path = directory / FILE
        self._bytes_max = bytes_max
        self._twins: dict[str, rows.HostRecord] = {}
        self._entries: list[PendingReport] = []
        self._contents: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        (directory / f"{FILE}.new").unlink(missing_ok=True)
        good = self._read()
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._file, good)
        self._size = os.lseek(self._file, 0, os.SEEK_END)
        os.fsync(self._file)
        _sync_directory(directory)

    def close(self) -> None:
        os.close(self._file)

    @property
    def twins(self) -> Mapping[str, rows.HostRecord]:
        return MappingProxyType(self._twins)

    @property
    def entries(self) -> Sequence[PendingReport]:
        """The reports that the server has not confirmed, oldest first."""
        return tuple(self._entries)

    def content(self, rollout_id: str) -> str:
        """Where the artifact of the rollout's order is fetched."""
        return self._contents[rollout_id]

    def last_number(self, rollout_id: str) -> int:
        """The number of the last valid report of a rollout whose twin is gone."""
        return self._numbers.get(rollout_id, 0)

    def is_acknowledgement_pending(self, rollout_id: str) -> bool:
        """Whether the acknowledgement of the rollout's order still waits to be accepted."""
        return any(
            isinstance(entry.event, facts.DispatchAck) and entry.event.rollout_id == rollout_id
            for entry in self._entries
        )

    def append(self, *lines: JournalLine) -> None:
        """Append lines; they are durable when this returns."""
        data = b"".join(map(_encode, lines))
        if self._size + len(data) > self._bytes_max:
            self._rewrite()
        try:
            _write_all(self._file, data)
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, self._size)  # half a line would be damage later
            os.lseek(self._file, self._size, os.SEEK_SET)
            raise
        self._size += len(data)
        for line in lines:
            self._apply(line)

    # ── what lines mean ──

    def _apply(self, line: JournalLine) -> None:
        match line:
            case TwinLine(record, content):
                self._contents[record.rollout_id] = content
                self._twins.pop(record.rollout_id, None)  # so that the newest is last
                self._twins[record.rollout_id] = record
            case ReportLine(event, after):
                before = self._twins[after.rollout_id]
                self._entries.append(PendingReport(report_json.event_from_json(event), before))
                self._twins[after.rollout_id] = after
            case ConfirmedLine(rollout_id, through):
                self._entries = [
                    entry
                    for entry in self._entries
                    if entry.event.rollout_id != rollout_id or entry.event.seq > through
                ]
            case GivenUpLine(rollout_id, record, numbered):
                self._entries = [e for e in self._entries if e.event.rollout_id != rollout_id]
                self._twins.pop(rollout_id, None)
                self._numbers[rollout_id] = numbered
                if record is not None:
                    self._twins[rollout_id] = record

    def _read(self) -> int:
        """Apply the file; return where its good part ends."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return 0
        good = 0
        for raw in content.splitlines(keepends=True):
            line = _decode(raw)
            if line is None:
                break
            try:
                self._apply(line)
            except (KeyError, errors.InvalidInput) as error:
                raise _damaged(good, f"what is there does not follow: {error}") from None
            good += len(raw)
        rest = content[good:]
        if any(_decode(raw) is not None for raw in rest.splitlines(keepends=True)):
            raise _damaged(good, "a line is not what was written, and good ones follow")
        return good

    # ── rewriting ──

    def _rewrite(self) -> None:
        """Write the current state to a new file, and replace the old one with it."""
        new = self._path.with_name(f"{FILE}.new")
        data = b"".join(map(_encode, self._lines()))
        file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        _write_all(file, data)
        os.fsync(file)
        os.replace(new, self._path)
        _sync_directory(self._path.parent)
        os.close(self._file)
        self._file, self._size = file, len(data)
        self._twins, self._entries, self._contents, self._numbers = {}, [], {}, {}
        for line in map(_decode, data.splitlines(keepends=True)):
            assert line is not None, "what was just written is whole"
            self._apply(line)

    def _lines(self) -> Iterable[JournalLine]:
        """The lines of a new file: each twin before its pending reports, then those reports."""
        waiting: dict[str, list[PendingReport]] = {}
        for entry in self._entries:
            waiting.setdefault(entry.event.rollout_id, []).append(entry)
        over = [id for id, twin in self._twins.items() if id not in waiting and _is_over(twin)]
        forgotten = set(over[: max(0, len(over) - TWINS_MAX)])
        for rollout_id, numbered in list(self._numbers.items())[-TWINS_MAX:]:
            yield GivenUpLine(rollout_id, None, numbered)
        for rollout_id, twin in self._twins.items():
            if rollout_id not in forgotten:
                entries = waiting.get(rollout_id)
                before = entries[0].before if entries else twin
                yield TwinLine(before, self._contents[rollout_id])
        for entry, after in self._with_after():
            yield ReportLine(report_json.event_to_json(entry.event), after)

    def _with_after(self) -> Iterable[tuple[PendingReport, rows.HostRecord]]:
        """Each pending report with the twin after it, which is the twin before the next one."""
        latest = dict(self._twins)
        found = []
        for entry in reversed(self._entries):
            found.append((entry, latest[entry.event.rollout_id]))
            latest[entry.event.rollout_id] = entry.before
        return reversed(found)


def _is_over(twin: rows.HostRecord) -> bool:
    ended = (states.HostState.CONVERGED, states.HostState.FAILED, states.HostState.REVERTED)
    return twin.state in ended and not agent_side.is_rolling_back(twin)


def _encode(line: JournalLine) -> bytes:
    rest = _LETTERS[type(line)].encode() + b" " + msgspec.json.encode(line)
    return b"%08x %s\n" % (crc32(rest), rest)


def _decode(raw: bytes) -> JournalLine | None:
    """Decode a line; None: it is damaged or incomplete.

    Raises:
        JournalDamaged: it is intact, but from another version.
    """
    checksum, space, rest = raw[:-1].partition(b" ")
    if not (raw.endswith(b"\n") and space and len(checksum) == CRC_CHARS):
        return None
    if checksum != b"%08x" % crc32(rest):
        return None
    letter, _, content = rest.decode().partition(" ")
    if letter not in KINDS:
        raise JournalDamaged(f"the journal has lines of kind {letter!r}: a newer agent wrote it")
    try:
        return _decoders[letter].decode(content)
    except msgspec.ValidationError as error:
        raise JournalDamaged(f"the journal has a line of another version: {error}") from None


def _damaged(offset: int, detail: str) -> JournalDamaged:
    return JournalDamaged(
        f"the journal is damaged at byte {offset}: {detail}; move it away to start without it",
        offset=offset,
    )


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _sync_directory(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
