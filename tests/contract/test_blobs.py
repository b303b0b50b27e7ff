"""Blobs on files and on S3: named by content, durable before they are referenced, never lost in
use.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier, Event
from typing import Any, cast
from uuid import uuid4

import pytest

from tests.servers import s3
from tidegate.clock import ManualClock
from tidegate.control.storage.blobs import (
    BLOB_KEPT,
    CHUNK_BYTES,
    BlobBusy,
    BlobDamaged,
    BlobMissing,
    Blobs,
    BlobsForeign,
)
from tidegate.control.storage.blobs.collect import CollectedBlobs, collect
from tidegate.control.storage.blobs.files import FileBlobs
from tidegate.control.storage.blobs.s3 import BucketUnavailable, S3Blobs
from tidegate.domain.content.digests import digest_of
from tidegate.errors import InsufficientStorage, InvalidInput

T0 = datetime(2026, 4, 24, 12, tzinfo=UTC)
LATER = T0 + BLOB_KEPT + timedelta(seconds=1)
LOG = "log-of-these-tests"
NO_ENGINE = "bodies are stored outside the log, in no engine"
RACE_ROUNDS = {"files": 10_000, "s3": 60}
RACED = b"again and again"
TIMED_ROUNDS = 5
SPEED_ROOM = Path("/dev/shm")  # where a flush costs nothing, if the machine has such a place

Open = Callable[..., Blobs]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(T0)


@pytest.fixture(params=["files", "s3"])
def kind(request: pytest.FixtureRequest) -> str:
    return cast(str, request.param)


@pytest.fixture
def open_blobs(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path, clock: ManualClock
) -> Open:
    """Open handles on one fresh place for blobs."""
    if kind == "files":
        return lambda log=LOG: FileBlobs(tmp_path / "blobs", log, clock=clock)
    client = s3.client(request.getfixturevalue("s3_url"))
    bucket = f"bucket-{uuid4().hex[:12]}"
    client.create_bucket(Bucket=bucket)
    return lambda log=LOG: S3Blobs(client, bucket, log, prefix="blobs/", clock=clock)


@pytest.fixture
def blobs(open_blobs: Open) -> Blobs:
    return open_blobs()


# ── in sequence ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("PB-6", engines=None, reason=NO_ENGINE)
@pytest.mark.parametrize("body", [b"", b"body", os.urandom(3 * CHUNK_BYTES + 7)], ids=len)
def test_returns_a_body_under_its_digest(blobs: Blobs, body: bytes) -> None:
    digest = blobs.put(body)

    assert digest == f"sha256:{sha256(body).hexdigest()}" == digest_of(body)
    assert blobs.get(digest) == body
    assert b"".join(blobs.stream(digest)) == body
    assert blobs.exists(digest)


def test_stores_a_large_body_in_pieces(blobs: Blobs) -> None:
    piece = random.Random(7).randbytes(CHUNK_BYTES)
    known = sha256()

    def parts() -> Iterator[bytes]:
        for number in range(12):
            part = piece + bytes([number])
            known.update(part)
            yield part

    digest = blobs.put(parts())

    assert digest == f"sha256:{known.hexdigest()}"
    again = sha256()
    for part in blobs.stream(digest):
        again.update(part)
    assert again.hexdigest() == known.hexdigest()


@pytest.mark.parametrize(
    ("start", "stop"),
    [(0, 5), (CHUNK_BYTES - 1, CHUNK_BYTES + 1), (7, 2 * CHUNK_BYTES + 9), (4, 4)],
)
def test_returns_a_range_of_a_body(blobs: Blobs, start: int, stop: int) -> None:
    body = random.Random(8).randbytes(2 * CHUNK_BYTES + 9)
    digest = blobs.put(body)

    pieces = list(blobs.read(digest, start, stop))

    assert b"".join(pieces) == body[start:stop]
    assert all(len(piece) <= CHUNK_BYTES for piece in pieces)
    with pytest.raises(BlobMissing):
        list(blobs.read(digest_of(b"never put"), 0, 1))


def test_stores_equal_content_once_and_renews_its_time(blobs: Blobs, clock: ManualClock) -> None:
    first = blobs.put(b"body")
    clock.advance(timedelta(hours=5, microseconds=3))
    second = blobs.put(b"body")
    other = blobs.put(b"other")

    found = {blob.digest: blob.put_at for blob in blobs.iterate()}
    assert first == second
    assert found == {first: clock.now, other: clock.now}


@pytest.mark.parametrize(
    "digest",
    [
        "",
        "sha256:",
        "sha256:../../../../etc/passwd",
        "sha256:" + "A" * 64,
        "sha256:" + "0" * 63,
        "sha256:" + "0" * 65,
        "sha256:" + "0" * 64 + "\n",
        "sha512:" + "0" * 64,
        "../log",
        "log",
        None,
    ],
)
def test_refuses_a_malformed_digest(blobs: Blobs, digest: Any) -> None:
    for ask in (blobs.get, blobs.stream, blobs.exists):
        with pytest.raises(InvalidInput):
            ask(digest)
    with pytest.raises(InvalidInput):
        blobs.discard(digest, before=LATER)


def test_names_a_missing_blob(blobs: Blobs) -> None:
    digest = digest_of(b"never put")

    assert not blobs.exists(digest)
    assert not blobs.discard(digest, before=LATER)
    with pytest.raises(BlobMissing) as missing:
        blobs.get(digest)
    assert missing.value.facts == {"digest": digest}


def test_refuses_the_blobs_of_another_log(open_blobs: Open) -> None:
    digest = open_blobs().put(b"body")

    with pytest.raises(BlobsForeign) as refused:
        open_blobs("another log")

    assert refused.value.facts == {"found": LOG, "wanted": "another log"}
    assert open_blobs().get(digest) == b"body"


# ── files ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("PB-6", engines=None, reason=NO_ENGINE)
@pytest.mark.parametrize("harm", [b"", b"bodz", b"body and more"])
def test_withholds_the_last_piece_of_a_damaged_body(tmp_path: Path, harm: bytes) -> None:
    blobs = FileBlobs(tmp_path, LOG)
    digest = blobs.put(b"body")
    (path,) = (tmp_path / "sha256").glob("*/*")
    path.write_bytes(harm)

    with pytest.raises(BlobDamaged):
        blobs.get(digest)
    read: list[bytes] = []
    with pytest.raises(BlobDamaged):
        read.extend(blobs.stream(digest))
    assert read == []

    blobs.put(b"body")
    assert blobs.get(digest) == b"body"


def test_flushes_the_file_then_renames_it_then_flushes_the_directory(tmp_path: Path) -> None:
    steps: list[tuple[str, bool]] = []
    digits = digest_of(b"body").removeprefix("sha256:")
    path = tmp_path / "sha256" / digits[:2] / digits[2:]

    def watch(handle: int) -> None:
        what = "directory" if os.path.isdir(f"/proc/self/fd/{handle}") else "file"
        steps.append((what, path.exists()))
        os.fsync(handle)

    blobs = FileBlobs(tmp_path, LOG, sync=watch)
    steps.clear()

    blobs.put(b"body")

    assert steps == [("file", False), ("directory", True)]
    assert list((tmp_path / "incoming").iterdir()) == []


def test_keeps_nothing_of_an_incomplete_body(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path, LOG)

    def parts() -> Iterator[bytes]:
        yield b"half"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        blobs.put(parts())

    assert list(blobs.iterate()) == []
    assert list((tmp_path / "incoming").iterdir()) == []


def test_removes_unfinished_files_after_a_crash(tmp_path: Path, clock: ManualClock) -> None:
    blobs = FileBlobs(tmp_path, LOG, clock=clock)
    left = tmp_path / "incoming" / "left"
    left.write_bytes(b"half")
    made = datetime.fromtimestamp(left.stat().st_mtime, UTC)

    assert blobs.sweep(before=made - timedelta(seconds=1)) == 0
    assert blobs.sweep(before=made + timedelta(seconds=1)) == 1
    assert not left.exists()


# ── S3 ────────────────────────────────────────────────────────────────────────────────────────────


def test_reports_a_missing_bucket(s3_url: str) -> None:
    with pytest.raises(BucketUnavailable):
        S3Blobs(s3.client(s3_url), "no-such-bucket", LOG)


def test_waits_for_a_removal_and_gives_up_if_it_never_ends(s3_url: str) -> None:
    client = s3.client(s3_url)
    bucket = f"stuck-{uuid4().hex[:12]}"
    client.create_bucket(Bucket=bucket)
    naps: list[float] = []
    blobs = S3Blobs(client, bucket, LOG, sleep=naps.append)
    mark = "leaving/" + digest_of(b"body").removeprefix("sha256:")
    client.put_object(Bucket=bucket, Key=mark, Body=b"")

    with pytest.raises(BlobBusy):
        blobs.put(b"body")

    assert naps
    assert blobs.sweep() == 1
    assert blobs.get(blobs.put(b"body")) == b"body"


class PausingClient:
    """A client that waits right before it removes a blob, or right after it has put one."""

    def __init__(
        self,
        client: Any,
        *,
        before_removal: Callable[[], object] = lambda: None,
        after_put: Callable[[], object] = lambda: None,
    ) -> None:
        self._client = client
        self._before_removal = before_removal
        self._after_put = after_put

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def delete_object(self, **asked: Any) -> Any:
        if asked["Key"].startswith("sha256/"):
            self._before_removal()
        return self._client.delete_object(**asked)

    def put_object(self, **asked: Any) -> Any:
        answer = self._client.put_object(**asked)
        if asked["Key"].startswith("sha256/"):
            self._after_put()
        return answer


@pytest.mark.req("PB-6", engines=None, reason=NO_ENGINE)
@pytest.mark.parametrize("meets", ["the mark", "no mark any more"])
def test_puts_a_blob_again_that_a_concurrent_removal_deleted(
    s3_url: str, clock: ManualClock, meets: str
) -> None:
    """The put completes after the collector's last read and before its removal."""
    client = s3.client(s3_url)
    bucket = f"meddled-{uuid4().hex[:12]}"
    client.create_bucket(Bucket=bucket)
    digest = S3Blobs(client, bucket, LOG, clock=clock).put(b"body")
    clock.now = LATER
    put, napping, removed = Event(), Event(), Event()

    def after_put() -> None:
        put.set()
        if meets == "no mark any more":
            assert removed.wait(60)

    def nap(seconds: float) -> None:
        napping.set()
        time.sleep(seconds)

    putter = S3Blobs(
        PausingClient(client, after_put=after_put), bucket, LOG, clock=clock, sleep=nap
    )
    with ThreadPoolExecutor(1) as pool:
        putting: list[Future[str]] = []

        def before_removal() -> None:
            putting.append(pool.submit(putter.put, b"body"))
            assert (napping if meets == "the mark" else put).wait(60)

        meddled = PausingClient(client, before_removal=before_removal)
        assert S3Blobs(meddled, bucket, LOG, clock=clock).discard(digest, before=LATER)
        removed.set()

        assert putting[0].result(60) == digest
        assert putter.get(digest) == b"body"


# ── the collector ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("PB-6", engines=None, reason=NO_ENGINE)
def test_collects_old_blobs_without_a_reference(blobs: Blobs, clock: ManualClock) -> None:
    """The orphan is collected later."""
    named, orphan = blobs.put(b"named"), blobs.put(b"orphan")
    clock.advance(timedelta(hours=1))
    young = blobs.put(b"young")

    def run(now: datetime) -> CollectedBlobs:
        return collect(blobs, lambda: {named}, now)

    assert run(T0 + BLOB_KEPT) == CollectedBlobs(looked=3, orphans=0, removed=0)
    assert run(LATER) == CollectedBlobs(looked=3, orphans=1, removed=1)
    assert not blobs.exists(orphan)
    assert blobs.exists(named)
    assert blobs.exists(young)


def test_keeps_a_blob_that_is_referenced_between_the_two_reads(blobs: Blobs) -> None:
    digest = blobs.put(b"body")
    looks = iter([frozenset[str](), frozenset({digest})])

    found = collect(blobs, lambda: next(looks), LATER)

    assert found == CollectedBlobs(looked=1, orphans=1, removed=0)
    assert blobs.exists(digest)


def test_keeps_a_blob_that_is_put_again_after_the_reads(blobs: Blobs, clock: ManualClock) -> None:
    digest = blobs.put(b"body")

    def looked() -> frozenset[str]:
        clock.now = LATER
        blobs.put(b"body")
        return frozenset()

    found = collect(blobs, looked, LATER)

    assert found == CollectedBlobs(looked=1, orphans=1, removed=0)
    assert blobs.exists(digest)


@pytest.fixture
def raced(
    request: pytest.FixtureRequest, kind: str, open_blobs: Open, clock: ManualClock
) -> Iterator[Blobs]:
    """A place where ten thousand flushes are cheap, if the machine has one."""
    if kind == "s3" or not SPEED_ROOM.is_dir():
        yield open_blobs()
        return
    with TemporaryDirectory(prefix="tidegate-race-", dir=SPEED_ROOM) as name:
        blobs = FileBlobs(name, LOG, clock=clock)
        own = digest_of(RACED).partition(":")[2][:2]
        for shelf in (Path(name) / "sha256").iterdir():
            if shelf.name != own:
                shelf.rmdir()  # half of each round would scan empty folders
        yield blobs


@pytest.mark.req("PB-6", engines=None, reason=NO_ENGINE)
@pytest.mark.long
def test_leaves_no_dangling_pointer_when_collector_and_upload_race(
    kind: str, raced: Blobs, clock: ManualClock
) -> None:
    """In each round an old orphan is put and referenced again while the collector runs."""
    named: set[str] = set()
    chance = random.Random(7)
    start = Barrier(2)
    dangling, removed = 0, 0

    def orphan() -> None:
        named.clear()
        raced.put(RACED)
        clock.advance(BLOB_KEPT + timedelta(seconds=1))

    def collector_seconds() -> float:
        orphan()
        began = time.monotonic()
        assert collect(raced, frozenset, clock.now).removed == 1
        return time.monotonic() - began

    # How late the upload starts, chosen so that it falls before and after the removal equally
    # often.
    late_seconds_max = 1.5 * min(collector_seconds() for _ in range(TIMED_ROUNDS))

    def upload() -> None:
        start.wait()
        time.sleep(chance.random() * late_seconds_max)
        named.add(raced.put(RACED))  # the commit that references the blob comes after the put

    def gather() -> int:
        start.wait()
        return collect(raced, lambda: frozenset(named), clock.now).removed

    with ThreadPoolExecutor(2) as pool:
        for _ in range(RACE_ROUNDS[kind]):
            orphan()
            uploading, gathering = pool.submit(upload), pool.submit(gather)
            uploading.result()
            removed += gathering.result()
            dangling += not raced.exists(digest_of(RACED))

    assert dangling == 0
    assert 0 < removed < RACE_ROUNDS[kind], (
        "each was first in some round, otherwise nothing was raced"
    )


def test_a_full_disk_makes_a_put_unavailable_and_leaves_no_file(tmp_path: Path) -> None:
    def fill_up(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    blobs = FileBlobs(tmp_path, LOG)
    full = FileBlobs(tmp_path, LOG, sync=fill_up)

    with pytest.raises(InsufficientStorage, match="No space left"):
        full.put(b"content")

    assert list((tmp_path / "incoming").iterdir()) == []
    assert blobs.put(b"content") in {blob.digest for blob in blobs.iterate()}
