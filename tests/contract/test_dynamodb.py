"""What the DynamoDB engine sends and stores: items, fences, slots, numbers, packs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Annotated, Any
from uuid import uuid4

import pytest
from msgspec import Struct

from examples.shop import app as shop
from examples.shop.catalog import SyncProduct, sync_product
from examples.shop.demand import RecordDemand, record_demand
from examples.shop.orders import PlaceOrder, place_order
from tests.contract.dynamodb_faults import Table, first, fresh_table, lose_answer, throttle
from tests.contract.dynamodb_proxy import DynamoProxy, dynamodb_proxy
from tests.contract.world import (
    SCHEMA,
    T0,
    Announced,
    DemandRecorded,
    LabelsGiven,
    OrderPlaced,
    PriceChanged,
    ProductAdded,
    ProductRenamed,
    Rebooted,
    append,
    boundary_of,
    clause,
    commit_of,
    item,
    land,
    positions,
    put,
    query_of,
    row,
    stored,
    values,
    whole_feed,
)
from tests.fixtures.copies import client_of
from tidegate import library
from tidegate.control.runtime import Control
from tidegate.engines.dynamodb import DynamoStore, pace
from tidegate.engines.dynamodb.items import (
    COUNTER,
    ERA,
    SPAN,
    Fence,
    entry_item,
    fence_place,
    index_partition,
    once_place,
    pack_events,
    row_place,
    slot_items,
    slot_place,
)
from tidegate.engines.dynamodb.transport import ItemKey, ReplaceItem
from tidegate.engines.group_commit import GroupCommit
from tidegate.engines.memory import MemoryStore
from tidegate.errors import (
    BoundaryMoved,
    LimitExceeded,
    StoreRefused,
    StoreUnavailable,
    TidegateError,
)
from tidegate.kernel.model import (
    ALL,
    BODY_BYTES_MAX,
    COMMIT_BYTES_MAX,
    META_BYTES_MAX,
    ONCE_KEY_BYTES_MAX,
    TAG_BYTES_MAX,
    TAGS_MAX,
    TYPE_BYTES_MAX,
    Check,
    Commit,
    CommitKey,
    Delete,
    Fact,
    Meta,
    Put,
    Query,
    Receipt,
    slot_bytes,
    slots,
)
from tidegate.kernel.store import Schema
from tidegate.kernel.tags import Cross, Partition
from tidegate.kernel.vocabulary import Vocabulary, facts

pytestmark = pytest.mark.parametrize("engine", ["dynamodb"])

PRODUCT = query_of(ProductAdded, ProductRenamed, tags="product_id:p1")


@pytest.fixture
def table(engine: str, dynamodb_url: str) -> Table:
    return fresh_table(dynamodb_url)


@pytest.fixture
def store(table: Table) -> Iterator[DynamoStore]:
    with closing(table.open()[0]) as store:
        yield store


def fence(table: Table, index: str) -> Fence:
    place = fence_place(index)
    return Fence(table.transport().get([place]).get(place, {}))


def swept_at(table: Table, place: ItemKey) -> float:
    """Return in how many seconds, by its clock, the service may remove the item."""
    found = table.transport().get([place])[place]["expires"]
    assert isinstance(found, int)
    return found - time.time()


@pytest.mark.parametrize("year", [1999, 2026, 2500])
def test_the_service_keeps_keys_and_absent_rows_whatever_time_a_commit_carries(
    table: Table, store: DynamoStore, year: int
) -> None:
    at = T0.replace(year=year)
    land(store, commit_of(Rebooted(), at=at, once=CommitKey("k", b"d")))
    land(store, commit_of(writes=[Check(item("a"), 0)], at=at))
    made = land(store, commit_of(writes=[put(item("b"), row())], at=at))
    land(store, commit_of(writes=[Delete(item("b"), made.last)], at=at))

    day = 86_400
    assert 29 * day < swept_at(table, once_place("k")) < 31 * day
    for absent in ("a", "b"):
        assert 0.9 * day < swept_at(table, row_place(item(absent))) < 1.1 * day


# ── opening ───────────────────────────────────────────────────────────────────────────────────────

OPENING = ("DescribeTable", "CreateTable", "UpdateTimeToLive", "BatchGetItem", "PutItem")


def open_through(proxy: DynamoProxy, name: str) -> DynamoStore:
    return DynamoStore(name, SCHEMA, region="local", endpoint=proxy.url)


@pytest.mark.parametrize("operation", OPENING)
@pytest.mark.parametrize("trouble", ["throttled", "unanswered"])
def test_opening_survives_throttling_and_lost_answers(
    engine: str, dynamodb_url: str, operation: str, trouble: str
) -> None:
    with dynamodb_proxy(dynamodb_url) as proxy:
        getattr(proxy, trouble)[operation] = 2
        name = f"dynamo_{uuid4().hex[:16]}"

        with closing(open_through(proxy, name)) as store:
            assert append(store, Rebooted()).first > 0

        assert proxy.asked[operation] >= 2
        swept = client_of(dynamodb_url).describe_time_to_live(TableName=name)
        assert swept["TimeToLiveDescription"]["TimeToLiveStatus"] == "ENABLED"


def test_opening_a_table_that_never_answers_is_unavailable(
    engine: str, dynamodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "CALL_SECONDS_MAX", 0.2)
    with dynamodb_proxy(dynamodb_url) as proxy:
        proxy.throttled["DescribeTable"] = 1_000_000

        with pytest.raises(StoreUnavailable, match="does not answer"):
            open_through(proxy, "never")


# ── pages over several indexes ────────────────────────────────────────────────────────────────────

SCATTERED = Query(
    (clause(ProductAdded, tags="product_id:p1"), clause(OrderPlaced, tags="customer_id:c1"))
)


def test_following_a_query_over_several_indexes_misses_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader without a limit on its first read would miss a writer that took a low number and
    stalls.
    """
    (slow, meddler), (quick, _), (reader, _) = table.open(), table.open(), table.open()
    monkeypatch.setattr(library, "connect", lambda url, schema: reader)
    log = library.Log("dynamodb:", reader.schema)
    append(quick, OrderPlaced("o0", "c1"))
    followed = log.follow(SCATTERED)
    found: list[int] = []

    def meanwhile() -> None:
        append(quick, OrderPlaced("o1", "c1"))
        found.extend(positions([next(followed), next(followed)]))

    meddler.plot("transact", first(meanwhile))
    append(slow, ProductAdded("p1"))
    found.extend(positions(list(followed)))

    assert found == positions(quick.read(SCATTERED).events)
    assert len(found) == 3


@pytest.mark.parametrize("limit", [1, 2, 10])
def test_a_page_over_several_indexes_is_a_prefix_of_the_order(table: Table, limit: int) -> None:
    """A writer that took a low number and stalls commits after the returned page, or not at all."""
    (slow, meddler), (quick, _), (reader, _) = table.open(), table.open(), table.open()
    append(quick, OrderPlaced("o0", "c1"))
    pages: list[list[int]] = []

    def tail() -> None:
        after = pages[-1][-1] if pages else 0
        while page := positions(reader.read(SCATTERED, after=after, limit=limit).events):
            pages.append(page)
            after = page[-1]

    def meanwhile() -> None:
        append(quick, OrderPlaced("o1", "c1"))
        tail()

    meddler.plot("transact", first(meanwhile))
    append(slow, ProductAdded("p1"))
    tail()

    found = [position for page in pages for position in page]
    assert found == positions(quick.read(SCATTERED).events)
    assert len(found) == 3
    land(quick, commit_of(Rebooted(), on=[boundary_of(reader, SCATTERED)]))


def test_a_page_over_several_indexes_is_consistent_while_others_write(table: Table) -> None:
    (reader, meddler), (writer, _) = table.open(), table.open()
    append(writer, OrderPlaced("o0", "c1"))
    meddler.plot(
        "transact",
        first(lambda: append(writer, ProductAdded("p1"))),  # it raises the fence itself
        throttle,
        lose_answer,
    )
    for number in range(1, 4):
        append(writer, OrderPlaced(f"o{number}", "c1"))
        page = reader.read(SCATTERED, limit=100)
        assert (
            positions(page.events) == positions(writer.read(SCATTERED).events)[: len(page.events)]
        )

    assert positions(reader.read(SCATTERED, limit=100).events) == positions(
        writer.read(SCATTERED).events
    )


# ── what one commit sends ─────────────────────────────────────────────────────────────────────────


@pytest.mark.req("CB-10", "CB-11")
@pytest.mark.req("CB-24", only="dynamodb", reason="it names the items sent to DynamoDB")
def test_place_order_sends_one_advance_and_a_check_per_product(
    engine: str, dynamodb_url: str
) -> None:
    store, meddler = fresh_table(dynamodb_url, shop.SCHEMA).open(shop.SCHEMA)
    with closing(GroupCommit(store)) as writer:
        control = Control(store, shop.FOLDS, writer.submit)
        for product in ("prod-1", "prod-2"):
            control.execute(sync_product, SyncProduct(product, True))
        meddler.sent.clear()

        control.execute(place_order, PlaceOrder("ord-1", "cust-9", ("prod-1", "prod-2")))

    (sent,) = meddler.described()  # one transaction, no creation row
    assert sent == [
        "check fence#orderId:ord-1 on OrderPlaced and advance OrderPlaced",
        "check fence#productId:prod-1 on CatalogProductSynced",
        "check fence#productId:prod-2 on CatalogProductSynced",
        "put in orderId:ord-1",
    ]
    assert not any("cust-9" in action.place.pk for action in meddler.sent[0])


@pytest.mark.req("CB-11")
@pytest.mark.req("CB-24", only="dynamodb", reason="it names the items sent to DynamoDB")
def test_record_demand_checks_and_advances_its_exact_pair(engine: str, dynamodb_url: str) -> None:
    store, meddler = fresh_table(dynamodb_url, shop.SCHEMA).open(shop.SCHEMA)
    with closing(GroupCommit(store)) as writer:
        control = Control(store, shop.FOLDS, writer.submit)

        control.execute(record_demand, RecordDemand("prod-1", "ord-1"))

    (sent,) = meddler.described()
    both = "ProductDemandRecorded, ProductDemandRevoked"
    pair = "orderId:ord-1&productId:prod-1"
    assert sent == [
        f"check fence#{pair} on {both} and advance ProductDemandRecorded",
        "advance fence#productId:prod-1 on ProductDemandRecorded",
        f"put in {pair}",
        "put in productId:prod-1",
    ]


@pytest.mark.req("CB-10")
def test_a_commit_of_everything_is_one_transaction(table: Table) -> None:
    store, meddler = table.open()
    append(store, ProductAdded("p1"))
    boundary = boundary_of(store, PRODUCT)
    meddler.sent.clear()

    receipt = land(
        store,
        commit_of(
            ProductRenamed("p1"),
            OrderPlaced("o1", "c1"),
            on=[boundary],
            writes=[put(item("a"), row(state="new", owner="x")), Check(item("b"), 0)],
            once=CommitKey("k", b"digest"),
        ),
    )

    (sent,) = meddler.sent
    places = [action.place for action in sent]
    assert len(set(places)) == len(places) == 12
    assert places[0] == slot_place(receipt.first // SPAN)
    assert [place.pk for place in places if place.sk == "FENCE"] == [
        index_partition(tag) for tag in ("customer_id:c1", "order_id:o1", "product_id:p1")
    ]
    assert SCHEMA.cost(commit_of(ProductRenamed("p1"), OrderPlaced("o1", "c1"))) == 7


@pytest.mark.req("CB-11", "CB-12")
def test_a_fence_that_is_only_consumed_rises_and_conflicts_with_nothing(table: Table) -> None:
    store, _ = table.open()
    append(store, ProductAdded("p1"))
    before, other = fence(table, "product_id:p1"), boundary_of(store, PRODUCT)

    receipt = land(store, commit_of(Rebooted(), on=[boundary_of(store, PRODUCT)]))

    after = fence(table, "product_id:p1")
    assert after.item["high"] == receipt.first // SPAN > int(before.item["high"])
    assert {k: v for k, v in after.item.items() if k != "high"} == {
        k: v for k, v in before.item.items() if k != "high"
    }
    land(
        store, commit_of(ProductRenamed("p1"), on=[other])
    )  # what other readers read is still current


@pytest.mark.req("CB-11")
def test_a_fence_counts_each_type_separately(table: Table, store: DynamoStore) -> None:
    append(store, ProductAdded("p1"))
    last = append(store, PriceChanged("p1"), ProductRenamed("p1"), PriceChanged("p1"))

    found = fence(table, "product_id:p1")

    assert (found.position(None), found.count(None)) == (last.last, 4)
    assert (found.position("PriceChanged"), found.count("PriceChanged")) == (last.last, 2)
    assert (found.position("ProductRenamed"), found.count("ProductRenamed")) == (last.first + 1, 1)
    assert found.position("OrderPlaced") == found.count("OrderPlaced") == 0


@pytest.mark.req("CB-25")
def test_every_read_is_strong_and_of_the_table_itself(table: Table) -> None:
    transport = table.transport()
    asked: list[tuple[str, dict[str, Any]]] = []

    def note(params: dict[str, Any], model: Any, **_: Any) -> None:
        asked.append((model.name, params))

    transport._client.meta.events.register("before-parameter-build.dynamodb", note)
    store = DynamoStore(table.name, SCHEMA, transport=transport)
    append(store, ProductAdded("p1"), OrderPlaced("o1", "c1"), DemandRecorded("p1", "o1"))

    for query in (
        PRODUCT,
        query_of(OrderPlaced, tags="customer_id:c1"),
        query_of(DemandRecorded, tags=("product_id:p1", "order_id:o1")),
        query_of(OrderPlaced, tags=("customer_id:c1", "product_id:p9"), contains=True),
        Query((*PRODUCT.clauses, clause(OrderPlaced, tags="order_id:o1"))),
        query_of(Rebooted),
        ALL,
    ):
        store.read(query)

    kinds = {name for name, _ in asked}
    assert kinds <= {
        "Query",
        "BatchGetItem",
        "TransactGetItems",
        "TransactWriteItems",
        "UpdateItem",
        "PutItem",
    }
    queries = [params for name, params in asked if name == "Query"]
    batches = [params["RequestItems"][table.name] for n, params in asked if n == "BatchGetItem"]
    assert all(one["ConsistentRead"] for one in (*queries, *batches))
    assert not any("IndexName" in one for one in queries)
    described = transport._client.describe_table(TableName=table.name)["Table"]
    assert not described.get("GlobalSecondaryIndexes")


# ── packs ─────────────────────────────────────────────────────────────────────────────────────────


def test_compatible_commits_share_a_transaction_and_keep_their_order(table: Table) -> None:
    store, meddler = table.open()
    boundary = boundary_of(store, PRODUCT)

    answers = store.commit(
        commit_of(
            OrderPlaced("o1", "c1"), OrderPlaced("o2", "c1"), once=CommitKey("k", b"d", b"one")
        ),
        commit_of(writes=[put(item("a"), row())]),
        commit_of(ProductAdded("p1"), on=[boundary]),
        commit_of(OrderPlaced("o3", "c1")),
    )

    assert len(meddler.sent) == 1
    receipts = [answer for answer in answers if isinstance(answer, Receipt)]
    assert [(r.first % SPAN, r.last % SPAN) for r in receipts] == [(0, 1), (2, 2), (3, 3), (4, 4)]
    assert positions(whole_feed(store)) == [
        *range(receipts[0].first, receipts[0].last + 1),
        receipts[2].first,
        receipts[3].first,
    ]
    assert stored(store, item("a")).version == receipts[1].first
    customer = store.read(query_of(OrderPlaced, tags="customer_id:c1")).events
    assert [event.position % SPAN for event in customer] == [0, 1, 4]


def test_overlapping_commits_in_a_pack_are_answered_in_sequence(table: Table) -> None:
    """In one transaction, each pair would be answered wrongly, or differently from the oracle."""
    oracle = MemoryStore(SCHEMA)
    store, meddler = table.open()
    product = query_of(ProductAdded, tags="product_id:p1")

    def commits(of: DynamoStore | MemoryStore) -> tuple[Commit, ...]:
        boundary = boundary_of(of, product)
        return (
            commit_of(ProductAdded("p1"), on=[boundary], once=CommitKey("k", b"d")),
            commit_of(ProductAdded("p1"), on=[boundary]),
            commit_of(ProductAdded("p1"), on=[boundary], once=CommitKey("k", b"d")),
            commit_of(Rebooted(), once=CommitKey("k", b"another")),
            commit_of(writes=[put(item("a"), row())]),
            commit_of(writes=[put(item("a"), row())]),
            commit_of(
                OrderPlaced("o1", "c1"),
                on=[boundary_of(of, query_of(OrderPlaced, tags="order_id:o1"))],
            ),
            commit_of(
                PriceChanged("p1"),
                on=[boundary_of(of, query_of(PriceChanged, tags="product_id:p1"))],
            ),
            commit_of(Rebooted(), on=[boundary_of(of, query_of(tags="product_id:p1"))]),
        )

    ours, theirs = store.commit(*commits(store)), oracle.commit(*commits(oracle))

    assert [type(answer) for answer in ours] == [type(answer) for answer in theirs]
    assert [getattr(answer, "replayed", None) for answer in ours] == [
        getattr(answer, "replayed", None) for answer in theirs
    ]
    assert values(whole_feed(store)) == values(whole_feed(oracle))
    assert len(meddler.sent) < len(ours)


def test_a_conflict_in_a_pack_does_not_affect_the_other_commits(table: Table) -> None:
    store, meddler = table.open()
    boundary = boundary_of(store, PRODUCT)
    append(table.open()[0], ProductAdded("p1"))
    meddler.sent.clear()

    outcomes = store.commit(
        commit_of(OrderPlaced("o1", "c1")),
        commit_of(ProductRenamed("p1"), on=[boundary]),
        commit_of(OrderPlaced("o2", "c2")),
    )

    assert [type(outcome) for outcome in outcomes] == [Receipt, BoundaryMoved, Receipt]
    assert len(meddler.sent) == 2  # all three, then the remaining two
    assert len(whole_feed(store)) == 3


def test_a_pack_is_no_larger_than_a_transaction(table: Table) -> None:
    store, meddler = table.open()
    commits = [commit_of(OrderPlaced(f"o{n}", f"c{n}"), Rebooted()) for n in range(70)]

    answers = store.commit(*commits)

    assert all(isinstance(answer, Receipt) for answer in answers)
    assert max(len(actions) for actions in meddler.sent) <= 100
    assert len(meddler.sent) == 3  # 1 + 4 for each: 24 fit
    assert len(whole_feed(store)) == 140


# ── numbers ───────────────────────────────────────────────────────────────────────────────────────


def test_a_refused_commit_returns_its_number_at_once(table: Table) -> None:
    store, _ = table.open()
    boundary = boundary_of(store, PRODUCT)
    append(table.open()[0], ProductAdded("p1"))

    with pytest.raises(BoundaryMoved):
        land(store, commit_of(ProductRenamed("p1"), on=[boundary]))

    number = int(table.transport().get([COUNTER])[COUNTER]["n"])
    assert table.transport().get([slot_place(number)])[slot_place(number)]["void"] == 1
    later = append(store, Rebooted())
    assert positions(whole_feed(store))[-1] == later.last  # nothing to wait for


def test_a_doomed_commit_is_answered_without_a_number(table: Table) -> None:
    store, meddler = table.open()
    boundary = boundary_of(store, PRODUCT)
    newest = append(store, ProductAdded("p1"))
    meddler.calls.clear()

    with pytest.raises(BoundaryMoved) as refusal:
        land(store, commit_of(ProductRenamed("p1"), on=[boundary]))

    assert refusal.value.facts["position"] == newest.last
    assert meddler.calls == {"get": 1}


def test_an_idle_feed_costs_one_get(table: Table) -> None:
    store, meddler = table.open()
    last = append(store, Rebooted()).last
    land(store, commit_of(writes=[put(item("a"), row())]))  # a slot without an event
    assert store.feed(after=last, limit=10).events == ()
    meddler.calls.clear()

    assert store.feed(after=last, limit=10).events == ()

    assert meddler.calls == {"get": 1}
    newer = append(store, Rebooted())
    assert positions(store.feed(after=last, limit=10).events) == [newer.last]


def test_a_cursor_inside_a_transaction_resumes_inside_it(store: DynamoStore) -> None:
    store.commit(*(commit_of(*[Rebooted(str(n))] * 5) for n in range(3)))
    everything = positions(whole_feed(store))

    for start in range(len(everything)):
        page = store.feed(after=everything[start], limit=4).events
        assert positions(page) == everything[start + 1 : start + 5]
    assert whole_feed(store, limit=1) == whole_feed(store)


def test_the_feed_crosses_segments_and_numbers_without_events(table: Table) -> None:
    transport = table.transport()
    store, _ = table.open()
    append(store, Rebooted("first"))
    for _ in range(1_005):
        transport.increment(COUNTER, "n", {ERA: None})  # a thousand writers took a number and died
    append(store, Rebooted("last"))
    assert [value.text for value in values(whole_feed(store))] == ["first"]  # type: ignore[attr-defined]

    table.time.sleep(2.1)

    assert [value.text for value in values(whole_feed(store))] == ["first", "last"]  # type: ignore[attr-defined]


# ── sizes ─────────────────────────────────────────────────────────────────────────────────────────


def large(type_: type[Struct], tags: tuple[str, ...], size: int = BODY_BYTES_MAX) -> Fact:
    body = b'{"text":"' + b"x" * (size - 11) + b'"}'
    return Fact("note", type_.__name__, 1, tags, body)


@pytest.mark.req("CB-25")
def test_the_largest_commit_spills_and_is_read_back_whole(store: DynamoStore) -> None:
    big = [large(LabelsGiven, (f"label_id:{n % 2}", "note_id:n1")) for n in range(13)]
    small = LabelsGiven("n1", ("0",))

    receipt = land(store, commit_of(*big, small, Announced("end")))

    feed = whole_feed(store)
    assert positions(feed) == list(range(receipt.first, receipt.last + 1))
    assert [event.body for event in feed[:13]] == [fact.body for fact in big]
    assert store.read(query_of(LabelsGiven, tags="note_id:n1")).events == tuple(feed[:14])
    zeros = store.read(query_of(LabelsGiven, tags="label_id:0")).events
    assert positions(zeros) == [*range(receipt.first, receipt.first + 13, 2), receipt.first + 13]
    land(store, commit_of(small, on=[boundary_of(store, query_of(LabelsGiven, tags="note_id:n1"))]))


@pytest.mark.parametrize("size", [2, 1_000, BODY_BYTES_MAX])
@pytest.mark.parametrize("tags", [0, TAGS_MAX])
@pytest.mark.parametrize("own", [False, True])
def test_a_slot_is_never_sent_in_more_parts_than_were_counted(
    engine: str, size: int, tags: int, own: bool
) -> None:
    longest = tuple(f"k:{n:02}" + "x" * (TAG_BYTES_MAX - 4) for n in range(tags))
    meta = Meta(*["m" * META_BYTES_MAX] * 4)
    name = "t" * TYPE_BYTES_MAX
    kind = "k" * TYPE_BYTES_MAX
    fact = Fact(kind, name, 2**53 - 1, longest, b"x" * size, meta if own else None)
    for count in range(1, 129):
        commit = Commit(T0, meta, (fact,) * count, once=CommitKey("k" * ONCE_KEY_BYTES_MAX, b"d"))
        kept = pack_events(commit, ((2**53 - 1, fact) for fact in commit.facts))
        content = sum(len(fact.body) for fact in commit.facts)
        if content > COMMIT_BYTES_MAX:
            break
        assert len(slot_items(1, "0" * 32, [kept])) <= slots(sum(map(slot_bytes, commit.facts)))


def test_a_commit_too_large_for_a_transaction_is_refused_before_it_is_sent(table: Table) -> None:
    store, meddler = table.open()
    spilling = [large(Rebooted, ()) for _ in range(13)]
    rows = [put(item(str(n)), row()) for n in range(95)]

    (answer,) = store.commit(commit_of(*spilling, writes=rows))

    assert isinstance(answer, LimitExceeded)
    assert answer.facts["limit"] == "storage items of a commit"
    (long,) = store.commit(commit_of(writes=[put(item("a"), row(state="x" * 1_100))]))
    assert isinstance(long, TidegateError)
    assert meddler.calls == {}


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────


def test_an_absent_row_records_its_last_reader_and_is_removed_later(
    table: Table, store: DynamoStore
) -> None:
    made = land(store, commit_of(writes=[put(item("a"), row(state="new"))]))
    gone = land(store, commit_of(writes=[Delete(item("a"), made.first), Check(item("b"), 0)]))

    found = table.transport().get([row_place(item("a")), row_place(item("b"))])

    assert store.get(item("a"), item("b")) == (None, None)
    assert store.range("items", limit=10) == ()
    assert store.range("items", index="by_state", limit=10) == ()
    for left in found.values():
        assert left["high"] == gone.first // SPAN
        assert int(left["expires"]) > T0.timestamp()
        assert {"version", "data"}.isdisjoint(left)
    again = land(store, commit_of(writes=[put(item("a"), row(state="old"), expect=0)]))
    assert stored(store, item("a")).born == again.first > gone.first
    assert "expires" not in table.transport().get([row_place(item("a"))])[row_place(item("a"))]


def test_a_row_that_moves_in_an_index_leaves_no_old_entry(table: Table) -> None:
    store, meddler = table.open()
    version = land(store, commit_of(writes=[put(item("a"), row(state="s1", owner="o"))])).first
    for state in ("s2", "s2", "s3"):
        write = put(item("a"), row(state=state, owner="o"), expect=version)
        version = land(store, commit_of(writes=[write])).first

    partitions = [f"entry#items#{index}" for index in ("by_state", "by_owner")]
    entries = [table.transport().query(pk).items for pk in partitions]

    assert [[one["sk"] for one in found] for found in entries] == [["s3\x1fa"], ["o\x1fs3\x1fa"]]
    assert [len(actions) for actions in meddler.sent] == [4, 6, 2, 6]


def test_a_range_whose_rows_keep_changing_is_unavailable_and_not_short(table: Table) -> None:
    store, _ = table.open()
    land(store, commit_of(writes=[put(item("a"), row(state="s1"))]))
    stray = ReplaceItem(entry_item(item("b"), "by_state", "s0"))  # as if its row kept changing
    table.transport().transact([stray], "token")

    with pytest.raises(StoreUnavailable, match="by_state"):
        store.range("items", index="by_state", limit=10)


def test_a_new_row_carries_the_fact_that_its_write_names(store: DynamoStore) -> None:
    three = [Rebooted(str(number)) for number in range(3)]
    made = land(store, commit_of(*three, writes=[Put(item("a"), row(), 0, fact=2, born=1)]))
    assert stored(store, item("a")).born == made.first + 1

    kept = land(store, commit_of(*three, writes=[put(item("a"), row(), made.first + 2)]))
    assert stored(store, item("a")).born == made.first + 1

    anew = land(store, commit_of(*three, writes=[Put(item("a"), row(), kept.first, 2, born=0)]))
    assert (stored(store, item("a")).born, stored(store, item("a")).version) == (
        anew.first,
        anew.last,
    )


# ── opening ───────────────────────────────────────────────────────────────────────────────────────


def shop_of(struct: type[Struct]) -> Schema:
    return Schema(Vocabulary(facts("shop", struct)))


class Before(Struct, frozen=True):
    order_id: Annotated[str, Partition()]
    customer_id: str


class After(Struct, frozen=True):
    order_id: Annotated[str, Partition()]
    customer_id: Annotated[str, Cross()]


Before.__name__ = After.__name__ = "OrderMade"


def test_a_type_whose_index_rule_changed_is_refused(table: Table) -> None:
    old, new = shop_of(Before), shop_of(After)
    table.open(new)[0].close()  # no event yet: the rule may change, and change back
    store, _ = table.open(old)
    land(store, commit_of(old.vocabulary.fact(Before("o1", "c1"))))

    with pytest.raises(StoreRefused, match="OrderMade") as refusal:
        table.open(new)

    assert refusal.value.facts["type"] == "OrderMade"
    table.open(old)[0].close()


def test_a_table_of_another_application_is_refused(engine: str, dynamodb_url: str) -> None:
    table = fresh_table(dynamodb_url)
    client = table.transport()._client
    client.delete_table(TableName=table.name)
    client.create_table(
        TableName=table.name,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )

    with pytest.raises(StoreRefused, match="other keys"):
        DynamoStore(table.name, SCHEMA, region="local", endpoint=dynamodb_url)


def test_restore_replaces_rows_and_entries_in_batches(table: Table) -> None:
    store, meddler = table.open()
    for name in ("a", "b"):
        land(store, commit_of(writes=[put(item(name), row(state="old"))]))
    kept = stored(store, item("b"))
    meddler.sent.clear()
    records = [type(kept)(item(f"r{n:03}"), n + 128, n + 128, row(state="new")) for n in range(120)]

    store.restore("items", records)

    assert len(meddler.sent) == 3
    assert store.range("items", limit=500) == tuple(records)
    assert store.range("items", index="by_state", prefix="new", limit=500) == tuple(records)
    assert store.range("items", index="by_state", prefix="old", limit=500) == ()
