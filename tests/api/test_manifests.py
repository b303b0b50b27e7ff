"""The channel's manifest: what it names, who publishes it, and when it is renewed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from tests.api.served_fleet import CHANNEL, Crew, sailing
from tidegate.control.fleet.enrollment import manifest_key
from tidegate.control.publication.manifests import (
    EPOCH_BITS,
    ChannelManifest,
    NamedRelease,
    key_id,
    verify_manifest,
)
from tidegate.control.worker import Counters, ManifestsLoop
from tidegate.domain.epochs import StartEpoch, start_epoch
from tidegate.domain.releases.rows import KnownRelease, known_key
from tidegate.kernel.model import Meta

PATH = f"/v1/agent/manifest/{CHANNEL}"


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    with sailing(tmp_path / "data") as crew:
        yield crew


def published(crew: Crew) -> ChannelManifest:
    entry = crew.installation.publisher.read(CHANNEL)
    assert entry is not None, "nothing is published"
    key = manifest_key(crew.installation).public_key()
    return verify_manifest(entry.body, {key_id(key): key})


def release(crew: Crew, release_id: str) -> NamedRelease:
    known = crew.installation.find(known_key(release_id), KnownRelease)
    assert known is not None
    return NamedRelease(release_id, known.row.digest)


def worker(crew: Crew) -> ManifestsLoop:
    return ManifestsLoop(crew.installation, Counters(CollectorRegistry()))


def test_a_promotion_publishes_the_manifest_before_it_answers(crew: Crew) -> None:
    crew.create()

    crew.promote("web.1")
    first = published(crew)
    crew.promote("web.2")
    second = published(crew)

    assert first.wanted == release(crew, "web.1")
    assert second.wanted == release(crew, "web.2")
    assert second.previous == release(crew, "web.1")
    assert second.version > first.version


def test_names_the_release_that_hosts_which_come_late_get(crew: Crew) -> None:
    """web.1 was rolled out to the end; web.2 and web.1 again are what was pinned since."""
    crew.sail()
    crew.converge("web-01")
    crew.tick()
    crew.dispatch()
    crew.converge("web-02")
    crew.tick()
    loop = worker(crew)
    loop.round()
    assert published(crew).last_good == release(crew, "web.1")

    crew.promote("web.2")

    assert published(crew).last_good == release(crew, "web.1")
    assert published(crew).wanted == release(crew, "web.2")


def test_the_worker_renews_a_manifest_long_before_it_expires(crew: Crew) -> None:
    crew.create()
    crew.promote()
    loop = worker(crew)
    first = published(crew)
    loop.round()
    crew.clock.advance(timedelta(hours=11))
    loop.round()
    assert published(crew) == first, "an idle channel publishes nothing"

    crew.clock.advance(timedelta(hours=2))
    loop.round()
    renewed = published(crew)

    assert crew.clock() < first.expires_at, "the old one was still good"
    assert renewed.version > first.version
    assert renewed.expires_at > first.expires_at
    assert renewed.names == first.names


def test_the_worker_repairs_a_publication_that_was_rolled_back(crew: Crew) -> None:
    crew.create()
    crew.promote("web.1")
    loop = worker(crew)
    loop.round()
    crew.clock.advance(timedelta(seconds=1))
    crew.promote("web.2")
    newest = published(crew)
    loop.round()
    oldest = min(id for id, _ in crew.installation.publisher.generations(CHANNEL))
    crew.installation.publisher.roll_back(CHANNEL, oldest)
    assert published(crew).version < newest.version

    loop.round()

    assert published(crew).wanted == release(crew, "web.2")
    assert published(crew).version > newest.version


def test_a_restored_log_never_publishes_a_lower_version(crew: Crew) -> None:
    """Agents have seen versions that the restored log does not know of."""
    crew.create()
    crew.promote("web.1")
    restored = StartEpoch(backup_head=1, backed_up_at=crew.clock())
    crew.installation.execute(start_epoch, restored, meta=Meta(actor="test"))

    worker(crew).round()

    assert published(crew).version >> EPOCH_BITS == 2, "above every version of the first epoch"


def test_a_reader_gets_the_last_published_manifest_and_writes_nothing(crew: Crew) -> None:
    """The channel's lease is held by another process, and the manifest is past its renewal."""
    crew.create()
    crew.promote()
    crew.clock.advance(timedelta(hours=13))
    crew.reopen()
    agent = crew.agents["web-01"]
    assert crew.installation.publisher.try_acquire(CHANNEL, 60) is not None
    head = crew.installation.head()

    answer = agent.send("GET", PATH)

    assert answer.status_code == 200
    assert crew.installation.head() == head


def test_a_first_reader_that_cannot_publish_is_asked_to_come_again(crew: Crew) -> None:
    crew.create()
    promotions = crew.installation.promotions
    assert crew.installation.publisher.try_acquire(CHANNEL, 60) is not None
    crew.promote()  # another process has the lease: the promotion stands all the same
    assert promotions.plan(CHANNEL).supersedes == f"{CHANNEL}@web.1"

    answer = crew.agents["web-01"].send("GET", PATH)

    assert (answer.status_code, answer.json()["code"]) == (503, "manifest_unpublished")


def test_counts_how_old_the_oldest_manifest_is(crew: Crew) -> None:
    crew.create()
    crew.promote()
    registry = CollectorRegistry()
    loop = ManifestsLoop(crew.installation, Counters(registry))
    crew.clock.advance(timedelta(minutes=5))

    loop.round()

    assert registry.get_sample_value("tidegate_manifest_age_seconds") == 300


def test_a_reader_gets_a_new_manifest_where_the_stored_one_is_damaged(crew: Crew) -> None:
    crew.create()
    crew.promote("web.1")
    first = published(crew)
    entry = crew.installation.publisher.read(CHANNEL)
    assert entry is not None
    files = [path for path in Path(crew.installation.settings.data).rglob("*") if path.is_file()]
    (body,) = [path for path in files if path.read_bytes() == entry.body]
    body.chmod(0o600)
    body.write_bytes(b"not the manifest")

    crew.installation.manifests.serve(CHANNEL)

    assert published(crew).version > first.version
    assert published(crew).wanted == first.wanted
