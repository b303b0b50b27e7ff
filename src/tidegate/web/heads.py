"""Heads that came before: an agent's next request has the same, but for its proof and its length.

    POST /v1/agent/events HTTP/1.1                      as it was
    Host: …                                             whatever it says: nobody looks
    Authorization: Tidegate <session> <time> <mac>      told apart, and proved at the door
    Content-Length: …                                   must be what came
    Content-Type: application/json                      as it was

A head is learnt from a request that the parser read and the door let in. What fits one is read by
one expression in a fraction of the time; whatever fits none is for the parser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec import Struct

from tidegate.web.routing import RawRequest, Route

HEADS_MAX = 16  # agents of one version send one for each route

_NO_HEADERS: Final[Mapping[bytes, bytes]] = MappingProxyType({})
_END: Final = b"\r\n\r\n"
_LINE: Final = re.compile(rb"([!-9;-~]+:[ \t]*)([ -~]*)")
_PROOF: Final = re.compile(rb"([A-Za-z]+ )[!-~]+ [0-9]{1,12} [0-9a-f]{64}")

# What stands for a value; of every other header it is the value itself.
_PROVES: Final = rb"(?P<session>[!-~]+) (?P<time>[0-9]{1,12}) (?P<mac>[0-9a-f]{64})"
_COUNTS: Final = rb"(?P<length>[0-9]{1,5})"
_ANYTHING: Final = rb"[ -~]*"
_OVERLOOKED: Final = frozenset(
    {
        *(b"forwarded", b"host", b"user-agent", b"via", b"x-forwarded-for", b"x-forwarded-host"),
        *(b"x-forwarded-proto", b"x-real-ip"),
    }
)


class Known(Struct, frozen=True, gc=False):
    """A request with a head that is known, and what proves whose it is."""

    route: Route
    arrived: RawRequest  # without its headers
    proof: tuple[bytes, ...]  # session, time and MAC


class _Head(NamedTuple):
    head: re.Pattern[bytes]
    route: Route
    path: bytes
    length: int | None  # the group that tells how long the body is
    proof: tuple[int, int, int]  # the groups of session, time and MAC


class Heads:
    """The heads that are known to a process."""

    def __init__(self) -> None:
        self._known: list[_Head] = []

    def find(self, data: bytes) -> Known | None:
        """The request, if these bytes are all of it and its head is known."""
        for head, route, path, length, proof in self._known:
            found = head.match(data)
            if found is None:
                continue
            body = data[found.end() :]
            if (0 if length is None else int(found[length])) != len(body):
                return None
            arrived = RawRequest(route.method, path, b"", _NO_HEADERS, "", body)
            return Known(route, arrived, found.group(*proof))
        return None

    def learn(self, route: Route, data: bytes) -> None:
        """These bytes brought a plain request for this route, which was let in. Nothing is learnt
        if something else came with them, or not all of it.
        """
        begin = f"{route.method} {route.path} HTTP/1.1\r\n".encode()
        if not data.startswith(begin):
            return
        lines = data[len(begin) :].partition(_END)[0].split(b"\r\n")
        head = re.compile(re.escape(begin) + b"\r\n".join(map(_part, lines)) + _END)
        groups = head.groupindex
        if "mac" not in groups:
            return
        proof = groups["session"], groups["time"], groups["mac"]
        path = route.path.encode()
        self._known.append(_Head(head, route, path, groups.get("length"), proof))
        if self.find(data) is None:
            self._known.pop()
        elif len(self._known) > HEADS_MAX:
            del self._known[0]


def _part(line: bytes) -> bytes:
    """The expression for one line of a head."""
    found = _LINE.fullmatch(line)
    if found is None:
        return re.escape(line)
    begin, value = found.groups()
    name = begin.partition(b":")[0].lower()
    if name == b"authorization" and (proof := _PROOF.fullmatch(value)):
        return re.escape(begin + proof[1]) + _PROVES
    if name == b"content-length" and value.isdigit():
        return re.escape(begin) + _COUNTS
    return re.escape(begin) + (_ANYTHING if name in _OVERLOOKED else re.escape(value))
