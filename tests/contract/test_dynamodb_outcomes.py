"""How the DynamoDB engine handles refusals, contention, silence and death, on the real server.

The test server never contends and never loses an answer, so these faults are injected at the seam.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Lock
from typing import Any

import pytest

from tests.contract.dynamodb_faults import (
    FaultyTransport,
    Gone,
    Send,
    Table,
    die_after,
    first,
    fresh_table,
    lose_answer,
    lose_request,
    refuse,
    report_only,
    throttle,
)
from tests.contract.world import (
    SCHEMA,
    OrderPlaced,
    ProductAdded,
    ProductRenamed,
    Rebooted,
    append,
    boundary_of,
    commit_of,
    item,
    land,
    positions,
    put,
    query_of,
    row,
    stored,
    whole_feed,
)
from tidegate.engines.dynamodb import DynamoStore, log
from tidegate.engines.dynamodb.commit import CommitAttempt, DynamoWriter
from tidegate.engines.dynamodb.items import (
    COUNT_ATTRIBUTE,
    COUNTER,
    ERA,
    SPAN,
    Fence,
    fence_place,
    slot_place,
    void_slot,
)
from tidegate.engines.dynamodb.transport import CONTENDED, CancellationReason, Cancelled, UpdateItem
from tidegate.errors import (
    BoundaryMoved,
    Conflict,
    IdempotencyMismatch,
    OutcomeUnknown,
    StoreRefused,
    StoreUnavailable,
    VersionConflict,
)
from tidegate.kernel.model import Check, Commit, CommitKey, Event, Receipt, Write

pytestmark = pytest.mark.parametrize("engine", ["dynamodb"])

PRODUCT = query_of(ProductAdded, ProductRenamed, tags="product_id:p1")
ONCE = CommitKey("request-1", b"digest", b"answer")
FOREVER = 2_000


@pytest.fixture
def table(engine: str, dynamodb_url: str) -> Table:
    return fresh_table(dynamodb_url)


def everything(store: DynamoStore) -> Commit:
    """Build a commit with an action of every role."""
    return commit_of(
        ProductRenamed("p1"),
        on=[boundary_of(store, PRODUCT)],
        writes=[put(item("a"), row(state="new")), Check(item("b"), 0)],
        once=ONCE,
    )


def slot(table: Table, number: int) -> dict[str, Any]:
    return dict(table.transport().get([slot_place(number)]).get(slot_place(number), {}))


# ── contention ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("CB-10")
@pytest.mark.parametrize("code", sorted(CONTENDED))
def test_f15_retries_through_contention_at_any_action(table: Table, code: str) -> None:
    store, meddler = table.open()
    append(store, ProductAdded("p1"))
    land(store, everything(store))
    actions = len(meddler.sent[-1])

    for at in range(actions):
        version = stored(store, item("a")).version
        meddler.plot("transact", refuse(code, at, actions), refuse(code, at, actions))
        writes: list[Write] = [put(item("a"), row(state=str(at)), version), Check(item("b"), 0)]
        commit = commit_of(ProductRenamed("p1"), on=[boundary_of(store, PRODUCT)], writes=writes)
        waited = table.time()

        land(store, commit)

        assert table.time() > waited
    assert len(whole_feed(store)) == actions + 2


def test_only_the_owners_of_a_contended_item_wait(table: Table) -> None:
    store, meddler = table.open()
    orders = commit_of(OrderPlaced("o1", "c1")), commit_of(OrderPlaced("o2", "c2"))
    store.commit(*orders)
    (sent,) = meddler.sent
    places = [action.place for action in sent]
    at = places.index(fence_place("customer_id:c1"))
    meddler.sent.clear()
    meddler.plot("transact", refuse("TransactionConflict", at, len(sent)))
    before = table.time()
    sent_at = []
    for _ in range(2):
        meddler.plot("transact", first(lambda: sent_at.append(table.time())))

    one, other = store.commit(*orders)

    assert isinstance(one, Receipt)
    assert isinstance(other, Receipt)
    assert other.first < one.first  # the other one was sent at once, as a transaction of its own
    assert sent_at[0] == before < sent_at[1]
    assert [len(actions) for actions in meddler.sent] == [9, 5, 5]


def test_a_throttled_request_is_sent_again_under_its_number(table: Table) -> None:
    store, meddler = table.open()
    meddler.plot("increment", throttle)
    meddler.plot("transact", throttle, throttle)

    receipt = land(store, commit_of(Rebooted(), once=ONCE))

    assert receipt.first == SPAN
    assert meddler.calls["increment"] == 2


def test_contention_without_end_is_unavailable_and_nothing_is_applied(table: Table) -> None:
    store, meddler = table.open()
    meddler.plot("transact", *[throttle] * FOREVER)
    start = table.time()

    with pytest.raises(StoreUnavailable):
        land(store, commit_of(Rebooted(), once=ONCE))

    assert 10 <= table.time() - start < 11
    other, _ = table.open()
    assert whole_feed(other) == []
    assert other.receipt(ONCE.key) is None
    assert "void" in slot(table, 1)  # and no other commit has to wait for its number


def test_a_read_retries_through_throttling_and_gives_up_in_the_end(table: Table) -> None:
    store, meddler = table.open()
    append(store, ProductAdded("p1"))
    meddler.plot("query", throttle, lose_answer, lose_request)
    meddler.plot("get", throttle, lose_answer)

    assert len(store.read(PRODUCT).events) == 1
    assert store.get(item("a")) == (None,)
    meddler.plot("query", *[lose_request] * FOREVER)
    with pytest.raises(StoreUnavailable):  # never an empty answer (F10)
        store.read(PRODUCT)


def test_a_refusal_by_the_service_is_reported_by_name(table: Table) -> None:
    store, meddler = table.open()
    meddler.plot("transact", refuse("AccessDenied", 0, 1))

    (answer,) = store.commit(commit_of(Rebooted()))

    assert isinstance(answer, StoreRefused)
    assert "AccessDenied" in answer.detail
    land(store, commit_of(Rebooted()))


# ── silence ───────────────────────────────────────────────────────────────────────────────────────


def test_settling_finds_a_request_that_never_arrived_and_sends_it_again(table: Table) -> None:
    store, meddler = table.open()
    append(store, ProductAdded("p1"))
    meddler.plot("transact", lose_request)

    receipt = land(store, everything(store))

    assert "void" in slot(table, 2)
    assert receipt.first == 3 * SPAN
    assert not receipt.replayed
    assert len(whole_feed(store)) == 2


def test_settling_finds_that_a_request_with_a_lost_answer_committed(table: Table) -> None:
    store, meddler = table.open()
    append(store, ProductAdded("p1"))
    meddler.sent.clear()
    meddler.plot("transact", lose_answer)

    receipt = land(store, everything(store))

    assert receipt == Receipt(2 * SPAN, 2 * SPAN, receipt.at, ONCE.answer, digest=ONCE.digest)
    assert len(meddler.sent) == 1
    assert len(whole_feed(store)) == 2


def test_settling_finds_that_a_reader_closed_the_slot(table: Table) -> None:
    store, meddler = table.open()
    meddler.plot("transact", lose_request)
    meddler.plot("put", first(lambda: table.transport().put_absent(void_slot(1))))

    receipt = land(store, commit_of(Rebooted(), once=ONCE))

    assert receipt.first == 2 * SPAN
    assert positions(whole_feed(store)) == [receipt.first]


def test_settling_survives_lost_answers_and_contention(table: Table) -> None:
    store, meddler = table.open()
    meddler.plot("transact", lose_answer)
    meddler.plot("put", lose_request, throttle, lose_answer)

    receipt = land(store, commit_of(Rebooted(), once=ONCE))

    assert receipt.first == SPAN
    assert len(meddler.sent) == 1


@pytest.mark.parametrize("fate", [lose_request, lose_answer])
def test_an_outcome_that_cannot_be_settled_is_unknown_and_found_by_its_key(
    table: Table, fate: Callable[[Send], Any]
) -> None:
    store, meddler = table.open()
    meddler.plot("transact", fate)
    meddler.plot("put", *[lose_request] * FOREVER)
    commit = commit_of(Rebooted(), once=ONCE)

    with pytest.raises(OutcomeUnknown):
        land(store, commit)

    again = land(table.open()[0], commit)  # with the same key, as the error advises
    assert again.replayed == (fate is lose_answer)
    reader, _ = table.open()
    whole_feed(reader)  # the lost number may be a hole, too young for this reader
    table.time.sleep(2.1)
    assert positions(whole_feed(reader)) == [again.first]


def test_without_settling_an_unkeyed_commit_would_happen_twice(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turns the rule off, to show that the tests above detect its absence."""
    store, meddler = table.open()

    def forget(self: CommitAttempt, drafts: Any, waits: int) -> Any:
        self._number = None
        return [(drafts, waits)]

    monkeypatch.setattr(CommitAttempt, "_resolve_outcome", forget)
    meddler.plot("transact", lose_answer)

    land(store, commit_of(Rebooted()))

    assert len(whole_feed(store)) == 2


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────


def test_a_number_below_a_fence_is_replaced_without_deciding_again(table: Table) -> None:
    ours, meddler = table.open()
    append(ours, ProductAdded("p1"))
    boundary = boundary_of(ours, PRODUCT)
    other, _ = table.open()

    def overtake() -> None:  # touches our fence under a higher number, and changes nothing on it
        land(other, commit_of(Rebooted("overtakes"), on=[boundary_of(other, PRODUCT)]))

    meddler.plot("transact", first(overtake))
    receipt = land(ours, commit_of(ProductRenamed("p1"), on=[boundary]))

    assert receipt.first == 4 * SPAN
    assert "void" in slot(table, 2)
    assert [event.type for event in whole_feed(ours)] == [
        "ProductAdded",
        "Rebooted",
        "ProductRenamed",
    ]


def test_a_slow_writer_finds_its_slot_closed_and_takes_another(table: Table) -> None:
    ours, meddler = table.open()
    reader, _ = table.open()

    def stall() -> None:
        append(table.open()[0], Rebooted("overtakes"))
        assert whole_feed(reader) == []
        table.time.sleep(2.1)
        assert len(whole_feed(reader)) == 1

    meddler.plot("transact", first(stall))
    receipt = land(ours, commit_of(Rebooted("slow"), once=ONCE))

    assert "void" in slot(table, 1)
    assert receipt.first == 3 * SPAN
    assert positions(whole_feed(reader)) == [2 * SPAN, 3 * SPAN]


@pytest.mark.parametrize("omit", ["all", "the decisive one", "its item"])
def test_a_refusal_whose_decisive_reason_is_missing_is_still_understood(
    table: Table, omit: str
) -> None:
    ours, meddler = table.open()
    boundary, version = boundary_of(ours, PRODUCT), 0
    other, _ = table.open()
    newest = append(other, ProductAdded("p1"))
    taken = land(other, commit_of(writes=[put(item("a"), row())]))

    def without_items(send: Send) -> Any:
        try:
            return send()
        except Cancelled as refusal:
            raise Cancelled(
                [CancellationReason(reason.code, {}) for reason in refusal.reasons]
            ) from None

    plots = {"all": report_only(), "the decisive one": report_only(3), "its item": without_items}
    meddler.plot("transact", *[plots[omit]] * 5)

    writes = [put(item("a"), row(), version)]
    (answer,) = ours.commit(commit_of(ProductRenamed("p1"), on=[boundary], writes=writes))

    if omit == "the decisive one":  # only one of two reasons is reported: it is a true one
        assert isinstance(answer, VersionConflict)
        assert answer.facts["found"] == taken.first
    else:
        assert isinstance(answer, BoundaryMoved)
        assert answer.facts["position"] == newest.last


def test_a_refusal_that_cannot_be_explained_is_sent_again(table: Table) -> None:
    store, meddler = table.open()
    meddler.plot("transact", refuse("", 0, 0), refuse("TransactionConflict", 0, 1))

    assert land(store, commit_of(Rebooted())).first == SPAN


@pytest.mark.parametrize("looked_up", [True, False])
def test_a_conflict_with_an_earlier_copy_of_the_same_commit_is_not_reported(
    table: Table, monkeypatch: pytest.MonkeyPatch, looked_up: bool
) -> None:
    """The copy committed and its answer is lost. The second one conflicts, and the refusal does not
    name the key.
    """
    ours, meddler = table.open()
    append(ours, ProductAdded("p1"))
    commit = everything(ours)
    landed = land(table.open()[0], commit)
    meddler.plot("transact", report_only(1))  # the fence
    if not looked_up:
        monkeypatch.setattr(DynamoWriter, "replay", lambda self, commits: {})

    (answer,) = ours.commit(commit)

    if looked_up:
        assert isinstance(answer, Receipt)
        assert (answer.first, answer.replayed) == (landed.first, True)
    else:
        assert isinstance(answer, Conflict)
    (mismatch,) = ours.commit(commit_of(Rebooted(), once=CommitKey(ONCE.key, b"another")))
    assert isinstance(mismatch, IdempotencyMismatch)


# ── death ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_number_taken_by_a_process_that_died_delays_the_feed_by_the_grace(table: Table) -> None:
    dying, meddler = table.open()
    meddler.plot("increment", die_after)
    with pytest.raises(Gone):
        dying.commit(commit_of(Rebooted("never")))
    ours, _ = table.open()
    append(ours, ProductAdded("p1"))

    assert whole_feed(ours) == []
    assert len(ours.read(PRODUCT).events) == 1  # decisions never wait
    table.time.sleep(1.9)
    assert whole_feed(ours) == []
    table.time.sleep(0.2)
    assert len(whole_feed(ours)) == 1
    assert slot(table, 1)["void"] == 1


def test_a_read_of_the_whole_log_waits_for_holes_and_skips_no_fact(table: Table) -> None:
    dying, meddler = table.open()
    meddler.plot("increment", die_after)
    with pytest.raises(Gone):
        dying.commit(commit_of(Rebooted("never")))
    ours, _ = table.open()
    append(ours, Rebooted("here"))
    start = table.time()

    assert len(ours.read(query_of(Rebooted)).events) == 1

    assert table.time() - start >= 2.0


def test_a_reader_without_write_permission_waits_for_others(table: Table) -> None:
    table.transport().increment(COUNTER, COUNT_ATTRIBUTE, {ERA: None})  # by a process that died
    reader, meddler = table.open()
    append(table.open()[0], Rebooted())
    assert whole_feed(reader) == []
    table.time.sleep(3)

    def forbidden(send: Send) -> Any:
        raise StoreRefused("not authorized", reason="AccessDeniedException")

    meddler.plot("put", forbidden)
    assert whole_feed(reader) == []
    other, _ = table.open()
    whole_feed(other)
    table.time.sleep(3)
    whole_feed(other)
    assert len(whole_feed(reader)) == 1


def test_a_hole_during_many_conflicts_delays_only_the_feed(table: Table) -> None:
    stalled, meddler = table.open()
    stores = [table.open()[0] for _ in range(3)]
    outcomes: list[Any] = []

    def storm() -> None:
        for number in range(8):
            boundaries = [boundary_of(store, PRODUCT) for store in stores]
            for store, boundary in zip(stores, boundaries, strict=True):
                fact = ProductRenamed("p1", str(number))
                outcomes.extend(store.commit(commit_of(fact, on=[boundary])))
        assert whole_feed(stores[0]) == []  # everything is above the stalled number
        table.time.sleep(2.1)
        assert len(whole_feed(stores[0])) == 8

    meddler.plot("transact", first(storm))
    receipt = land(stalled, commit_of(OrderPlaced("o1", "c1")))

    landed = [answer for answer in outcomes if isinstance(answer, Receipt)]
    assert len(landed) == 8
    assert len(outcomes) == 24
    assert positions(whole_feed(stores[0])) == [*(r.first for r in landed), receipt.first]


@pytest.mark.req("CB-10", "CB-15")
def test_eight_writers_that_stall_and_die_leave_every_feed_complete_and_in_order(
    engine: str, dynamodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This runs in real time; the stalls are longer than the grace."""
    monkeypatch.setattr(log, "GRACE_SECONDS", 0.05)
    table = fresh_table(dynamodb_url)
    acknowledged: list[Receipt] = []
    lock = Lock()

    def handle(meddle: Callable[[FaultyTransport], None]) -> DynamoStore:
        meddler = FaultyTransport(table.transport())
        store = DynamoStore(table.name, SCHEMA, transport=meddler)
        meddle(meddler)
        return store

    def write(writer: int) -> None:
        chance = Random(writer)

        def stall(send: Send) -> Any:
            if chance.random() < 0.1:
                time.sleep(chance.uniform(0.03, 0.15))
            return send()

        def falter(send: Send) -> Any:
            number = send()
            if chance.random() < 0.1:
                raise Gone
            return number

        def meddle(meddler: FaultyTransport) -> None:
            meddler.plot("transact", *[stall] * 500)
            meddler.plot("increment", *[falter] * 500)

        store = handle(meddle)
        for number in range(12):
            query = query_of(OrderPlaced, tags=f"customer_id:c{chance.randrange(3)}")
            page = store.read(query)
            assert page.has_boundary
            customer = next(iter(query.clauses[0].tags)).partition(":")[2]
            fact = OrderPlaced(f"{writer}-{number}", customer, (), len(page.events))
            try:
                (answer,) = store.commit(commit_of(fact, on=[page.boundary]))
            except Gone:
                store = handle(meddle)  # the next process
                continue
            if isinstance(answer, Receipt):
                with lock:
                    acknowledged.append(answer)

    followed: list[Event] = []

    def follow() -> None:
        store = handle(lambda meddler: None)
        while not finished:
            after = followed[-1].position if followed else 0
            followed.extend(store.feed(after=after, limit=9).events)

    finished: list[bool] = []
    with ThreadPoolExecutor(9) as pool:
        follower = pool.submit(follow)
        list(pool.map(write, range(8)))
        finished.append(True)
        follower.result()
    reader = handle(lambda meddler: None)
    feed = list(reader.read(query_of(OrderPlaced)).events)  # waits for what is still open

    assert positions(feed) == sorted(receipt.first for receipt in acknowledged)
    assert followed == feed[: len(followed)]
    counts: dict[str, int] = {}
    for event in feed:
        value = SCHEMA.vocabulary.value(event)
        assert isinstance(value, OrderPlaced)
        assert value.units == counts.get(value.customer_id, 0)  # each decision read all before it
        counts[value.customer_id] = value.units + 1


def test_a_fence_is_never_moved_back(table: Table) -> None:
    """F7: a carrier that took its number early and commits late takes a new number."""
    slow, meddler = table.open()
    quick, _ = table.open()
    meddler.plot("transact", first(lambda: append(quick, OrderPlaced("o2", "c1"))))

    receipt = append(slow, OrderPlaced("o1", "c1"))

    place = fence_place("customer_id:c1")
    fence = Fence(table.transport().get([place])[place])
    assert fence.position("OrderPlaced") == receipt.first == 3 * SPAN
    assert fence.count("OrderPlaced") == 2
    assert all(
        action.below == {"high": 3} for action in meddler.sent[-1] if isinstance(action, UpdateItem)
    )
