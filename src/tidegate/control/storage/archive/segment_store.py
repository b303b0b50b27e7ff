"""Where an archive lies: a directory or a bucket of segments, each whole or not there at all.

    0000000000002048-0000000000002911.jsonl
    start of the range  last position in it

The name says which part of the log is inside, so two archivers that write one name write the same
bytes, and a late one that saw less of the log writes a shorter name beside the longer one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, Final, Protocol

import msgspec

from tidegate.errors import InvalidInput, NotFound, Unavailable
from tidegate.kernel.model import POSITION_MAX, Position

DIGITS: Final = len(str(POSITION_MAX))  # fixed, so that order by name is order in the log
FORMAT: Final = 2  # an archive holds a log: raised with LOG_FORMAT
CHUNK_BYTES: Final = 1024 * 1024

_NAME = re.compile(rf"([0-9]{{{DIGITS}}})-([0-9]{{{DIGITS}}})\.jsonl")


class ArchiveForeign(Unavailable):
    """Another log, or ranges of another size, are archived there; choose another place."""

    code = "archive_foreign"

    def __init__(self, where: str, found: str, wanted: str) -> None:
        super().__init__(f"{where} holds {found}, not {wanted}", found=found, wanted=wanted)


class ArchiveUnavailable(Unavailable):
    """The place of the archive did not take or give a segment; nothing was counted as archived."""

    code = "archive_unavailable"


class SegmentMissing(NotFound):
    """The archive has no segment of this name."""

    code = "segment_missing"

    def __init__(self, label: SegmentName) -> None:
        super().__init__(f"there is no segment {label}", segment=str(label))


class SegmentName(msgspec.Struct, frozen=True, order=True):
    """What a segment holds: the events of one range of positions, up to ``last``."""

    start: Position
    last: Position

    def __str__(self) -> str:
        return f"{self.start:0{DIGITS}}-{self.last:0{DIGITS}}.jsonl"


class ArchiveClaim(msgspec.Struct, frozen=True):
    """The first thing written to a place: whose archive this is and how it is cut."""

    log: str
    range: int  # positions per segment
    format: int = FORMAT

    def text(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"


class SegmentStore(Protocol):
    """Keeps segments by name. Every method raises ArchiveUnavailable."""

    def claim(self, claim: ArchiveClaim) -> None:
        """Make the place ours, or see that it is. Raises: ArchiveForeign."""
        ...

    def write(self, label: SegmentName, content: IO[bytes]) -> None:
        """Keep the content under this name, over whatever stands there; durable on return."""
        ...

    def read(self, label: SegmentName) -> Iterator[bytes]:
        """The content in pieces. Raises: SegmentMissing, with the first of them."""
        ...

    def names(self, start: Position | None = None) -> Iterator[str]:
        """Everything that lies among the segments, or what begins with this range."""
        ...

    def remove(self, label: SegmentName) -> None:
        """No such segment; it is no fault if there was none."""
        ...


def parse_segment_name(name: str) -> SegmentName | None:
    """What this name says; None: it is no name of a segment, so the file is not ours."""
    found = _NAME.fullmatch(name)
    return None if found is None else SegmentName(int(found[1]), int(found[2]))


def prefix_of(start: Position | None) -> str:
    """How the names of a range begin."""
    return "" if start is None else f"{start:0{DIGITS}}-"


def check_claim(where: str, found: bytes, wanted: ArchiveClaim) -> None:
    """Raises: ArchiveForeign."""
    if found != wanted.text():
        raise ArchiveForeign(where, found.decode(errors="replace").strip(), wanted.text().decode())


def check_range_size(positions: object) -> None:
    """Raises: InvalidInput."""
    if type(positions) is not int or not 1 <= positions <= POSITION_MAX:
        raise InvalidInput(f"a segment covers 1 … {POSITION_MAX} positions, found {positions!r}")
