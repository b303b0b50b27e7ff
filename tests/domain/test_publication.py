"""Publications as pure functions: names, freshness, conditional GETs, guards, requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import chain, combinations, product
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tidegate.domain.publication.facts import (
    GenerationPublished,
    PointerSwapped,
    PublicationInvalidated,
)
from tidegate.domain.publication.folds import step_pointer
from tidegate.domain.publication.refusals import StaleGeneration
from tidegate.domain.publication.rows import (
    Generation,
    Pointer,
    PublicationRequest,
    RequestStatus,
    etag_of,
    is_fresh,
    is_not_modified,
    lock_key,
    meta_key,
    pk_of,
    version_key,
)
from tidegate.domain.publication.slices import (
    LEASE_GUARDS,
    FailRequest,
    Invalidate,
    PublishGeneration,
    PublishGuard,
    RollBackPublication,
    StartRequest,
    decide_fail,
    decide_invalidate,
    decide_publish,
    decide_roll_back,
    decide_start,
)
from tidegate.errors import (
    IdempotencyMismatch,
    IllegalTransition,
    InvalidInput,
    LeaseLost,
    LimitExceeded,
    StaleVersion,
    TidegateError,
    VersionRequired,
)
from tidegate.kernel.leases import Lease

T0 = datetime(2026, 4, 24, tzinfo=UTC)
PURE = "a rule on values, before any engine is asked"
OLD = Pointer("old", T0, 60, '"old"')
LEASE = Lease("mine", T0 + timedelta(seconds=30))

times = st.integers(0, 10**12).map(lambda number: T0 + timedelta(microseconds=number))


def command(**changes: Any) -> PublishGeneration:
    members: dict[str, Any] = {
        "cache_key": "/index.html",
        "lease_token": "mine",
        "s3_key": "new",
        "generated_at": T0 + timedelta(seconds=1),
        "revalidate_seconds": 60,
    }
    return PublishGeneration(**(members | changes))


# ── names ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("PB-8", engines=None, reason=PURE)
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1))
def test_names_all_rows_of_a_publication_under_one_pk(cache_key: str) -> None:
    """'Rows of one publication share a pk.'"""
    pk = pk_of(cache_key)

    ids = [meta_key(pk).id, lock_key(pk).id, version_key(pk, "v1").id]
    assert ids == [f"{pk}/META", f"{pk}/LOCK", f"{pk}/VER#v1"]
    assert len(pk) == len("CACHE#") + 64


@pytest.mark.parametrize("cache_key", ["", "a\nb", "x" * 2_049, "\ud800", None])
def test_refuses_a_cache_key_that_no_engine_could_hold(cache_key: Any) -> None:
    with pytest.raises((InvalidInput, LimitExceeded)):
        pk_of(cache_key)


# ── reading ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("PB-7", engines=None, reason=PURE)
@given(times, times, st.integers(0, 10**6), st.none() | times)
def test_is_fresh_until_its_revalidation_time_whatever_its_ttl(
    now: datetime, generated_at: datetime, seconds: int, ttl: datetime | None
) -> None:
    pointer = Pointer("key", generated_at, seconds, ttl=ttl)

    assert is_fresh(pointer, now) == (now < generated_at + timedelta(seconds=seconds))


@pytest.mark.req("PB-5", engines=None, reason=PURE)
@pytest.mark.parametrize(
    ("header", "same"),
    [
        (None, False),
        ("", False),
        ("*", True),
        (" * ", True),
        ('"abc"', True),
        ('W/"abc"', True),
        ('"x", "abc"', True),
        ('"x","abc" ,"y"', True),
        ('"a,b", "abc"', True),
        ('"x"', False),
        ("abc", False),
        ('"ABC"', False),
        ('"abcd"', False),
    ],
)
def test_compares_etags_as_http_requires(header: str | None, same: bool) -> None:
    assert is_not_modified(header, '"abc"') is same
    assert not is_not_modified(header, "")


def test_has_a_strong_etag_of_the_body_in_quotes() -> None:
    assert etag_of(b"body") == (
        '"230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5"'
    )


# ── commands ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "changes",
    [
        {"s3_key": ""},
        {"s3_key": "k" * 1_025},
        {"generated_at": T0.replace(tzinfo=None)},
        {"generated_at": "yesterday"},
        {"revalidate_seconds": 0},
        {"revalidate_seconds": -1},
        {"revalidate_seconds": True},
        {"revalidate_seconds": 1.5},
        {"lease_token": ""},
        {"guards": frozenset()},
        {"version_id": "v\n"},
        {"version_id": "v" * 129},
        {"etag": "e" * 257},
        {"request": "r\x00"},
    ],
    ids=str,
)
def test_refuses_a_malformed_command_before_anything_is_read(changes: dict[str, Any]) -> None:
    with pytest.raises((InvalidInput, LimitExceeded)):
        command(**changes)


@pytest.mark.req("PB-4", engines=None, reason=PURE)
def test_requires_the_version_that_it_is_to_compare() -> None:
    with pytest.raises(VersionRequired):
        command(guards=frozenset({PublishGuard.VERSION}))


# ── guards ────────────────────────────────────────────────────────────────────────────────────────

EVERY_GUARD = [
    frozenset(chosen)
    for chosen in chain.from_iterable(combinations(PublishGuard, size) for size in range(1, 5))
]
LEASES: dict[str, tuple[Lease | None, set[PublishGuard]]] = {
    "held": (LEASE, set()),
    "absent": (None, {PublishGuard.TOKEN, PublishGuard.EXPIRY}),
    "stolen": (Lease("other", LEASE.lease_expires_at), {PublishGuard.TOKEN}),
    "expired": (Lease("mine", T0), {PublishGuard.EXPIRY}),
    "expired and stolen": (Lease("other", T0), {PublishGuard.TOKEN, PublishGuard.EXPIRY}),
    "without expiry": (Lease("mine"), {PublishGuard.EXPIRY}),
}
POINTERS: dict[str, tuple[Pointer | None, set[PublishGuard]]] = {
    "none yet": (None, set()),
    "older": (OLD, set()),
    "equal": (Pointer("old", T0 + timedelta(seconds=1), 60), {PublishGuard.MONOTONE}),
    "newer": (Pointer("old", T0 + timedelta(seconds=2), 60), {PublishGuard.MONOTONE}),
}


@pytest.mark.req("PB-4", engines=None, reason=PURE)
@pytest.mark.parametrize("guards", EVERY_GUARD, ids=lambda guards: "+".join(sorted(guards)))
@pytest.mark.parametrize(("lease", "pointer"), list(product(LEASES, POINTERS)))
def test_refuses_exactly_what_its_guards_detect(
    guards: frozenset[PublishGuard], lease: str, pointer: str
) -> None:
    lock, lost = LEASES[lease]
    meta, stale = POINTERS[pointer]
    sent = command(guards=guards, expected_version=0)
    rows = (meta, lock) if guards & LEASE_GUARDS else (meta,)

    refusal: type[TidegateError] | None = None
    if guards & lost:
        refusal = LeaseLost
    elif guards & stale:
        refusal = StaleGeneration

    if refusal is None:
        (fact,) = decide_publish(rows, sent, T0)
        assert isinstance(fact, GenerationPublished)
    else:
        with pytest.raises(refusal):
            decide_publish(rows, sent, T0)


def test_reports_that_a_pointer_that_was_read_is_deleted() -> None:
    sent = command(guards=frozenset({PublishGuard.VERSION}), expected_version=7)

    with pytest.raises(StaleVersion) as refused:
        decide_publish((None,), sent, T0)

    assert refused.value.facts == {"expected": 7, "current": 0}


# ── other verbs ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("PB-3", engines=None, reason=PURE)
@given(times)
def test_never_sets_the_time_of_a_pointer_back_by_a_rollback(now: datetime) -> None:
    sent = RollBackPublication(
        cache_key="/", lease_token="mine", version_id="v1", revalidate_seconds=60
    )
    pointer = Pointer("new", T0 + timedelta(hours=1), 60, current_sk="VER#v2", version=2)
    lease = Lease("mine", now + timedelta(seconds=1))

    (fact,) = decide_roll_back((pointer, lease, Generation("old", T0, '"old"')), sent, now)

    assert isinstance(fact, PointerSwapped)
    assert fact.generated_at == max(now, pointer.generated_at)
    after = step_pointer(pointer, fact, now)
    assert after is not None
    assert (after.s3_key, after.etag, after.current_sk, after.version) == (
        "old",
        '"old"',
        "VER#v1",
        3,
    )


@pytest.mark.parametrize("lease", [name for name, (_, lost) in LEASES.items() if lost])
def test_does_nothing_without_the_lease(lease: str) -> None:
    lock, _ = LEASES[lease]
    who: dict[str, Any] = {"cache_key": "/", "lease_token": "mine"}
    asked = PublicationRequest("hash", RequestStatus.STARTED)
    rolled = RollBackPublication(**who, version_id="v", revalidate_seconds=1)

    with pytest.raises(LeaseLost):
        decide_invalidate((OLD, lock), Invalidate(**who), T0)
    with pytest.raises(LeaseLost):
        decide_start((None, lock), StartRequest(**who, request="r", request_hash="h"), T0)
    with pytest.raises(LeaseLost):
        decide_fail((asked, lock), FailRequest(**who, request="r"), T0)
    with pytest.raises(LeaseLost):
        decide_roll_back((OLD, lock, Generation("old", T0)), rolled, T0)


@pytest.mark.parametrize("status", [None, *RequestStatus])
@pytest.mark.parametrize("verb", ["start", "complete", "fail", "start another"])
def test_a_request_follows_only_its_transitions(status: RequestStatus | None, verb: str) -> None:
    row = None if status is None else PublicationRequest("hash", status)
    who: dict[str, Any] = {"cache_key": "/index.html", "lease_token": "mine"}
    outcome: object
    try:
        match verb:
            case "start" | "start another":
                said = "hash" if verb == "start" else "other"
                sent = StartRequest(**who, request="r", request_hash=said)
                outcome = len(decide_start((row, LEASE), sent, T0))
            case "complete":
                outcome = len(decide_publish((OLD, LEASE, row), command(request="r"), T0))
            case "fail":
                outcome = len(decide_fail((row, LEASE), FailRequest(**who, request="r"), T0))
    except TidegateError as error:
        outcome = type(error)

    illegal = IllegalTransition
    edges: dict[str, dict[RequestStatus | None, object]] = {
        "start": {None: 1, RequestStatus.STARTED: 0, RequestStatus.COMPLETED: 0},
        "complete": {RequestStatus.STARTED: 1},
        "fail": {RequestStatus.STARTED: 1},
        "start another": {None: 1},
    }
    edges["start"][RequestStatus.FAILED] = 1
    other = IdempotencyMismatch if verb == "start another" else illegal
    assert outcome == edges[verb].get(status, other)


# ── folds ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("PB-7", engines=None, reason=PURE)
def test_invalidates_without_changing_what_readers_get() -> None:
    after = step_pointer(OLD, PublicationInvalidated("pk"), T0)

    assert after is not None
    assert not is_fresh(after, T0)
    assert (after.s3_key, after.etag, after.generated_at) == (OLD.s3_key, OLD.etag, T0)
