"""The hosts of a rollout as bytes, one per host in the order of the plan, and their changes.

The page draws a square per byte. ``state_labels.GRID`` maps bytes to states. The hosts of a wave
are sorted by id, so that a host's place is found by binary search.
"""

from __future__ import annotations

from base64 import b64encode
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from struct import pack
from typing import Annotated, Any

from msgspec import Meta, Struct

from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries.log_reader import LogReader
from tidegate.dashboard.state_labels import GRID_CODES
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.hosts import facts as host_facts, states
from tidegate.domain.planner import Plan
from tidegate.domain.rollouts import facts as rollout_facts, names
from tidegate.kernel.model import Event
from tidegate.web import inputs, routing

UNORDERED = GRID_CODES["unordered"]
LEFT = GRID_CODES["left"]
SOAKING = GRID_CODES[states.HostState.SOAKING]
TYPES = frozenset({"HostJoined", "HostStateChanged", "HostSkipped", "OperatorClearance"})

RolloutId = Annotated[str, Meta(min_length=1, max_length=200)]


class RolloutPagePath(inputs.Input, frozen=True):
    rollout_id: RolloutId


class SquarePath(inputs.Input, frozen=True):
    rollout_id: RolloutId
    index: Annotated[int, Meta(ge=0, le=100_000)]


class GridChange(Struct, frozen=True):
    """The change of one square by an event; ``soak_due`` is set if the host began to soak."""

    index: int
    byte: int
    soak_due: datetime | None = None


def rollout_scope(request: routing.Request[Any, Any, Any]) -> str:
    """The scope of a rollout. Raises: InvalidInput: this is not the id of a rollout."""
    return channel_scope(names.channel_of(request.path.rollout_id))


class GridPlaces:
    """The place of each host of a plan in the grid."""

    def __init__(self, plan: Plan) -> None:
        self._waves = plan.waves
        self._starts: list[int] = []
        start = 0
        for wave in plan.waves:
            self._starts.append(start)
            start += len(wave.hosts)
        self.count = start

    def __call__(self, host_id: str, wave: int) -> int | None:
        """The place of a host; None: the plan does not have it in this wave, it joined later."""
        if not 0 <= wave < len(self._waves):
            return None
        hosts = self._waves[wave].hosts
        within = bisect_left(hosts, host_id)
        if within == len(hosts) or hosts[within] != host_id:
            return None
        return self._starts[wave] + within

    def all_places(self) -> dict[str, int]:
        """The places of all hosts, for callers that read all of them."""
        hosts = (host_id for wave in self._waves for host_id in wave.hosts)
        return {host_id: index for index, host_id in enumerate(hosts)}

    def span(self, wave: int) -> slice:
        """The places of a wave; empty: the plan has no such wave."""
        if not 0 <= wave < len(self._waves):
            return slice(0, 0)
        start = self._starts[wave]
        return slice(start, start + len(self._waves[wave].hosts))

    def soak(self, wave: int) -> timedelta:
        return timedelta(seconds=self._waves[wave].soak_seconds)

    def host(self, index: int) -> str | None:
        for start, wave in zip(self._starts, self._waves, strict=True):
            if start <= index < start + len(wave.hosts):
                return wave.hosts[index - start]
        return None


def places_of(fleet_reader: FleetReader, rollout_id: str) -> GridPlaces:
    """The places of a rollout's plan. Raises: RolloutUnknown, BlobMissing."""
    tally = fleet_reader.tally(rollout_id).row
    return GridPlaces(fleet_reader.chart(tally.plan_digest).plan)


def byte_of(state: str, left: bool, ordered: bool) -> int:
    """The byte of a square: skipped or waived first, then the state, then a withdrawn order."""
    if left:
        return LEFT
    return GRID_CODES[state] if ordered else UNORDERED


# ── changes ───────────────────────────────────────────────────────────────────────────────────────


def changes(log: LogReader, places: GridPlaces, events: Iterable[Event]) -> list[GridChange]:
    """What these events of one rollout changed in its squares, in order."""
    found: list[GridChange] = []
    for event in events:
        if event.type in TYPES:
            found += _changes(log.value(event), places)
    return found


def _changes(fact: Struct, places: GridPlaces) -> Iterator[GridChange]:
    match fact:
        case host_facts.HostJoined(late=False, host_id=host_id, wave=wave):
            moved = [(host_id, wave, GRID_CODES[states.HostState.PENDING])]
        case host_facts.HostStateChanged(late=False, host_id=host_id, wave=wave, to=to):
            taken_back = fact.from_ is states.HostState.PENDING and to is states.HostState.PENDING
            moved = [(host_id, wave, byte_of(to, fact.left, not taken_back))]
        case host_facts.HostSkipped(host_id=host_id, wave=wave):
            moved = [(host_id, wave, LEFT)]
        case rollout_facts.OperatorClearance(hosts=hosts):
            moved = [(host.host_id, host.wave, LEFT) for host in hosts]
        case _:
            return
    for host_id, wave, byte in moved:
        index = places(host_id, wave)
        if index is None:
            continue
        due = None
        if isinstance(fact, host_facts.HostStateChanged) and byte == SOAKING:
            due = fact.at + places.soak(wave)
        yield GridChange(index, byte, due)


def encode_changes(position: int, found: Iterable[GridChange]) -> bytes:
    """Encode changes as a line of text: position, end of the last soak, index and byte of each."""
    listed = [*found]
    due = max((item.soak_due for item in listed if item.soak_due is not None), default=None)
    words = pack(f"<{len(listed)}I", *(item.index << 8 | item.byte for item in listed))
    at = b"-" if due is None else due.isoformat().encode()
    return b"%d %b %b" % (position, at, b64encode(words))
