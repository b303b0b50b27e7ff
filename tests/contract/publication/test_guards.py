"""Every guard against stale writers on every engine, alone and together."""

from __future__ import annotations

from datetime import timedelta
from itertools import chain, combinations
from typing import Any

import pytest

from tests.contract.publication.publishing import (
    LEASE_SECONDS,
    PAGE,
    PK,
    T0,
    VERSIONED,
    Publishing,
    at,
)
from tidegate.control.publication.entries import PublicationPolicy
from tidegate.domain.publication.refusals import StaleGeneration
from tidegate.domain.publication.rows import Pointer, etag_of, lock_key, meta_key, pk_of
from tidegate.domain.publication.slices import (
    LEASE_GUARDS,
    PublishGeneration,
    PublishGuard,
    publish_generation,
)
from tidegate.errors import ImmutableRecord, LeaseLost, StaleVersion
from tidegate.kernel import codec
from tidegate.kernel.leases import Leases
from tidegate.kernel.records.records import Records

EVERY_GUARD = [
    frozenset(chosen)
    for chosen in chain.from_iterable(combinations(PublishGuard, size) for size in range(1, 5))
]


# Each way of being stale: the guard that detects it, what is then wrong, and how it is refused.
LATE: dict[PublishGuard, tuple[dict[str, Any], type[Exception]]] = {
    PublishGuard.TOKEN: ({"lease_token": "stolen"}, LeaseLost),
    PublishGuard.EXPIRY: ({}, LeaseLost),
    PublishGuard.VERSION: ({"expected_version": 1_000_000}, StaleVersion),
    PublishGuard.MONOTONE: ({"generated_at": T0}, StaleGeneration),
}


def command(page: str, guards: frozenset[PublishGuard], **changes: Any) -> PublishGeneration:
    members: dict[str, Any] = {
        "cache_key": page,
        "lease_token": "mine",
        "s3_key": "new",
        "etag": '"new"',
        "generated_at": at(1),
        "revalidate_seconds": 60,
        "guards": guards,
    }
    return PublishGeneration(**(members | changes))


@pytest.mark.req("PB-4")
@pytest.mark.parametrize("guards", EVERY_GUARD, ids=lambda guards: "+".join(sorted(guards)))
def test_each_guard_alone_and_all_together_stop_a_stale_writer(
    publishing: Publishing, guards: frozenset[PublishGuard]
) -> None:
    """Each way of being stale is stopped by its own guard and by no other."""
    for guard, (changes, refusal) in LATE.items():
        page = f"/{guard}"
        meta, lock = meta_key(pk_of(page)), lock_key(pk_of(page))
        publishing.clock.now = T0
        first = command(page, frozenset({PublishGuard.MONOTONE}), s3_key="old", generated_at=T0)
        version = publishing.control.execute(publish_generation, first).position
        Leases(publishing.store).acquire(lock.id, "mine", now=T0, seconds=LEASE_SECONDS)
        before = publishing.store.get(meta, lock)
        late = command(page, guards, **({"expected_version": version} | changes))
        publishing.clock.now = at(LEASE_SECONDS) if guard is PublishGuard.EXPIRY else at(1)

        if guard in guards:
            with pytest.raises(refusal):
                publishing.control.execute(publish_generation, late)
            assert publishing.store.get(meta, lock) == before
        else:
            publishing.control.execute(publish_generation, late)
            pointer, lease = publishing.store.get(meta, lock)
            assert pointer is not None
            assert codec.decode(pointer.data, Pointer).etag == '"new"'
            assert (lease is None) == bool(guards & LEASE_GUARDS), "spent where that was requested"


@pytest.mark.req("PB-4", "PB-5")
@pytest.mark.parametrize("policy", [PublicationPolicy(), VERSIONED], ids=["A", "B"])
def test_accepts_the_first_generation_and_refuses_equal_and_older_ones(
    publishing: Publishing, policy: PublicationPolicy
) -> None:
    """'If you rely on monotonicity, require generated_at < :new before setting a new etag.'"""
    publishing.publish("first", policy, generated_at=at(5))
    before = publishing.meta()

    for offered in (at(5), at(4.999_999), T0):
        with pytest.raises(StaleGeneration) as refused:
            publishing.publish("stale", policy, generated_at=offered)
        assert refused.value.facts["stored"] == codec.time_text(at(5))
        publishing.clock.advance(timedelta(seconds=LEASE_SECONDS))

    assert publishing.meta() == before
    assert before is not None
    assert before.etag == etag_of(b"first")
    publishing.publish("second", policy, generated_at=at(5.000_001))
    after = publishing.meta()
    assert after is not None
    assert after.etag == etag_of(b"second")


@pytest.mark.req("PB-4")
def test_expects_the_pointer_that_the_caller_saw(publishing: Publishing) -> None:
    guards = LEASE_GUARDS | {PublishGuard.VERSION}
    with pytest.raises(StaleVersion):
        publishing.publish("first", guards=guards, expected_version=7)
    publishing.clock.advance(timedelta(seconds=LEASE_SECONDS))
    publishing.publish("first", guards=guards, expected_version=0)
    seen = publishing.publisher.read(PAGE)
    assert seen is not None
    with pytest.raises(StaleVersion) as refused:
        publishing.publish("second", guards=guards, expected_version=0)

    assert refused.value.facts == {"expected": 0, "current": seen.version}
    publishing.clock.advance(timedelta(seconds=LEASE_SECONDS))
    publishing.publish("second", guards=guards, expected_version=seen.version)


@pytest.mark.req("PB-4", "PB-8")
def test_no_generic_call_may_change_the_rows_of_a_publication(publishing: Publishing) -> None:
    publishing.publish("body", VERSIONED, version_id="v1")
    records = Records(publishing.store, publishing.clock)

    with pytest.raises(ImmutableRecord):
        records.update("publications", f"{PK}/META", {"etag": "mine"})
    with pytest.raises(ImmutableRecord):
        records.delete("generations", f"{PK}/VER#v1")
