"""A page is published in place and by versions, and four writers come too late.

    python -m examples.publication.app [url]

Bodies go to a temporary directory; the clock is the example's own, so that leases expire at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from tempfile import TemporaryDirectory

from tidegate.clock import ManualClock
from tidegate.control.publication.entries import PublicationPolicy
from tidegate.control.publication.publisher import Publisher
from tidegate.control.runtime import Control
from tidegate.control.storage.blobs.files import FileBlobs
from tidegate.domain.publication import declarations as publication
from tidegate.engines import connect
from tidegate.engines.group_commit import GroupCommit
from tidegate.errors import Conflict
from tidegate.kernel.folds import Folds
from tidegate.kernel.leases import LEASES, HeldLease
from tidegate.kernel.replay import differences
from tidegate.kernel.store import Schema, Store
from tidegate.kernel.vocabulary import Vocabulary

SCHEMA = Schema(
    Vocabulary(publication.FACTS, publication.SLICES), (*publication.COLLECTIONS, LEASES)
)
FOLDS = Folds(SCHEMA, publication.FOLDS)

NOON = datetime(2026, 4, 24, 12, tzinfo=UTC)
IN_PLACE = PublicationPolicy(revalidate_seconds=60)
VERSIONED = PublicationPolicy(revalidate_seconds=60, versioned=True)
LEASE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Newsroom:
    """The clock, the publisher and the readers of the pages."""

    store: Store
    publisher: Publisher
    clock: ManualClock

    def acquire(self, page: str) -> HeldLease:
        lease = self.publisher.try_acquire(page, LEASE_SECONDS)
        assert lease is not None, "no other process works here now"
        return lease

    def publish(
        self,
        page: str,
        lease: HeldLease,
        text: str,
        policy: PublicationPolicy,
        generated_at: datetime,
    ) -> None:
        """Publish, or print why not, and print what readers get in either case."""
        try:
            self.publisher.publish(page, lease, text.encode(), policy, generated_at=generated_at)
            outcome = "published"
        except Conflict as refusal:
            outcome = refusal.code
        print(f"{page} {text!r}: {outcome}; readers get {self.seen(page)!r}")

    def seen(self, page: str) -> str:
        entry = self.publisher.read(page)
        return "" if entry is None else entry.body.decode()

    def later(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))


@contextmanager
def newsroom(store: Store) -> Iterator[Newsroom]:
    """Open a newsroom on this log."""
    clock = ManualClock(NOON)
    with closing(GroupCommit(store)) as writer, TemporaryDirectory() as directory:
        control = Control(store, FOLDS, writer.submit, clock=clock)
        blobs = FileBlobs(directory, "the log of this example", clock=clock)
        yield Newsroom(store, Publisher(control, blobs), clock)


def in_place(room: Newsroom) -> None:
    """Recipe A: META is written and LOCK deleted, in one commit."""
    room.publish("/a", room.acquire("/a"), "first", IN_PLACE, room.clock())
    room.later(1)
    room.publish("/a", room.acquire("/a"), "second", IN_PLACE, room.clock())


def too_late(room: Newsroom) -> None:
    """Try an expired holder, one whose lease was stolen, and an older generation."""
    expired = room.acquire("/a")
    room.later(LEASE_SECONDS)
    room.publish("/a", expired, "expired", IN_PLACE, room.clock())

    stolen = room.acquire("/a")
    room.later(LEASE_SECONDS)
    heir = room.acquire("/a")
    room.publish("/a", stolen, "stolen", IN_PLACE, room.clock())
    room.publish("/a", heir, "third", IN_PLACE, room.clock())

    room.later(1)
    room.publish("/a", room.acquire("/a"), "older", IN_PLACE, NOON)
    room.later(LEASE_SECONDS)


def versioned(room: Newsroom) -> None:
    """Recipe B: a version row is written, META points to it; a rollback points to an older one."""
    for text in ("one", "two", "three"):
        room.later(1)
        room.publish("/b", room.acquire("/b"), text, VERSIONED, room.clock())
    first = next(id for id, _ in room.publisher.generations("/b"))
    room.later(1)
    room.publisher.roll_back("/b", first)
    print(f"/b rolled back to {first}; readers get {room.seen('/b')!r}")


def walk(room: Newsroom) -> None:
    in_place(room)
    too_late(room)
    versioned(room)
    print(f"generations of /b: {len(list(room.publisher.generations('/b')))}")
    print(f"differences after replay: {differences(room.store, FOLDS)}")


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "memory:"
    with closing(connect(address, SCHEMA)) as log, newsroom(log) as running:
        walk(running)
