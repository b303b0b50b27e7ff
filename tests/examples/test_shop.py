"""The shop on every engine: each of its rules, alone and in a race."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import Struct

from examples.shop import app
from examples.shop.catalog import (
    AddProduct,
    ChangeProductName,
    ChangeProductPrice,
    SyncProduct,
    add_product,
    change_product_name,
    change_product_price,
    sync_product,
)
from examples.shop.demand import RecordDemand, RevokeDemand, record_demand, revoke_demand
from examples.shop.facts import (
    OrderPlaced,
    ProductDemandRevoked,
    ProductNameChanged,
    ProductOrdered,
)
from examples.shop.order_product import UNITS_PER_CUSTOMER_MAX, OrderProduct, order_product
from examples.shop.orders import OrderAlreadyPlaced, PlaceOrder, ProductsNotAvailable, place_order
from tests.contract.address import Address
from tests.examples.conftest import PROCESSES
from tests.examples.racing import (
    Connect,
    connector,
    control_of,
    race_processes,
    race_threads,
    send_until_decided,
)
from tidegate.control.runtime import Control
from tidegate.errors import BoundaryMoved
from tidegate.kernel.folds import Folds
from tidegate.kernel.model import ALL, Boundary, Commit, Receipt
from tidegate.kernel.replay import differences
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import demand_boundary

VOCABULARY = app.SCHEMA.vocabulary


@pytest.fixture
def connect(address: Address | None) -> Connect:
    return connector(address, app.FOLDS)


@pytest.fixture
def shop(connect: Connect) -> Iterator[Control]:
    with closing(connect()) as store, control_of(store, app.FOLDS) as control:
        yield control


def boundary_of(control: Control, item: Slice, command: Struct) -> Boundary:
    """Return what a decision on this command would depend on now."""
    query = VOCABULARY.query(item, command)
    page = control.store.read(query, guard=VOCABULARY.guard(item, query))
    return demand_boundary(page, query)


def lands(control: Control, boundary: Boundary, fact: Struct) -> bool:
    """Return whether a decision made on this boundary can still be committed."""
    commit = Commit(control.clock(), facts=(VOCABULARY.fact(fact),), boundaries=(boundary,))
    (result,) = control.store.commit(commit)
    assert isinstance(result, Receipt | BoundaryMoved)
    return isinstance(result, Receipt)


@pytest.mark.req("CB-16")
def test_walks_from_the_catalogue_to_the_cap(
    shop: Control, capsys: pytest.CaptureFixture[str]
) -> None:
    app.walk(shop)

    printed = capsys.readouterr().out
    assert "placing ord-1: log position" in printed
    assert "in ord-5: log position" in printed
    assert "in ord-6: cap_reached" in printed
    assert "differences after replay: []" in printed


@pytest.mark.req("CB-16")
def test_walks_a_second_time_and_changes_nothing(
    shop: Control, capsys: pytest.CaptureFixture[str]
) -> None:
    app.walk(shop)
    capsys.readouterr()
    events = shop.store.read(ALL).events

    app.walk(shop)

    printed = capsys.readouterr().out
    assert "placing ord-1: order_already_placed" in printed
    assert "in ord-5: exists already" in printed
    assert "in ord-6: cap_reached" in printed
    assert "differences after replay: []" in printed
    assert shop.store.read(ALL).events == events


def test_rebuilds_at_its_start_the_rows_of_a_changed_fold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    with app.shop(url) as control:
        control.execute(order_product, OrderProduct("ord-1", "cust-9", "prod-1", 2))
    doubled = replace(
        app.customer_units,
        number=2,
        step=lambda row, fact, now: app.add_units(app.add_units(row, fact, now), fact, now),
    )
    monkeypatch.setattr(app, "FOLDS", Folds(app.SCHEMA, (doubled,)))

    with app.shop(url) as control:
        (row,) = control.store.range(app.CUSTOMER_UNITS.name, limit=9)
        assert differences(control.store, app.FOLDS) == []

    assert b'"units":4' in row.data


@pytest.mark.req("CB-18", engines=None, reason="a query is derived before any engine is asked")
def test_derives_the_clauses_of_its_commands() -> None:
    order = PlaceOrder("ord-1", "cust-9", ("prod-1", "prod-2"))
    pair = "[ProductDemandRecorded|ProductDemandRevoked @ orderId:ord-1 & productId:prod-1]"

    assert str(VOCABULARY.query(add_product, AddProduct("prod-1", "", "", 1))) == (
        "[ProductAdded @ productId:prod-1]"
    )
    assert str(VOCABULARY.query(place_order, order)).split(" or ") == [
        "[OrderPlaced @ orderId:ord-1]",
        "[CatalogProductSynced|OrderPlaced @ productId:prod-1]",
        "[CatalogProductSynced|OrderPlaced @ productId:prod-2]",
    ]
    assert str(VOCABULARY.query(record_demand, RecordDemand("prod-1", "ord-1"))) == pair
    assert str(VOCABULARY.query(revoke_demand, RevokeDemand("prod-1", "ord-1"))) == pair
    ordered = VOCABULARY.query(order_product, OrderProduct("ord-7", "cust-9", "prod-1", 3))
    assert str(ordered).split(" or ") == [
        "[ProductOrdered @ orderId:ord-7]",
        "[ProductOrdered @ customerId:cust-9]",
    ]


@pytest.mark.req("CB-21")
def test_an_order_ends_as_placed_placed_already_or_not_available(shop: Control) -> None:
    shop.execute(sync_product, SyncProduct("prod-1", True))
    order = PlaceOrder("ord-1", "cust-9", ("prod-1",))

    assert len(shop.execute(place_order, order).facts) == 1
    with pytest.raises(OrderAlreadyPlaced):
        shop.execute(place_order, order)
    with pytest.raises(ProductsNotAvailable):
        shop.execute(place_order, PlaceOrder("ord-2", "cust-9", ("prod-1", "prod-2")))


@pytest.mark.req("CB-11", "CB-21")
def test_an_order_conflicts_with_a_resync_of_its_product_and_not_with_other_orders(
    shop: Control,
) -> None:
    shop.execute(sync_product, SyncProduct("prod-1", True))
    first = PlaceOrder("ord-1", "cust-1", ("prod-1",))
    second = PlaceOrder("ord-2", "cust-2", ("prod-1",))

    boundary = boundary_of(shop, place_order, first)
    shop.execute(place_order, second)
    assert lands(shop, boundary, OrderPlaced("ord-1", "cust-1", ("prod-1",)))

    third = PlaceOrder("ord-3", "cust-3", ("prod-1",))
    boundary = boundary_of(shop, place_order, third)
    shop.execute(sync_product, SyncProduct("prod-1", False))
    assert not lands(shop, boundary, OrderPlaced("ord-3", "cust-3", ("prod-1",)))


@pytest.mark.req("CB-12", "CB-23")
def test_a_new_name_conflicts_with_another_name_and_not_with_a_new_price(
    shop: Control,
) -> None:
    shop.execute(add_product, AddProduct("prod-1", "Lamp", "", 100))
    rename = ChangeProductName("prod-1", "Bright lamp")
    renamed = ProductNameChanged("prod-1", "Bright lamp")

    boundary = boundary_of(shop, change_product_name, rename)
    shop.execute(change_product_price, ChangeProductPrice("prod-1", 200))
    assert lands(shop, boundary, renamed)

    boundary = boundary_of(shop, change_product_name, rename)
    shop.execute(change_product_name, ChangeProductName("prod-1", "Dim lamp"))
    assert not lands(shop, boundary, renamed)


@pytest.mark.req("CB-20")
def test_the_pair_of_a_product_and_an_order_is_a_boundary_of_its_own(shop: Control) -> None:
    recorded = shop.execute(record_demand, RecordDemand("prod-1", "ord-1")).facts
    assert len(recorded) == 1

    boundary = boundary_of(shop, revoke_demand, RevokeDemand("prod-1", "ord-1"))
    assert shop.execute(record_demand, RecordDemand("prod-1", "ord-2")).facts
    assert shop.execute(record_demand, RecordDemand("prod-2", "ord-1")).facts
    assert lands(shop, boundary, ProductDemandRevoked("prod-1", "ord-1"))
    assert shop.execute(revoke_demand, RevokeDemand("prod-1", "ord-1")).facts == ()


@pytest.mark.req("CB-13", "CB-16")
def test_one_of_16_racing_writers_adds_the_product(connect: Connect) -> None:
    work = [(add_product, AddProduct("prod-1", f"name {n}", "", n)) for n in range(16)]

    race_threads(connect, app.FOLDS, work)

    with closing(connect()) as store:
        assert [event.type for event in store.read(ALL).events] == ["ProductAdded"]


@pytest.mark.req("CB-22")
def test_the_cap_of_a_customer_is_reached_exactly_by_16_racing_orders(connect: Connect) -> None:
    orders = [OrderProduct(f"ord-{n}", "cust-9", "prod-1", 1) for n in range(16)]
    beside = [OrderProduct(f"ord-x{n}", "cust-9", "prod-2", 1) for n in range(2)]

    answers = race_threads(connect, app.FOLDS, [(order_product, o) for o in orders])
    others = race_threads(connect, app.FOLDS, [(order_product, o) for o in beside])

    assert Counter(answers) == Counter(
        done=UNITS_PER_CUSTOMER_MAX, cap_reached=16 - UNITS_PER_CUSTOMER_MAX
    )
    assert others == ["done", "done"]
    with closing(connect()) as store:
        assert differences(store, app.FOLDS) == []
        row = store.range(app.CUSTOMER_UNITS.name, index="by_product", prefix="prod-1", limit=9)
        assert [record.data for record in row] == [
            b'{"customerId":"cust-9","productId":"prod-1","units":5}'
        ]


@pytest.mark.req("CB-22")
def test_orders_of_different_customers_never_conflict(shop: Control) -> None:
    boundary = boundary_of(shop, order_product, OrderProduct("ord-1", "cust-1", "prod-1", 1))

    shop.execute(order_product, OrderProduct("ord-2", "cust-2", "prod-1", 1))

    assert lands(shop, boundary, ProductOrdered("ord-1", "cust-1", "prod-1", 1))


def order_in_a_process(address: Address, commands: Sequence[Struct]) -> list[str]:
    with closing(address.open(app.SCHEMA)) as store, control_of(store, app.FOLDS) as control:
        answers = [send_until_decided(control, order_product, command) for command in commands]
        return [answer if isinstance(answer, str) else "done" for answer in answers]


@pytest.mark.req("CB-16", "CB-22")
def test_the_caps_hold_when_processes_race(
    address: Address | None, connect: Connect, processes: ProcessPoolExecutor
) -> None:
    orders = [
        OrderProduct(f"ord-{customer}-{n}", f"cust-{customer}", "prod-1", 1)
        for n in range(8)
        for customer in range(3)
    ]

    if address is None:
        answers = race_threads(connect, app.FOLDS, [(order_product, o) for o in orders])
    else:
        answers = race_processes(processes, order_in_a_process, address, orders, PROCESSES)

    assert Counter(answers) == Counter(done=15, cap_reached=9)
    with closing(connect()) as store:
        assert differences(store, app.FOLDS) == []
