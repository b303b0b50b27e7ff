"""Eras on DynamoDB: a commit based on a read from before an exclusive access is refused
(ADR-0014).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.contract.dynamodb_faults import Plot, Send, Table, fresh_table, lose_answer, lose_request
from tests.contract.world import SCHEMA, TALLIES, Rebooted, Tally
from tidegate.engines.dynamodb import DynamoStore
from tidegate.engines.dynamodb.items import COUNT_ATTRIBUTE, COUNTER, ERA
from tidegate.engines.dynamodb.pace import RetryPace
from tidegate.engines.dynamodb.presence import COUNTED_MAX, Presence, Register
from tidegate.errors import InvalidInput, StoreRefused, StoreUnavailable, TidegateError
from tidegate.kernel.folds import Fold, Folds
from tidegate.kernel.model import ALL, Commit, Receipt
from tidegate.kernel.replay import rebuild

pytestmark = pytest.mark.parametrize("engine", ["dynamodb"])
T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LATER = T0 + 30 * SECOND
FOLDS = Folds(
    SCHEMA,
    [
        Fold(
            collection=TALLIES,
            number=1,
            reads=(Rebooted,),
            ids=lambda fact: (fact.text,),
            start=lambda id, fact: Tally("open"),
            step=lambda row, fact, at: Tally("open", row.count + 1),
        )
    ],
)


@pytest.fixture
def table(engine: str, dynamodb_url: str) -> Table:
    return fresh_table(dynamodb_url)


def presence(table: Table, *, alone: bool = False) -> Presence:
    return Presence(table.transport(), RetryPace(), alone=alone, lease=30.0)


def be_alone(table: Table) -> None:
    """Have a process hold the log exclusively for a moment and read it to its end."""
    one = presence(table, alone=True)
    one.enter()
    table.open()[0].read(ALL)
    one.leave()


def era(table: Table) -> object:
    return table.transport().get([COUNTER]).get(COUNTER, {}).get(ERA, 0)


def rebooted(store: DynamoStore, text: str) -> Receipt | TidegateError:
    (answer,) = store.commit(Commit(T0, facts=(SCHEMA.vocabulary.fact(Rebooted(text)),)))
    return answer


def texts(table: Table) -> list[object]:
    events = table.open()[0].read(ALL).events
    return [SCHEMA.vocabulary.value(event) for event in events]


# ── the register ──────────────────────────────────────────────────────────────────────────────────


def test_a_process_is_not_counted_after_its_lease_ends(engine: str) -> None:
    register = Register().join("a", LATER, T0).join("b", LATER + SECOND, T0)

    with pytest.raises(StoreRefused, match="another process has the log open"):
        register.take_alone("c", LATER + SECOND, LATER, 30.0)

    alone = register.take_alone("c", LATER + 3 * SECOND, LATER + SECOND, 30.0)
    assert alone.alone == ("c", LATER + 3 * SECOND)
    assert alone.counted == {}
    with pytest.raises(StoreRefused, match="being rebuilt"):
        alone.join("d", LATER + 9 * SECOND, LATER + 2 * SECOND)
    assert alone.join("d", LATER + 9 * SECOND, LATER + 3 * SECOND).alone is None


def test_counts_no_more_processes_than_fit(engine: str) -> None:
    register = Register({str(number): LATER for number in range(COUNTED_MAX)})

    with pytest.raises(StoreUnavailable, match="the most"):
        register.join("one more", LATER, T0)


@pytest.mark.parametrize("lease", [0.0, -1.0, 3_600.1, float("nan")])
def test_refuses_a_lease_too_short_to_renew(table: Table, lease: float) -> None:
    with pytest.raises(InvalidInput, match="a lease lasts up to 3600 s"):
        Presence(table.transport(), RetryPace(), alone=False, lease=lease)


# ── eras ──────────────────────────────────────────────────────────────────────────────────────────


def test_exclusive_access_begins_an_era_and_joining_and_leaving_do_not(table: Table) -> None:
    one, other = presence(table), presence(table)
    one.enter()
    other.enter()
    one.leave()
    other.leave()
    assert era(table) == 0

    be_alone(table)

    assert era(table) == 1
    one = presence(table)
    one.enter()
    assert era(table) == 1


def test_the_next_process_after_an_exclusive_one_that_died_begins_an_era(table: Table) -> None:
    gone = Presence(table.transport(), RetryPace(), alone=True, lease=0.001)
    gone.enter()
    assert era(table) == 1
    time.sleep(0.002)

    presence(table).enter()

    assert era(table) == 2


@pytest.mark.parametrize("plot", [lose_answer, lose_request], ids=["answer", "request"])
def test_exclusive_access_begins_one_era_although_the_answer_was_lost(
    table: Table, plot: Plot
) -> None:
    _, meddler = table.open()
    one = Presence(meddler, RetryPace(), alone=True, lease=30.0)
    meddler.plot("transact", plot)

    one.enter()

    assert era(table) == 1
    with pytest.raises(StoreRefused, match="being rebuilt"):
        presence(table).enter()


def test_a_store_commits_in_the_era_in_which_it_was_opened(table: Table) -> None:
    before, _ = table.open()
    assert isinstance(rebooted(before, "before"), Receipt)
    be_alone(table)

    late = rebooted(before, "late")

    assert isinstance(late, StoreRefused)
    assert "rebuilt since it was opened" in late.detail
    after, _ = table.open()
    assert isinstance(rebooted(after, "after"), Receipt)
    assert texts(table) == [Rebooted("before"), Rebooted("after")]


def test_a_number_from_an_earlier_era_commits_nothing(table: Table) -> None:
    store, meddler = table.open()

    def while_it_stands_still(send: Send) -> None:
        be_alone(table)
        send()

    meddler.plot("transact", while_it_stands_still)

    answer = rebooted(store, "late")

    assert isinstance(answer, StoreRefused)
    assert texts(table) == []


def test_a_rebuild_folds_facts_after_a_number_whose_writer_died(table: Table) -> None:
    table.transport().increment(COUNTER, COUNT_ATTRIBUTE, {ERA: None})  # by a process that died
    assert isinstance(rebooted(table.open()[0], "behind"), Receipt)
    store, _ = table.open()
    assert store.feed(after=0, limit=10).events == ()

    assert rebuild(store, FOLDS, *FOLDS.folds) == 1

    (row,) = store.range(TALLIES.name, limit=10)
    assert row.key.id == "behind"
