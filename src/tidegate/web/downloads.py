"""Bodies that are sent piece by piece, whole or in part (RFC 9110 §14).

    Range: bytes=100-        ──▶ 206, from there to the end
    If-Range: "<etag>"       ──▶ the part only if the body is still this one, else all of it
    Range past the end       ──▶ 416

One range is served. A request for several ranges, or in another unit, gets all of it: that is
always allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.web.problems import RangeNotSatisfiable

_RANGE = re.compile(rb"bytes[ \t]*=[ \t]*([0-9]{0,20})-([0-9]{0,20})[ \t]*", re.IGNORECASE)


class ByteRange(NamedTuple):
    """Bytes from ``start`` up to, and without, ``stop``."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Download:
    """A body whose bytes are read while it is sent.

    ``read`` gives the bytes from a start to a stop in pieces. It and its pieces are asked for in a
    thread. What is missing should be noticed by the call, not by the first piece.
    """

    size: int
    read: Callable[[int, int], Iterator[bytes]]


def select_range(
    wanted: bytes | None, condition: bytes | None, size: int, etag: str | None
) -> ByteRange | None:
    """The part that a request asks for by Range and If-Range; None: all of it.

    Raises:
        RangeNotSatisfiable: the body has no byte of that part.
    """
    found = None if wanted is None else _RANGE.fullmatch(wanted.strip())
    if found is None or not (found[1] or found[2]):
        return None
    # Only a strong ETag proves that the bytes are the same; a date does not, and we send none.
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
