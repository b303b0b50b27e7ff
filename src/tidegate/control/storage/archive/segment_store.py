"""The storage of an archive: a directory or a bucket of segments, each written atomically.

    0000000000002048-0000000000002911.jsonl
    start of the range  last position in it

The name says which part of the log is inside. So two archivers that write the same name write the
same bytes, and a slow one that read less of the log writes another name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, Final, Protocol

import msgspec

from tidegate.errors import InvalidInput, NotFound, Unavailable
from tidegate.kernel.model import POSITION_MAX, Position

DIGITS: Final = len(str(POSITION_MAX))  # fixed, so that names sort in the order of the log
FORMAT: Final = 2  # an archive contains a log, so this grows with LOG_FORMAT
CHUNK_BYTES: Final = 1024 * 1024

_NAME = re.compile(rf"([0-9]{{{DIGITS}}})-([0-9]{{{DIGITS}}})\.jsonl")


class ArchiveForeign(Unavailable):
    """Another log, or ranges of another size, are archived there; choose another place."""

    code = "archive_foreign"

    def __init__(self, where: str, found: str, wanted: str) -> None:
        super().__init__(f"{where} holds {found}, not {wanted}", found=found, wanted=wanted)


class ArchiveUnavailable(Unavailable):
    """The archive could not be read or written; its position did not change."""

    code = "archive_unavailable"


class SegmentMissing(NotFound):
    """The archive has no segment of this name."""

    code = "segment_missing"

    def __init__(self, label: SegmentName) -> None:
        super().__init__(f"there is no segment {label}", segment=str(label))


class SegmentName(msgspec.Struct, frozen=True, order=True):
    """A segment's name: the start of its range of positions, and the last position in it."""

    start: Position
    last: Position

    def __str__(self) -> str:
        return f"{self.start:0{DIGITS}}-{self.last:0{DIGITS}}.jsonl"


class ArchiveClaim(msgspec.Struct, frozen=True):
    """The first thing written to a place: the log that it archives, and the size of ranges."""

    log: str
    range: int  # positions per segment
    format: int = FORMAT

    def text(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"


class SegmentStore(Protocol):
    """Stores segments by name. Every method raises ArchiveUnavailable."""

    def claim(self, claim: ArchiveClaim) -> None:
        """Claim the place for a log, or check that it is claimed. Raises: ArchiveForeign."""
        ...

    def write(self, label: SegmentName, content: IO[bytes]) -> None:
        """Store the content durably under this name; replace what is there."""
        ...

    def read(self, label: SegmentName) -> Iterator[bytes]:
        """Yield the content in pieces. Raises: SegmentMissing, with the first piece."""
        ...

    def names(self, start: Position | None = None) -> Iterator[str]:
        """Yield all names in the place of segments, or those of one range."""
        ...

    def remove(self, label: SegmentName) -> None:
        """Delete a segment. It need not exist."""
        ...


def parse_segment_name(name: str) -> SegmentName | None:
    """Parse a name; None: not the name of a segment, so the file is not part of the archive."""
    found = _NAME.fullmatch(name)
    return None if found is None else SegmentName(int(found[1]), int(found[2]))


def prefix_of(start: Position | None) -> str:
    """Return the prefix of all names of a range."""
    return "" if start is None else f"{start:0{DIGITS}}-"


def check_claim(where: str, found: bytes, wanted: ArchiveClaim) -> None:
    """Raises: ArchiveForeign."""
    if found != wanted.text():
        raise ArchiveForeign(where, found.decode(errors="replace").strip(), wanted.text().decode())


def check_range_size(positions: object) -> None:
    """Raises: InvalidInput."""
    if type(positions) is not int or not 1 <= positions <= POSITION_MAX:
        raise InvalidInput(f"a segment covers 1 … {POSITION_MAX} positions, found {positions!r}")
