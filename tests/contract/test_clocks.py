"""Clocks decide nothing: writers whose clocks are wrong hide no conflict and change no order."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.contract.address import Connect
from tests.contract.world import (
    T0,
    OrderPlaced,
    ProductAdded,
    ProductRenamed,
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
from tidegate.errors import BoundaryMoved, VersionConflict
from tidegate.kernel.store import Store

HOUR = timedelta(hours=1)
PRODUCT = query_of(ProductAdded, ProductRenamed, tags="product_id:p1")


@pytest.mark.req("CB-15")
@pytest.mark.parametrize("skew", [-HOUR, timedelta(0), HOUR], ids=["behind", "equal", "ahead"])
def test_a_skewed_clock_hides_no_conflict(connect: Connect, skew: timedelta) -> None:
    ours, theirs = connect(), connect()
    append(theirs, ProductAdded("p1"), at=T0)
    boundary = boundary_of(ours, PRODUCT)

    append(theirs, ProductRenamed("p1", "theirs"), at=T0 + skew)

    for at in (T0 - HOUR, T0, T0 + HOUR):
        with pytest.raises(BoundaryMoved):
            land(ours, commit_of(ProductRenamed("p1", "ours"), on=[boundary], at=at))


@pytest.mark.req("CB-15")
def test_orders_facts_by_position_while_clocks_step_back(connect: Connect) -> None:
    handles = [connect(), connect(), connect()]
    steps = [0, 1, -1, 0, -1, 1, 1, -1]
    times = [T0 + step * HOUR + timedelta(seconds=n) for n, step in enumerate(steps)]

    landed = [
        append(handles[n % 3], OrderPlaced(f"o{n}", "c1"), at=at).last for n, at in enumerate(times)
    ]

    assert landed == sorted(landed)
    events = whole_feed(handles[0])
    assert positions(events) == landed
    assert [event.at for event in events] == times
    by_customer = handles[1].read(query_of(OrderPlaced, tags="customer_id:c1")).events
    assert positions(by_customer) == landed
    after = handles[2].read(query_of(OrderPlaced, tags="customer_id:c1"), after=landed[4]).events
    assert positions(after) == landed[5:]


@pytest.mark.req("CB-15")
def test_a_decision_commits_whatever_the_clock_shows(connect: Connect) -> None:
    """The seed's fences compare times: with a slow clock they would refuse this decision for
    ever.
    """
    ours, theirs = connect(), connect()
    append(theirs, ProductAdded("p1"), at=T0 + HOUR)

    for number in range(3):
        at = T0 - HOUR * number
        land(
            ours,
            commit_of(ProductRenamed("p1", str(number)), on=[boundary_of(ours, PRODUCT)], at=at),
        )

    assert len(ours.read(PRODUCT).events) == 4


def test_versions_increase_while_clocks_step_back(store: Store) -> None:
    version = 0
    for number in range(4):
        receipt = land(
            store,
            commit_of(
                writes=[put(item("a"), row(count=number), expect=version)], at=T0 - HOUR * number
            ),
        )
        assert receipt.last > version
        version = receipt.last

    with pytest.raises(VersionConflict):
        land(store, commit_of(writes=[put(item("a"), row(), expect=version - 1)], at=T0 + HOUR))
    assert stored(store, item("a")).version == version


@pytest.mark.parametrize(
    "at",
    [
        T0.replace(microsecond=1),
        T0.replace(microsecond=999_999),
        T0.replace(microsecond=0),
        T0.replace(year=1970, month=1, day=1, hour=0),
        T0.replace(year=9998, month=12, day=31),
    ],
    ids=str,
)
def test_keeps_the_time_of_a_commit_to_the_microsecond(store: Store, at: datetime) -> None:
    receipt = append(store, ProductAdded("p1"), at=at)

    (event,) = whole_feed(store)
    assert event.at == receipt.at == at
    assert event.at.utcoffset() == timedelta(0)
