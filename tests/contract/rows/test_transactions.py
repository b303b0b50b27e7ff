"""Transactions, batches and races of generic verbs: all or nothing, and no write is lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from tests.contract.rows.registry import (
    FIRST,
    NEXT,
    RACERS,
    T0,
    Actual,
    Metadata,
    Release,
    Watched,
    code,
    lock,
    race,
)
from tidegate.clock import ManualClock
from tidegate.errors import (
    AttemptsExhausted,
    ConditionFailed,
    InvalidInput,
    LimitExceeded,
    TidegateError,
)
from tidegate.kernel.leases import Lease
from tidegate.kernel.model import Delete, Put
from tidegate.kernel.records.actions import (
    Action,
    CheckRow,
    CreateRow,
    DeleteRow,
    PutRow,
    UpdateRow,
)
from tidegate.kernel.records.changes import Add
from tidegate.kernel.records.conditions import NOW, Absent, AllOf, AnyOf, Condition, Not, Where
from tidegate.kernel.records.records import PUT_ATTEMPTS_MAX, Records
from tidegate.kernel.store import Store

# ── transactions ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("PB-10")
@pytest.mark.parametrize(
    "second",
    [
        lambda id: PutRow("plain", id, NEXT),
        lambda id: DeleteRow("plain", id),
        lambda id: UpdateRow("plain", id, {"status": "x"}),
        lambda id: CheckRow("plain", id, when=Absent()),
    ],
)
def test_refuses_to_name_one_row_twice_before_any_io(
    watched: Watched, records: Records, id: str, second: Callable[[str], Any]
) -> None:
    with pytest.raises(InvalidInput, match="twice"):
        records.transaction(PutRow("plain", id, FIRST), second(id))
    with pytest.raises(InvalidInput, match="twice"):
        records.batch(PutRow("plain", id, FIRST), PutRow("plain", id, NEXT))

    assert watched.asked == []


def test_writes_all_of_a_transaction_or_nothing(records: Records, id: str) -> None:
    beside = f"{id}/beside"
    first = records.create("plain", id, FIRST)
    gone = records.create("plain", f"{id}/gone", FIRST)
    new = CreateRow("plain", f"{id}/new", NEXT)
    change = UpdateRow("plain", id, {"attempts": Add(1)})
    removal = DeleteRow("plain", gone.key.id)

    for failing in (
        CheckRow("plain", beside, when=Absent("status")),
        CheckRow("plain", beside, expect=first.version),
        DeleteRow("plain", beside, when=Where("status", "==", "active")),
        PutRow("plain", beside, NEXT, when=Where("status", "==", "active")),
    ):
        if isinstance(failing, CheckRow) and failing.when is not None:
            records.put("plain", beside, FIRST)
        with pytest.raises(ConditionFailed):
            records.transaction(new, change, removal, failing)
        assert records.get("plain", id) == first
        assert records.get("plain", gone.key.id) == gone
        assert records.find("plain", new.id) is None
        records.delete("plain", beside)

    records.transaction(new, change, removal, CheckRow("plain", beside, when=Absent()))

    assert records.get("plain", id).value.attempts == 1
    assert records.find("plain", gone.key.id) is None
    assert records.get("plain", new.id).value == NEXT


def test_a_checked_row_must_not_change_before_the_commit(
    store: Store, watched: Watched, records: Records, id: str
) -> None:
    """A row that a check read must still match when the rest commits: it is checked again after a
    change.
    """
    records.create("plain", id, FIRST)
    watched.meanwhile = lambda: Records(store, lambda: T0).update("plain", id, {"status": "gone"})

    with pytest.raises(ConditionFailed):
        records.transaction(
            PutRow("plain", f"{id}/other", FIRST),
            CheckRow("plain", id, when=Where("status", "==", "active")),
        )

    assert records.find("plain", f"{id}/other") is None


def test_limits_a_transaction_in_the_same_way_on_every_engine(records: Records, id: str) -> None:
    actions = [PutRow("plain", f"{id}/{number}", FIRST) for number in range(100)]

    with pytest.raises(LimitExceeded):
        records.transaction(*actions)
    with pytest.raises(LimitExceeded):
        records.batch(*actions, PutRow("plain", id, FIRST))

    assert len(records.transaction(*actions[:99])) == 99


def test_writes_a_batch_row_by_row(records: Records, id: str) -> None:
    records.put("plain", f"{id}/0", NEXT)
    rows = [f"{id}/{number}" for number in range(4)]

    put = records.batch(*(PutRow("plain", row, FIRST) for row in rows))
    gone = records.batch(*(DeleteRow("plain", row) for row in [*rows[:2], f"{id}/none"]))

    assert [item.value for item in put if item] == [FIRST] * 4
    assert gone == (None, None, None)
    assert [records.find("plain", row) for row in rows] == [None, None, *put[2:]]


@pytest.mark.parametrize(
    "action",
    [
        PutRow("plain", "one", FIRST, when=Absent()),
        DeleteRow("plain", "one", expect=3),
        CreateRow("plain", "one", FIRST),
        UpdateRow("plain", "one", {"status": "x"}),
    ],
)
def test_accepts_no_condition_in_a_batch(watched: Watched, records: Records, action: Any) -> None:
    with pytest.raises(InvalidInput):
        records.batch(action)

    assert watched.asked == []


# ── publishing under a lease, with the generic transaction ────────────────────────────────────────


def publish(records: Records, id: str, token: str, page: Metadata, **guards: Any) -> None:
    """Write META and delete LOCK, on conditions over lease_token and lease_expires_at."""
    mine = AllOf(Where("lease_token", "==", token), Where("lease_expires_at", ">", NOW))
    records.transaction(PutRow("pages", id, page, **guards), DeleteRow("leases", id, when=mine))


@pytest.mark.req("PB-2", "PB-10")
def test_publishes_and_releases_the_lease_in_two_actions(
    watched: Watched, records: Records, clock: ManualClock, id: str
) -> None:
    records.put("leases", id, lock("tok1", T0 + timedelta(seconds=30)))
    page = Metadata("s3://bucket/key", T0, etag='"abc"')
    watched.commits.clear()

    publish(records, id, "tok1", page)

    (sent,) = watched.commits
    assert [type(write) for write in sent.writes] == [Put, Delete]
    assert sent.at == clock.now
    assert records.get("pages", id).value == page
    assert records.find("leases", id) is None


@pytest.mark.req("PB-2", "PB-4", "PB-10")
@pytest.mark.parametrize(
    ("row", "late"),
    [
        pytest.param(lock("tok2", T0 + timedelta(seconds=30)), 0, id="stolen"),
        pytest.param(lock("tok1", T0 + timedelta(seconds=30)), 30, id="expired at this instant"),
        pytest.param(lock("tok1", T0 + timedelta(seconds=30)), 31, id="expired"),
        pytest.param(Lease("tok1"), 0, id="without an expiry"),
        pytest.param(None, 0, id="gone"),
    ],
)
def test_changes_neither_row_when_the_lease_is_lost(
    records: Records, clock: ManualClock, id: str, row: Lease | None, late: int
) -> None:
    page = records.put("pages", id, Metadata("old", T0, etag="old"))
    held = None if row is None else records.put("leases", id, row)
    clock.advance(timedelta(seconds=late))

    with pytest.raises(ConditionFailed):
        publish(records, id, "tok1", Metadata("new", T0, etag="new"))

    assert records.get("pages", id) == page
    assert records.find("leases", id) == held


@pytest.mark.req("PB-2")
def test_checks_the_expiry_at_the_time_of_the_attempt_that_commits(
    store: Store, watched: Watched, records: Records, clock: ManualClock, id: str
) -> None:
    """META changes during the first attempt; by the second attempt the lease has expired."""
    records.put("leases", id, lock("tok1", T0 + timedelta(seconds=30)))
    records.put("pages", id, Metadata("old", T0))

    def meanwhile() -> None:
        Records(store, clock).put("pages", id, Metadata("other", T0))
        clock.advance(timedelta(seconds=30))

    watched.meanwhile = meanwhile

    with pytest.raises(ConditionFailed):
        publish(records, id, "tok1", Metadata("new", T0))

    assert records.get("pages", id).value.s3_key == "other"


GUARDS = ("token", "expiry", "version", "monotone")


def guarded(guards: tuple[str, ...], id: str, page: Metadata, seen: int) -> list[Action]:
    """Publish under some of the guards of a publication: docs/design/publication.md."""
    on_lock: list[Condition] = [Not(Absent())]
    if "token" in guards:
        on_lock.append(Where("lease_token", "==", "mine"))
    if "expiry" in guards:
        on_lock.append(Where("lease_expires_at", ">", NOW))
    newer = AnyOf(Absent(), Where("generated_at", "<", page.generated_at))
    put = PutRow(
        "pages",
        id,
        page,
        expect=seen if "version" in guards else None,
        when=newer if "monotone" in guards else None,
    )
    return [put, DeleteRow("leases", id, when=AllOf(*on_lock))]


@pytest.mark.req("PB-4")
@pytest.mark.parametrize("stale", [None, *GUARDS])
@pytest.mark.parametrize("guards", [*((guard,) for guard in GUARDS), GUARDS], ids="+".join)
def test_each_guard_alone_and_all_together_keep_a_stale_writer_out(
    records: Records, clock: ManualClock, id: str, guards: tuple[str, ...], stale: str | None
) -> None:
    """Each writer is stale in one way only, so that no other guard could stop it."""
    seen = records.put("pages", id, Metadata("old", T0, etag="old"))
    owner = "thief" if stale == "token" else "mine"
    records.put("leases", id, lock(owner, T0 + timedelta(seconds=30)))
    if stale == "version":
        records.put("pages", id, seen.value)
    clock.advance(timedelta(seconds=30 if stale == "expiry" else 29))
    generated_at = T0 if stale == "monotone" else T0 + timedelta(microseconds=1)
    actions = guarded(guards, id, Metadata("new", generated_at, etag="new"), seen.version)

    if stale in guards:
        with pytest.raises(ConditionFailed):
            records.transaction(*actions)
    else:
        records.transaction(*actions)

    assert records.get("pages", id).value.etag == ("old" if stale in guards else "new")
    assert (records.find("leases", id) is None) is (stale not in guards)


@pytest.mark.req("PB-4")
def test_publishes_no_older_generation(records: Records, id: str) -> None:
    def regenerate(minutes: int, etag: str) -> None:
        at = T0 + timedelta(minutes=minutes)
        records.put("leases", id, lock(etag, T0 + timedelta(seconds=30)))
        newer = AnyOf(Absent(), Where("generated_at", "<", at))
        publish(records, id, etag, Metadata("key", at, etag=etag), when=newer)

    regenerate(1, "first")
    for minutes in (0, 1):
        with pytest.raises(ConditionFailed):
            regenerate(minutes, "stale")
        assert records.get("pages", id).value.etag == "first"
    regenerate(2, "second")

    assert records.get("pages", id).value.etag == "second"


# ── races ─────────────────────────────────────────────────────────────────────────────────────────


def test_racing_creations_create_a_row_once(handles: list[Store], id: str) -> None:
    outcomes = race(
        handles, lambda store, n: Records(store, lambda: T0).create("once", id, Release(str(n)))
    )

    refused = [outcome for outcome in outcomes if isinstance(outcome, TidegateError)]
    assert [code(error) for error in refused] == ["condition_failed"] * (RACERS - 1)
    (won,) = [outcome for outcome in outcomes if not isinstance(outcome, TidegateError)]
    assert Records(handles[0], lambda: T0).get("once", id) == won


def test_racing_increments_are_all_counted(handles: list[Store], id: str) -> None:
    Records(handles[0], lambda: T0).create("plain", id, Release())

    outcomes = race(
        handles,
        lambda store, n: Records(store, lambda: T0).update("plain", id, {"attempts": Add(n)}),
    )

    assert not [outcome for outcome in outcomes if isinstance(outcome, TidegateError)]
    found = Records(handles[0], lambda: T0).get("plain", id)
    assert found.value.attempts == sum(range(RACERS))


def test_one_of_several_writers_that_expect_the_same_version_wins(
    handles: list[Store], id: str
) -> None:
    first = Records(handles[0], lambda: T0).create(
        "actual", id, Actual("active", "rel_001", scope=id)
    )
    assert first.value.version == 0

    outcomes = race(
        handles,
        lambda store, n: Records(store, lambda: T0).update(
            "actual", id, {"status": f"by {n}"}, expected_version=0
        ),
    )

    refused = [outcome for outcome in outcomes if isinstance(outcome, TidegateError)]
    assert [code(error) for error in refused] == ["version_conflict"] * (RACERS - 1)
    assert Records(handles[0], lambda: T0).get("actual", id).value.version == 1


def test_a_put_without_an_expected_version_overwrites_a_row_that_changes(
    handles: list[Store], id: str
) -> None:
    outcomes = race(
        handles, lambda store, n: Records(store, lambda: T0).put("plain", id, Release(str(n)))
    )

    versions = {cast(Any, outcome).version for outcome in outcomes}
    assert len(versions) == RACERS
    assert Records(handles[0], lambda: T0).get("plain", id).version == max(versions)


def test_gives_up_on_a_row_that_keeps_changing(store: Store, watched: Watched, id: str) -> None:
    waits: list[float] = []
    records = Records(cast(Store, watched), lambda: T0, sleep=waits.append)

    def move() -> None:
        Records(store, lambda: T0).update("plain", id, {"attempts": Add(1)})
        watched.meanwhile = move

    records.create("plain", id, Release())
    watched.meanwhile = move

    with pytest.raises(AttemptsExhausted):
        records.put("plain", id, NEXT)

    watched.meanwhile = None
    assert records.get("plain", id).value.attempts == PUT_ATTEMPTS_MAX
    assert len(waits) == PUT_ATTEMPTS_MAX - 1


def test_a_hundred_concurrent_updates_of_one_row_all_commit(handles: list[Store], id: str) -> None:
    Records(handles[0], lambda: T0).create("plain", id, FIRST)

    outcomes = race(
        handles,
        lambda store, n: Records(store, lambda: T0).update("plain", id, {"attempts": Add(1)}),
        racers=100,
    )

    assert [code(error) for error in outcomes if isinstance(error, TidegateError)] == []
    assert Records(handles[0], lambda: T0).get("plain", id).value.attempts == 100
