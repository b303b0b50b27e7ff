"""The channel's manifest: what it names, who publishes it, and when it is renewed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from prometheus_client import CollectorRegistry

from tests.api.served_fleet import CHANNEL, ServedFleet
from tidegate.control.fleet.enrollment import manifest_key
from tidegate.control.publication.manifests import (
    EPOCH_BITS,
    ChannelManifest,
    NamedRelease,
    key_id,
    verify_manifest,
)
from tidegate.control.worker import make_manifests_loop
from tidegate.control.worker_loops import Counters, ManifestsLoop
from tidegate.domain.epochs import FIRST, StartEpoch, start_epoch
from tidegate.domain.releases.rows import KnownRelease, known_key
from tidegate.kernel.model import Meta

PATH = f"/v1/agent/manifest/{CHANNEL}"


def published(fleet: ServedFleet) -> ChannelManifest:
    entry = fleet.installation.publisher.read(CHANNEL)
    assert entry is not None, "nothing is published"
    key = manifest_key(fleet.installation.secrets).public_key()
    return verify_manifest(entry.body, {key_id(key): key})


def release(fleet: ServedFleet, release_id: str) -> NamedRelease:
    known = fleet.installation.reads.find(known_key(release_id), KnownRelease)
    assert known is not None
    return NamedRelease(release_id, known.row.digest)


def worker(fleet: ServedFleet) -> ManifestsLoop:
    return make_manifests_loop(fleet.installation, Counters(CollectorRegistry()))


def test_a_promotion_publishes_the_manifest_before_it_answers(fleet: ServedFleet) -> None:
    fleet.create()

    fleet.promote("web.1")
    first = published(fleet)
    fleet.promote("web.2")
    second = published(fleet)

    assert first.wanted == release(fleet, "web.1")
    assert second.wanted == release(fleet, "web.2")
    assert second.previous == release(fleet, "web.1")
    assert second.version > first.version


def test_names_the_release_for_late_hosts(fleet: ServedFleet) -> None:
    """web.1 was rolled out to all hosts; since then web.2 and web.1 again were pinned."""
    fleet.sail()
    fleet.converge("web-01")
    fleet.tick()
    fleet.dispatch()
    fleet.converge("web-02")
    fleet.tick()
    loop = worker(fleet)
    loop.round()
    assert published(fleet).last_good == release(fleet, "web.1")

    fleet.promote("web.2")

    assert published(fleet).last_good == release(fleet, "web.1")
    assert published(fleet).wanted == release(fleet, "web.2")


def test_the_worker_renews_a_manifest_long_before_it_expires(fleet: ServedFleet) -> None:
    fleet.create()
    fleet.promote()
    loop = worker(fleet)
    first = published(fleet)
    loop.round()
    fleet.clock.advance(timedelta(hours=11))
    loop.round()
    assert published(fleet) == first, "an idle channel publishes nothing"

    fleet.clock.advance(timedelta(hours=2))
    loop.round()
    renewed = published(fleet)

    assert fleet.clock() < first.expires_at, "the old one was still valid"
    assert renewed.version > first.version
    assert renewed.expires_at > first.expires_at
    assert renewed.names == first.names


def test_the_worker_repairs_a_publication_that_was_rolled_back(fleet: ServedFleet) -> None:
    fleet.create()
    fleet.promote("web.1")
    loop = worker(fleet)
    loop.round()
    fleet.clock.advance(timedelta(seconds=1))
    fleet.promote("web.2")
    newest = published(fleet)
    loop.round()
    oldest = min(id for id, _ in fleet.installation.publisher.generations(CHANNEL))
    fleet.installation.publisher.roll_back(CHANNEL, oldest)
    assert published(fleet).version < newest.version

    loop.round()

    assert published(fleet).wanted == release(fleet, "web.2")
    assert published(fleet).version > newest.version


def test_a_restored_log_never_publishes_a_lower_version(fleet: ServedFleet) -> None:
    """Agents have seen versions that the restored log does not contain."""
    fleet.create()
    fleet.promote("web.1")
    restored = StartEpoch(backup_head=1, backed_up_at=fleet.clock())
    fleet.installation.execute.run(start_epoch, restored, meta=Meta(actor="test"))

    worker(fleet).round()

    assert published(fleet).version >> EPOCH_BITS > FIRST, "above every version of the first epoch"


def test_a_reader_gets_the_last_published_manifest_and_writes_nothing(fleet: ServedFleet) -> None:
    """Another process has the channel's lease, and the manifest is due for renewal."""
    fleet.create()
    fleet.promote()
    fleet.clock.advance(timedelta(hours=13))
    fleet.reopen()
    agent = fleet.agents["web-01"]
    assert fleet.installation.publisher.try_acquire(CHANNEL, 60) is not None
    head = fleet.installation.log.head()

    answer = agent.send("GET", PATH)

    assert answer.status_code == 200
    assert fleet.installation.log.head() == head


def test_a_first_reader_that_cannot_publish_must_retry(fleet: ServedFleet) -> None:
    fleet.create()
    promotions = fleet.installation.promotions
    assert fleet.installation.publisher.try_acquire(CHANNEL, 60) is not None
    fleet.promote()  # another process has the lease: the promotion succeeds anyway
    assert promotions.plan(CHANNEL).supersedes == f"{CHANNEL}@web.1"

    answer = fleet.agents["web-01"].send("GET", PATH)

    assert (answer.status_code, answer.json()["code"]) == (503, "manifest_unpublished")


def test_a_metric_shows_the_age_of_the_oldest_manifest(fleet: ServedFleet) -> None:
    fleet.create()
    fleet.promote()
    registry = CollectorRegistry()
    loop = make_manifests_loop(fleet.installation, Counters(registry))
    fleet.clock.advance(timedelta(minutes=5))

    loop.round()

    assert registry.get_sample_value("tidegate_manifest_age_seconds") == 300


def test_a_reader_gets_a_new_manifest_if_the_stored_one_is_damaged(fleet: ServedFleet) -> None:
    fleet.create()
    fleet.promote("web.1")
    first = published(fleet)
    entry = fleet.installation.publisher.read(CHANNEL)
    assert entry is not None
    files = [path for path in Path(fleet.installation.settings.data).rglob("*") if path.is_file()]
    (body,) = [path for path in files if path.read_bytes() == entry.body]
    body.chmod(0o600)
    body.write_bytes(b"not the manifest")

    fleet.installation.manifests.serve(CHANNEL)

    assert published(fleet).version > first.version
    assert published(fleet).wanted == first.wanted
