"""The archive mirrors the log: each fact once, masked, and rebuilt from the log byte for byte."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from threading import Event as Signal
from typing import IO, Any
from uuid import uuid4

import pytest

from tests.child_processes import CHILDREN
from tests.contract.address import Address
from tests.contract.world import (
    ITEMS,
    T0,
    VOCABULARY,
    Announced,
    OrderPlaced,
    ProductAdded,
    Rebooted,
    append,
    commit_of,
    land,
    positions,
    stored,
    whole_feed,
)
from tests.servers import s3
from tidegate.clock import ManualClock
from tidegate.control.storage.archive import (
    ARCHIVE_POSITIONS,
    COUNTED_MAX,
    SEGMENTS_MAX,
    Archive,
    ArchiveRound,
    Differences,
    Lag,
    LagAlarm,
)
from tidegate.control.storage.archive.files import FileSegmentStore
from tidegate.control.storage.archive.redaction import FactRedactor
from tidegate.control.storage.archive.s3 import S3SegmentStore
from tidegate.control.storage.archive.segment_store import (
    ArchiveForeign,
    ArchiveUnavailable,
    SegmentMissing,
    SegmentName,
    SegmentStore,
    parse_segment_name,
)
from tidegate.domain.outbox.redaction import REDACTED
from tidegate.engines.memory import MemoryStore
from tidegate.errors import Conflict, InvalidDefinition, InvalidInput
from tidegate.kernel.model import NO_META, Delete, Event, Key, Meta
from tidegate.kernel.store import Schema, Store

SCHEMA = Schema(VOCABULARY, (ITEMS, ARCHIVE_POSITIONS))
ROW = Key(ARCHIVE_POSITIONS.name, "archive")
LOG = "log-of-these-tests"
RANGE = 256  # on DynamoDB, where a commit has 128 positions for itself, two commits
WIDE = 128 * RANGE  # holds all commits of a test on every engine
KILLED = 9
NO_ENGINE = "what is shown of a fact is a pure function of it"

Connect = Callable[[], Store]


@pytest.fixture
def connect(address: Address | None) -> Iterator[Connect]:
    """Open handles on this test's log. Memory has one, the log itself."""
    memory = MemoryStore(SCHEMA)
    with ExitStack() as handles:
        yield (
            lambda: (
                memory if address is None else handles.enter_context(closing(address.open(SCHEMA)))
            )
        )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture(params=["files", "s3"])
def place(request: pytest.FixtureRequest, home: Path) -> SegmentStore:
    """A fresh archive place of each kind."""
    if request.param == "files":
        return FileSegmentStore(home)
    client = s3.client(request.getfixturevalue("s3_url"))
    bucket = f"bucket-{uuid4().hex[:12]}"
    client.create_bucket(Bucket=bucket)
    return S3SegmentStore(client, bucket, prefix="mirror/")


def archive_of(store: Store, place: SegmentStore, **options: Any) -> Archive:
    return Archive(
        store, place, **{"log_id": LOG, "clock": lambda: T0, "positions": RANGE, **options}
    )


def grow(store: Store, commits: int, facts: int = 40) -> None:
    for _ in range(commits):
        append(store, *(Rebooted(str(number)) for number in range(facts)))


def follow(archive: Archive) -> int:
    """Run rounds until nothing is new. Return how many events were archived."""
    found = 0
    while (done := archive.work()).events:
        found += done.events
    return found


def labels(place: SegmentStore) -> list[SegmentName]:
    found = sorted(filter(None, map(parse_segment_name, place.names())))
    assert len(found) == len(list(place.names())), "only segments are there"
    return found


def snapshot(place: SegmentStore) -> dict[str, bytes]:
    return {str(label): b"".join(place.read(label)) for label in labels(place)}


def archived(place: SegmentStore) -> list[dict[str, Any]]:
    """Return every line as a reader gets them: of each range the longest segment."""
    longest = {label.start: label for label in labels(place)}
    return [
        json.loads(line)
        for label in longest.values()
        for line in b"".join(place.read(label)).splitlines()
    ]


def assert_mirrors(place: SegmentStore, store: Store) -> None:
    """Check that each event is there once, in order, and nothing else."""
    events = whole_feed(store)
    assert [line["position"] for line in archived(place)] == positions(events)
    assert [line["type"] for line in archived(place)] == [event.type for event in events]


# ── following the log ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RS-12")
def test_mirrors_committed_facts_and_a_second_delivery_changes_nothing(
    connect: Connect, place: SegmentStore
) -> None:
    """A stream archive mirrors committed facts after the commit: at-least-once, a second delivery
    changes nothing.
    """
    store = connect()
    order = OrderPlaced("o1", "c1", ("p1",), 3)
    land(store, commit_of(ProductAdded("p1", "lamp"), order, meta=Meta(actor="user_1")))
    grow(store, 4)

    assert follow(archive_of(store, place)) == 162
    first = snapshot(place)
    row = stored(store, ROW)
    land(store, commit_of(writes=[Delete(ROW, row.version)]))
    assert follow(archive_of(connect(), place)) == 162

    assert snapshot(place) == first
    assert_mirrors(place, store)
    event = whole_feed(store)[1]
    assert archived(place)[1] == {
        "position": event.position,
        "at": "2026-03-01T12:00:00.000000Z",
        "kind": "shop",
        "type": "OrderPlaced",
        "schema": 1,
        "tags": ["customer_id:c1", "order_id:o1", "product_id:p1"],
        "meta": {"actor": "user_1"},
        "body": {"order_id": "o1", "customer_id": "c1", "product_ids": ["p1"], "units": 3},
    }


@pytest.mark.req("RS-12")
def test_keeps_one_segment_per_range_however_often_it_runs(connect: Connect, home: Path) -> None:
    store = connect()
    often, once = FileSegmentStore(home / "often"), FileSegmentStore(home / "once")
    archive = archive_of(store, often)

    for _ in range(14):
        grow(store, 1)
        assert archive.work().events == 40
    follow(archive_of(store, once, name="once"))

    assert snapshot(often) == snapshot(once)
    assert len(labels(often)) >= 3
    assert len({label.start for label in labels(often)}) == len(labels(often))
    assert all(label.start <= label.last < label.start + RANGE for label in labels(often))
    assert_mirrors(often, store)
    assert not archive.verify()


@pytest.mark.req("RS-12")
def test_archives_a_long_log_in_bounded_rounds_and_stops_between_segments(
    connect: Connect, home: Path
) -> None:
    store, place = connect(), FileSegmentStore(home)
    grow(store, 1)
    archive = archive_of(store, place, positions=1)

    assert archive.work(limit=3) == ArchiveRound(3, 3, more=True)
    assert archive.work() == ArchiveRound(SEGMENTS_MAX, SEGMENTS_MAX, more=True)
    stop = Signal()
    stop.set()
    assert archive.work(stop) == ArchiveRound(1, 1)
    assert len(labels(place)) == SEGMENTS_MAX + 4

    assert follow(archive) == 40 - SEGMENTS_MAX - 4
    assert archive.work() == ArchiveRound(0, 0)
    assert_mirrors(place, store)


def test_is_up_to_date_on_an_empty_log(connect: Connect, home: Path) -> None:
    archive = archive_of(connect(), FileSegmentStore(home))

    assert archive.work() == ArchiveRound(0, 0)
    assert archive.lag() == Lag(T0, 0, 0, 0.0, alarming=False)
    assert archive.verify() == Differences()
    assert archive.rebuild() == 0


# ── lag ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RS-12")
def test_reports_its_lag_and_raises_an_alarm_over_the_limit(connect: Connect, home: Path) -> None:
    """Lag a metric with an alarm."""
    store, clock = connect(), ManualClock(T0)
    archive = archive_of(
        store, FileSegmentStore(home), clock=clock, alarm=LagAlarm(events=50, seconds=9)
    )
    grow(store, 1)
    archived = whole_feed(store)[-1].position
    follow(archive)

    clock.advance(timedelta(hours=1))
    assert archive.lag() == Lag(clock.now, archived, 0, 0.0, alarming=False)
    append(store, Rebooted(), at=clock.now - timedelta(seconds=9))
    append(store, Rebooted(), at=clock.now)
    assert archive.lag() == Lag(clock.now, archived, 2, 9.0, alarming=False)
    clock.advance(timedelta(seconds=1))
    assert archive.lag() == Lag(clock.now, archived, 2, 10.0, alarming=True)

    follow(archive)
    append(store, *(Rebooted() for _ in range(51)), at=clock.now + timedelta(minutes=1))
    lag = archive.lag()
    assert (lag.events, lag.seconds, lag.alarming) == (51, 0.0, True)


def test_counts_only_as_many_events_as_the_alarm_needs(home: Path) -> None:
    store = MemoryStore(SCHEMA)
    grow(store, COUNTED_MAX // 100 + 1, facts=100)

    assert archive_of(store, FileSegmentStore(home)).lag().events == COUNTED_MAX


class Refusing(FileSegmentStore):
    """A disk that is full for some writes."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.refusals = 0

    def write(self, label: SegmentName, content: IO[bytes]) -> None:
        if self.refusals:
            self.refusals -= 1
            raise ArchiveUnavailable("no space left")
        super().write(label, content)


@pytest.mark.req("RS-12")
def test_waits_for_a_full_disk_while_commits_continue(connect: Connect, home: Path) -> None:
    """Nothing reads the archive to decide."""
    store, place, stop = connect(), Refusing(home), Signal()
    archive = archive_of(store, place)
    grow(store, 1)
    place.refusals = 2
    told_lags: list[Lag] = []
    naps: list[float] = []

    def wait(signal: Signal, seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 4:
            signal.set()
        elif len(naps) < 3:
            grow(store, 1)

    archive.run(stop, told_lags.append, poll_seconds=7.5, wait=wait)

    assert naps == [7.5] * 4
    assert [lag.trouble for lag in told_lags] == ["archive_unavailable"] * 2 + ["", ""]
    assert [lag.events for lag in told_lags] == [40, 80, 0, 0]
    assert_mirrors(place, store)


# ── crashes ───────────────────────────────────────────────────────────────────────────────────────


class Killed(BaseException):
    """Stands in for a kill where the log lives in this process."""


def raise_killed() -> None:
    raise Killed


def kill_me() -> None:
    os._exit(KILLED)


class Dying(FileSegmentStore):
    """A place whose archiver dies when it first reaches a named point."""

    def __init__(self, home: Path, point: str, kill: Callable[[], None]) -> None:
        super().__init__(home, sync=self._flush)
        self._point = point
        self._kill = kill
        self.armed = False

    def _at(self, point: str) -> None:
        if self.armed and point == self._point:
            self._kill()

    def _flush(self, handle: int) -> None:
        os.fsync(handle)
        self._at("directory" if os.path.isdir(f"/proc/self/fd/{handle}") else "draft")

    def write(self, label: SegmentName, content: IO[bytes]) -> None:
        self._at("before")
        super().write(label, content)
        self._at("segment")

    def remove(self, label: SegmentName) -> None:
        self._at("position")
        super().remove(label)
        self._at("removed")


def archive_and_die(store: Store, home: Path, point: str, kill: Callable[[], None]) -> None:
    place = Dying(home, point, kill)
    archive = archive_of(store, place, positions=WIDE)
    place.armed = True
    follow(archive)


def archive_and_die_elsewhere(address: Address, home: Path, point: str) -> None:
    archive_and_die(address.open(SCHEMA), home, point, kill_me)


def die(store: Store, address: Address | None, home: Path, point: str) -> None:
    """Run an archiver that is killed at this point: in another process, or in this one for
    memory.
    """
    if address is None:
        with pytest.raises(Killed):
            archive_and_die(store, home, point, raise_killed)
        return
    victim = CHILDREN.Process(target=archive_and_die_elsewhere, args=(address, home, point))
    victim.start()
    victim.join(300)
    assert victim.exitcode == KILLED


@pytest.mark.req("RS-12")
@pytest.mark.parametrize(
    "point", ["before", "draft", "directory", "segment", "position", "removed"]
)
@pytest.mark.long
def test_loses_and_duplicates_nothing_when_it_is_killed(
    connect: Connect, address: Address | None, home: Path, point: str
) -> None:
    """``segment`` is between the segment and the position, ``position`` after both."""
    store = connect()
    grow(store, 1)
    follow(archive_of(store, FileSegmentStore(home), positions=WIDE))
    before = stored(store, ROW).version
    grow(store, 2)

    die(store, address, home, point)

    claimed = stored(store, ROW).version > before
    assert claimed is (point in ("position", "removed"))
    place = FileSegmentStore(home)
    archive = archive_of(connect(), place, positions=WIDE)
    follow(archive)
    assert_mirrors(place, store)
    assert archive.verify() == Differences()
    once = FileSegmentStore(home / "once")
    follow(archive_of(store, once, name="once", positions=WIDE))
    assert snapshot(place) == snapshot(once)


def test_removes_unfinished_files_after_a_kill(home: Path) -> None:
    store = MemoryStore(SCHEMA)
    place = FileSegmentStore(home)
    archive_of(store, place)
    left = home / "incoming" / "left"
    left.write_bytes(b"half")

    assert place.sweep(before=T0 - timedelta(days=36_500)) == 0
    assert place.sweep(before=T0 + timedelta(days=36_500)) == 1
    assert not left.exists()


# ── several archivers ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RS-12")
def test_loses_nothing_when_two_archivers_and_a_rebuild_race(connect: Connect, home: Path) -> None:
    store, place = connect(), FileSegmentStore(home)
    done = Signal()

    def write() -> None:
        handle = connect()
        for _ in range(12):
            grow(handle, 1, facts=20)

    def mirror(verb: Callable[[Archive], object]) -> None:
        archive = archive_of(connect(), FileSegmentStore(home))
        while not done.is_set():
            with suppress(Conflict):
                verb(archive)

    with ThreadPoolExecutor(4) as pool:
        archivers = [pool.submit(mirror, verb) for verb in (follow, follow, Archive.rebuild)]
        try:
            pool.submit(write).result()
        finally:
            done.set()
    for archiver in archivers:
        archiver.result()

    last = archive_of(store, place)
    follow(last)
    assert_mirrors(place, store)
    found = last.verify()
    assert (found.missing, found.different) == ((), ())
    last.rebuild()
    assert last.verify() == Differences()
    assert_mirrors(place, store)


def test_a_late_archiver_overwrites_nothing(home: Path) -> None:
    """It read less of the log and writes after the other. Its segment holds only facts of the log,
    and has a name of its own.
    """
    store, place = MemoryStore(SCHEMA), FileSegmentStore(home)
    grow(store, 1)

    class Late(FileSegmentStore):
        def write(self, label: SegmentName, content: IO[bytes]) -> None:
            grow(store, 1)
            follow(archive_of(store, place))
            super().write(label, content)

    late = archive_of(store, Late(home))
    with pytest.raises(Conflict):
        late.work()

    assert_mirrors(place, store)
    assert len(labels(place)) == 2
    late.work()
    assert len(labels(place)) == 1
    assert_mirrors(place, store)


# ── rebuilding and comparing ──────────────────────────────────────────────────────────────────────


def damage(place: SegmentStore, found: Sequence[SegmentName]) -> Differences:
    """Delete one segment, damage one, and add one."""
    place.remove(found[0])
    place.write(found[1], BytesIO(b'{"position":1}\n'))
    strange = SegmentName(found[2].start, found[2].last - 1)
    place.write(strange, BytesIO(b"\n"))
    return Differences((str(found[0]),), (str(strange),), (str(found[1]),))


@pytest.mark.req("RS-12")
def test_finds_differences_and_rebuilds_the_same_bytes(
    connect: Connect, place: SegmentStore
) -> None:
    """It can be rebuilt from the log."""
    store = connect()
    grow(store, 14)
    archive = archive_of(store, place)
    follow(archive)
    first = snapshot(place)
    assert not archive.verify()

    harm = damage(place, labels(place))
    assert archive.verify() == harm
    assert archive.rebuild() == len(first)

    assert snapshot(place) == first
    assert archive.verify() == Differences()


@pytest.mark.req("RS-12")
def test_rebuilds_a_lost_archive_up_to_its_position(connect: Connect, home: Path) -> None:
    store, place = connect(), FileSegmentStore(home)
    grow(store, 8)
    archive = archive_of(store, place)
    follow(archive)
    first = snapshot(place)
    grow(store, 2)
    for label in labels(place):
        place.remove(label)

    archive.rebuild()

    assert snapshot(place) == first
    assert archive.lag().events == 80
    follow(archive)
    assert_mirrors(place, store)


def test_reports_an_unknown_file_and_leaves_it_alone(home: Path) -> None:
    store, place = MemoryStore(SCHEMA), FileSegmentStore(home)
    archive = archive_of(store, place)
    stranger = home / "segments" / "notes.txt"
    stranger.write_text("mine")
    grow(store, 1)
    follow(archive)

    assert archive.verify() == Differences(extra=("notes.txt",))
    archive.rebuild()
    assert stranger.read_text() == "mine"


def test_reports_segments_ahead_of_the_position_and_leaves_them_to_the_archiver(home: Path) -> None:
    store, place = MemoryStore(SCHEMA), FileSegmentStore(home)
    archive = archive_of(store, place)
    grow(store, 1)
    follow(archive)
    ahead = SegmentName(0, 80)
    place.write(ahead, BytesIO(b""))

    assert archive.verify() == Differences(extra=(str(ahead),))
    archive.rebuild()
    assert ahead in labels(place)


def test_a_comparison_skips_segments_that_change_meanwhile(home: Path) -> None:
    store, place = MemoryStore(SCHEMA), FileSegmentStore(home)
    other = archive_of(store, place)
    grow(store, 3)
    follow(other)

    class Moving(FileSegmentStore):
        def read(self, label: SegmentName) -> Iterator[bytes]:
            grow(store, 1)
            follow(other)
            return super().read(label)

    assert archive_of(store, Moving(home)).verify() == Differences()


# ── what may be shown ─────────────────────────────────────────────────────────────────────────────


def shown(body: Any, *, tags: Sequence[str] = (), **options: Any) -> dict[str, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    meta = options.pop("meta", NO_META)
    event = Event(7, T0, "shop", "OrderPlaced", 1, tuple(tags), meta, data)
    line = FactRedactor(VOCABULARY, **options).line(event)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.req("RS-12")
def test_archives_no_text_that_looks_like_a_secret(connect: Connect, place: SegmentStore) -> None:
    """Redacted."""
    store = connect()
    secret = "ghp_0123456789abcdefABCDEF"
    append(store, Announced(f"use {secret}"), ProductAdded(secret, "lamp"), Rebooted("power cut"))

    follow(archive_of(store, place))

    assert all(secret.encode() not in content for content in snapshot(place).values())
    announced, added, rebooted = archived(place)
    assert announced["body"] == {"text": REDACTED}
    assert added["body"] == {"product_id": REDACTED, "name": "lamp"}
    assert added["tags"] == [f"product_id:{REDACTED}"]
    assert rebooted["body"] == {"text": "power cut"}


@pytest.mark.req("RS-12")
def test_archives_only_the_members_that_a_list_allows(connect: Connect, home: Path) -> None:
    store, place = connect(), FileSegmentStore(home)
    append(store, OrderPlaced("o1", "c1", ("p1", "p2"), 3), ProductAdded("p1", "lamp"))

    follow(archive_of(store, place, allowed={"OrderPlaced": ("order_id", "units")}))

    order, product = archived(place)
    assert order["body"] == {
        "order_id": "o1",
        "customer_id": REDACTED,
        "product_ids": REDACTED,
        "units": 3,
    }
    assert set(order["tags"]) == {
        f"customer_id:{REDACTED}",
        f"product_id:{REDACTED}",
        "order_id:o1",
    }
    assert product["body"] == {"product_id": "p1", "name": "lamp"}


@pytest.mark.req("RS-12", engines=None, reason=NO_ENGINE)
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"password": "x"}, {"password": REDACTED}),
        ({"lease_token": 12}, {"lease_token": REDACTED}),
        ({"apiKey": {"a": [1]}}, {"apiKey": REDACTED}),
        ({"secret": None, "session": True}, {"secret": None, "session": True}),
        ({"deep": [{"secret": "x", "name": "y"}]}, {"deep": [{"secret": REDACTED, "name": "y"}]}),
        ({"note": "AKIAABCDEFGHIJKLMNOP"}, {"note": REDACTED}),
        ({"url": "https://u:hunter2@host/x"}, {"url": REDACTED}),
        ({"by_key": {"ghp_0123456789abcdefABCD": 1}}, {"by_key": {REDACTED: REDACTED}}),
        ({"digest": "sha256:" + "0a" * 32}, {"digest": "sha256:" + "0a" * 32}),
        ({"count": 3, "name": "lamp", "on": False}, {"count": 3, "name": "lamp", "on": False}),
        (b"\xff not json", REDACTED),
        (["eyJhbGciOiJI.eyJzdWIi.x", "plain"], [REDACTED, "plain"]),
    ],
)
def test_masks_secrets_by_name_and_by_pattern(body: Any, expected: Any) -> None:
    assert shown(body)["body"] == expected


@pytest.mark.parametrize("before", [0, 1, 760, 1_000, 1_020, 5_000, 250_000])
def test_finds_a_secret_anywhere_in_a_long_text_quickly(before: int) -> None:
    """A quarter of a megabyte without a break is the worst case that a fact can hold."""
    secret = "-----BEGIN PRIVATE KEY-----"

    assert shown({"note": "a" * before + secret + "-eyJ" * 1_000})["body"] == {"note": REDACTED}
    assert shown({"note": "a" * before})["body"] == {"note": "a" * before}


def test_masks_a_tag_together_with_the_member_it_comes_from() -> None:
    tags = ("customer_id:c1", "order_id:o1", "pin:4711", "token:x")
    found = shown(
        {"order_id": "o1", "customer_id": "c1", "pin": 4711},
        tags=tags,
        allowed={"OrderPlaced": {"order_id"}},
        meta=Meta(actor="user_1", request="Bearer abc"),
    )

    assert found["tags"] == [
        f"customer_id:{REDACTED}",
        "order_id:o1",
        f"pin:{REDACTED}",
        f"token:{REDACTED}",
    ]
    assert found["meta"] == {"actor": "user_1", "request": REDACTED}


def test_an_allow_list_does_not_unmask_what_looks_like_a_secret() -> None:
    allowed = {"OrderPlaced": {"passed", "note"}}
    body = {"passed": "yes", "note": "AKIAABCDEFGHIJKLMNOP", "other": "x"}

    assert shown(body, allowed=allowed)["body"] == {
        "passed": "yes",
        "note": REDACTED,
        "other": REDACTED,
    }


@pytest.mark.parametrize("allowed", [{"OrderPlacd": {"order_id"}}, {"OrderPlaced": "order_id"}])
def test_refuses_an_allow_list_that_masks_nothing(allowed: Any) -> None:
    with pytest.raises(InvalidDefinition):
        FactRedactor(VOCABULARY, allowed)


# ── places ────────────────────────────────────────────────────────────────────────────────────────


def test_refuses_a_place_of_another_log_or_of_other_ranges(place: SegmentStore) -> None:
    store = MemoryStore(SCHEMA)
    grow(store, 1)
    follow(archive_of(store, place))
    first = snapshot(place)

    for options in ({"log_id": "another log"}, {"positions": RANGE * 2}):
        with pytest.raises(ArchiveForeign):
            archive_of(store, place, **options)

    assert snapshot(place) == first
    assert archive_of(store, place).work() == ArchiveRound(0, 0)


def test_reports_a_missing_segment(place: SegmentStore) -> None:
    archive_of(MemoryStore(SCHEMA), place)

    with pytest.raises(SegmentMissing):
        list(place.read(SegmentName(0, 1)))
    place.remove(SegmentName(0, 1))
    assert list(place.names()) == []


def test_reports_a_missing_bucket(s3_url: str) -> None:
    with pytest.raises(ArchiveUnavailable):
        archive_of(MemoryStore(SCHEMA), S3SegmentStore(s3.client(s3_url), "no-such-bucket"))


def test_reports_a_failed_write(home: Path) -> None:
    store = MemoryStore(SCHEMA)
    grow(store, 1)
    full = False

    def flush(handle: int) -> None:
        if full:
            raise OSError(errno.ENOSPC, "no space left on device")
        os.fsync(handle)

    archive = archive_of(store, FileSegmentStore(home, sync=flush))
    full = True
    with pytest.raises(ArchiveUnavailable, match="no space"):
        archive.work()

    assert list((home / "segments").iterdir()) == []
    assert list((home / "incoming").iterdir()) == []
    assert archive.lag().position == 0


def test_flushes_the_file_then_renames_it_then_flushes_the_directory(home: Path) -> None:
    store = MemoryStore(SCHEMA)
    steps: list[tuple[str, bool]] = []
    segments = home / "segments"

    def watch(handle: int) -> None:
        what = "directory" if os.path.isdir(f"/proc/self/fd/{handle}") else "file"
        steps.append((what, any(segments.iterdir())))
        os.fsync(handle)

    archive = archive_of(store, FileSegmentStore(home, sync=watch))
    grow(store, 1)
    steps.clear()
    archive.work()

    assert steps == [("file", False), ("directory", True)]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "../archive.json",
        "0000000000000000-0000000000000001.jsonl\n",
        "0000000000000000-0000000000000001.json",
        "000000000000000-0000000000000001.jsonl",
        "/0000000000000000-0000000000000001.jsonl",
        "٠000000000000000-0000000000000001.jsonl",
    ],
)
def test_accepts_no_other_name_for_a_segment(name: str) -> None:
    assert parse_segment_name(name) is None
    assert parse_segment_name(str(SegmentName(256, 2**53 - 1))) == SegmentName(256, 2**53 - 1)


@pytest.mark.parametrize("options", [{"positions": 0}, {"positions": 1.5}, {"name": ""}])
def test_refuses_an_impossible_archive_configuration(home: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        archive_of(MemoryStore(SCHEMA), FileSegmentStore(home), **options)
    assert not home.exists()


def test_requires_the_collection_of_its_position(home: Path) -> None:
    with pytest.raises(InvalidInput):
        archive_of(MemoryStore(Schema(VOCABULARY)), FileSegmentStore(home))
