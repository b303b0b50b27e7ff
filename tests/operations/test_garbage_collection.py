"""What the worker removes because it has expired, and how it reports it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from tests.api.serving import Served, serving
from tests.operations.worker_loops import QUICK, until
from tidegate.clock import ManualClock
from tidegate.control.installation import Installation
from tidegate.control.publication.entries import PublicationPolicy
from tidegate.control.storage.archive.files import FileSegmentStore
from tidegate.control.storage.archive.segment_store import ArchiveUnavailable
from tidegate.control.storage.blobs import BLOB_KEPT
from tidegate.control.storage.blobs.files import FileBlobs
from tidegate.control.storage.garbage_collection import LEASE
from tidegate.control.worker import Worker, make_garbage_collector
from tidegate.domain.fleet.credentials import ENROLLMENT_TOKENS, KEPT as TOKEN_KEPT, TOKEN_LIFE
from tidegate.domain.publication.facts import RowsCollected
from tidegate.domain.publication.rows import GENERATIONS, PUBLICATIONS
from tidegate.kernel.leases import Leases
from tidegate.kernel.model import Meta

KEPT = PublicationPolicy(versioned=True, retention=timedelta(hours=1))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data", clock=ManualClock(datetime.now(UTC))) as served:
        yield served


def clock_of(server: Served) -> ManualClock:
    clock = server.installation.clock
    assert isinstance(clock, ManualClock)
    return clock


def published(server: Served) -> None:
    """Publish a page with two expired generations, one that is kept, and one that is still new."""
    publisher, clock = server.installation.publisher, clock_of(server)
    publisher.serve("/old", lambda: b"one", KEPT)
    publisher.serve("/for ever", lambda: b"always", PublicationPolicy(versioned=True))
    clock.advance(timedelta(minutes=2))
    publisher.serve("/old", lambda: b"two", KEPT)
    clock.advance(timedelta(minutes=59, seconds=30))
    publisher.serve("/new", lambda: b"new", KEPT)
    clock.advance(timedelta(seconds=40))
    publisher.serve("/old but renewed", lambda: b"x", KEPT)
    clock.advance(timedelta(minutes=1))


def rows(installation: Installation) -> tuple[int, int]:
    return tuple(  # type: ignore[return-value]
        len(installation.reads.range(collection, limit=100))
        for collection in (PUBLICATIONS, GENERATIONS)
    )


@pytest.mark.req("PB-7", engines=None, reason="the worker; what it calls is tested on each engine")
def test_the_worker_removes_rows_past_their_ttl_and_reports_it(
    server: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """PB-7: "ttl only lets rows be collected later"."""
    installation, registry = server.installation, CollectorRegistry()
    published(server)
    assert rows(installation) == (4, 5)

    with caplog.at_level(logging.INFO), Worker(installation, pace=QUICK, registry=registry):
        until(lambda: installation.publisher.read("/old") is None)
        until(
            lambda: registry.get_sample_value("tidegate_collected_total", {"what": "generations"})
        )

    assert rows(installation) == (3, 3)
    assert _counted(registry, "publications") == 1
    assert _counted(registry, "generations") == 2
    assert _counted(registry, "blobs") == 0
    assert "collected 1 publications, 2 generations" in caplog.text
    events = installation.log.feed(after=0, limit=500)
    (collected,) = (event for event in events if event.type == RowsCollected.__name__)
    assert collected.meta.actor == "worker"
    assert installation.health.differences() == []


def test_a_round_without_anything_to_remove_reports_nothing(
    server: Served, caplog: pytest.LogCaptureFixture
) -> None:
    registry = CollectorRegistry()
    collecting = make_garbage_collector(server.installation, registry)
    head = server.installation.log.head()

    with caplog.at_level(logging.INFO):
        assert not collecting.round()

    assert "collected" not in caplog.text
    assert _counted(registry, "publications") == 0
    assert server.installation.log.head() == head


def test_leaves_it_to_another_worker_that_is_already_removing(server: Served) -> None:
    installation = server.installation
    published(server)
    leases = Leases(installation.store)
    leases.acquire(LEASE, "another", now=installation.clock(), seconds=60)
    collecting = make_garbage_collector(installation, CollectorRegistry())

    collecting.round()
    assert rows(installation) == (4, 5), "another one has the lease"

    leases.release(LEASE, "another", now=installation.clock())
    collecting.round()
    assert rows(installation) == (3, 3)


def test_removes_unreferenced_blobs_and_unfinished_files(server: Served, tmp_path: Path) -> None:
    installation, registry = server.installation, CollectorRegistry()
    published(server)
    orphan = installation.blobs.put(b"nobody names this")
    place = FileSegmentStore(tmp_path / "mirror")
    for half in (tmp_path / "data" / "blobs" / "incoming", tmp_path / "mirror" / "incoming"):
        half.mkdir(parents=True, exist_ok=True)
        (half / "half").write_bytes(b"ha")
        os.utime(half / "half", (0, 0))
    assert isinstance(installation.blobs, FileBlobs)
    collecting = make_garbage_collector(installation, registry, place)

    collecting.round()
    assert installation.blobs.exists(orphan), "it was put less than a day ago"
    clock_of(server).advance(BLOB_KEPT + timedelta(minutes=1))
    collecting.round()

    assert not installation.blobs.exists(orphan)
    assert _counted(registry, "drafts") == 2
    entry = installation.publisher.read("/for ever")
    assert entry is not None
    assert entry.body == b"always"


def test_removes_enrollment_tokens_that_ended_long_ago(server: Served) -> None:
    installation, registry = server.installation, CollectorRegistry()
    installation.enrollment.make_token("t1", "web-1", None, Meta(actor="user_admin0000"))
    clock_of(server).advance(TOKEN_LIFE + TOKEN_KEPT + timedelta(minutes=1))
    installation.enrollment.make_token("t2", "web-2", None, Meta(actor="user_admin0000"))

    make_garbage_collector(installation, registry).round()

    left = installation.reads.range(ENROLLMENT_TOKENS, limit=10)
    assert [found.id for found in left] == ["t2"]
    assert _counted(registry, "enrollments") == 1


def test_reports_how_far_the_archive_is_behind(
    server: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    installation, registry = server.installation, CollectorRegistry()
    published(server)
    home = tmp_path / "mirror"
    worker = Worker(installation, archive=FileSegmentStore(home), pace=QUICK, registry=registry)
    (archive,) = (loop for loop in worker.loops if loop.name == "archive")
    segments = home / "segments"
    segments.rename(home / "away")

    caplog.set_level(logging.INFO)
    with pytest.raises(ArchiveUnavailable):
        archive.round()
    behind, alarming = _gauge(registry, "lag_events"), _gauge(registry, "alarming")
    (home / "away").rename(segments)
    archive.round()

    assert behind == len(installation.log.feed(after=0, limit=500))
    assert alarming == 1
    assert "archive_unavailable" in caplog.text
    assert _gauge(registry, "lag_events") == _gauge(registry, "lag_seconds") == 0
    assert _gauge(registry, "alarming") == 0
    assert _gauge(registry, "position") == installation.log.head()
    assert _gauge(registry, "looked_at_seconds") == installation.clock().timestamp()
    assert "the archive has caught up" in caplog.text


def _counted(registry: CollectorRegistry, what: str) -> float | None:
    return registry.get_sample_value("tidegate_collected_total", {"what": what})


def _gauge(registry: CollectorRegistry, name: str) -> float | None:
    return registry.get_sample_value(f"tidegate_archive_{name}")
