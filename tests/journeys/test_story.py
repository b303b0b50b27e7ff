"""From a draft to deploy authority and back: the story of the product so far."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from tests.contract.address import Address, address_of
from tests.contract.webhook_receiver import serve_webhooks, webhook
from tests.domain.package_log import approvers
from tests.domain.registry import operator
from tests.journeys.story import (
    APPROVER,
    AUTHOR,
    CHANNEL,
    DEFAULT,
    FOLDS,
    MANAGER,
    NOTIFY,
    PAGE,
    SLICE_OF,
    TRUSTED,
    Story,
    play_story,
)
from tests.servers.process import free_port
from tidegate.control.outbox.sender import OutboxSender
from tidegate.control.outbox.targets import TargetDone, TargetFailed
from tidegate.control.publication.entries import ServedState
from tidegate.control.publication.manifests import BadSignature, ManifestResponse, verify_manifest
from tidegate.control.queries import history
from tidegate.control.queries.outbox_reader import OutboxReader
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.content.differences import FileChangeKind
from tidegate.domain.outbox.documents import OutboxDocument
from tidegate.domain.outbox.rows import OUTBOX
from tidegate.domain.packages.approvals import ApproveRevision, ProposeRevision
from tidegate.domain.packages.deletions import DeleteRevision, ProposeDeletion
from tidegate.domain.packages.refusals import SelfApproval
from tidegate.domain.packages.rows import revision_key
from tidegate.domain.packages.slices import CreateRepository
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.packages.updates import UpdateRevision
from tidegate.domain.releases.refusals import StillPinned
from tidegate.domain.releases.rows import ACTUAL, EVENTS, PINS, ReleasePins
from tidegate.domain.releases.slices import RegisterRelease
from tidegate.kernel import codec
from tidegate.kernel.model import ALL, Key
from tidegate.kernel.replay import differences

GOOD = {"index.html": b"<h1>hello</h1>\n", "conf/site.toml": b"workers = 4\n"}
WORSE = GOOD | {"conf/site.toml": b"workers = 0\n"}
SCOPES = 8


@pytest.fixture
def address(request: pytest.FixtureRequest, engine: str, tmp_path: Path) -> Address | None:
    return address_of(request, engine, tmp_path)


@pytest.fixture
def story(address: Address | None, tmp_path: Path) -> Iterator[Story]:
    """A story at whose end replay must agree with every row, and the mirror with the log."""
    with play_story(address, tmp_path) as story:
        story.tell(CreateRepository(name=DEFAULT, by=MANAGER))
        yield story
        assert differences(story.store, FOLDS) == []
        story.archive.work()
        assert story.archive.lag().events == 0
        assert not story.archive.verify()


def reviewed(story: Story, name: str) -> None:
    """Have the author propose, and another person approve the content that they read."""
    story.act(ProposeRevision, name, AUTHOR)
    story.act(ApproveRevision, name, APPROVER, digest=story.manifest(name).digest)


def first_release(story: Story) -> str:
    name = story.draft("v1", AUTHOR)
    story.push(name, GOOD, AUTHOR)
    reviewed(story, name)
    return name


def second_release(story: Story, first: str) -> str:
    name = story.edit(first, "v2", AUTHOR)
    story.push(name, WORSE, AUTHOR)
    reviewed(story, name)
    return name


# ── the whole story ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("LC-4", "LC-18", "RS-1", "RS-9", "PB-1")
def test_the_story_from_draft_to_rollback(story: Story) -> None:
    first = an_author_drafts_and_somebody_else_approves(story)
    place = the_release_manager_opens_the_channel(story, first)
    second, promoted = a_second_revision_is_promoted(story, first, place)
    the_manifest_is_published_and_served(story)
    rolled_back = the_first_one_is_pinned_again(story, first)
    what_is_pinned_cannot_be_deleted(story, first, second)
    every_question_has_one_answer(story, first, promoted, rolled_back)


def an_author_drafts_and_somebody_else_approves(story: Story) -> str:
    name = story.draft("v1", AUTHOR)
    story.push(name, GOOD, AUTHOR)
    story.act(ProposeRevision, name, AUTHOR)

    seen = story.changes(name)
    assert [(change.path, change.what) for change in seen] == [
        ("conf/site.toml", FileChangeKind.ADDED),
        ("index.html", FileChangeKind.ADDED),
    ]
    assert {
        change.path: story.blobs.get(f"sha256:{change.after.sha256}")
        for change in seen
        if change.after is not None
    } == GOOD
    digest = story.manifest(name).digest
    with pytest.raises(SelfApproval):
        story.act(ApproveRevision, name, AUTHOR, digest=digest)
    story.act(ApproveRevision, name, APPROVER, digest=digest)

    published = story.revision(name)
    assert (published.lifecycle, published.number) == (Lifecycle.PUBLISHED, 1)
    assert published.content.digest == digest
    return name


def the_release_manager_opens_the_channel(story: Story, first: str) -> str:
    """… and the receiver, where there is one, gets the event."""
    opened = story.register(first, MANAGER)

    assert story.actual().pinned_release_id == "web.1"
    assert is_one_commit(story, opened)
    with serve_webhooks(free_port()) as receiver:
        (attempted,) = deliver(story, receiver.place)
        assert isinstance(attempted, TargetDone)
    assert owed(story)["web.1"].state == "done"
    return receiver.place


def a_second_revision_is_promoted(
    story: Story, first: str, place: str
) -> tuple[str, CommandOutcome]:
    """… while the receiver is down: the promotion counts, and the receiver gets the event later."""
    second = second_release(story, first)
    (change,) = story.changes(second, since=first)
    assert (change.path, change.what) == ("conf/site.toml", FileChangeKind.CHANGED)

    promoted = story.promote(second, MANAGER)

    assert is_one_commit(story, promoted)
    actual = story.actual()
    assert (actual.pinned_release_id, actual.previous_release_id) == ("web.2", "web.1")
    (attempted,) = deliver(story, place)
    assert isinstance(attempted, TargetFailed)
    waiting = owed(story)["web.2"]
    assert (waiting.state, waiting.attempts) == ("pending", 1)
    assert waiting.last_error is not None
    assert waiting.next_attempt_at is not None
    assert waiting.next_attempt_at > story.clock()  # it backs off

    story.clock.advance(timedelta(minutes=10))
    with serve_webhooks(int(place.rpartition(":")[2])) as receiver:
        (attempted,) = deliver(story, place)
        assert isinstance(attempted, TargetDone)
        ((_, headers, body),) = receiver.requests
    assert headers["webhook-id"] == f"{CHANNEL}:web.2:{NOTIFY}:1" == waiting.idempotency_key
    assert json.loads(body)["data"]["releaseId"] == "web.2"
    assert (owed(story)["web.2"].state, owed(story)["web.2"].attempts) == ("done", 2)
    return second, promoted


def the_manifest_is_published_and_served(story: Story) -> None:
    assert story.publish(MANAGER) is ServedState.MISS

    answer = story.get()
    assert answer.status == 200
    manifest = verify_manifest(answer.body, TRUSTED)
    assert manifest.wanted.release_id == "web.2"
    assert story.get(answer.etag) == ManifestResponse(304, answer.etag)
    with pytest.raises(BadSignature):
        verify_manifest(answer.body.replace(b"web.2", b"web.9"), TRUSTED)
    with pytest.raises(BadSignature):
        verify_manifest(answer.body, {})


def the_first_one_is_pinned_again(story: Story, first: str) -> CommandOutcome:
    """It is a promotion like any other: new evidence, a new version, a new manifest."""
    before, revision = story.get(), story.store.get(revision_key(first))

    rolled_back = story.promote(first, MANAGER)
    assert story.get(before.etag).status == 304  # readers get the published one until …
    assert story.publish(MANAGER) is ServedState.MISS

    actual = story.actual()
    assert (actual.pinned_release_id, actual.previous_release_id) == ("web.1", "web.2")
    assert actual.version == 2
    assert story.store.get(revision_key(first)) == revision  # pinned again, not changed
    after = story.get(before.etag)
    assert after.status == 200
    assert verify_manifest(after.body, TRUSTED).wanted.release_id == "web.1"
    assert len(list(story.publisher.generations(CHANNEL))) == 2
    return rolled_back


def what_is_pinned_cannot_be_deleted(story: Story, first: str, second: str) -> None:
    before = story.store.read(ALL).events[-1]

    with pytest.raises(StillPinned) as refusal:
        story.act(ProposeDeletion, first, MANAGER)

    assert refusal.value.facts == {
        "release_id": "web.1",
        "pins": 1,
        "channels": (CHANNEL,),
        "hosts": (),
        "host_count": 0,
    }
    assert story.store.read(ALL).events[-1] == before
    assert story.revision(first).lifecycle == Lifecycle.PUBLISHED
    assert story.revision(second).lifecycle == Lifecycle.PUBLISHED


def every_question_has_one_answer(
    story: Story, first: str, promoted: CommandOutcome, rolled_back: CommandOutcome
) -> None:
    """ "what was authoritative at 14:05, on what evidence, who approved" """
    assert approvers(story.timeline(first)) == (APPROVER,)
    assert [step.action for step in story.timeline(first)][:5] == [
        *("Create", "Update", "Propose", "Approve", "Publish")
    ]
    pins = [
        story.authoritative_at(position).release_id
        for position in (promoted.position - 3, promoted.position, rolled_back.position)
    ]
    assert pins == ["web.1", "web.2", "web.1"]
    event = story.authoritative_at(promoted.position)
    assert event.by == MANAGER
    assert event.provenance is not None
    assert event.provenance.evidence[0].ref == f"operator://deploy/{CHANNEL}/web.2"
    assert event.confidence is not None
    assert event.confidence.reasons == ("operator_command_authority",)


def is_one_commit(story: Story, outcome: CommandOutcome) -> bool:
    """Return whether the channel's row, its last event and the intent were written with this change
    alone.
    """
    assert outcome.receipt is not None
    positions = range(outcome.receipt.first, outcome.receipt.last + 1)
    actual = history.find_actual(story.store, CHANNEL)
    event = history.list_events(story.store, CHANNEL, limit=PAGE)[-1]
    intents = history.list_intents(story.store, CHANNEL, limit=PAGE)
    assert {actual.key.collection, event.key.collection} == {ACTUAL.name, EVENTS.name}
    born = [intent.born for intent in intents if intent.key.collection == OUTBOX.name]
    return all(place in positions for place in (actual.version, event.born, max(born)))


def deliver(story: Story, place: str) -> tuple[TargetDone | TargetFailed, ...]:
    """Run one round of the outbox worker."""
    story.clock.advance(timedelta(seconds=1))
    targets = {NOTIFY: webhook(place, clock=story.clock)}
    worker = OutboxSender(story.control, targets, jitter=lambda: 0.5)
    return tuple(made.outcome for made in worker.work())


def owed(story: Story) -> dict[str, OutboxDocument]:
    """Return the pending and the completed effects, by release."""
    found = OutboxReader(story.store).list_of_scope(CHANNEL, limit=PAGE)
    return {str(document.requested_state.release_id): document for document in found}


# ── pins ──────────────────────────────────────────────────────────────────────────────────────────


def pins(story: Story, release_id: str) -> int:
    (record,) = story.store.get(Key(PINS.name, release_id))
    return 0 if record is None else codec.decode(record.data, ReleasePins).pins


def test_deletes_a_release_once_no_scope_is_pinned_to_it(story: Story) -> None:
    first = first_release(story)
    story.register(first, MANAGER)
    second = second_release(story, first)
    story.act(ProposeDeletion, second, MANAGER)
    story.act(DeleteRevision, second, APPROVER)  # not pinned
    third = story.edit(first, "v3", AUTHOR)
    story.push(third, WORSE, AUTHOR)
    reviewed(story, third)
    story.promote(third, MANAGER)
    assert (pins(story, "web.1"), pins(story, "web.3")) == (0, 1)

    with pytest.raises(StillPinned):
        story.act(ProposeDeletion, third, MANAGER)
    story.promote(first, MANAGER)
    story.act(ProposeDeletion, third, MANAGER)
    story.promote(third, MANAGER)  # a proposal removes nothing
    with pytest.raises(StillPinned):
        story.act(DeleteRevision, third, APPROVER)
    story.promote(first, MANAGER)
    story.act(DeleteRevision, third, APPROVER)

    assert (pins(story, "web.1"), pins(story, "web.3")) == (1, 0)


def test_does_not_begin_to_delete_a_pinned_release(story: Story) -> None:
    """A deletion that waits for finalizers would leave no choice but to complete it."""
    first = first_release(story)
    story.act(UpdateRevision, first, AUTHOR, finalizers=("audit",))
    story.act(ProposeDeletion, first, MANAGER)
    story.register(first, MANAGER)

    with pytest.raises(StillPinned):
        story.act(DeleteRevision, first, APPROVER)

    assert story.revision(first).deletion_timestamp is None


def test_pins_one_release_in_many_scopes_at_once(story: Story) -> None:
    """Pins are counted apart from the release, so no scope must decide again because of another
    one.
    """
    asked = story.pinning(first_release(story))
    commands = [
        RegisterRelease(
            **asked | {"scope": scope, "authority": operator("web.1", scope)}, by=MANAGER
        )
        for scope in (f"web-{number}" for number in range(SCOPES))
    ]
    story.clock.advance(timedelta(seconds=1))

    with ThreadPoolExecutor(SCOPES) as pool:
        list(pool.map(lambda command: execute(story, command), commands))

    assert pins(story, "web.1") == SCOPES


def execute(story: Story, command: RegisterRelease) -> None:
    """Execute without the story's clock, which belongs to one person."""
    story.control.execute(SLICE_OF[RegisterRelease], command)
