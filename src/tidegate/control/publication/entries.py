"""The types of publications: policy, current entry, and how a reader got it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from tidegate.domain.publication.rows import Pointer
from tidegate.errors import InvalidInput
from tidegate.kernel.model import Position

WAIT_SECONDS_MAX: Final = 60
POLL_SECONDS_MIN: Final = 0.001

Render = Callable[[], bytes]


class ServedState(StrEnum):
    """How a reader got its body."""

    HIT = "hit"  # it was fresh
    MISS = "miss"  # this reader rendered it
    WAIT_HIT = "wait-hit"  # another process rendered it meanwhile
    STALE = "stale"  # the old one: another process is rendering, or rendering failed
    STALE_METADATA_ERROR = "stale-metadata-error"  # the store failed: the last known one


@dataclass(frozen=True, slots=True)
class PublicationEntry:
    """A current publication: its row META, the version of that row, and the body."""

    pointer: Pointer
    version: Position
    body: bytes


@dataclass(frozen=True, slots=True)
class Served:
    """What a reader gets, with details for its caller's metrics."""

    state: ServedState
    entry: PublicationEntry
    contended: bool = False  # another process had the lease
    failure: Exception | None = None  # why rendering failed, if the body is stale


@dataclass(frozen=True, slots=True)
class PublicationPolicy:
    """How a publication is rendered and cached. docs/design/publication.md explains the numbers."""

    revalidate_seconds: int = 60
    lease_seconds: float = 5.0
    wait_seconds: float = 7.0
    poll_seconds: float = 0.025
    waits: bool = True  # wait while another process renders; else serve the old body at once
    serves_stale: bool = True  # if nothing newer can be had; else the error is raised
    versioned: bool = False  # recipe B
    retention: timedelta | None = None  # the ttl of META, counted from its generation

    def __post_init__(self) -> None:
        if self.poll_seconds < POLL_SECONDS_MIN or not 0 <= self.wait_seconds <= WAIT_SECONDS_MAX:
            raise InvalidInput(
                f"wait_seconds is 0 … {WAIT_SECONDS_MAX} and poll_seconds at least "
                f"{POLL_SECONDS_MIN}, found {self.wait_seconds} and {self.poll_seconds}"
            )

    @property
    def polls(self) -> int:
        return round(self.wait_seconds / self.poll_seconds)


@dataclass(frozen=True, slots=True)
class RegenerationKey:
    """A request that must have one result, however often it is sent."""

    key: str
    content_hash: str


DEFAULT: Final = PublicationPolicy()
