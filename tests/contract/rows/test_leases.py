"""Leases on every engine: one holder at a time, no late commit, and numbers only increase."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any, cast

import pytest

from tests.contract.rows.registry import RACERS, T0, Metadata, Watched, race, seed
from tidegate.errors import (
    AttemptsExhausted,
    ConditionFailed,
    InvalidDefinition,
    InvalidInput,
    LeaseHeld,
    LeaseLost,
    LimitExceeded,
    StoreUnavailable,
    VersionConflict,
)
from tidegate.kernel import codec
from tidegate.kernel.leases import (
    LEASE_ATTEMPTS_MAX,
    LEASE_SECONDS_MAX,
    HeldLease,
    Lease,
    Leases,
    keep,
    spend,
)
from tidegate.kernel.model import ABSENT, Check, Commit, Delete, Key, Put, Receipt, Write
from tidegate.kernel.records.records import RawRecords
from tidegate.kernel.store import Store


@pytest.fixture
def leases(store: Store) -> Leases:
    return Leases(store)


def at(seconds: float) -> datetime:
    return datetime(2026, 4, 24, tzinfo=UTC) + timedelta(seconds=seconds)


def land(store: Store, *writes: Write) -> Any:
    (outcome,) = store.commit(Commit(T0, writes=writes))
    return outcome


def stored(store: Store, id: str) -> Lease | None:
    (record,) = store.get(Key("leases", id))
    return None if record is None else codec.decode(record.data, Lease)


# ── in sequence ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("PB-1")
def test_a_lease_holds_until_it_expires_and_may_then_be_taken(leases: Leases, id: str) -> None:
    """The vector that every implementation of the lease must pass: docs/design/publication.md."""
    first = leases.acquire(id, "tok1", now=at(1000), seconds=30)

    with pytest.raises(LeaseHeld):
        leases.acquire(id, "tok2", now=at(1000), seconds=30)
    second = leases.acquire(id, "tok2", now=at(2000), seconds=30)
    with pytest.raises(LeaseLost):
        leases.renew(id, "tok1", now=at(2000), seconds=30)

    assert first.expires_at == at(1030)
    assert second.expires_at == at(2030)
    assert second.number > first.number


@pytest.mark.req("PB-1")
def test_is_expired_at_the_very_instant(leases: Leases, id: str) -> None:
    leases.acquire(id, "tok1", now=at(1000), seconds=30)

    with pytest.raises(LeaseHeld):
        leases.acquire(id, "tok2", now=at(1029), seconds=30)
    with pytest.raises(LeaseHeld):
        leases.acquire(id, "tok2", now=at(1029.999_999), seconds=30)
    with pytest.raises(LeaseLost):
        leases.renew(id, "tok1", now=at(1030), seconds=30)
    with pytest.raises(LeaseLost):
        spend(Key("leases", id), leases.find(id), token="tok1", now=at(1030))

    assert leases.acquire(id, "tok2", now=at(1030), seconds=30).token == "tok2"


@pytest.mark.req("PB-1")
def test_renews_from_now_on_and_keeps_the_token(leases: Leases, store: Store, id: str) -> None:
    first = leases.acquire(id, "tok1", now=at(1000), seconds=30, owner="worker-3")

    second = leases.renew(id, "tok1", now=at(1000), seconds=60)
    third = leases.renew(id, "tok1", now=at(1059.999_999), seconds=1, number=second.number)

    assert second.expires_at == at(1060)
    assert stored(store, id) == Lease("tok1", at(1060.999_999), "worker-3")
    assert first.number < second.number < third.number
    with pytest.raises(LeaseLost):
        leases.renew(id, "tok1", now=at(1060), seconds=30, number=second.number)


@pytest.mark.req("PB-1")
@pytest.mark.parametrize(
    ("now", "seconds", "expires_at"),
    [
        (1000.0, 30, 1030.0),
        (1000.9, 1, 1001.9),
        (1000.1, 5, 1005.1),
        (1000, 0.02, 1000.02),
        (1000, 0.000_001, 1000.000_001),
    ],
)
def test_keeps_its_expiry_to_the_microsecond(
    leases: Leases, id: str, now: float, seconds: float, expires_at: float
) -> None:
    held = leases.acquire(id, "tok1", now=at(now), seconds=seconds)

    assert held.expires_at == at(expires_at)
    with pytest.raises(LeaseHeld):
        leases.acquire(id, "tok2", now=held.expires_at - timedelta(microseconds=1), seconds=seconds)
    leases.acquire(id, "tok2", now=held.expires_at, seconds=seconds)


@pytest.mark.req("PB-1")
def test_refuses_its_holder_a_second_time(leases: Leases, id: str) -> None:
    leases.acquire(id, "tok1", now=at(1000), seconds=30)

    with pytest.raises(LeaseHeld) as refused:
        leases.acquire(id, "tok1", now=at(1000), seconds=30)

    assert isinstance(refused.value, ConditionFailed)
    assert "tok1" not in str(refused.value.facts) + refused.value.detail


@pytest.mark.req("PB-1")
def test_releases_only_its_own_lease(leases: Leases, id: str) -> None:
    leases.acquire(id, "tok1", now=at(1000), seconds=30)

    assert not leases.release(id, "tok2", now=at(1001))
    assert leases.find(id) is not None
    assert leases.release(id, "tok1", now=at(1001))
    assert not leases.release(id, "tok1", now=at(1001))
    assert leases.find(id) is None


@pytest.mark.req("PB-1")
def test_releases_an_expired_lease_but_not_one_that_was_taken_over(leases: Leases, id: str) -> None:
    leases.acquire(id, "tok1", now=at(1000), seconds=30)
    assert leases.release(id, "tok1", now=at(5000))

    leases.acquire(id, "tok1", now=at(6000), seconds=30)
    leases.acquire(id, "tok2", now=at(7000), seconds=30)

    assert not leases.release(id, "tok1", now=at(7001))
    leases.renew(id, "tok2", now=at(7001), seconds=30)


@pytest.mark.req("PB-1")
def test_fencing_numbers_only_increase(leases: Leases, id: str) -> None:
    """Taken over, renewed, released and acquired again: no number is used twice."""
    numbers = []
    for turn in range(4):
        held = leases.acquire(id, f"tok{turn}", now=at(1000 * turn), seconds=30)
        numbers.append(held.number)
        if turn % 2:
            leases.release(id, held.token, now=at(1000 * turn + 1))

    assert numbers == sorted(set(numbers))


@pytest.mark.req("PB-1")
@pytest.mark.parametrize("row", [Lease("tok1"), Lease()])
def test_holds_a_row_without_expiry_until_raw_access_breaks_it(
    leases: Leases, store: Store, id: str, row: Lease
) -> None:
    """It has no expiry, so nobody may take it over silently."""
    seed(store, "leases", id, row)

    for now in (at(1000), at(10**9)):
        with pytest.raises(LeaseHeld, match=r"without an expiry.*raw access"):
            leases.acquire(id, "tok2", now=now, seconds=30)
    with pytest.raises(LeaseLost):
        leases.renew(id, "tok1", now=at(1000), seconds=30)

    RawRecords(store, lambda: at(1000)).delete(
        "leases", id, reason="its holder is gone", actor="user_ada"
    )
    leases.acquire(id, "tok2", now=at(1000), seconds=30)


@pytest.mark.parametrize("seconds", [0, -1, 0.000_000_1, float("nan"), float("inf"), True, "30"])
def test_refuses_a_lease_without_a_duration(
    leases: Leases, store: Store, id: str, seconds: Any
) -> None:
    with pytest.raises(InvalidInput):
        leases.acquire(id, "tok1", now=at(1000), seconds=seconds)
    with pytest.raises(InvalidInput):
        leases.acquire(id, "tok1", now=at(1000), seconds=LEASE_SECONDS_MAX + 1)

    assert leases.find(id) is None


@pytest.mark.parametrize(
    ("key", "token", "now"),
    [
        ("", "tok1", at(1000)),
        ("key", "", at(1000)),
        ("key", "tok1", at(1000).replace(tzinfo=None)),
        ("key\n", "tok1", at(1000)),
        ("key", "t" * 257, at(1000)),
    ],
)
def test_refuses_an_empty_or_malformed_key_token_or_time(
    leases: Leases, key: str, token: str, now: datetime
) -> None:
    with pytest.raises((InvalidInput, LimitExceeded)):
        leases.acquire(key, token, now=now, seconds=30)
    with pytest.raises((InvalidInput, LimitExceeded)):
        leases.renew(key, token, now=now, seconds=30)


def test_accepts_leases_only_in_a_lease_collection(store: Store) -> None:
    for collection in ("plain", "once", "folded", "pages"):
        with pytest.raises(InvalidDefinition):
            Leases(store, collection)


# ── proof inside a commit ─────────────────────────────────────────────────────────────────────────


@pytest.fixture
def page(id: str) -> Put:
    return Put(Key("pages", id), codec.encode(Metadata("key", T0)), ABSENT)


@pytest.mark.req("PB-1", "PB-2")
def test_spends_the_lease_with_the_commit_that_needs_it(
    leases: Leases, store: Store, id: str, page: Put
) -> None:
    held = leases.acquire(id, "tok1", now=at(1000), seconds=30)

    guard = spend(held.key, leases.find(id), token="tok1", now=at(1029), number=held.number)
    outcome = land(store, page, guard)

    assert isinstance(guard, Delete)
    assert isinstance(outcome, Receipt)
    assert leases.find(id) is None
    assert store.get(page.key) != (None,)


@pytest.mark.req("PB-1")
def test_commits_under_a_lease_that_is_kept(
    leases: Leases, store: Store, id: str, page: Put
) -> None:
    held = leases.acquire(id, "tok1", now=at(1000), seconds=30)

    guard = keep(held.key, leases.find(id), token="tok1", now=at(1029), number=held.number)

    assert isinstance(guard, Check)
    assert isinstance(land(store, page, guard), Receipt)
    leases.renew(id, "tok1", now=at(1029), seconds=30, number=held.number)


@pytest.mark.req("PB-1", "PB-4")
@pytest.mark.parametrize("how", ["expired", "stolen", "released", "one token for all"])
def test_a_late_holder_gets_no_guard(leases: Leases, id: str, how: str) -> None:
    held = leases.acquire(id, "tok1", now=at(1000), seconds=30)
    now = at(1001)
    match how:
        case "expired":
            now = at(1030)
        case "stolen":
            leases.acquire(id, "tok2", now=at(2000), seconds=30)
            now = at(2001)
        case "released":
            leases.release(id, "tok1", now=at(1001))
        case "one token for all":
            leases.acquire(id, "tok1", now=at(2000), seconds=30)
            now = at(2001)

    for guard in (spend, keep):
        with pytest.raises(LeaseLost):
            guard(held.key, leases.find(id), token="tok1", now=now, number=held.number)


@pytest.mark.req("PB-1", "PB-4")
@pytest.mark.parametrize("how", ["renewed", "released", "stolen"])
@pytest.mark.parametrize("guard", [spend, keep])
def test_stops_a_commit_whose_lease_moved_after_it_was_read(
    leases: Leases, store: Store, id: str, page: Put, guard: Any, how: str
) -> None:
    held = leases.acquire(id, "tok1", now=at(1000), seconds=30)
    proof = guard(held.key, leases.find(id), token="tok1", now=at(1029))
    match how:
        case "renewed":
            leases.renew(id, "tok1", now=at(1029), seconds=30)
        case "released":
            leases.release(id, "tok1", now=at(1029))
        case "stolen":
            leases.acquire(id, "tok2", now=at(1030), seconds=30)

    outcome = land(store, page, proof)

    assert isinstance(outcome, VersionConflict)
    assert outcome.facts["id"] == id
    assert store.get(page.key) == (None,)


# ── races ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("PB-1")
def test_one_of_many_racing_acquirers_holds_the_lease(
    handles: list[Store], id: str, rounds: int
) -> None:
    """First for a free lease, then repeatedly for a lease that just expired."""
    numbers = []
    for turn in range(rounds):
        now = at(1000 + 30 * turn)

        outcomes = race(
            handles,
            lambda store, n, now=now, turn=turn: Leases(store).acquire(  # type: ignore[misc]
                id, f"tok{turn}-{n}", now=now, seconds=30
            ),
        )

        (won,) = [outcome for outcome in outcomes if isinstance(outcome, HeldLease)]
        assert [type(outcome) for outcome in outcomes].count(LeaseHeld) == RACERS - 1
        lease = stored(handles[0], id)
        assert lease is not None
        assert lease.lease_token == won.token
        numbers.append(won.number)

    assert numbers == sorted(set(numbers))


@pytest.mark.req("PB-1", "PB-4")
def test_publishes_once_when_the_late_holder_races_the_next(
    handles: list[Store], id: str, rounds: int
) -> None:
    """The old and the new holder both read, decide and commit; in every order, no stale page is
    stored.
    """
    first, second = handles[0], handles[1]
    for turn in range(rounds):
        key, pages = Key("leases", f"{id}{turn}"), Key("pages", f"{id}{turn}")
        Leases(first).acquire(key.id, "old", now=at(1000), seconds=30)
        start = Barrier(2)

        def late(key: Key = key, pages: Key = pages, start: Barrier = start) -> object:
            record = Leases(first).find(key.id)
            guard = spend(key, record, token="old", now=at(1029))
            start.wait()
            row = Put(pages, codec.encode(Metadata("stale", T0)), ABSENT)
            return land(first, row, guard)

        def heir(key: Key = key, start: Barrier = start) -> object:
            start.wait()
            return Leases(second).acquire(key.id, "new", now=at(1030), seconds=30)

        with ThreadPoolExecutor(2) as pool:
            published, taken = (
                future.result() for future in [pool.submit(late), pool.submit(heir)]
            )

        assert isinstance(taken, HeldLease)
        landed = isinstance(published, Receipt)
        assert landed or isinstance(published, VersionConflict)
        assert (first.get(pages) != (None,)) is landed
        if landed:
            assert taken.number > cast(Receipt, published).last


@pytest.mark.req("PB-1")
def test_names_the_holder_to_an_acquirer_that_lost_the_race(store: Store, id: str) -> None:
    """The row appears between the read and the commit."""
    watched = Watched(store)
    watched.meanwhile = lambda: Leases(store).acquire(id, "tok2", now=at(1000), seconds=30)

    with pytest.raises(LeaseHeld):
        Leases(cast(Store, watched)).acquire(id, "tok1", now=at(1000), seconds=30)

    Leases(store).renew(id, "tok2", now=at(1000), seconds=30)


@pytest.mark.req("PB-1")
def test_a_renewal_fails_after_another_holder_took_over(store: Store, id: str) -> None:
    Leases(store).acquire(id, "tok1", now=at(1000), seconds=30)
    watched = Watched(store)
    watched.meanwhile = lambda: Leases(store).acquire(id, "tok2", now=at(1030), seconds=30)

    with pytest.raises(LeaseLost):
        Leases(cast(Store, watched)).renew(id, "tok1", now=at(1029), seconds=30)

    lease = stored(store, id)
    assert lease is not None
    assert lease.lease_token == "tok2"


@pytest.mark.req("PB-1")
def test_a_release_leaves_the_lease_of_a_holder_that_took_over_meanwhile(
    store: Store, id: str
) -> None:
    Leases(store).acquire(id, "tok1", now=at(1000), seconds=30)
    watched = Watched(store)
    watched.meanwhile = lambda: Leases(store).acquire(id, "tok2", now=at(1030), seconds=30)

    assert not Leases(cast(Store, watched)).release(id, "tok1", now=at(1029))

    Leases(store).renew(id, "tok2", now=at(1031), seconds=30)


def test_gives_up_on_a_row_that_keeps_changing(store: Store, id: str) -> None:
    watched = Watched(store)
    turns = 0

    def move() -> None:
        nonlocal turns
        turns += 1
        Leases(store).acquire(id, f"other{turns}", now=at(turns), seconds=0.5)
        watched.meanwhile = move

    watched.meanwhile = move

    with pytest.raises(AttemptsExhausted):
        Leases(cast(Store, watched)).acquire(id, "tok1", now=at(1000), seconds=30)

    assert turns == LEASE_ATTEMPTS_MAX


def test_lets_the_lease_expire_when_the_release_fails(store: Store, id: str) -> None:
    Leases(store).acquire(id, "tok1", now=at(1000), seconds=30)
    watched = Watched(store)

    def fail() -> None:
        raise StoreUnavailable("the server went away")

    watched.meanwhile = fail

    assert not Leases(cast(Store, watched)).release(id, "tok1", now=at(1001))
    Leases(store).acquire(id, "tok2", now=at(1030), seconds=30)
