"""Idempotency keys: a lost answer, the same request again, and another request by mistake."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.contract.address import Connect
from tests.contract.world import (
    T0,
    ProductAdded,
    ProductRenamed,
    append,
    boundary_of,
    commit_of,
    item,
    land,
    put,
    query_of,
    row,
    stored,
    values,
    whole_feed,
)
from tidegate.errors import BoundaryMoved, IdempotencyMismatch, VersionConflict
from tidegate.kernel.model import Check, Commit, CommitKey, Receipt
from tidegate.kernel.store import Store

PRODUCT = query_of(ProductAdded, ProductRenamed, tags="product_id:p1")
ONCE = CommitKey("request-1", b"digest of the command", b'{"answer":1}')


def request(store: Store, once: CommitKey = ONCE) -> Commit:
    """Build a create. Sent twice without a key, it fails its boundary and its row."""
    return commit_of(
        ProductAdded("p1"),
        on=[boundary_of(store, PRODUCT)],
        writes=[put(item("a"), row(name="made"))],
        once=once,
    )


def test_a_repeat_returns_a_lost_answer(connect: Connect) -> None:
    ours, theirs = connect(), connect()
    commit = request(ours)
    lost = land(ours, commit)

    again = land(theirs, commit)

    assert lost == Receipt(lost.first, lost.last, T0, ONCE.answer, digest=ONCE.digest)
    assert again == replace(lost, replayed=True)
    assert values(whole_feed(ours)) == [ProductAdded("p1")]
    assert stored(ours, item("a")).version == lost.last


def test_a_repeat_is_recognized_by_its_key_although_it_would_decide_differently_now(
    store: Store,
) -> None:
    first = land(store, request(store))
    moved = append(store, ProductRenamed("p1"))

    again = land(
        store,
        commit_of(
            ProductRenamed("p1", "other facts"),
            on=[],
            writes=[Check(item("zzz"), expect=moved.last)],
            at=T0 + timedelta(hours=1),
            once=CommitKey(ONCE.key, ONCE.digest, b"another answer"),
        ),
    )

    assert again == replace(first, replayed=True)
    assert len(whole_feed(store)) == 2


def test_a_repeat_is_answered_even_if_its_boundary_fails_now(store: Store) -> None:
    boundary = boundary_of(store, PRODUCT)
    first = land(store, commit_of(ProductAdded("p1"), on=[boundary], once=ONCE))
    append(store, ProductRenamed("p1"))

    again = land(store, commit_of(ProductAdded("p1"), on=[boundary], once=ONCE))

    assert (again.first, again.replayed) == (first.first, True)


@pytest.mark.parametrize("moved", [False, True])
def test_the_same_key_for_another_request_is_refused(store: Store, moved: bool) -> None:
    boundary = boundary_of(store, PRODUCT)
    land(store, request(store))
    if not moved:
        boundary = boundary_of(store, PRODUCT)
    other = CommitKey(ONCE.key, b"digest of another command")

    with pytest.raises(IdempotencyMismatch) as refusal:
        land(store, commit_of(ProductRenamed("p1"), on=[boundary], once=other))

    assert refusal.value.facts == {"key": "request-1"}
    assert values(whole_feed(store)) == [ProductAdded("p1")]


def test_a_refused_commit_leaves_its_key_free(store: Store) -> None:
    stale = boundary_of(store, PRODUCT)
    append(store, ProductAdded("p1"))
    with pytest.raises(BoundaryMoved):
        land(store, commit_of(ProductRenamed("p1"), on=[stale], once=ONCE))
    with pytest.raises(VersionConflict):
        land(store, commit_of(ProductRenamed("p1"), writes=[Check(item("a"), expect=4)], once=ONCE))
    assert store.receipt(ONCE.key) is None

    receipt = land(
        store, commit_of(ProductRenamed("p1"), on=[boundary_of(store, PRODUCT)], once=ONCE)
    )

    assert not receipt.replayed


def test_returns_the_receipt_of_a_key(connect: Connect) -> None:
    ours, theirs = connect(), connect()
    assert ours.receipt(ONCE.key) is None

    receipt = land(ours, commit_of(ProductAdded("p1"), ProductRenamed("p1"), once=ONCE))

    assert theirs.receipt(ONCE.key) == replace(receipt, replayed=True)
    assert theirs.receipt("request-2") is None
    assert theirs.receipt("request") is None


def test_a_commit_without_facts_has_a_receipt_too(store: Store) -> None:
    receipt = land(store, commit_of(writes=[put(item("a"), row())], once=CommitKey("k", b"d")))

    assert receipt.first == receipt.last
    assert store.receipt("k") == replace(receipt, replayed=True)


def test_a_key_used_twice_in_one_group_is_applied_once(store: Store) -> None:
    commit = commit_of(ProductAdded("p1"), once=ONCE)
    other = commit_of(ProductAdded("p1"), once=CommitKey(ONCE.key, b"other"))

    first, second, third = store.commit(commit, commit, other)

    assert isinstance(first, Receipt)
    assert second == replace(first, replayed=True)
    assert isinstance(third, IdempotencyMismatch)
    assert len(whole_feed(store)) == 1


@pytest.mark.parametrize(
    "away",
    [timedelta(days=31), timedelta(days=-20_000), timedelta(days=400_000)],
    ids=["a clock a month ahead", "an import of old facts", "a clock that is broken"],
)
def test_a_key_is_kept_whatever_the_times_of_other_commits(
    connect: Connect, away: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.engines.postgres.writer.COLLECT_EVERY", 1)
    ours, theirs = connect(), connect()
    first = land(ours, commit_of(ProductAdded("p1"), once=ONCE))

    for number in range(3):
        once = CommitKey(f"other-{number}", b"d")
        land(theirs, commit_of(ProductRenamed("p1"), at=T0 + away, once=once))
        land(ours, commit_of(ProductRenamed("p1"), at=T0, once=replace(once, key=f"own-{number}")))

    assert land(ours, commit_of(ProductAdded("p1"), once=ONCE)) == replace(first, replayed=True)
    for number in range(3):
        assert ours.receipt(f"other-{number}") is not None
        assert ours.receipt(f"own-{number}") is not None


def test_keys_that_differ_in_case_or_spaces_are_different(store: Store) -> None:
    keys = ("key", "Key", "key ", "k:ey", "k#ey", "ключ", "🔑")
    receipts = [
        land(store, commit_of(ProductAdded("p1"), once=CommitKey(key, b"d"))) for key in keys
    ]

    assert not any(receipt.replayed for receipt in receipts)
    assert [r.first for key in keys if (r := store.receipt(key))] == [r.first for r in receipts]


def test_a_digest_and_an_answer_may_be_any_bytes(store: Store) -> None:
    once = CommitKey("k", bytes(range(256)), bytes(reversed(range(256))))
    commit = commit_of(ProductAdded("p1"), once=once)
    land(store, commit)

    assert land(store, commit).answer == once.answer
