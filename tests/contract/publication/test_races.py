"""Publishers that race, and publishers that die between any two steps, on every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.child_processes import CHILDREN
from tests.contract.address import Address
from tests.contract.publication.publishing import (
    FOLDS,
    KILLED,
    LEASE_SECONDS,
    LOCK_KEY,
    LOG,
    META_KEY,
    PAGE,
    T0,
    Killed,
    at,
    die_at,
    held,
    publish_at,
    publish_mortally,
    publish_with_one_lease,
)
from tidegate.control.publication.generations import list_referenced_blobs
from tidegate.control.publication.publisher import Publisher
from tidegate.control.runtime import Control
from tidegate.control.storage.blobs import BLOB_KEPT
from tidegate.control.storage.blobs.collect import CollectedBlobs, collect
from tidegate.control.storage.blobs.files import FileBlobs
from tidegate.domain.content.digests import digest_of
from tidegate.domain.publication.rows import Pointer
from tidegate.engines.group_commit import GroupCommit
from tidegate.errors import LeaseLost
from tidegate.kernel import codec
from tidegate.kernel.leases import Leases
from tidegate.kernel.model import ALL
from tidegate.kernel.store import Store

Connect = Callable[[], Store]
STEPS_MAX = 60


@pytest.fixture(scope="module")
def two_processes() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(2, mp_context=CHILDREN) as pool:
        yield pool


@pytest.mark.req("PB-1", "PB-2", "PB-4")
def test_publishes_once_when_two_publishers_use_one_lease(
    address: Address | None,
    connect: Connect,
    store: Store,
    home: Path,
    two_processes: ProcessPoolExecutor,
) -> None:
    FileBlobs(home, LOG)
    for turn in range(4):
        token = f"shared-{turn}"
        Leases(store).acquire(LOCK_KEY.id, token, now=T0, seconds=LEASE_SECONDS)
        bodies = [str(2 * turn + 1), str(2 * turn + 2)]

        if address is None:
            with ThreadPoolExecutor(2) as pool:
                work = [
                    pool.submit(publish_with_one_lease, store, home, token, body) for body in bodies
                ]
                answers = [future.result() for future in work]
        else:
            work = [two_processes.submit(publish_at, address, home, token, body) for body in bodies]
            answers = [future.result() for future in work]

        assert sorted(answers) == ["lease_lost", "published"]
        (record,) = store.get(META_KEY)
        assert record is not None
        winner = bodies[answers.index("published")].encode()
        assert codec.decode(record.data, Pointer).s3_key == digest_of(winner)
    assert len(store.read(ALL).events) == 4


def attempt(store: Store, blobs: FileBlobs, token: str, now: datetime, body: str) -> str:
    """Publish at this time with this token. Return "published" or "lost"."""
    with closing(GroupCommit(store)) as writer:
        publisher = Publisher(Control(store, FOLDS, writer.submit, clock=lambda: now), blobs)
        try:
            publisher.publish(PAGE, held(store, token), body.encode(), generated_at=now)
        except LeaseLost:
            return "lost"
        return "published"


def late(store: Store, home: Path, turn: int) -> str:
    """The old holder, a second before its lease is over."""
    now = at(40 * turn + LEASE_SECONDS) - timedelta(seconds=1)
    return attempt(store, FileBlobs(home, LOG), "old", now, f"old {turn}")


def heir(store: Store, home: Path, turn: int) -> str:
    """Take the lease once it has expired, and publish something newer."""
    now = at(40 * turn + LEASE_SECONDS)
    Leases(store).acquire(LOCK_KEY.id, "new", now=now, seconds=5)
    return attempt(store, FileBlobs(home, LOG), "new", now, f"new {turn}")


def in_a_process(
    role: Callable[[Store, Path, int], str], address: Address, home: Path, turn: int
) -> str:
    with closing(address.open(FOLDS.schema)) as store:
        return role(store, home, turn)


@pytest.mark.req("PB-1", "PB-4")
def test_a_late_holder_cannot_publish_in_any_order(
    address: Address | None,
    store: Store,
    home: Path,
    rounds: int,
    two_processes: ProcessPoolExecutor,
) -> None:
    """The old holder publishes while the next one takes the lease and publishes something newer."""
    blobs = FileBlobs(home, LOG)
    for turn in range(rounds):
        begin = at(40 * turn)
        Leases(store).acquire(LOCK_KEY.id, "old", now=begin, seconds=LEASE_SECONDS)

        if address is None:
            with ThreadPoolExecutor(2) as pool:
                waiting = [pool.submit(role, store, home, turn) for role in (late, heir)]
                first, second = (future.result() for future in waiting)
        else:
            waiting = [
                two_processes.submit(in_a_process, role, address, home, turn)
                for role in (late, heir)
            ]
            first, second = (future.result() for future in waiting)

        assert second == "published"
        assert first in ("lost", "published")
        assert read(store, blobs) == f"new {turn}".encode()


def read(store: Store, blobs: FileBlobs) -> bytes:
    """Read the body that the pointer names; it must exist."""
    (record,) = store.get(META_KEY)
    assert record is not None
    return blobs.get(codec.decode(record.data, Pointer).s3_key)


# ── death between any two steps ───────────────────────────────────────────────────────────────────


@pytest.mark.req("PB-6")
def test_publishes_all_or_nothing_after_a_death_between_any_two_steps(
    address: Address | None, store: Store, home: Path
) -> None:
    """'A crash in between leaves no dangling pointer and the orphan is collected later.'"""
    now = T0
    publish_mortally(store, home, now, STEPS_MAX, lambda: None, body=b"body 0")
    expected = b"body 0"
    for step in range(STEPS_MAX):
        now += timedelta(seconds=61)  # stale again, and every lease has expired
        body = f"body {step + 1}".encode()
        if address is None:
            died = dies_here(store, home, now, step, body)
        else:
            died = dies_there(address, home, now, step, body)

        blobs = FileBlobs(home, LOG)
        found = read(store, blobs)
        assert found in (expected, body)
        expected = found
        if not died:
            break
    else:
        pytest.fail(f"publishing takes more than {STEPS_MAX} steps")

    assert step >= 8, "reads, two flushes and two commits, each with a step on either side"
    assert expected == body
    assert store.get(LOCK_KEY) == (None,)
    collects_the_orphans(store, blobs, home, now + BLOB_KEPT + timedelta(seconds=1))


def collects_the_orphans(store: Store, blobs: FileBlobs, home: Path, now: datetime) -> None:
    named = list_referenced_blobs(store)
    orphans = {blob.digest for blob in blobs.iterate()} - named
    assert orphans, "some process died between writing a body and its pointer"

    run = collect(blobs, lambda: list_referenced_blobs(store), now)
    blobs.sweep(before=now)

    assert run == CollectedBlobs(len(orphans | named), len(orphans), len(orphans))
    assert all(blobs.exists(digest) for digest in named)
    assert list((home / "incoming").iterdir()) == []


def dies_there(address: Address, home: Path, now: datetime, step: int, body: bytes) -> bool:
    """Return whether a child process was killed at this step, rather than finishing."""
    child = CHILDREN.Process(target=die_at, args=(address, home, now, step, body))
    child.start()
    child.join()
    assert child.exitcode in (0, KILLED)
    return child.exitcode == KILLED


def dies_here(store: Store, home: Path, now: datetime, step: int, body: bytes) -> bool:
    """Die at this step in this process: memory would die with a child process."""

    def kill() -> None:
        raise Killed

    try:
        publish_mortally(store, home, now, step, kill, body=body)
    except Killed:
        return True
    return False
