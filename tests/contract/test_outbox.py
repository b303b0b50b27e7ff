"""Outbox operations are performed at least once, in order, and always under one key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest

from tests.child_processes import CHILDREN
from tests.contract.address import Address
from tests.contract.outbox_world import (
    FOLDS,
    OPERATIONS,
    T0,
    JournalTarget,
    Killed,
    OutboxWorld,
    Pin,
    Point,
    die_in_child,
    direct_writer,
    drain,
    drain_on,
    intent,
    opened,
    outbox_world_on,
    pending,
    pin,
    raise_killed,
    work_and_die,
)
from tests.fake_target import FakeTarget, by_operation
from tidegate.clock import system_clock
from tidegate.control.outbox.sender import (
    EffectFailed,
    EffectRefused,
    NotObserved,
    OutboxSender,
    perform_then_record,
    recover,
)
from tidegate.control.outbox.targets import Effect, TargetDone, TargetFailed
from tidegate.control.queries.outbox_reader import OutboxReader
from tidegate.control.runtime import Control
from tidegate.domain.outbox.facts import IntentCancelled
from tidegate.domain.outbox.names import intent_id
from tidegate.domain.outbox.reconciliation import Observation
from tidegate.domain.outbox.refusals import NewerIntent, SecretRefused
from tidegate.domain.outbox.rows import OUTBOX, delivery_key, intent_key
from tidegate.domain.outbox.slices import (
    ATTEMPTS_MAX,
    CancelIntent,
    RecordAttempt,
    RedriveIntent,
    cancel_intent,
    record_attempt,
    redrive_intent,
)
from tidegate.domain.outbox.states import IntentState, RequestedState
from tidegate.domain.releases.rows import actual_key
from tidegate.errors import (
    IllegalTransition,
    ImmutableRecord,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    StoreUnavailable,
    TidegateError,
)
from tidegate.kernel.leases import Leases
from tidegate.kernel.model import Commit, Receipt
from tidegate.kernel.records.records import Records
from tidegate.kernel.store import Store

ALIAS, DNS, NOTIFY = OPERATIONS


@pytest.fixture
def store(address: Address | None) -> Iterator[Store]:
    with opened(address) as store:
        yield store


@pytest.fixture
def outbox_world(store: Store) -> Iterator[OutboxWorld]:
    """An outbox on a fresh log. At the end of the test its rows must be exactly what the log
    gives.
    """
    outbox_world = outbox_world_on(store)
    yield outbox_world
    outbox_world.prove()


@pytest.fixture
def fake() -> FakeTarget:
    return FakeTarget()


# ── intents ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RS-8", "RS-9")
def test_writes_state_event_and_intent_in_one_commit_and_performs_nothing(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    """RS-8: "state, event and outbox row in one commit, then worker, outcome event"."""
    outbox_world.pin("web.1", ALIAS)

    actual, row = outbox_world.store.get(actual_key("web"), intent_key(intent(ALIAS)))
    assert actual is not None
    assert row is not None
    assert outbox_world.types() == ["ReleaseRegistered", "IntentRequested"]
    assert row.version == actual.version + 1 == outbox_world.head()
    assert fake.calls == []
    shown = outbox_world.shown(ALIAS)
    assert (shown.state, shown.attempts, shown.last_error) == (IntentState.PENDING, 0, None)
    assert row.key.id == "RELEASE#web/OUTBOX#lambda_alias_update#web.1#c-web.1"
    assert shown.idempotency_key == "web:web.1:lambda_alias_update:0"
    assert shown.requested_state.release_id == "web.1"
    assert shown.created_at == shown.updated_at == shown.next_attempt_at == T0


@pytest.mark.req("RS-9")
def test_an_intent_never_changes_after_it_was_written(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    """RS-9: "Outbox rows are immutable"."""
    outbox_world.pin("web.1", ALIAS)
    (written,) = outbox_world.store.get(intent_key(intent(ALIAS)))
    fake.fail("busy")
    worker = outbox_world.worker({ALIAS: fake})
    worker.work()
    outbox_world.advance(10)
    worker.work()

    assert outbox_world.store.get(intent_key(intent(ALIAS))) == (written,)
    assert outbox_world.shown(ALIAS).state is IntentState.DONE
    rows = Records(outbox_world.store, outbox_world.clock)
    with pytest.raises(ImmutableRecord):
        rows.update(OUTBOX.name, intent(ALIAS), {"operation": "other"})
    with pytest.raises(ImmutableRecord):
        rows.delete(OUTBOX.name, intent(ALIAS))


@pytest.mark.req("RS-9")
@pytest.mark.parametrize(
    "state",
    [
        {"releaseId": "web.1", "password": "hunter2"},
        {"releaseId": "web.1", "kmsPlaintext": "decrypted"},
        {"releaseId": "web.1", "status": "AKIAIOSFODNN7EXAMPLE"},
        {"releaseId": "web.1", "channel": "-----BEGIN PRIVATE KEY-----"},
        {"releaseId": "web.1", "digest": "ghp_0123456789abcdefghijABCDEFGHIJ012345"},
    ],
    ids=["password", "plaintext", "access key", "private key", "token"],
)
def test_refuses_secrets_at_write_and_writes_nothing(
    outbox_world: OutboxWorld, state: dict[str, str]
) -> None:
    """RS-9: "Credentials, key material and decrypted values are refused at write"."""
    command = Pin(
        scope="web", release_id="web.1", command_id="c1", operations=(ALIAS,), state=state
    )

    with pytest.raises(SecretRefused) as refusal:
        outbox_world.control.execute(pin, command)

    assert outbox_world.head() == 0
    assert not any(
        value in refusal.value.detail for name, value in state.items() if name != "releaseId"
    )


# ── the worker ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RS-10")
def test_performs_a_due_intent_and_appends_its_success(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    """RS-10: "A worker performs outbox work with back-off and appends success or failure"."""
    outbox_world.pin("web.1", ALIAS)
    head = outbox_world.head()

    (attempted,) = outbox_world.worker({ALIAS: fake}).work()

    assert attempted.key == "web:web.1:lambda_alias_update:0"
    assert outbox_world.types(head) == ["AttemptSucceeded"]
    assert [event.kind for event in outbox_world.events(head)] == ["effect"]
    assert outbox_world.events(head)[0].meta.actor == "outbox-worker"
    assert outbox_world.shown(ALIAS).state is IntentState.DONE
    assert outbox_world.worker({ALIAS: fake}).work() == ()
    assert len(fake.calls) == 1
    assert Leases(outbox_world.store).find("outbox/web") is None


@pytest.mark.req("RS-9", "RS-10")
def test_backs_off_and_retries_with_the_same_key_and_body(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    """RS-9: "idempotencyKey (same at each retry)"."""
    outbox_world.pin("web.1", ALIAS)
    fake.fail("connection refused", "connection refused", "password=hunter2 was wrong")
    worker = outbox_world.worker({ALIAS: fake})

    waits = []
    for _ in range(3):
        worker.work()
        assert worker.attempt("web") is None
        shown = outbox_world.shown(ALIAS)
        assert shown.next_attempt_at is not None
        waits.append((shown.next_attempt_at - outbox_world.clock()).total_seconds())
        outbox_world.advance(waits[-1] - 0.001)
        assert worker.work() == ()
        outbox_world.advance(0.001)
    assert outbox_world.shown(ALIAS).last_error == "[redacted] was wrong"
    worker.work()

    assert waits == [1, 2, 4]
    assert len(set(fake.keys)) == 1
    assert len({effect for _, effect in fake.calls}) == 1
    assert (outbox_world.shown(ALIAS).attempts, outbox_world.shown(ALIAS).state) == (
        4,
        IntentState.DONE,
    )
    assert b"hunter2" not in b"".join(event.body for event in outbox_world.events())


@pytest.mark.req("RS-10")
def test_keeps_the_order_of_a_scope_while_other_scopes_proceed(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    outbox_world.pin("web.1", ALIAS, DNS)
    outbox_world.advance(0.5)  # so web is due first, and fails
    outbox_world.pin("api.1", DNS, scope="api")
    fake.fail("busy")
    worker = outbox_world.worker(by_operation(fake, OPERATIONS))

    worker.work()
    worker.work()
    outbox_world.advance(10)
    worker.work()
    worker.work()

    performed = [(effect.scope, effect.operation) for _, effect in fake.calls]
    assert [name for scope, name in performed if scope == "web"] == [ALIAS, ALIAS, DNS]
    assert ("api", DNS) in performed[:2]
    assert len(performed) == 4
    assert pending(outbox_world.store) == []


@pytest.mark.req("RS-10")
def test_a_newer_intent_supersedes_the_pending_one_by_a_fact_of_its_own(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    outbox_world.pin("web.1", ALIAS, DNS)
    head = outbox_world.head()

    outbox_world.pin("web.2", ALIAS)
    worker = outbox_world.worker(by_operation(fake, OPERATIONS))
    worker.work()
    worker.work()

    assert outbox_world.types(head)[:3] == [
        "ReleaseTransitioned",
        "IntentRequested",
        "IntentSuperseded",
    ]
    old = outbox_world.shown(ALIAS)
    assert (old.state, old.attempts) == (IntentState.SUPERSEDED, 0)
    assert old.superseded_by == intent(ALIAS, "web.2")
    assert [(effect.operation, effect.release_id) for _, effect in fake.calls] == [
        (DNS, "web.1"),
        (ALIAS, "web.2"),
    ]


def test_records_the_outcome_of_an_effect_that_was_superseded_meanwhile(
    outbox_world: OutboxWorld,
) -> None:
    class Overtaken(FakeTarget):
        def perform(self, key: str, effect: Effect) -> TargetDone | TargetFailed:
            if effect.release_id == "web.1":
                outbox_world.pin("web.2", ALIAS)
            return super().perform(key, effect)

    outbox_world.pin("web.1", ALIAS)
    target = Overtaken()
    worker = outbox_world.worker({ALIAS: target})

    worker.work()
    worker.work()

    assert outbox_world.types().count("AttemptSucceeded") == 2
    assert (outbox_world.shown(ALIAS).state, outbox_world.shown(ALIAS).attempts) == (
        IntentState.SUPERSEDED,
        1,
    )
    assert outbox_world.shown(ALIAS, "web.2").state is IntentState.DONE
    assert [effect.release_id for _, effect in target.calls] == ["web.1", "web.2"]


@pytest.mark.req("RS-10")
def test_gives_up_after_twelve_attempts_with_a_fact_and_performs_the_next_one(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    outbox_world.pin("web.1", ALIAS, DNS)
    fake.fail(*["busy"] * ATTEMPTS_MAX)
    worker = outbox_world.worker(by_operation(fake, OPERATIONS))

    for _ in range(ATTEMPTS_MAX):
        worker.work()
        outbox_world.advance(300)
    assert outbox_world.types()[-2:] == ["AttemptFailed", "IntentDied"]
    worker.work()

    assert ATTEMPTS_MAX == 12
    assert len(set(fake.keys[:ATTEMPTS_MAX])) == 1
    (dead,) = OutboxReader(outbox_world.store).list_in_state(IntentState.DEAD, limit=10)
    assert (dead.id, dead.attempts, dead.last_error) == (intent(ALIAS), 12, "busy")
    assert outbox_world.shown(DNS).state is IntentState.DONE
    assert {
        item.operation for item in OutboxReader(outbox_world.store).list_of_scope("web", limit=10)
    } == {
        ALIAS,
        DNS,
    }
    assert [
        item.id
        for item in OutboxReader(outbox_world.store).list_in_state(IntentState.DONE, limit=10)
    ] == [intent(DNS)]


@pytest.mark.req("RS-10")
def test_redrives_a_dead_letter_under_its_old_key(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    outbox_world.pin("web.1", ALIAS)
    fake.fail("status 410", retryable=False)
    fake.fail(*["busy"] * (ATTEMPTS_MAX - 1))
    worker = outbox_world.worker({ALIAS: fake})
    worker.work()
    assert outbox_world.shown(ALIAS).state is IntentState.DEAD
    command = RedriveIntent(
        scope="web", intent_id=intent(ALIAS), by="user_1", reason="mended the receiver"
    )

    outbox_world.control.execute(redrive_intent, command)
    head = outbox_world.head()
    outbox_world.control.execute(redrive_intent, command)
    assert outbox_world.head() == head
    for _ in range(ATTEMPTS_MAX):
        worker.work()
        outbox_world.advance(300)

    assert outbox_world.shown(ALIAS).state is IntentState.DONE
    assert outbox_world.shown(ALIAS).attempts == ATTEMPTS_MAX + 1
    assert len(set(fake.keys)) == 1
    with pytest.raises(IllegalTransition):
        outbox_world.control.execute(redrive_intent, command)


def test_does_not_redrive_an_intent_that_a_newer_one_replaced(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    outbox_world.pin("web.1", ALIAS)
    fake.fail("status 410", retryable=False)
    worker = outbox_world.worker({ALIAS: fake})
    worker.work()
    outbox_world.pin("web.2", ALIAS)
    worker.work()
    head = outbox_world.head()

    with pytest.raises(NewerIntent):
        outbox_world.control.execute(
            redrive_intent,
            RedriveIntent(scope="web", intent_id=intent(ALIAS), by="user_1", reason="again"),
        )
    with pytest.raises(NotFound):
        outbox_world.control.execute(
            redrive_intent,
            RedriveIntent(scope="web", intent_id=intent(DNS), by="user_1", reason="again"),
        )

    assert outbox_world.head() == head


@pytest.mark.req("RS-10")
def test_an_operator_cancels_an_intent_and_the_next_one_of_the_scope_is_performed(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    outbox_world.pin("web.1", ALIAS, DNS)
    fake.answers.append(TargetFailed("not yet"))
    worker = outbox_world.worker(by_operation(fake, (ALIAS, DNS)))
    worker.work()
    assert outbox_world.shown(DNS).attempts == 0, "it waits for the alias"
    command = CancelIntent(
        scope="web", intent_id=intent(ALIAS), by="user_ops", reason="the alias is gone"
    )

    (fact,) = outbox_world.control.execute(cancel_intent, command).facts
    assert outbox_world.control.execute(cancel_intent, command).facts == ()
    worker.work()

    assert fact == IntentCancelled(
        scope="web", intent_id=intent(ALIAS), by="user_ops", reason="the alias is gone"
    )
    assert (outbox_world.shown(ALIAS).state, outbox_world.shown(ALIAS).next_attempt_at) == (
        IntentState.CANCELLED,
        None,
    )
    assert outbox_world.shown(DNS).state is IntentState.DONE
    assert [
        item.id
        for item in OutboxReader(outbox_world.store).list_in_state(IntentState.CANCELLED, limit=10)
    ] == [intent(ALIAS)]
    outbox_world.advance(3_600)
    assert worker.work() == ()
    with pytest.raises(IllegalTransition):
        outbox_world.control.execute(
            redrive_intent,
            RedriveIntent(scope="web", intent_id=intent(ALIAS), by="user_ops", reason="again"),
        )


@pytest.mark.req("RS-10")
def test_records_the_effect_of_a_cancelled_attempt_and_requests_the_operation_again(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    """The worker was performing it when it was cancelled: its outcome is true, and changes no
    state.
    """
    outbox_world.pin("web.1", ALIAS)
    command = CancelIntent(scope="web", intent_id=intent(ALIAS), by="user_ops", reason="stop")
    outbox_world.control.execute(cancel_intent, command)
    late = RecordAttempt(scope="web", intent_id=intent(ALIAS), attempt=1, succeeded=True)

    outbox_world.control.execute(record_attempt, late)
    outbox_world.pin("web.2", ALIAS)
    outbox_world.worker({ALIAS: fake}).work()

    assert (outbox_world.shown(ALIAS).state, outbox_world.shown(ALIAS).attempts) == (
        IntentState.CANCELLED,
        1,
    )
    assert outbox_world.shown(ALIAS, "web.2").state is IntentState.DONE
    assert "IntentSuperseded" not in outbox_world.types()


@pytest.mark.req("RS-10")
def test_a_known_outcome_changes_nothing_but_a_success_always_counts(
    outbox_world: OutboxWorld,
) -> None:
    outbox_world.pin("web.1", ALIAS)

    def record(succeeded: bool) -> list[str]:
        head = outbox_world.head()
        command = RecordAttempt(
            scope="web", intent_id=intent(ALIAS), attempt=1, succeeded=succeeded, detail="x"
        )
        outbox_world.control.execute(record_attempt, command)
        return outbox_world.types(head)

    assert record(False) == ["AttemptFailed"]
    assert record(False) == []
    assert record(True) == ["AttemptSucceeded"]
    assert record(True) == record(False) == []
    assert (outbox_world.shown(ALIAS).state, outbox_world.shown(ALIAS).attempts) == (
        IntentState.DONE,
        1,
    )


def test_fails_an_operation_without_a_target_and_performs_it_once_there_is_one(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    outbox_world.pin("web.1", ALIAS)

    outbox_world.worker({}).work()
    assert outbox_world.shown(ALIAS).last_error == "no target does [redacted] here"
    outbox_world.advance(1)
    outbox_world.worker({ALIAS: fake}).work()

    assert outbox_world.shown(ALIAS).state is IntentState.DONE


def test_skips_a_scope_that_another_worker_holds(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    outbox_world.pin("web.1", ALIAS)
    outbox_world.pin("api.1", ALIAS, scope="api")
    Leases(outbox_world.store).acquire("outbox/web", "theirs", now=T0, seconds=30)
    worker = outbox_world.worker({ALIAS: fake})

    assert [made.scope for made in worker.work()] == ["api"]
    outbox_world.advance(30)
    assert [made.scope for made in worker.work()] == ["web"]


def test_performs_nothing_when_the_lease_could_expire_during_it(outbox_world: OutboxWorld) -> None:
    """A process that slept between its claim and the effect must not act on the old claim."""
    outbox_world.pin("web.1", ALIAS)
    slow = FakeTarget(timeout_seconds=20)
    times = iter([T0, T0, T0])  # the round, the claim and the read of the queue; then it sleeps
    clock = lambda: next(times, T0 + timedelta(seconds=10))  # noqa: E731
    control = Control(outbox_world.store, FOLDS, direct_writer(outbox_world.store), clock=clock)

    assert OutboxSender(control, {ALIAS: slow}).work() == ()

    assert slow.calls == []
    with pytest.raises(InvalidInput):
        outbox_world.worker({ALIAS: FakeTarget(timeout_seconds=30)})


def test_works_in_bounded_rounds_and_stops_on_request(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    for number in range(5):
        outbox_world.pin("web.1", ALIAS, scope=f"web-{number}")
    worker = outbox_world.worker({ALIAS: fake})
    stop = Event()

    assert len(worker.work(limit=2)) == 2
    waited = []

    def wait(event: Event, seconds: float) -> None:
        waited.append(seconds)
        event.set()

    worker.run(stop, poll_seconds=7, wait=wait)

    assert waited == [7]
    assert len(fake.calls) == 5
    assert worker.work(stop) == ()


def test_survives_a_store_that_fails_and_loses_nothing(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    """An outcome that could not be recorded is performed again, with the same key."""
    outbox_world.pin("web.1", ALIAS)
    errors: list[TidegateError] = [StoreUnavailable("no"), OutcomeUnknown("perhaps")]

    class Failing:
        def __getattr__(self, name: str) -> object:
            return getattr(outbox_world.store, name)

        def commit(self, *commits: Commit) -> tuple[Receipt | TidegateError, ...]:
            if commits[0].facts and errors:
                return (errors.pop(0),)
            return outbox_world.store.commit(*commits)

    failing = Failing()
    control = Control(failing, FOLDS, direct_writer(failing), clock=outbox_world.clock)  # type: ignore[arg-type]
    stop = Event()
    rounds = []

    def wait(event: Event, seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 4:
            event.set()

    OutboxSender(control, {ALIAS: fake}).run(stop, wait=wait)

    assert errors == []
    assert len(fake.calls) == 3
    assert len(set(fake.keys)) == 1
    assert outbox_world.shown(ALIAS).state is IntentState.DONE


# ── death between two steps ───────────────────────────────────────────────────────────────────────


@pytest.mark.req("RS-8", "RS-10")
@pytest.mark.parametrize("point", list(Point))
@pytest.mark.long
def test_a_worker_that_dies_loses_no_intent_and_uses_no_second_key(
    outbox_world: OutboxWorld, address: Address | None, tmp_path: Path, point: Point
) -> None:
    """A real process ends at the point. For memory, which would die with the process, only the
    worker does.
    """
    outbox_world.pin("web.1", ALIAS, DNS)
    journal = str(tmp_path / "journal")
    if address is None:
        with pytest.raises(Killed):
            work_and_die(outbox_world.store, point, journal, raise_killed, outbox_world.clock)
    else:
        child = CHILDREN.Process(target=die_in_child, args=(address, point, journal))
        child.start()
        child.join(300)
        assert child.exitcode == 9

    target = JournalTarget(journal)
    worker = outbox_world.worker(by_target(target))
    before = target.keys()
    worker.work()
    leased = point not in (Point.BEFORE_CLAIM, Point.AFTER_RELEASE)
    assert (target.keys() == before) is leased  # the dead worker's claim holds for its time
    outbox_world.advance(30)
    for _ in range(3):
        worker.work()

    wanted = [f"web:web.1:{operation}:0" for operation in (ALIAS, DNS)]
    keys = target.keys()
    assert list(dict.fromkeys(keys)) == wanted
    repeated = point in (Point.AFTER_EFFECT, Point.BEFORE_RECORD)
    assert len(keys) == (3 if repeated else 2)
    assert [outbox_world.shown(name).state for name in (ALIAS, DNS)] == [IntentState.DONE] * 2
    assert pending(outbox_world.store) == []


def by_target(target: JournalTarget) -> dict[str, JournalTarget]:
    return dict.fromkeys(OPERATIONS, target)


# ── two at once ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RS-10")
@pytest.mark.long
def test_two_workers_perform_everything_in_the_order_of_each_scope(
    store: Store,
    address: Address | None,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    outbox_world = outbox_world_on(store, clock=system_clock)
    scopes = [f"web-{number}" for number in range(4)]
    for scope in scopes:
        outbox_world.pin("web.1", *OPERATIONS, scope=scope)
    journal = str(tmp_path / "journal")

    if address is None:
        with ThreadPoolExecutor(2) as threads:
            made = sum(threads.map(lambda _: drain_on(store, journal), range(2)))
    else:
        pool: ProcessPoolExecutor = request.getfixturevalue("processes")
        waiting = [pool.submit(drain, address, journal) for _ in range(2)]
        made = sum(future.result() for future in waiting)

    keys = JournalTarget(journal).keys()
    assert made == len(keys) == 2 * len(OPERATIONS) * len(scopes)  # each failed once
    for scope in scopes:
        performed = [key.split(":")[2] for key in keys if key.startswith(f"{scope}:")]
        assert performed == [operation for operation in OPERATIONS for _ in range(2)]
    assert len(set(keys)) == len(OPERATIONS) * len(scopes)
    outbox_world.prove()


# ── the effect first ──────────────────────────────────────────────────────────────────────────────

KEY = "web:web.1:lambda_alias_update:0"


def effect() -> Effect:
    return Effect("web", ALIAS, "web.1", RequestedState(release_id="web.1"), 0, T0)


def recording(outbox_world: OutboxWorld, seen: list[Observation]) -> Callable[[Observation], str]:
    def record(observation: Observation) -> str:
        seen.append(observation)
        command = Pin(scope="web", release_id="web.1", command_id="c1")
        outbox_world.control.execute(pin, command, key=KEY)
        return "recorded"

    return record


@pytest.mark.req("RS-8")
def test_effect_first_performs_observes_and_only_then_commits(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    """RS-8: "perform with the key, observe, commit state and event with evidence"."""
    seen: list[Observation] = []
    record = recording(outbox_world, seen)

    assert perform_then_record(fake, KEY, effect(), record) == "recorded"

    assert fake.keys == (KEY,)
    assert seen == [Observation(KEY, {"releaseId": "web.1"})]
    assert outbox_world.types() == ["ReleaseRegistered"]


@pytest.mark.req("RS-8")
def test_effect_first_recovers_from_key_and_observation_when_the_commit_failed(
    outbox_world: OutboxWorld, fake: FakeTarget
) -> None:
    """RS-8: "if that commit fails, recover from key and observation"."""

    def refuse(observation: Observation) -> str:
        raise StoreUnavailable("not now")

    seen: list[Observation] = []
    record = recording(outbox_world, seen)
    assert recover(fake, KEY, effect(), record) is None
    with pytest.raises(StoreUnavailable):
        perform_then_record(fake, KEY, effect(), refuse)
    assert outbox_world.head() == 0

    assert recover(fake, KEY, effect(), record) == "recorded"
    assert perform_then_record(fake, KEY, effect(), record) == "recorded"

    assert fake.keys == (KEY,)
    assert outbox_world.types() == ["ReleaseRegistered"]


@pytest.mark.req("RS-8")
def test_effect_first_records_nothing_that_was_not_observed(outbox_world: OutboxWorld) -> None:
    class Liar(FakeTarget):
        def observe(self, scope: str, operation: str) -> Observation | None:
            return Observation("somebody:else:was:7")

    def never(observation: Observation) -> str:
        raise AssertionError("nothing was seen")

    failing = FakeTarget(answers=[TargetFailed("busy"), TargetFailed("gone", retryable=False)])
    with pytest.raises(EffectFailed):
        perform_then_record(failing, KEY, effect(), never)
    with pytest.raises(EffectRefused):
        perform_then_record(failing, KEY, effect(), never)
    with pytest.raises(NotObserved):
        perform_then_record(Liar(), KEY, effect(), never)

    assert outbox_world.head() == 0


def test_names_an_intent_after_the_command_that_requested_it(outbox_world: OutboxWorld) -> None:
    outbox_world.pin("web.1", ALIAS, command_id="c-7")

    id = intent_id("web", ALIAS, "web.1", "c-7")

    assert outbox_world.store.get(delivery_key(id))[0] is not None
