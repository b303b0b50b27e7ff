"""release-state.md §1.4–§2.4, ruling by ruling: updates, names, a transition on own rows."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest

from tests.contract.rows.registry import FIRST, T0, Actual, Occurrence
from tests.contract.rows.registry import SCHEMA as ROWS
from tests.contract.scenarios.runner import (
    MODELS,
    NOW,
    ReleaseStateActual,
    ReleaseStateEvent,
)
from tests.contract.scenarios.runner import SCHEMA as FIXTURES
from tests.domain.registry import SEED
from tidegate.clock import ManualClock
from tidegate.domain.provenance import RejectedEvidence
from tidegate.domain.releases.generic import transition_append_event
from tidegate.domain.releases.refusals import DuplicateEvent
from tidegate.engines.memory import MemoryStore
from tidegate.errors import (
    ImmutableRecord,
    InvalidDefinition,
    InvalidInput,
    NotFound,
    ProtectedField,
    TidegateError,
    VersionConflict,
)
from tidegate.kernel.collections import Collection
from tidegate.kernel.leases import LEASES, Leases
from tidegate.kernel.model import Key
from tidegate.kernel.records.actions import CreateRow
from tidegate.kernel.records.changes import Remove
from tidegate.kernel.records.records import Records
from tidegate.kernel.records.write_policy import Guarding, WritePolicy

PLAIN, GUARDED, ONCE = "plain", "guarded", "once"


@pytest.fixture
def records() -> Records:
    """One row under each policy."""
    records = Records(MemoryStore(ROWS), ManualClock(T0))
    for collection in (PLAIN, GUARDED, ONCE):
        records.create(collection, "row", FIRST)
    return records


# ── §1.4 the order inside an update ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("point", "collection", "changes", "options", "answer"),
    [
        (
            "release-state.md §1.4 #1: Key presence/shape",
            *(ONCE, {"pinnedReleaseId": "x"}, {"id": ""}, InvalidInput),
        ),
        (
            "release-state.md §1.4 #2: Mode check (I)",
            *(ONCE, {"pinnedReleaseId": "x", "unknown": 1}, {}, ImmutableRecord),
        ),
        (
            (
                "release-state.md §1.4 #3: Protected check over *all* given names (P), before"
                " unknown-field detection"
            ),
            *("actual", {"unknown": 1, "pinnedReleaseId.value": "x"}, {}, ProtectedField),
        ),
        (
            "release-state.md §1.4 #4: Unknown field -> validation error",
            *("actual", {"status.value": "x"}, {}, InvalidInput),
        ),
        (
            "release-state.md §1.4 #5: Key attribute in the update -> validation error",
            *("actual", {"scope": "x"}, {}, InvalidInput),
        ),
        (
            "release-state.md §1.4 #6: `version` present while `expected_version` is used",
            *("actual", {"version": 3, "status": "x"}, {"expected_version": 0}, InvalidInput),
        ),
        (
            "release-state.md §1.4 #7: `created_at`/`updated_at` present -> validation error",
            *("actual", {"createdAt": T0}, {}, InvalidInput),
        ),
        (
            'release-state.md §1.4 #8: "no updates" (only when nothing at all would be written)',
            *(PLAIN, {}, {}, InvalidInput),
        ),
    ],
)
def test_tells_the_first_fault_of_an_update(
    records: Records,
    point: str,
    collection: str,
    changes: dict[str, Any],
    options: dict[str, Any],
    answer: type[TidegateError],
) -> None:
    """release-state.md §1.7 #1: "keys (pk/sk)" | "never updatable, independent of policy"."""
    del point
    records.create("actual", "row", Actual("active", "rel_001", scope="row"))
    id = options.pop("id", "row")

    with pytest.raises(TidegateError) as refusal:
        records.update(collection, id, changes, **options)
    assert type(refusal.value) is answer


def test_writes_the_time_where_nothing_else_would_be(records: Records) -> None:
    """release-state.md §1.4 #8: "a model with `updated_at` always writes something"."""
    records.create("actual", "row", Actual("active", "rel_001", scope="row"))

    assert records.update("actual", "row", {}).value.version == 1


# ── §1.5, §1.6, §1.7 names, one call, special attributes ──────────────────────────────────────────


def test_protects_by_the_stored_name() -> None:
    """release-state.md §1.5 #1: "take the leading run of characters up to the first whitespace,
    dot, `[`, `=`, comma or `)`"
    release-state.md §1.5 #2: "protecting `authority` must protect the former"
    release-state.md §1.5 #3: "Duplicate stored names across fields are a definition error"
    release-state.md §0.2 #4: "name collision (field name = another field's stored name)" | "stored
    (canonical) name wins"
    """
    swapped = ROWS.collection("swapped")
    assert swapped.protected == {"authority"}
    for spelling in ("authority", "authority.value", "authority[0]", "authority = x", "authority,"):
        with pytest.raises(ProtectedField):
            swapped.check_untouched([spelling], ())
    swapped.check_untouched(["description"], ())

    with pytest.raises(ValueError, match="same name"):
        msgspec.defstruct("Twice", ["one", "two"], rename={"one": "same", "two": "same"})


@pytest.mark.parametrize("names", ["status", [1], [""], ["statsu"]])
def test_tightens_one_call_by_names_that_exist(records: Records, names: Any) -> None:
    """release-state.md §1.6 #1: "Adds names for that one call; can never remove a model-level name"
    release-state.md §1.6 #2: "bare string -> validation error; non-string element -> validation
    error; blank -> validation error"; and "unknown per-call names -> `invalid_input`".
    """
    with pytest.raises(InvalidInput):
        records.update(PLAIN, "row", {"attempts": 1}, protected_attributes=names)
    with pytest.raises(ProtectedField):
        records.update(GUARDED, "row", {"pinnedReleaseId": "x"}, protected_attributes=["status"])
    records.update(GUARDED, "row", {"status": "x"})


def test_fills_in_versions_and_times_itself(records: Records) -> None:
    """release-state.md §1.7 #2: "create: stored 0 when empty, otherwise the caller's number is kept
    as is; update with expected version: condition equals + ADD 1"
    release-state.md §1.7 #4: "set on put; explicit update refused"
    release-state.md §1.7 #5: "set on put and on every update"; "explicit value refused"
    release-state.md §1.7 #6: "independent of policy: a `write_once` row may carry `ttl`"
    release-state.md §1.7 #7: "REMOVE of a protected attribute is P"
    release-state.md §0.2 #5: "`expected_version=` argument + `VersionConflictError`"
    release-state.md §0.2 #6: "lifecycle timestamps" | "automated (`now` injectable)"
    release-state.md §0.3 #1: "0 then 1"
    release-state.md §0.3 #3: "no TTL filtering in reads"
    """
    first = records.create("actual", "row", Actual("active", "rel_001", scope="row")).value
    assert isinstance(first, Actual)
    assert (first.version, first.created_at, first.updated_at) == (0, T0, T0)
    kept = records.create("actual", "kept", Actual("active", "r", scope="kept", version=7)).value
    assert isinstance(kept, Actual)
    assert kept.version == 7
    second = records.update("actual", "row", {"status": "x"}, expected_version=0).value
    assert isinstance(second, Actual)
    assert second.version == 1
    with pytest.raises(VersionConflict):
        records.update("actual", "row", {"status": "y"}, expected_version=0)
    for name in ("createdAt", "updatedAt", "version"):
        with pytest.raises(InvalidInput):
            records.update("actual", "row", {name: T0})
    records.create("occurrences", "row", Occurrence("rel_001", "promoted", ttl=1))
    assert records.find("occurrences", "row") is not None, "long past its ttl"
    with pytest.raises(ProtectedField):
        records.update("actual", "row", {"pinnedReleaseId": Remove()})


@pytest.mark.parametrize("name", ["version", "createdAt", "updatedAt", "ttl", "scope"])
def test_protects_nothing_that_the_kernel_writes(name: str) -> None:
    """release-state.md §1.7 #3: "`version` listed as protected" | "Undefined by spec": refused when
    it is declared; release-state.md §1.9 #11: "Refuse at definition time: protecting key, version,
    created_at, updated_at, ttl; unknown per-call names -> `invalid_input`".
    """
    with pytest.raises(InvalidDefinition):
        Collection("c", Actual, policy=WritePolicy(protected_attributes=(name,)))


def test_holds_leases_past_any_policy_by_rules_of_their_own() -> None:
    """release-state.md §1.3 #17: "lease manager | not consulted | not consulted | not consulted":
    there is nothing to consult, a collection of leases is plain or it is refused.
    """
    assert LEASES.guarding is Guarding.PLAIN
    leases = Leases(MemoryStore(ROWS))
    assert leases.acquire("row", "token", now=T0, seconds=1).token == "token"
    with pytest.raises(InvalidDefinition):
        Leases(MemoryStore(ROWS), "plain")


# ── §2.2–§2.4 a transition on rows of one's own ───────────────────────────────────────────────────

ACTUAL, EVENT = (MODELS[name].name for name in ("ReleaseStateActual", "ReleaseStateEvent"))
PK = "RELEASE#service-a"
ROW = Key(ACTUAL, f"{PK}/ACTUAL")


def event(sk: str = "EVENT#1", pk: str = PK) -> CreateRow:
    return CreateRow(EVENT, f"{pk}/{sk}", ReleaseStateEvent(pk, sk, "rel_002", "promoted"))


@pytest.fixture
def fixtures() -> Records:
    records = Records(MemoryStore(FIXTURES), ManualClock(NOW))
    actual = ReleaseStateActual(PK, "ACTUAL", 0, "active", "rel_001")
    records.create(ACTUAL, ROW.id, actual)
    return records


def test_changes_three_rows_in_one_commit(fixtures: Records) -> None:
    """release-state.md §2.3 #1: "Update actual row: set values, set `updated_at`, ADD version 1"
    release-state.md §2.3 #2: "Put event row" | "row absent"
    release-state.md §2.3 #3: "Put outbox row (optional)" | "row absent"
    release-state.md §2.4 #1: "all good" | "both/all three rows committed, version +1"
    release-state.md §0.2 #8: "transition: outbox row in the same transaction"
    """
    stored = transition_append_event(
        fixtures, ROW, {"status": "warming"}, event(), expected_version=0, outbox=event("OUTBOX#1")
    )

    assert isinstance(stored.value, ReleaseStateActual)
    assert (stored.value.version, stored.value.updated_at) == (1, NOW)
    versions = {fixtures.get(EVENT, f"{PK}/{sk}").version for sk in ("EVENT#1", "OUTBOX#1")}
    assert versions == {stored.version}


UNKNOWN = {"status": "warming", "notes": "x"}


@pytest.mark.parametrize(
    ("point", "changes", "event_row", "outbox", "expected", "answer"),
    [
        (
            "release-state.md §2.2 #3: `actual_key`, `set_values` non-empty; `event_item` present",
            *({}, event(), None, 0, InvalidInput),
        ),
        (
            (
                "release-state.md §2.2 #4: its partition attribute name AND value must equal"
                " the actual row's"
            ),
            *({"status": "x"}, event(pk="RELEASE#service-b"), None, 0, InvalidInput),
        ),
        (
            (
                "release-state.md §2.2 #5: its *partition* is not checked - gap;"
                " release-state.md §2.5 #7: Outbox partition must equal the actual partition"
            ),
            *({"status": "x"}, event(), event("OUTBOX#1", "RELEASE#service-b"), 0, InvalidInput),
        ),
        (
            "release-state.md §2.2 #7: Every set name known; the version must not be in the set",
            *(UNKNOWN, event(), None, 0, InvalidInput),
        ),
        (
            "release-state.md §2.2 #7: Every set name known; the version must not be in the set",
            *({"version": 2}, event(), None, 0, InvalidInput),
        ),
        (
            (
                "release-state.md §2.2 #8: Update request built => policy checks of 1.3 apply;"
                " release-state.md §1.3 #15: transition helper, actual side | P if"
                " `set_values` touches a protected field"
            ),
            *({"pinnedReleaseId": "rel_002"}, event(), None, 0, ProtectedField),
        ),
        (
            "release-state.md §2.4 #2: wrong expected version | nothing written",
            *({"status": "x"}, event(), None, 3, VersionConflict),
        ),
        (
            (
                "release-state.md §2.4 #3: event key already used | nothing written;"
                " release-state.md §1.3 #16: guard added regardless of that model's declared policy"
            ),
            *({"status": "x"}, event("EVENT#0"), None, 0, DuplicateEvent),
        ),
        (
            "release-state.md §2.4 #4: both wrong: the version is told",
            *({"status": "x"}, event("EVENT#0"), None, 3, VersionConflict),
        ),
    ],
)
def test_refuses_a_transition_whole(
    fixtures: Records,
    point: str,
    changes: dict[str, Any],
    event_row: CreateRow,
    outbox: CreateRow | None,
    expected: int,
    answer: type[TidegateError],
) -> None:
    """release-state.md §0.2 #7: "transition: event bound to same partition as actual row"."""
    del point
    fixtures.create(EVENT, f"{PK}/EVENT#0", ReleaseStateEvent(PK, "EVENT#0"))
    before = fixtures.get(ACTUAL, ROW.id)

    with pytest.raises(answer) as refusal:
        transition_append_event(
            fixtures, ROW, changes, event_row, expected_version=expected, outbox=outbox
        )

    assert type(refusal.value) is answer
    assert fixtures.get(ACTUAL, ROW.id) == before
    assert fixtures.find(EVENT, f"{PK}/EVENT#1") is None


@pytest.mark.parametrize("expected", [0, None])
def test_makes_no_row_by_a_transition(fixtures: Records, expected: int | None) -> None:
    """release-state.md §2.4 #5: "expected version given, actual row missing" | refused
    release-state.md §2.4 #6: "**expected version omitted, actual row missing**" | "**commits**" in
    the sources, not here: "Missing row -> `not_found`, never an upsert".
    """
    fixtures.delete(ACTUAL, ROW.id)

    with pytest.raises(NotFound):
        transition_append_event(fixtures, ROW, {"status": "x"}, event(), expected_version=expected)
    assert fixtures.find(EVENT, f"{PK}/EVENT#1") is None


def test_validates_authority_inside_the_transition(fixtures: Records) -> None:
    """release-state.md §2.5 #2: "Validation of provenance/confidence happens *inside* the
    transition whenever the row after the transition carries authority fields".
    """
    document = deepcopy(SEED)
    document["confidence"]["level"] = "low"

    with pytest.raises(RejectedEvidence):
        transition_append_event(fixtures, ROW, document, event(), expected_version=0)
    transition_append_event(fixtures, ROW, SEED, event(), expected_version=0)
