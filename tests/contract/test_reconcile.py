"""The reconciler reports where the world, our rows and our history differ, and decides nothing for
us.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.contract.address import Address
from tests.contract.outbox_world import OPERATIONS, T0, OutboxWorld, intent, opened, outbox_world_on
from tests.fake_target import FakeTarget, by_operation
from tidegate.control.outbox.reconcile import (
    OVERDUE_SECONDS,
    Reconciler,
    ReconcileResult,
    ScopeHistoryTooLong,
)
from tidegate.control.outbox.targets import Effect, TargetDone, TargetFailed
from tidegate.domain.outbox.reconciliation import Observation
from tidegate.domain.outbox.rows import ACTUAL, Drift, drift_key
from tidegate.domain.outbox.slices import CancelIntent, cancel_intent
from tidegate.domain.outbox.states import DriftState, IntentState, ReconciliationFinding
from tidegate.domain.provenance import Confidence
from tidegate.domain.releases.rows import (
    ACTUAL as ACTUAL_ROWS,
    EVIDENCE,
    Actual,
    KeptEvidence,
    actual_key,
)
from tidegate.kernel import codec
from tidegate.kernel.model import Record
from tidegate.kernel.store import Store

ALIAS, DNS, NOTIFY = OPERATIONS


@pytest.fixture
def store(address: Address | None) -> Iterator[Store]:
    with opened(address) as store:
        yield store


@pytest.fixture
def outbox_world(store: Store) -> Iterator[OutboxWorld]:
    outbox_world = outbox_world_on(store)
    yield outbox_world
    outbox_world.prove()


@pytest.fixture
def fake() -> FakeTarget:
    return FakeTarget()


@pytest.fixture
def reconciler(outbox_world: OutboxWorld, fake: FakeTarget) -> Reconciler:
    return Reconciler(outbox_world.worker(by_operation(fake, OPERATIONS)))


def done(outbox_world: OutboxWorld, fake: FakeTarget, *releases: str) -> None:
    """Wait until each release is pinned and its alias moved."""
    for release_id in releases:
        outbox_world.pin(release_id, ALIAS)
        outbox_world.worker({ALIAS: fake}).work()
        assert outbox_world.shown(ALIAS, release_id).state is IntentState.DONE


def drift(outbox_world: OutboxWorld, subject: str) -> Drift:
    (record,) = outbox_world.store.get(drift_key("web", subject))
    assert record is not None
    return codec.decode(record.data, Drift)


def actual(outbox_world: OutboxWorld) -> Record:
    (record,) = outbox_world.store.get(actual_key("web"))
    assert record is not None
    return record


def appends_nothing(outbox_world: OutboxWorld, reconciler: Reconciler) -> bool:
    head = outbox_world.head()
    return reconciler.run_once().appended == 0 and outbox_world.head() == head


@pytest.mark.req("RS-11")
def test_reports_nothing_when_everything_matches(
    outbox_world: OutboxWorld, fake: FakeTarget, reconciler: Reconciler
) -> None:
    """RS-11: "a second pass without change appends nothing"."""
    done(outbox_world, fake, "web.1")
    head = outbox_world.head()

    assert reconciler.run_once() == ReconcileResult(scopes=1)
    assert reconciler.run_once() == ReconcileResult(scopes=1)

    assert outbox_world.head() == head


@pytest.mark.req("RS-8", "RS-11")
def test_completes_an_effect_whose_success_was_never_reported(
    outbox_world: OutboxWorld, fake: FakeTarget, reconciler: Reconciler
) -> None:
    """RS-11: "finds pending outbox rows … observes the external system"."""

    class Mute(FakeTarget):
        """Performs the effect, and loses the answer."""

        def perform(self, key: str, effect: Effect) -> TargetDone | TargetFailed:
            super().perform(key, effect)
            return TargetFailed("no answer")

    mute = Mute()
    outbox_world.pin("web.1", ALIAS)
    worker = outbox_world.worker({ALIAS: mute})
    worker.work()
    assert outbox_world.shown(ALIAS).state is IntentState.PENDING
    head = outbox_world.head()

    assert Reconciler(worker).run_once().appended == 1

    assert outbox_world.types(head) == ["AttemptSucceeded"]
    assert outbox_world.shown(ALIAS).state is IntentState.DONE
    assert len(mute.calls) == 1
    assert appends_nothing(outbox_world, Reconciler(worker))


@pytest.mark.req("RS-11")
def test_retries_an_overdue_effect_with_its_own_key(
    outbox_world: OutboxWorld, fake: FakeTarget, reconciler: Reconciler
) -> None:
    """RS-11: "retries when safe": no worker runs here."""
    outbox_world.pin("web.1", ALIAS)

    assert reconciler.run_once() == ReconcileResult(scopes=1)
    outbox_world.advance(OVERDUE_SECONDS)
    assert reconciler.run_once() == ReconcileResult(scopes=1, attempted=1)

    assert fake.keys == ("web:web.1:lambda_alias_update:0",)
    assert outbox_world.shown(ALIAS).state is IntentState.DONE
    assert appends_nothing(outbox_world, reconciler)


@pytest.mark.req("RS-11")
@pytest.mark.parametrize("finding", [ReconciliationFinding.BEHIND, ReconciliationFinding.MISSING])
def test_records_drift_and_repeats_the_effect_under_the_same_key(
    outbox_world: OutboxWorld,
    fake: FakeTarget,
    reconciler: Reconciler,
    finding: ReconciliationFinding,
) -> None:
    """RS-11: "appends reconciliation events, retries when safe"."""
    done(outbox_world, fake, "web.1", "web.2")
    wanted = fake.world["web", ALIAS]
    lost = Observation("web:web.1:lambda_alias_update:0", {"releaseId": "web.1"})
    fake.world["web", ALIAS] = lost if finding is ReconciliationFinding.BEHIND else Observation()
    head, pinned = outbox_world.head(), actual(outbox_world)

    reconciler.run_once()
    assert outbox_world.types(head) == ["DriftDetected", "IntentRedriven"]
    assert drift(outbox_world, ALIAS).finding is finding
    assert appends_nothing(outbox_world, reconciler)
    outbox_world.worker({ALIAS: fake}).work()
    reconciler.run_once()

    assert outbox_world.types(head)[2:] == ["AttemptSucceeded", "DriftRepaired"]
    assert fake.world["web", ALIAS] == wanted
    assert fake.keys[-1] == fake.keys[-2] == wanted.idempotency_key
    assert drift(outbox_world, ALIAS).state is DriftState.REPAIRED
    assert actual(outbox_world) == pinned
    assert appends_nothing(outbox_world, reconciler)


@pytest.mark.req("RS-11")
def test_repeats_an_effect_once_per_drift_and_then_leaves_the_drift_open(
    outbox_world: OutboxWorld,
) -> None:
    class Deaf(FakeTarget):
        """Answers that it succeeded, and does nothing."""

        def perform(self, key: str, effect: Effect) -> TargetDone | TargetFailed:
            self.calls.append((key, effect))
            return TargetDone()

    deaf = Deaf()
    outbox_world.pin("web.1", ALIAS)
    worker = outbox_world.worker({ALIAS: deaf})
    worker.work()
    reconciler = Reconciler(worker)

    for _ in range(3):
        reconciler.run_once()
        worker.work()

    assert len(deaf.calls) == 2
    assert drift(outbox_world, ALIAS).state is DriftState.OPEN
    assert appends_nothing(outbox_world, reconciler)


@pytest.mark.req("RS-11")
@pytest.mark.parametrize(
    "seen",
    [
        Observation("web:web.9:lambda_alias_update:7", {"releaseId": "web.9"}),
        Observation("api:web.1:lambda_alias_update:0", {"releaseId": "web.1"}),
        Observation("by hand", {"releaseId": "web.1"}),
        Observation("", {"releaseId": "web.666"}),
        Observation("web:web.2:lambda_alias_update:1", {"releaseId": "web.666"}),
    ],
    ids=["from the future", "another scope", "not a key", "no key", "our key, other state"],
)
def test_refuses_conflicting_evidence_and_leaves_pin_and_confidence_as_they_were(
    outbox_world: OutboxWorld, fake: FakeTarget, reconciler: Reconciler, seen: Observation
) -> None:
    """RS-11: "conflicting evidence is refused and leaves pin and confidence as they were"."""
    done(outbox_world, fake, "web.1", "web.2")
    fake.world["web", ALIAS] = seen
    head, pinned, calls = outbox_world.head(), actual(outbox_world), len(fake.calls)

    reconciler.run_once()

    assert outbox_world.types(head) == ["EvidenceKept", "ReconciliationRefused"]
    (record,) = outbox_world.store.range(EVIDENCE.name, limit=10)
    evidence = codec.decode(record.data, KeptEvidence)
    assert (evidence.authority, evidence.source, evidence.batch) == (
        False,
        "reconciler",
        seen.signature,
    )
    assert evidence.document == {
        "operation": ALIAS,
        "idempotencyKey": seen.idempotency_key,
        "state": seen.state,
    }
    assert drift(outbox_world, ALIAS).state is DriftState.REFUSED
    assert actual(outbox_world) == pinned
    assert codec.decode(pinned.data, Actual).confidence.level == "high"
    assert len(fake.calls) == calls
    assert appends_nothing(outbox_world, reconciler)


@pytest.mark.req("RS-9", "RS-11")
def test_stores_no_secret_from_an_observation(
    outbox_world: OutboxWorld, fake: FakeTarget, reconciler: Reconciler
) -> None:
    done(outbox_world, fake, "web.1")
    secret = "AKIAIOSFODNN7EXAMPLE"
    state = {"releaseId": secret, "status": "active", "password": "x", "digest": "a" * 300}
    fake.world["web", ALIAS] = Observation(secret, state)

    reconciler.run_once()

    (record,) = outbox_world.store.range(EVIDENCE.name, limit=10)
    assert codec.decode(record.data, KeptEvidence).document == {
        "operation": ALIAS,
        "idempotencyKey": "[redacted]",
        "state": {"releaseId": "[redacted]", "status": "active", "digest": "[redacted]"},
    }


@pytest.mark.req("RS-11")
def test_does_not_retry_an_effect_that_conflicts_with_the_evidence(
    outbox_world: OutboxWorld, fake: FakeTarget, reconciler: Reconciler
) -> None:
    outbox_world.pin("web.1", ALIAS)
    fake.world["web", ALIAS] = Observation("by hand", {"releaseId": "web.0"})
    outbox_world.advance(OVERDUE_SECONDS)

    assert reconciler.run_once() == ReconcileResult(scopes=1, appended=2)

    assert fake.calls == []
    assert appends_nothing(outbox_world, reconciler)


@pytest.mark.req("RS-11")
def test_does_not_repeat_an_effect_that_the_registry_no_longer_wants(
    outbox_world: OutboxWorld, fake: FakeTarget, reconciler: Reconciler
) -> None:
    done(outbox_world, fake, "web.1")
    outbox_world.pin("web.2")  # nothing is pending: the last alias intent is of web.1
    fake.world["web", ALIAS] = Observation()
    head = outbox_world.head()

    reconciler.run_once()

    assert outbox_world.types(head) == ["DriftDetected"]
    assert appends_nothing(outbox_world, reconciler)


@pytest.mark.req("RS-11")
def test_refuses_a_registry_row_that_contradicts_its_history_and_does_not_act_on_it(
    store: Store, fake: FakeTarget
) -> None:
    """RS-11: "compares actual rows with history"."""
    outbox_world = outbox_world_on(store)
    done(outbox_world, fake, "web.1", "web.2")
    reconciler = Reconciler(outbox_world.worker({ALIAS: fake}))
    good = actual(outbox_world)
    # The pin is correct: the row is refused for its other members.
    forged = replace(codec.decode(good.data, Actual), confidence=Confidence("low", ()))
    rows = store.range(ACTUAL_ROWS.name, limit=10)
    store.restore(ACTUAL_ROWS.name, [replace(good, data=codec.encode(forged))])
    fake.world["web", ALIAS] = Observation()
    head = outbox_world.head()

    reconciler.run_once()
    assert outbox_world.types(head) == ["ReconciliationRefused", "DriftDetected"]
    assert drift(outbox_world, ACTUAL).finding is ReconciliationFinding.ROW_DIFFERS
    assert codec.decode(actual(outbox_world).data, Actual) == forged  # it is not repaired silently
    assert appends_nothing(outbox_world, reconciler)
    store.restore(ACTUAL_ROWS.name, rows)
    reconciler.run_once()

    assert outbox_world.types(head)[2:] == ["DriftRepaired"]
    assert drift(outbox_world, ACTUAL).state is DriftState.REPAIRED
    outbox_world.prove()


@pytest.mark.req("RS-11")
def test_checks_scopes_without_effects_hourly(store: Store) -> None:
    outbox_world = outbox_world_on(store)
    outbox_world.pin("web.1")
    reconciler = Reconciler(outbox_world.worker({}))
    assert reconciler.run_once() == ReconcileResult(scopes=1)
    good = actual(outbox_world)
    forged = replace(codec.decode(good.data, Actual), confidence=Confidence("low", ()))
    store.restore(ACTUAL_ROWS.name, [replace(good, data=codec.encode(forged))])
    head = outbox_world.head()

    soon = reconciler.run_once()
    outbox_world.clock.advance(timedelta(hours=1))
    later = reconciler.run_once()

    assert (soon.scopes, later.scopes) == (0, 1)
    assert outbox_world.types(head) == ["ReconciliationRefused"]
    assert drift(outbox_world, ACTUAL).finding is ReconciliationFinding.ROW_DIFFERS


@pytest.mark.req("RS-11")
def test_continues_when_part_of_the_world_cannot_be_observed(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    outbox_world.pin("web.1", ALIAS, DNS)
    silent = FakeTarget(silent=True)
    worker = outbox_world.worker({ALIAS: silent, DNS: fake})
    worker.work()
    worker.work()
    fake.world["web", DNS] = Observation("by hand", {"releaseId": "web.0"})

    assert Reconciler(worker).run_once() == ReconcileResult(scopes=1, appended=2, unobservable=1)

    assert drift(outbox_world, DNS).state is DriftState.REFUSED
    assert outbox_world.store.get(drift_key("web", ALIAS)) == (None,)


@pytest.mark.req("RS-11")
def test_reports_a_history_too_long_to_compare_and_checks_the_others(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    """Half a history would give another row, and a false drift."""
    for release_id in ("web.1", "web.2", "web.3"):
        outbox_world.pin(release_id, ALIAS)
    outbox_world.pin("web.4", ALIAS, scope="zoo")
    outbox_world.worker({ALIAS: fake}).work()
    head = outbox_world.head()
    worker = outbox_world.worker(by_operation(fake, OPERATIONS))

    with pytest.raises(ScopeHistoryTooLong) as refusal:
        Reconciler(worker, history_max=2).run_once()

    assert refusal.value.facts == {"scope": "web", "allowed": 2}
    assert outbox_world.head() == head, "nothing is reported about a row that was not compared"
    assert Reconciler(worker, history_max=2).reconcile("zoo").appended == 0
    assert Reconciler(worker, history_max=3).run_once() == ReconcileResult(2)


@pytest.mark.req("RS-11")
def test_reports_nothing_about_a_cancelled_intent(
    outbox_world: OutboxWorld, fake: FakeTarget, reconciler: Reconciler
) -> None:
    done(outbox_world, fake, "web.1")
    outbox_world.pin("web.2", ALIAS)
    command = CancelIntent(scope="web", intent_id=intent(ALIAS, "web.2"), by="u", reason="no")
    outbox_world.control.execute(cancel_intent, command)
    outbox_world.advance(2 * OVERDUE_SECONDS)

    assert appends_nothing(outbox_world, reconciler)
    assert len(fake.calls) == 1


def test_closes_a_dead_letter_whose_effect_is_observed(
    outbox_world: OutboxWorld, fake: FakeTarget, reconciler: Reconciler
) -> None:
    outbox_world.pin("web.1", ALIAS)
    fake.fail("gone", retryable=False)
    outbox_world.worker({ALIAS: fake}).work()
    assert outbox_world.shown(ALIAS).state is IntentState.DEAD
    key = outbox_world.shown(ALIAS).idempotency_key
    fake.world["web", ALIAS] = Observation(key, {"releaseId": "web.1"})

    reconciler.run_once()

    shown = outbox_world.shown(ALIAS)
    assert (shown.state, shown.attempts, shown.id) == (IntentState.DONE, 1, intent(ALIAS))
    assert shown.updated_at == T0
