"""Publications on a test's log: the schema, a publisher, and the work of racing and dying
publishers.

These are plain functions of an address, so that spawned processes can run them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, cast

import msgspec

from tests.contract.address import Address
from tidegate.clock import Clock, ManualClock, system_clock
from tidegate.control.publication.entries import PublicationPolicy, Render
from tidegate.control.publication.publisher import Publisher
from tidegate.control.runtime import Control
from tidegate.control.storage.blobs.files import FileBlobs
from tidegate.domain.publication import declarations as publication
from tidegate.domain.publication.rows import Pointer, lock_key, meta_key, pk_of
from tidegate.engines.group_commit import GroupCommit
from tidegate.engines.memory import MemoryStore
from tidegate.errors import TidegateError, Unavailable
from tidegate.kernel import codec
from tidegate.kernel.folds import Folds
from tidegate.kernel.leases import LEASES, HeldLease, Lease
from tidegate.kernel.model import Commit, Key, Receipt, Record
from tidegate.kernel.store import Schema, Store
from tidegate.kernel.vocabulary import Vocabulary

SCHEMA = Schema(
    Vocabulary(publication.FACTS, publication.SLICES), (*publication.COLLECTIONS, LEASES)
)
FOLDS = Folds(SCHEMA, publication.FOLDS)
T0 = datetime(2026, 4, 24, 12, tzinfo=UTC)
LOG = "log-of-these-tests"
PAGE = "/index.html"
PK = pk_of(PAGE)
META_KEY = meta_key(PK)
LOCK_KEY = lock_key(PK)
KILLED = 9
LEASE_SECONDS = 30.0
IN_PLACE = PublicationPolicy()
VERSIONED = PublicationPolicy(versioned=True)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def numbered() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"tok{next(numbers)}"


class Watched:
    """A store that records its commits and can run a function around the next one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.schema = store.schema
        self.commits: list[Commit] = []
        self.meanwhile: Callable[[], object] | None = None  # runs once, before the next commit
        self.afterwards: Callable[[], object] | None = None  # once, after it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, *commits: Commit) -> tuple[Receipt | TidegateError, ...]:
        self.commits += commits
        before, self.meanwhile = self.meanwhile, None
        if before is not None:
            before()
        answers = self._store.commit(*commits)
        after, self.afterwards = self.afterwards, None
        if after is not None:
            after()
        return answers


@dataclass(frozen=True, slots=True)
class Publishing:
    """All that a test needs to publish and to inspect the result."""

    store: Store
    watched: Watched
    control: Control
    blobs: FileBlobs
    publisher: Publisher
    clock: ManualClock

    def meta(self) -> Pointer | None:
        record = self.record(META_KEY)
        return None if record is None else codec.decode(record.data, Pointer)

    def lock(self) -> Lease | None:
        record = self.record(LOCK_KEY)
        return None if record is None else codec.decode(record.data, Lease)

    def record(self, key: Key) -> Record | None:
        return self.store.get(key)[0]

    def members(self, key: Key) -> dict[str, Any]:
        """Return the row as it is stored."""
        record = self.record(key)
        assert record is not None
        found: dict[str, Any] = msgspec.json.decode(record.data)
        return found

    def acquire(self) -> HeldLease:
        lease = self.publisher.try_acquire(PAGE, LEASE_SECONDS)
        assert lease is not None
        return lease

    def publish(self, body: str, policy: PublicationPolicy = IN_PLACE, **options: Any) -> HeldLease:
        """Publish with all guards, at the time of the clock."""
        lease = self.acquire()
        options = {"generated_at": self.clock.now} | options
        self.publisher.publish(PAGE, lease, body.encode(), policy, **options)
        return lease


@contextmanager
def publishing_at(store: Store, blobs: FileBlobs, clock: ManualClock) -> Iterator[Publishing]:
    watched = Watched(store)
    with closing(GroupCommit(cast(Store, watched))) as writer:
        control = Control(cast(Store, watched), FOLDS, writer.submit, clock=clock)
        publisher = Publisher(control, blobs, tokens=numbered(), sleep=lambda seconds: None)
        yield Publishing(store, watched, control, blobs, publisher, clock)


@contextmanager
def publisher_at(store: Store, home: Path, clock: Clock = system_clock) -> Iterator[Publisher]:
    with closing(GroupCommit(store)) as writer:
        yield Publisher(Control(store, FOLDS, writer.submit, clock=clock), FileBlobs(home, LOG))


def connector(address: Address | None) -> Callable[[], Store]:
    """Return a function that opens handles on one log. For memory it returns one object."""
    if address is None:
        store = MemoryStore(SCHEMA)
        return lambda: store
    return lambda: address.open(SCHEMA)


# ── racers ────────────────────────────────────────────────────────────────────────────────────────


def publish_with_one_lease(store: Store, home: Path, token: str, body: str) -> str:
    """Publish under a lease that others use at the same time. Return "published" or the refusal."""
    with publisher_at(store, home, lambda: T0) as publisher:
        lease = held(store, token)
        try:
            publisher.publish(PAGE, lease, body.encode(), generated_at=at(int(body)))
        except TidegateError as refusal:
            return refusal.code
        return "published"


def publish_at(address: Address, home: Path, token: str, body: str) -> str:
    """Do the same as ``publish_with_one_lease``, in a process with a handle of its own."""
    with closing(address.open(SCHEMA)) as store:
        return publish_with_one_lease(store, home, token, body)


def held(store: Store, token: str) -> HeldLease:
    """Return the lease as its holder knows it, however it was acquired."""
    (record,) = store.get(LOCK_KEY)
    return HeldLease(LOCK_KEY, token, T0, 0 if record is None else record.version)


# ── publishers that die ───────────────────────────────────────────────────────────────────────────


class Killed(BaseException):
    """Stands in for the death of the process where the log lives in the process itself."""


class Countdown:
    """Kills at the n-th step and at each later step, because a dead process cleans nothing up."""

    def __init__(self, steps: int, kill: Callable[[], object]) -> None:
        self.left = steps
        self._kill = kill

    def __call__(self, *_: object) -> None:
        if self.left <= 0:
            self._kill()
        self.left -= 1


class MortalStore:
    """Dies before or after a commit, or before a read."""

    def __init__(self, store: Store, step: Countdown) -> None:
        self._store = store
        self._step = step
        self.schema = store.schema

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, *keys: Key) -> tuple[Record | None, ...]:
        self._step()
        return self._store.get(*keys)

    def commit(self, *commits: Commit) -> tuple[Receipt | TidegateError, ...]:
        self._step()
        answers = self._store.commit(*commits)
        self._step()
        return answers


class Direct:
    """Commits in the calling thread, so that a death there is the death of the caller."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __call__(self, commit: Commit) -> Any:
        future: Future[Receipt] = Future()
        (answer,) = self._store.commit(commit)
        if isinstance(answer, Receipt):
            future.set_result(answer)
        else:
            future.set_exception(answer)
        return future


def publish_mortally(
    store: Store, home: Path, now: datetime, steps: int, kill: Callable[[], object], *, body: bytes
) -> None:
    """Regenerate the page and die at the given step, if it has that many steps."""
    step = Countdown(steps, kill)
    mortal = cast(Store, MortalStore(store, step))

    def sync(handle: int) -> None:
        step()
        os.fsync(handle)
        step()

    control = Control(mortal, FOLDS, Direct(mortal), clock=lambda: now)
    blobs = FileBlobs(home, LOG, clock=lambda: now, sync=sync)
    policy = PublicationPolicy(versioned=True, lease_seconds=5.0)
    Publisher(control, blobs).serve(PAGE, lambda: body, policy)


def die_at(address: Address, home: Path, now: datetime, steps: int, body: bytes) -> None:
    """Run the whole life of a child process that publishes."""
    with closing(address.open(SCHEMA)) as store:
        publish_mortally(store, home, now, steps, lambda: os._exit(KILLED), body=body)


def render(body: bytes) -> Render:
    """A renderer of this body."""
    return lambda: body


def fail() -> bytes:
    raise Unavailable("the renderer has no paper")
