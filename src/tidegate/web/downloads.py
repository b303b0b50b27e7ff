"""Bodies that are sent in pieces, whole or in part (RFC 9110 §14).

    Range: bytes=100-        ──▶ 206, from there to the end
    If-Range: "<etag>"       ──▶ the part only if the body has not changed, else all of it
    Range past the end       ──▶ 416

Only a single range is served. A request for several ranges, or in another unit, gets the whole
body, which is always allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.web.problems import RangeNotSatisfiable

_RANGE = re.compile(rb"bytes[ \t]*=[ \t]*([0-9]{0,20})-([0-9]{0,20})[ \t]*", re.IGNORECASE)


class ByteRange(NamedTuple):
    """Bytes from ``start`` up to but not including ``stop``."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Download:
    """A body that is read while it is sent.

    ``read`` returns the bytes between two offsets in pieces. It and the pieces run in a thread. The
    call itself should raise if something is missing, not the first piece.
    """

    size: int
    read: Callable[[int, int], Iterator[bytes]]


def select_range(
    wanted: bytes | None, condition: bytes | None, size: int, etag: str | None
) -> ByteRange | None:
    """The part that Range and If-Range ask for; None: all of it.

    Raises:
        RangeNotSatisfiable: the body has no byte in that part.
    """
    found = None if wanted is None else _RANGE.fullmatch(wanted.strip())
    if found is None or not (found[1] or found[2]):
        return None
    # Only a strong ETag proves that the bytes are the same. A date does not, and we send none.
    if condition is not None and (etag is None or condition.strip() != etag.encode()):
        return None
    if not found[1]:
        count = min(int(found[2]), size)
        part = ByteRange(size - count, size)
    else:
        first = int(found[1])
        last = int(found[2]) if found[2] else size - 1
        if found[2] and last < first:
            return None  # not a range
        part = ByteRange(first, min(last + 1, size))
    if part.start >= part.stop:
        raise RangeNotSatisfiable(
            f"The body has {size} bytes, and the range {found[0].decode()} has none of them.",
            size=size,
        )
    return part
