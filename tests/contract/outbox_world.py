"""A registry with an outbox, receivers that keep a journal, and workers that die."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from msgspec import Struct

from tests.contract.address import Address
from tidegate.clock import Clock, ManualClock, system_clock
from tidegate.control.outbox.sender import OutboxSender
from tidegate.control.outbox.targets import Effect, Target, TargetDone, TargetFailed
from tidegate.control.queries.outbox_reader import OutboxReader
from tidegate.control.runtime import Control
from tidegate.domain.outbox import declarations as outbox
from tidegate.domain.outbox.documents import OutboxDocument
from tidegate.domain.outbox.facts import IntentRequested, request_intent
from tidegate.domain.outbox.names import intent_id
from tidegate.domain.outbox.reconciliation import Observation
from tidegate.domain.outbox.rows import QUEUES, Queue
from tidegate.domain.outbox.slices import RequestEffect, request_effect
from tidegate.domain.provenance import Confidence, Evidence, Mode, Provenance
from tidegate.domain.releases import (
    facts as registry_facts,
    folds as registry_folds,
    rows as releases_rows,
)
from tidegate.domain.releases.facts import PinStatus, ReleaseRegistered, ReleaseTransitioned
from tidegate.domain.releases.rows import Actual, actual_key
from tidegate.engines.memory import MemoryStore
from tidegate.errors import TidegateError
from tidegate.kernel import codec
from tidegate.kernel.folds import Folds
from tidegate.kernel.leases import LEASES
from tidegate.kernel.model import Commit, Delete, Event, Position, Put, Receipt
from tidegate.kernel.replay import differences
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Schema, Store
from tidegate.kernel.vocabulary import Vocabulary

T0 = datetime(2026, 4, 24, 19, 0, tzinfo=UTC)
DIGEST = "sha256:" + "ab" * 32
OPERATIONS = ("lambda_alias_update", "dns_update", "notify")
ROUNDS_MAX = 2_000
PAUSE_SECONDS = 0.01
FEED_MAX = 10_000


# ── a change with operations to send ──────────────────────────────────────────────────────────────


class Pin(Struct, frozen=True, kw_only=True):
    """Pins a scope and adds the operations to the outbox; it checks no evidence."""

    scope: str
    release_id: str
    command_id: str
    operations: tuple[str, ...] = ()
    state: dict[str, Any] | None = None


def decide_pin(rows: tuple[Actual | None], command: Pin, now: datetime) -> Sequence[Struct]:
    (actual,) = rows
    version = 0 if actual is None else actual.version + 1
    said: dict[str, Any] = {
        "scope": command.scope,
        "command_id": command.command_id,
        "request": command.command_id,
        "by": "user_1",
        "recorded_at": now,
        "release_id": command.release_id,
        "digest": DIGEST,
        "status": PinStatus.ACTIVE,
        "provenance": provenance(command.scope, command.release_id),
        "confidence": Confidence("high", ("operator_command_authority",)),
    }
    changed = (
        ReleaseRegistered(**said)
        if actual is None
        else ReleaseTransitioned(**said, version=version, moved_from=actual.pinned_release_id)
    )
    state = command.state or {"releaseId": command.release_id, "status": "active", "digest": DIGEST}
    owed = (
        request_intent(
            scope=command.scope,
            operation=operation,
            release_id=command.release_id,
            version=version,
            command_id=command.command_id,
            state=state,
            now=now,
        )
        for operation in command.operations
    )
    return (changed, *owed)


def provenance(scope: str, release_id: str) -> Provenance:
    ref = f"operator://deploy/{scope}/{release_id}"
    at = "2026-04-24T19:00:00Z"
    evidence = Evidence("operator_command", "release-control-plane", ref, at)
    system = "release-control-plane"
    return Provenance(Mode.NATIVE, system, "operator_command", ref, at, at, (evidence,))


pin = Slice(
    name="pin",
    command=Pin,
    writes=(ReleaseRegistered, ReleaseTransitioned, IntentRequested),
    rows=lambda command: (actual_key(command.scope),),
    decide=decide_pin,
)

SCHEMA = Schema(
    Vocabulary((*registry_facts.FACTS, *outbox.FACTS), (pin, *outbox.SLICES)),
    (*releases_rows.COLLECTIONS, *outbox.COLLECTIONS, LEASES),
)
FOLDS = Folds(SCHEMA, (*registry_folds.FOLDS, *outbox.FOLDS))


# ── one process: a control, its clock, and its requests ───────────────────────────────────────────


def direct_writer(store: Store) -> Callable[[Commit], Future[Receipt]]:
    """A writer without a thread: an error raised during its commit is raised in its caller."""

    def submit(commit: Commit) -> Future[Receipt]:
        future: Future[Receipt] = Future()
        (outcome,) = store.commit(commit)
        if isinstance(outcome, TidegateError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
        return future

    return submit


@dataclass(frozen=True, slots=True)
class OutboxWorld:
    """One process's view of the log."""

    store: Store
    control: Control
    clock: ManualClock

    def pin(
        self, release_id: str, *operations: str, scope: str = "web", command_id: str = ""
    ) -> None:
        """Pin the scope, and add these operations in the same commit."""
        id = command_id or f"c-{release_id}"
        command = Pin(scope=scope, release_id=release_id, command_id=id, operations=operations)
        self.control.execute(pin, command)

    def request(self, operation: str, *, scope: str = "web", release_id: str = "web.1") -> None:
        """Add one operation by itself."""
        command = RequestEffect(
            scope=scope,
            operation=operation,
            release_id=release_id,
            version=1,
            command_id=f"c-{release_id}",
            requested_state={"releaseId": release_id},
            by="user_1",
        )
        self.control.execute(request_effect, command)

    def worker(self, targets: Mapping[str, Target], **settings: Any) -> OutboxSender:
        settings.setdefault("jitter", lambda: 1.0)
        return OutboxSender(self.control, targets, **settings)

    def advance(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    def shown(
        self, operation: str, release_id: str = "web.1", scope: str = "web"
    ) -> OutboxDocument:
        return OutboxReader(self.store).find(intent(operation, release_id, scope))

    def types(self, after: Position = 0) -> list[str]:
        """Return the types of all events after a position, in order."""
        return [event.type for event in self.events(after)]

    def events(self, after: Position = 0) -> tuple[Event, ...]:
        return self.store.feed(after=after, limit=FEED_MAX).events

    def head(self) -> Position:
        events = self.events()
        return events[-1].position if events else 0

    def prove(self) -> None:
        """Check that every row is exactly what the log gives."""
        assert differences(self.store, FOLDS) == []


def intent(operation: str, release_id: str = "web.1", scope: str = "web") -> str:
    return intent_id(scope, operation, release_id, f"c-{release_id}")


def outbox_world_on(store: Store, clock: Clock | None = None) -> OutboxWorld:
    manual = ManualClock(T0)
    return OutboxWorld(
        store, Control(store, FOLDS, direct_writer(store), clock=clock or manual), manual
    )


@contextmanager
def opened(address: Address | None) -> Iterator[Store]:
    store: Store = MemoryStore(SCHEMA) if address is None else address.open(SCHEMA)
    with closing(store):
        yield store


def pending(store: Store) -> list[str]:
    """Return the scopes that still have pending operations."""
    records = store.range(QUEUES.name, limit=100)
    return [item.key.id for item in records if codec.decode(item.data, Queue).waiting]


# ── a receiver that outlives its callers ──────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class JournalTarget:
    """Appends each call to a file. With ``stubborn``, the first call of each key fails."""

    path: str
    stubborn: bool = False
    name: str = "journal"
    timeout_seconds: float = 1.0

    def perform(self, key: str, effect: Effect) -> TargetDone | TargetFailed:
        first = key not in self.keys()
        note = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(note, f"{key}\n".encode())
        finally:
            os.close(note)
        return TargetFailed("not yet") if first and self.stubborn else TargetDone()

    def observe(self, scope: str, operation: str) -> Observation | None:
        return None

    def keys(self) -> list[str]:
        """Return the keys of all calls so far, in order."""
        if not os.path.exists(self.path):
            return []
        with open(self.path) as journal:
            return journal.read().split()


# ── dying between two steps ───────────────────────────────────────────────────────────────────────


class Point(StrEnum):
    """Where a worker dies."""

    BEFORE_CLAIM = "before the claim"
    AFTER_CLAIM = "after the claim, before the effect"
    AFTER_EFFECT = "after the effect, before its outcome is sent"
    BEFORE_RECORD = "while the outcome is being recorded, before it landed"
    AFTER_RECORD = "after the outcome landed, before its answer"
    BEFORE_RELEASE = "before the release"
    AFTER_RELEASE = "after the release"


class Killed(BaseException):
    """The death of a worker that runs in this process."""


Die = Callable[[], None]


class DyingStore:
    """A store whose process ends at a given point."""

    def __init__(self, store: Store, point: Point, die: Die) -> None:
        self._store = store
        self._point = point
        self._die = die

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, *commits: Commit) -> tuple[Receipt | TidegateError, ...]:
        before, after = _points(commits[0])
        if self._point is before:
            self._die()
        outcomes = self._store.commit(*commits)
        if self._point is after:
            self._die()
        return outcomes


def _points(commit: Commit) -> tuple[Point, Point]:
    if commit.facts:
        return Point.BEFORE_RECORD, Point.AFTER_RECORD
    match commit.writes[0]:
        case Put():
            return Point.BEFORE_CLAIM, Point.AFTER_CLAIM
        case Delete():
            return Point.BEFORE_RELEASE, Point.AFTER_RELEASE
        case _:
            raise AssertionError("a worker makes no other commits")


@dataclass(frozen=True, slots=True)
class DyingTarget:
    """A target whose caller ends right after the effect."""

    target: JournalTarget
    die: Die
    name: str = "dying"
    timeout_seconds: float = 1.0

    def perform(self, key: str, effect: Effect) -> TargetDone | TargetFailed:
        self.target.perform(key, effect)
        self.die()
        raise AssertionError("it should be dead")

    def observe(self, scope: str, operation: str) -> Observation | None:
        return None


def work_and_die(store: Store, point: Point, journal: str, die: Die, clock: Clock) -> None:
    """Run one round of a worker that dies at the point."""
    receiver = JournalTarget(journal)
    target: Target = DyingTarget(receiver, die) if point is Point.AFTER_EFFECT else receiver
    dying: Any = DyingStore(store, point, die)
    control = Control(dying, FOLDS, direct_writer(dying), clock=clock)
    OutboxSender(control, dict.fromkeys(OPERATIONS, target)).work()


def kill_me() -> None:
    os._exit(9)


def raise_killed() -> None:
    raise Killed


def die_in_child(address: Address, point: Point, journal: str) -> None:
    """Do the same in a process of its own, which ends without cleaning up."""
    work_and_die(address.open(SCHEMA), point, journal, kill_me, lambda: T0)


# ── two at once ───────────────────────────────────────────────────────────────────────────────────


def drain(address: Address, journal: str) -> int:
    """Work until no operation is pending. Return how many attempts were made."""
    with opened(address) as store:
        return drain_on(store, journal)


def drain_on(store: Store, journal: str) -> int:
    made = 0
    target = JournalTarget(journal, stubborn=True)
    control = Control(store, FOLDS, direct_writer(store), clock=system_clock)
    worker = OutboxSender(control, dict.fromkeys(OPERATIONS, target), jitter=lambda: 0.01)
    for _ in range(ROUNDS_MAX):
        attempted = worker.work()
        made += len(attempted)
        if not attempted:
            if not pending(store):
                return made
            time.sleep(PAUSE_SECONDS)
    raise AssertionError("something is owed still")
