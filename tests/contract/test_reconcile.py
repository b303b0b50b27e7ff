"""The reconciler says where the world, our rows and our history part, and never chooses for us."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from tests.contract.address import Address
from tests.contract.outbox_world import OPERATIONS, T0, Desk, desk_on, intent, opened
from tidegate.control.outbox.reconcile import (
    OVERDUE_SECONDS,
    Reconciler,
    ReconcileResult,
    ScopeHistoryTooLong,
)
from tidegate.control.outbox.targets import Effect, Observation, TargetDone, TargetFailed
from tidegate.control.outbox.targets.fake import FakeTarget, by_operation
from tidegate.domain.outbox.rows import ACTUAL, Drift, drift_key
from tidegate.domain.outbox.slices import CancelIntent, cancel_intent
from tidegate.domain.outbox.states import DriftState, IntentState, ReconciliationFinding
from tidegate.domain.provenance import Confidence
from tidegate.domain.releases.rows import ACTUAL as ACTUAL_ROWS
from tidegate.domain.releases.rows import EVIDENCE, Actual, KeptEvidence, actual_key
from tidegate.kernel import codec
from tidegate.kernel.model import Record
from tidegate.kernel.store import Store

ALIAS, DNS, NOTIFY = OPERATIONS


@pytest.fixture
def store(address: Address | None) -> Iterator[Store]:
    with opened(address) as store:
        yield store


@pytest.fixture
def desk(store: Store) -> Iterator[Desk]:
    desk = desk_on(store)
    yield desk
    desk.prove()


@pytest.fixture
def fake() -> FakeTarget:
    return FakeTarget()


@pytest.fixture
def reconciler(desk: Desk, fake: FakeTarget) -> Reconciler:
    return Reconciler(desk.worker(by_operation(fake, OPERATIONS)))


def done(desk: Desk, fake: FakeTarget, *releases: str) -> None:
    """Each release pinned, and its alias moved."""
    for release_id in releases:
        desk.pin(release_id, ALIAS)
        desk.worker({ALIAS: fake}).work()
        assert desk.shown(ALIAS, release_id).state is IntentState.DONE


def drift(desk: Desk, subject: str) -> Drift:
    (record,) = desk.store.get(drift_key("web", subject))
    assert record is not None
    return codec.decode(record.data, Drift)


def actual(desk: Desk) -> Record:
    (record,) = desk.store.get(actual_key("web"))
    assert record is not None
    return record


def appends_nothing(desk: Desk, reconciler: Reconciler) -> bool:
    head = desk.head()
    return reconciler.run_once().appended == 0 and desk.head() == head


@pytest.mark.req("RS-11")
def test_says_nothing_where_everything_is_as_it_should_be(
    desk: Desk, fake: FakeTarget, reconciler: Reconciler
) -> None:
    """RS-11: "a second pass without change appends nothing"."""
    done(desk, fake, "web.1")
    head = desk.head()

    assert reconciler.run_once() == ReconcileResult(scopes=1)
    assert reconciler.run_once() == ReconcileResult(scopes=1)

    assert desk.head() == head


@pytest.mark.req("RS-8", "RS-11")
def test_completes_an_effect_whose_success_was_never_heard_of(
    desk: Desk, fake: FakeTarget, reconciler: Reconciler
) -> None:
    """RS-11: "finds pending outbox rows … observes the external system"."""

    class Mute(FakeTarget):
        """Does it, and the answer is lost."""

        def perform(self, key: str, effect: Effect) -> TargetDone | TargetFailed:
            super().perform(key, effect)
            return TargetFailed("no answer")

    mute = Mute()
    desk.pin("web.1", ALIAS)
    worker = desk.worker({ALIAS: mute})
    worker.work()
    assert desk.shown(ALIAS).state is IntentState.PENDING
    head = desk.head()

    assert Reconciler(worker).run_once().appended == 1

    assert desk.types(head) == ["AttemptSucceeded"]
    assert desk.shown(ALIAS).state is IntentState.DONE
    assert len(mute.calls) == 1
    assert appends_nothing(desk, Reconciler(worker))


@pytest.mark.req("RS-11")
def test_attempts_what_is_overdue_with_its_own_key(
    desk: Desk, fake: FakeTarget, reconciler: Reconciler
) -> None:
    """RS-11: "retries when safe": no worker runs here."""
    desk.pin("web.1", ALIAS)

    assert reconciler.run_once() == ReconcileResult(scopes=1)
    desk.advance(OVERDUE_SECONDS)
    assert reconciler.run_once() == ReconcileResult(scopes=1, attempted=1)

    assert fake.keys == ("web:web.1:lambda_alias_update:0",)
    assert desk.shown(ALIAS).state is IntentState.DONE
    assert appends_nothing(desk, reconciler)


@pytest.mark.req("RS-11")
@pytest.mark.parametrize("finding", [ReconciliationFinding.BEHIND, ReconciliationFinding.MISSING])
def test_notes_drift_and_has_the_effect_repeated_under_the_same_key(
    desk: Desk, fake: FakeTarget, reconciler: Reconciler, finding: ReconciliationFinding
) -> None:
    """RS-11: "appends reconciliation events, retries when safe"."""
    done(desk, fake, "web.1", "web.2")
    wanted = fake.world["web", ALIAS]
    lost = Observation("web:web.1:lambda_alias_update:0", {"releaseId": "web.1"})
    fake.world["web", ALIAS] = lost if finding is ReconciliationFinding.BEHIND else Observation()
    head, pinned = desk.head(), actual(desk)

    reconciler.run_once()
    assert desk.types(head) == ["DriftDetected", "IntentRedriven"]
    assert drift(desk, ALIAS).finding is finding
    assert appends_nothing(desk, reconciler)
    desk.worker({ALIAS: fake}).work()
    reconciler.run_once()

    assert desk.types(head)[2:] == ["AttemptSucceeded", "DriftRepaired"]
    assert fake.world["web", ALIAS] == wanted
    assert fake.keys[-1] == fake.keys[-2] == wanted.idempotency_key
    assert drift(desk, ALIAS).state is DriftState.REPAIRED
    assert actual(desk) == pinned
    assert appends_nothing(desk, reconciler)


@pytest.mark.req("RS-11")
def test_repeats_an_effect_once_per_drift_and_then_leaves_it_open_to_see(desk: Desk) -> None:
    class Deaf(FakeTarget):
        """Says yes and does nothing."""

        def perform(self, key: str, effect: Effect) -> TargetDone | TargetFailed:
            self.calls.append((key, effect))
            return TargetDone()

    deaf = Deaf()
    desk.pin("web.1", ALIAS)
    worker = desk.worker({ALIAS: deaf})
    worker.work()
    reconciler = Reconciler(worker)

    for _ in range(3):
        reconciler.run_once()
        worker.work()

    assert len(deaf.calls) == 2
    assert drift(desk, ALIAS).state is DriftState.OPEN
    assert appends_nothing(desk, reconciler)


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
    desk: Desk, fake: FakeTarget, reconciler: Reconciler, seen: Observation
) -> None:
    """RS-11: "conflicting evidence is refused and leaves pin and confidence as they were"."""
    done(desk, fake, "web.1", "web.2")
    fake.world["web", ALIAS] = seen
    head, pinned, calls = desk.head(), actual(desk), len(fake.calls)

    reconciler.run_once()

    assert desk.types(head) == ["EvidenceKept", "ReconciliationRefused"]
    (record,) = desk.store.range(EVIDENCE.name, limit=10)
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
    assert drift(desk, ALIAS).state is DriftState.REFUSED
    assert actual(desk) == pinned
    assert codec.decode(pinned.data, Actual).confidence.level == "high"
    assert len(fake.calls) == calls
    assert appends_nothing(desk, reconciler)


@pytest.mark.req("RS-9", "RS-11")
def test_keeps_no_secret_of_what_it_sees(
    desk: Desk, fake: FakeTarget, reconciler: Reconciler
) -> None:
    done(desk, fake, "web.1")
    secret = "AKIAIOSFODNN7EXAMPLE"
    state = {"releaseId": secret, "status": "active", "password": "x", "digest": "a" * 300}
    fake.world["web", ALIAS] = Observation(secret, state)

    reconciler.run_once()

    (record,) = desk.store.range(EVIDENCE.name, limit=10)
    assert codec.decode(record.data, KeptEvidence).document == {
        "operation": ALIAS,
        "idempotencyKey": "[redacted]",
        "state": {"releaseId": "[redacted]", "status": "active", "digest": "[redacted]"},
    }


@pytest.mark.req("RS-11")
def test_does_not_hasten_what_the_evidence_conflicts_with(
    desk: Desk, fake: FakeTarget, reconciler: Reconciler
) -> None:
    desk.pin("web.1", ALIAS)
    fake.world["web", ALIAS] = Observation("by hand", {"releaseId": "web.0"})
    desk.advance(OVERDUE_SECONDS)

    assert reconciler.run_once() == ReconcileResult(scopes=1, appended=2)

    assert fake.calls == []
    assert appends_nothing(desk, reconciler)


@pytest.mark.req("RS-11")
def test_repeats_nothing_that_the_registry_does_not_want_any_more(
    desk: Desk, fake: FakeTarget, reconciler: Reconciler
) -> None:
    done(desk, fake, "web.1")
    desk.pin("web.2")  # owes nothing: the last alias intent is of web.1
    fake.world["web", ALIAS] = Observation()
    head = desk.head()

    reconciler.run_once()

    assert desk.types(head) == ["DriftDetected"]
    assert appends_nothing(desk, reconciler)


@pytest.mark.req("RS-11")
def test_refuses_a_registry_row_that_is_not_what_its_history_says_and_acts_on_none_of_it(
    store: Store, fake: FakeTarget
) -> None:
    """RS-11: "compares actual rows with history"."""
    desk = desk_on(store)
    done(desk, fake, "web.1", "web.2")
    reconciler = Reconciler(desk.worker({ALIAS: fake}))
    good = actual(desk)
    # The pin is as it should be: the row is refused for the rest of it.
    forged = replace(codec.decode(good.data, Actual), confidence=Confidence("low", ()))
    rows = store.range(ACTUAL_ROWS.name, limit=10)
    store.restore(ACTUAL_ROWS.name, [replace(good, data=codec.encode(forged))])
    fake.world["web", ALIAS] = Observation()
    head = desk.head()

    reconciler.run_once()
    assert desk.types(head) == ["ReconciliationRefused", "DriftDetected"]
    assert drift(desk, ACTUAL).finding is ReconciliationFinding.ROW_DIFFERS
    assert codec.decode(actual(desk).data, Actual) == forged  # it does not repair silently
    assert appends_nothing(desk, reconciler)
    store.restore(ACTUAL_ROWS.name, rows)
    reconciler.run_once()

    assert desk.types(head)[2:] == ["DriftRepaired"]
    assert drift(desk, ACTUAL).state is DriftState.REPAIRED
    desk.prove()


@pytest.mark.req("RS-11")
def test_goes_on_where_some_of_the_world_cannot_be_seen(desk: Desk, fake: FakeTarget) -> None:
    desk.pin("web.1", ALIAS, DNS)
    silent = FakeTarget(silent=True)
    worker = desk.worker({ALIAS: silent, DNS: fake})
    worker.work()
    worker.work()
    fake.world["web", DNS] = Observation("by hand", {"releaseId": "web.0"})

    assert Reconciler(worker).run_once() == ReconcileResult(scopes=1, appended=2, unobservable=1)

    assert drift(desk, DNS).state is DriftState.REFUSED
    assert desk.store.get(drift_key("web", ALIAS)) == (None,)


@pytest.mark.req("RS-11")
def test_says_that_a_history_is_too_long_to_be_compared_and_goes_over_the_others(
    desk: Desk, fake: FakeTarget
) -> None:
    """Half a history would make another row, and a drift that is none."""
    for release_id in ("web.1", "web.2", "web.3"):
        desk.pin(release_id, ALIAS)
    desk.pin("web.4", ALIAS, scope="zoo")
    desk.worker({ALIAS: fake}).work()
    head = desk.head()
    worker = desk.worker(by_operation(fake, OPERATIONS))

    with pytest.raises(ScopeHistoryTooLong) as refusal:
        Reconciler(worker, history_max=2).run_once()

    assert refusal.value.facts == {"scope": "web", "allowed": 2}
    assert desk.head() == head, "nothing is said about a row that was not compared"
    assert Reconciler(worker, history_max=2).reconcile("zoo").appended == 0
    assert Reconciler(worker, history_max=3).run_once() == ReconcileResult(2)


@pytest.mark.req("RS-11")
def test_says_nothing_about_an_intent_that_was_cancelled(
    desk: Desk, fake: FakeTarget, reconciler: Reconciler
) -> None:
    done(desk, fake, "web.1")
    desk.pin("web.2", ALIAS)
    command = CancelIntent(scope="web", intent_id=intent(ALIAS, "web.2"), by="u", reason="no")
    desk.control.execute(cancel_intent, command)
    desk.advance(2 * OVERDUE_SECONDS)

    assert appends_nothing(desk, reconciler)
    assert len(fake.calls) == 1


def test_closes_a_dead_letter_that_turns_out_to_be_done(
    desk: Desk, fake: FakeTarget, reconciler: Reconciler
) -> None:
    desk.pin("web.1", ALIAS)
    fake.fail("gone", retryable=False)
    desk.worker({ALIAS: fake}).work()
    assert desk.shown(ALIAS).state is IntentState.DEAD
    key = desk.shown(ALIAS).idempotency_key
    fake.world["web", ALIAS] = Observation(key, {"releaseId": "web.1"})

    reconciler.run_once()

    shown = desk.shown(ALIAS)
    assert (shown.state, shown.attempts, shown.id) == (IntentState.DONE, 1, intent(ALIAS))
    assert shown.updated_at == T0
