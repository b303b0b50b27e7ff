"""Caches the grids of hosts that were shown, and updates them with the events since.

    first request    reads every record of the rollout       100,000 hosts: half a second
    later requests   read its events since the last request  a millisecond

A server reads the open rollouts when it starts.

A cached grid decides nothing and is never the only copy. It is dropped when others are shown, or
when there are so many new events that reading the records is cheaper.
"""

from __future__ import annotations

import zlib
from array import array
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from threading import Lock

from msgspec import Struct

from tidegate import decoders, errors, lru
from tidegate.api.feed.tail import Tail
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries.log_reader import LogReader
from tidegate.control.queries.reads import Reads
from tidegate.dashboard import grid_encoding, layout, state_labels
from tidegate.domain.access.roles import Verb
from tidegate.domain.hosts import rows, states
from tidegate.kernel.model import Clause, Match, Position, Query
from tidegate.web import inputs, routing

GRIDS_MAX = 8  # cached per process; one of 100,000 hosts takes about a megabyte
BEHIND_MAX = 5_000  # events to catch up with; if there are more, the records are read again
PAGE = 5_000
PACKED_FROM = 2_000  # bytes; neighbors are often in the same state, so they compress well
BYTES = "application/octet-stream"
SOAKING = state_labels.GRID_CODES[states.HostState.SOAKING]
_BAD = frozenset(
    {
        state_labels.GRID_CODES[states.HostState.FAILED],
        state_labels.GRID_CODES[states.HostState.REVERTED],
    }
)


class Square(Struct, frozen=True, gc=False):
    """What a square shows of a host's record. The state stays text, because there are many."""

    host_id: str
    state: str
    late: bool = False
    left: str | None = None
    cancelled_at: str | None = None
    soak_due_at: datetime | None = None


decoders.build(Square)
decoders.build(list[Square])  # decodes a page of rows in one call


class EncodedGrid(Struct, frozen=True):
    """A grid at one moment: a byte per host, and when the wave's last soak ends."""

    content: bytes
    soak_due: datetime | None = None


class Grid:
    """The squares of one rollout, up to a position of the log."""

    def __init__(self, places: grid_encoding.GridPlaces, position: Position) -> None:
        self.places = places
        self.position = position
        self.content = bytearray(places.count)
        # When the soak of each host ends, in seconds since 1970.
        self.dues = array("d", bytes(8 * places.count))

    def fill(self, reads: Reads, rollout_id: str) -> None:
        """Read the records. Events that arrive meanwhile come after ``position`` in the log."""
        all_places = self.places.all_places()
        content, dues = self.content, self.dues
        prefix = f"{rollout_id}/"
        for page in reads.views(rows.HOST_RECORDS, Square, prefix=prefix, page_rows=PAGE):
            for square in page:
                index = None if square.late else all_places.get(square.host_id)
                if index is None:
                    continue
                ordered = square.cancelled_at is None
                content[index] = grid_encoding.byte_of(
                    square.state, square.left is not None, ordered
                )
                if square.soak_due_at is not None:
                    dues[index] = square.soak_due_at.timestamp()

    def catch_up(self, log: LogReader, rollout_id: str) -> bool:
        """Apply the events since the last update; return False if there are too many."""
        tags = frozenset({f"rollout_id:{rollout_id}"})
        query = Query((Clause(grid_encoding.TYPES, tags, Match.EXACT),))
        events = log.events(query, after=self.position, limit=BEHIND_MAX)
        if len(events) == BEHIND_MAX:
            return False
        for change in grid_encoding.changes(log, self.places, events):
            self.content[change.index] = change.byte
            if change.soak_due is not None:
                self.dues[change.index] = change.soak_due.timestamp()
        if events:
            self.position = events[-1].position
        return True

    def encode(self, wave: int) -> EncodedGrid:
        """Encode the grid; the end of the soak is that of this wave."""
        span = self.places.span(wave)
        pairs = zip(self.content[span], self.dues[span], strict=True)
        due = max((at for byte, at in pairs if byte == SOAKING), default=0.0)
        soak_due = datetime.fromtimestamp(due, UTC) if due else None
        return EncodedGrid(bytes(self.content), soak_due)


class GridCache:
    """The grids that were shown last."""

    def __init__(self, fleet_reader: FleetReader, reads: Reads, log: LogReader) -> None:
        self._fleet_reader = fleet_reader
        self._reads = reads
        self._log = log
        self._grids: lru.LruCache[str, tuple[Lock, list[Grid]]] = lru.LruCache(GRIDS_MAX)

    def read_grid(self, rollout_id: str, head: Position) -> EncodedGrid:
        """The squares of a rollout. ``head``: the log's position before the request read anything.

        Raises:
            RolloutUnknown, BlobMissing.
        """
        tally = self._fleet_reader.tally(rollout_id).row
        lock, cached = self._grids.find_or_make(rollout_id, lambda: (Lock(), []))
        with lock:  # a second request waits for the first one to read, and reads nothing itself
            if not (cached and self._catch_up(cached[0], rollout_id)):
                grid = Grid(grid_encoding.places_of(self._fleet_reader, rollout_id), head)
                grid.fill(self._reads, rollout_id)
                cached[:] = [grid]
            return cached[0].encode(tally.current_wave)

    def _catch_up(self, grid: Grid, rollout_id: str) -> bool:
        try:
            return grid.catch_up(self._log, rollout_id)
        # A fact that this version cannot decode: a newer version wrote its row.
        except errors.InvalidInput:
            return False

    def warm_up(self) -> None:
        """Read open rollouts before the first request: the records of a large one take most of a
        second. Only where a read needs no round trip. Errors are left to the first request.
        """
        if not self._reads.is_local:
            return
        with suppress(errors.TidegateError):
            for rollout in islice(self._fleet_reader.open_rollouts(), GRIDS_MAX):
                self.read_grid(rollout.rollout_id, self._log.head())

    def find_troubled(self, rollout_id: str, head: Position, most: int) -> list[rows.HostRecord]:
        """Find at most ``most`` records of planned hosts that failed or rolled back, in plan order.

        They are found by their squares, so most records of a large rollout are not read.
        """
        encoded = self.read_grid(rollout_id, head)
        places = grid_encoding.places_of(self._fleet_reader, rollout_id)
        found = [index for index, byte in enumerate(encoded.content) if byte in _BAD][:most]
        names = [name for name in map(places.host, found) if name is not None]
        keys = ((rows.record_key(rollout_id, name), rows.HostRecord) for name in names)
        return [row.row for row in self._reads.find_all(*keys) if row is not None]


# ── routes ────────────────────────────────────────────────────────────────────────────────────────


def grid(
    request: routing.Request[grid_encoding.RolloutPagePath, inputs.Nothing, inputs.Nothing],
    tail: Tail,
    grids: GridCache,
) -> routing.Response:
    """Get every host's byte, at the position in the header or later."""
    position = tail.position  # read first, so that later events are sent again and none is lost
    encoded = grids.read_grid(request.path.rollout_id, position)
    headers = (
        {} if encoded.soak_due is None else {"tidegate-soak-due": encoded.soak_due.isoformat()}
    )
    content = encoded.content
    accepted = request.arrived.headers.get(b"accept-encoding", b"")
    if len(content) >= PACKED_FROM and b"deflate" in accepted:
        content = zlib.compress(content, 1)
        headers |= {"content-encoding": "deflate", "vary": "accept-encoding"}
    return routing.Response(content, media=BYTES, position=position, headers=headers)


def square(
    request: routing.Request[grid_encoding.SquarePath, inputs.Nothing, inputs.Nothing],
    fleet_reader: FleetReader,
) -> routing.Response:
    """Get the name of the host at a place of the grid."""
    host_id = grid_encoding.places_of(fleet_reader, request.path.rollout_id).host(
        request.path.index
    )
    if host_id is None:
        raise errors.NotFound(f"the plan has no host at {request.path.index}")
    return routing.Response(host_id.encode(), media="text/plain; charset=utf-8")


_READS = routing.requires(Verb.READ, grid_encoding.rollout_scope)
ROUTES = (
    routing.Route(
        "GET", "/rollouts/{rollout_id}/grid", grid, _READS, produces=BYTES, fails=layout.error_page
    ),
    routing.Route(
        "GET",
        "/rollouts/{rollout_id}/grid/{index}",
        square,
        _READS,
        produces="text/plain",
        fails=layout.error_page,
    ),
)
