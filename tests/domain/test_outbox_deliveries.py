"""Intents of the outbox and their deliveries, starting with a promotion."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.contract.outbox_world import OPERATIONS, T0, OutboxWorld, intent, opened, outbox_world_on
from tests.fake_target import FakeTarget, by_operation
from tidegate.control.outbox.reconcile import Reconciler
from tidegate.control.outbox.sender import perform_then_record, recover
from tidegate.control.outbox.targets import Effect
from tidegate.domain.outbox.documents import OutboxDocument
from tidegate.domain.outbox.names import idempotency_key, intent_id
from tidegate.domain.outbox.reconciliation import Observation
from tidegate.domain.outbox.redaction import ERROR_CHARS_MAX, redact
from tidegate.domain.outbox.rows import DELIVERIES, OUTBOX, QUEUES
from tidegate.domain.outbox.states import IntentState, RequestedState
from tidegate.domain.releases.rows import EVIDENCE, KeptEvidence, actual_key
from tidegate.errors import ImmutableRecord
from tidegate.kernel import codec
from tidegate.kernel.collections import Nature
from tidegate.kernel.leases import Leases
from tidegate.kernel.records.records import Records
from tidegate.kernel.records.write_policy import WriteMode

ALIAS, DNS, NOTIFY = OPERATIONS


@pytest.fixture
def outbox_world() -> Iterator[OutboxWorld]:
    with opened(None) as store:
        outbox_world = outbox_world_on(store)
        yield outbox_world
        outbox_world.prove()


@pytest.fixture
def fake() -> FakeTarget:
    return FakeTarget()


# ── facts ─────────────────────────────────────────────────────────────────────────────────────────


def test_converts_in_both_directions(outbox_world: OutboxWorld, fake: FakeTarget) -> None:
    outbox_world.pin("web.1", ALIAS)
    assert fake.calls == []
    outbox_world.worker({ALIAS: fake}).work()
    assert outbox_world.types()[-1] == "AttemptSucceeded"

    state = RequestedState(release_id="web.2")
    effect = Effect("web", DNS, "web.2", state, 1, T0)
    seen = perform_then_record(fake, "web:web.2:dns_update:1", effect, lambda found: found)
    assert seen.idempotency_key == "web:web.2:dns_update:1"
    assert recover(fake, "web:web.2:dns_update:1", effect, lambda found: found) == seen
    assert recover(fake, "web:web.9:dns_update:9", effect, lambda found: found) is None


def test_shows_an_intent_and_its_delivery_as_one_document(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    outbox_world.pin("web.1", ALIAS)
    fake.fail("token AKIAIOSFODNN7EXAMPLE was refused")
    outbox_world.worker({ALIAS: fake}).work()

    shown = outbox_world.shown(ALIAS)

    assert (shown.operation, shown.idempotency_key) == (ALIAS, "web:web.1:lambda_alias_update:0")
    assert (shown.attempts, shown.created_at, shown.updated_at) == (1, T0, T0)
    assert shown.requested_state.release_id == "web.1"
    assert shown.next_attempt_at == T0 + timedelta(seconds=1)
    assert shown.last_error is not None
    assert "AKIA" not in shown.last_error
    assert {"next_attempt_at", "last_error"} <= set(OutboxDocument.__struct_fields__)


def test_reconciles_as_specified(outbox_world: OutboxWorld, fake: FakeTarget) -> None:
    worker = outbox_world.worker(by_operation(fake, OPERATIONS))
    reconciler = Reconciler(worker)
    outbox_world.pin("web.1", ALIAS)
    outbox_world.advance(120)
    assert reconciler.run_once().attempted == 1
    fake.world["web", ALIAS] = Observation()
    reconciler.run_once()
    worker.work()
    reconciler.run_once()
    assert outbox_world.types()[-4:] == [
        "DriftDetected",
        "IntentRedriven",
        "AttemptSucceeded",
        "DriftRepaired",
    ]
    assert len(set(fake.keys)) == 1, "always the same key"


# ── gaps ──────────────────────────────────────────────────────────────────────────────────────────


def test_splits_the_intent_from_its_delivery(outbox_world: OutboxWorld, fake: FakeTarget) -> None:
    outbox_world.pin("web.1", ALIAS)
    (before,) = outbox_world.store.range(OUTBOX.name, limit=5)
    fake.fail("once")
    outbox_world.worker({ALIAS: fake}).work()

    assert outbox_world.store.range(OUTBOX.name, limit=5) == (before,)
    assert OUTBOX.policy.mode is WriteMode.WRITE_ONCE
    assert DELIVERIES.nature is Nature.DERIVED
    with pytest.raises(ImmutableRecord):
        Records(outbox_world.store, outbox_world.clock).update(
            OUTBOX.name, before.key.id, {"operation": "x"}
        )


def test_finds_due_intents_by_an_index(outbox_world: OutboxWorld, fake: FakeTarget) -> None:
    assert [index.name for index in QUEUES.indexes] == ["due"]
    for number in range(3):
        outbox_world.pin("web.1", ALIAS, scope=f"s{number}")
    fake.fail("later")
    worker = outbox_world.worker({ALIAS: fake})

    assert len(worker.work()) == 3
    assert worker.work() == ()
    outbox_world.advance(1)
    assert [made.scope for made in worker.work()] == ["s0"]


def test_a_second_promotion_has_other_ids_and_keys() -> None:
    assert intent_id("web", "alias", "web.1", "c1") != intent_id("web", "alias", "web.1", "c2")
    first, second = (idempotency_key("web", "web.1", "alias", version) for version in (1, 3))
    assert (str(first), str(second)) == ("web:web.1:alias:1", "web:web.1:alias:3")


def test_claims_a_scope_by_a_lease(outbox_world: OutboxWorld, fake: FakeTarget) -> None:
    outbox_world.pin("web.1", ALIAS)
    held = Leases(outbox_world.store).acquire("outbox/web", "another", now=T0, seconds=30)

    assert outbox_world.worker({ALIAS: fake}).work() == ()
    Leases(outbox_world.store).release(held.key.id, "another", now=T0)
    assert len(outbox_world.worker({ALIAS: fake}).work()) == 1


def test_backs_off_and_records_a_dead_letter(outbox_world: OutboxWorld, fake: FakeTarget) -> None:
    outbox_world.pin("web.1", ALIAS)
    fake.fail(*["no"] * 12)
    worker = outbox_world.worker({ALIAS: fake})
    for _ in range(12):
        worker.work()
        outbox_world.advance(300)

    assert outbox_world.shown(ALIAS).state is IntentState.DEAD
    assert outbox_world.types()[-2:] == ["AttemptFailed", "IntentDied"]


def test_keeps_the_order_of_a_scope_and_the_newest_of_an_operation(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    outbox_world.pin("web.1", ALIAS, DNS)
    outbox_world.pin("web.2", ALIAS)
    assert outbox_world.shown(ALIAS).state is IntentState.SUPERSEDED
    worker = outbox_world.worker(by_operation(fake, OPERATIONS))
    for _ in range(3):
        worker.work()

    assert [effect.operation for _, effect in fake.calls] == [DNS, ALIAS]
    assert "IntentSuperseded" in outbox_world.types()


def test_records_the_intent_of_each_outcome(outbox_world: OutboxWorld, fake: FakeTarget) -> None:
    outbox_world.pin("web.1", ALIAS)
    fake.fail("status 503")
    worker = outbox_world.worker({ALIAS: fake})
    worker.work()
    outbox_world.advance(1)
    worker.work()

    failed, succeeded = (
        event
        for event in outbox_world.events()
        if event.type in ("AttemptFailed", "AttemptSucceeded")
    )
    assert {failed.kind, succeeded.kind} == {"effect"}
    for event, attempt in ((failed, b'"attempt":1'), (succeeded, b'"attempt":2')):
        assert intent(ALIAS).encode() in event.body
        assert attempt in event.body
    assert b"status 503" in failed.body


def test_keeps_only_allowed_parts_of_an_error() -> None:
    assert ERROR_CHARS_MAX == 500
    assert len(redact("word " * 1_000)) == 500
    said = redact("connection to db-7.internal as password=hunter2 failed after 30 seconds")
    assert said == "connection to [redacted] as [redacted] failed after 30 seconds"


def test_stores_a_conflicting_observation_as_evidence_without_authority(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    outbox_world.pin("web.1", ALIAS)
    worker = outbox_world.worker({ALIAS: fake})
    worker.work()
    before = outbox_world.store.get(actual_key("web"))
    fake.world["web", ALIAS] = Observation("by hand", {"releaseId": "web.9"})

    Reconciler(worker).run_once()

    assert outbox_world.store.get(actual_key("web")) == before
    (record,) = outbox_world.store.range(EVIDENCE.name, limit=5)
    kept = codec.decode(record.data, KeptEvidence)
    assert (kept.authority, kept.document["state"]) == (False, {"releaseId": "web.9"})
    assert outbox_world.types()[-2:] == ["EvidenceKept", "ReconciliationRefused"]
