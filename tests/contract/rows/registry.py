"""One model under each write policy, and what each call may do.

The table restates the enforcement matrix call by call. Neither the kernel's own matrix nor its
verbs are used to build it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier
from typing import Annotated, Any

from msgspec import Struct

from tidegate.errors import OutcomeUnknown, TidegateError
from tidegate.kernel import codec
from tidegate.kernel.attributes import FieldRole
from tidegate.kernel.collections import Collection, Nature, Writers
from tidegate.kernel.leases import LEASES, Lease
from tidegate.kernel.model import ABSENT, Commit, EventPage, Key, Position, Put, Receipt, Record
from tidegate.kernel.records.actions import (
    Action,
    CheckRow,
    CreateRow,
    DeleteRow,
    PutRow,
    UpdateRow,
)
from tidegate.kernel.records.changes import Add, Append, Discard, IfAbsent, Prepend, Remove
from tidegate.kernel.records.conditions import Absent, Not
from tidegate.kernel.records.records import REPAIRS
from tidegate.kernel.records.write_policy import WriteMode, WritePolicy
from tidegate.kernel.store import Schema, Store
from tidegate.kernel.vocabulary import Vocabulary, facts

RACERS = 12
T0 = datetime(2026, 4, 24, 19, tzinfo=UTC)


class ReleasePinned(Struct, frozen=True):
    release_id: str


class Release(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One model for every policy, so that only the policy differs."""

    status: str = "active"
    pinned_release_id: str | None = None
    previous_release_id: str | None = None
    attempts: int = 0
    pinned_count: int = 0
    history: tuple[str, ...] = ()
    pinned_history: tuple[str, ...] = ()
    labels: frozenset[str] = frozenset()
    pinned_labels: frozenset[str] = frozenset()


class Actual(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A registry row with everything that the kernel fills in."""

    status: str
    pinned_release_id: str
    previous_release_id: str | None = None
    scope: Annotated[str, FieldRole.ID] = ""
    version: Annotated[int, FieldRole.VERSION] = 0
    created_at: Annotated[datetime | None, FieldRole.CREATED_AT] = None
    updated_at: Annotated[datetime | None, FieldRole.UPDATED_AT] = None
    ttl: Annotated[int | None, FieldRole.TTL] = None


class Occurrence(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A row of history."""

    release_id: str
    event_type: str
    ttl: Annotated[int | None, FieldRole.TTL] = None


class Swapped(
    Struct, frozen=True, rename={"protected_value": "authority", "authority": "description"}
):
    """Two fields whose stored names are swapped."""

    protected_value: str
    authority: str


class Metadata(Struct, frozen=True, omit_defaults=True):
    """The pointer row META of a publication."""

    s3_key: str
    generated_at: datetime
    revalidate_seconds: int = 60
    etag: str = ""


PINS = WritePolicy(
    protected_attributes=("pinned_release_id", "pinnedCount", "pinnedHistory", "pinned_labels")
)
SCHEMA = Schema(
    Vocabulary((*facts("release", ReleasePinned), *REPAIRS)),
    (
        Collection("plain", Release),
        Collection("guarded", Release, policy=PINS),
        Collection(
            "once", Release, policy=WritePolicy(WriteMode.WRITE_ONCE, PINS.protected_attributes)
        ),
        Collection("folded", Release, writers=Writers.FOLDED, nature=Nature.DERIVED, policy=PINS),
        Collection("actual", Actual, policy=WritePolicy(protected_attributes=("pinnedReleaseId",))),
        Collection("free", Actual),
        Collection("occurrences", Occurrence, policy=WritePolicy(WriteMode.WRITE_ONCE)),
        Collection("swapped", Swapped, policy=WritePolicy(protected_attributes=("authority",))),
        Collection("pages", Metadata),
        LEASES,
    ),
)

FIRST = Release(pinned_release_id="rel_001", history=("a",), labels=frozenset({"x"}))
NEXT = Release(status="warming", pinned_release_id="rel_002")

# I immutable · P protected · C only where no row is yet · ok
COLUMNS = ("plain", "guarded", "once", "folded")
LETTERS = {"I": "immutable_record", "P": "protected_field", "C": "condition_failed", "ok": None}
FREE = ("ok", "ok", "I", "I")
PINNED = ("ok", "P", "I", "I")
Make = Callable[[str, str], Action]


def update(changes: dict[str, Any], **options: Any) -> Make:
    return lambda collection, id: UpdateRow(collection, id, changes, **options)


# As actions of a transaction, of which the single verbs are built.
CELLS: dict[str, tuple[Make, tuple[str, str, str, str]]] = {
    "create": (lambda c, i: CreateRow(c, i, NEXT), ("C", "C", "C", "I")),
    "put": (lambda c, i: PutRow(c, i, NEXT), ("ok", "C", "C", "I")),
    "put on a condition of its own": (
        lambda c, i: PutRow(c, i, NEXT, when=Not(Absent())),
        ("ok", "C", "C", "I"),
    ),
    "delete": (lambda c, i: DeleteRow(c, i), PINNED),
    "check": (lambda c, i: CheckRow(c, i, when=Not(Absent())), ("ok", "ok", "ok", "ok")),
    "set": (update({"status": "warming"}), FREE),
    "set if absent": (update({"previousReleaseId": IfAbsent("rel_000")}), FREE),
    "add": (update({"attempts": Add(1)}), FREE),
    "remove": (update({"previous_release_id": Remove()}), FREE),
    "append": (update({"history": Append("b")}), FREE),
    "prepend": (update({"history": Prepend("b")}), FREE),
    "delete from a set": (update({"labels": Discard("x")}), FREE),
    "set the pin": (update({"pinnedReleaseId": "rel_002"}), PINNED),
    "set the pin to what it is": (update({"pinnedReleaseId": "rel_001"}), PINNED),
    "set the pin by its Python name": (update({"pinned_release_id": "rel_002"}), PINNED),
    "set the pin and more": (update({"status": "warming", "pinnedReleaseId": "x"}), PINNED),
    "set the pin to nothing": (update({"pinnedReleaseId": None}), PINNED),
    "set the pin if absent": (update({"pinnedReleaseId": IfAbsent("rel_002")}), PINNED),
    "remove the pin": (update({"pinnedReleaseId": Remove()}), PINNED),
    "add to a pin": (update({"pinnedCount": Add(1)}), PINNED),
    "append to a pin": (update({"pinnedHistory": Append("b")}), PINNED),
    "prepend to a pin": (update({"pinned_history": Prepend("b")}), PINNED),
    "delete from a pin": (update({"pinnedLabels": Discard("x")}), PINNED),
    "set what the call protects": (
        update({"status": "warming"}, protected_attributes=["status"]),
        ("P", "P", "I", "I"),
    ),
    "set what the call does not protect": (
        update({"status": "warming"}, protected_attributes=["attempts"]),
        FREE,
    ),
}


def code(error: BaseException) -> str:
    return str(getattr(error, "code", type(error).__name__))


def seed(store: Store, collection: str, id: str, value: Struct = FIRST) -> Record:
    """Create a row before the call, with a fact, as a fold writes it."""
    fact = SCHEMA.vocabulary.fact(ReleasePinned("rel_001"))
    key = Key(collection, id)
    write = Put(key, codec.encode(value), ABSENT)
    (outcome,) = store.commit(Commit(T0, facts=(fact,), writes=(write,)))
    assert isinstance(outcome, Receipt), outcome
    (record,) = store.get(key)
    assert record is not None
    return record


def lock(token: str, expires_at: datetime) -> Lease:
    return Lease(token, expires_at)


def read(store: Store, collection: str, id: str) -> Any:
    """Return the row's value, or None if there is no row."""
    (record,) = store.get(Key(collection, id))
    if record is None:
        return None
    return codec.decode(record.data, SCHEMA.collection(collection).model)


def race(
    handles: list[Store], act: Callable[[Store, int], object], racers: int = RACERS
) -> list[object]:
    """Start all racers together, and return the result or the refusal of each."""
    start = Barrier(racers)

    def run(number: int) -> object:
        start.wait()
        try:
            return act(handles[number % len(handles)], number)
        except TidegateError as error:
            return error

    with ThreadPoolExecutor(racers) as pool:
        return list(pool.map(run, range(racers)))


class Watched:
    """A store that records its calls. ``meanwhile`` runs once, before a commit.

    ``beforehand`` runs once, before rows are read. ``losing`` the next "request" or "answer" makes
    the outcome of a commit unknown to its caller.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.schema = store.schema
        self.pack_cost_max = store.pack_cost_max
        self.asked: list[str] = []
        self.commits: list[Commit] = []
        self.meanwhile: Callable[[], object] | None = None
        self.beforehand: Callable[[], object] | None = None
        self.losing = ""

    def get(self, *keys: Key) -> tuple[Record | None, ...]:
        self.asked.append("get")
        if self.beforehand is not None:
            act, self.beforehand = self.beforehand, None
            act()
        return self._store.get(*keys)

    def receipt(self, key: str) -> Receipt | None:
        self.asked.append("receipt")
        return self._store.receipt(key)

    def commit(self, *commits: Commit) -> Any:
        self.asked.append("commit")
        self.commits += commits
        if self.meanwhile is not None:
            act, self.meanwhile = self.meanwhile, None
            act()
        lost, self.losing = self.losing, ""
        if lost == "request":
            return (OutcomeUnknown("the request was lost"),) * len(commits)
        answers = self._store.commit(*commits)
        return (OutcomeUnknown("the answer was lost"),) * len(commits) if lost else answers

    def head(self) -> Position:
        return self._store.head()

    def feed(self, *, after: Position, limit: int) -> EventPage:
        return self._store.feed(after=after, limit=limit)
