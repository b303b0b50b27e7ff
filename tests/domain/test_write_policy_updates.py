"""Updates under a write policy, and a transition on rows that the caller defines."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest

from tests.contract.rows.registry import FIRST, SCHEMA as ROWS, T0, Actual, Occurrence
from tests.contract.scenarios.runner import (
    MODELS,
    NOW,
    SCHEMA as FIXTURES,
    ReleaseStateActual,
    ReleaseStateEvent,
)
from tests.domain.registry import ACCEPTED
from tidegate.clock import ManualClock
from tidegate.domain.provenance import RejectedEvidence, Subject
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
from tidegate.kernel.records.changes import IfAbsent, Remove
from tidegate.kernel.records.records import Records
from tidegate.kernel.records.write_policy import Guarding
from tidegate.kernel.store import Schema
from tidegate.kernel.vocabulary import Vocabulary

PLAIN, GUARDED, ONCE = "plain", "guarded", "once"


@pytest.fixture
def records() -> Records:
    """One row under each policy."""
    records = Records(MemoryStore(ROWS), ManualClock(T0))
    for collection in (PLAIN, GUARDED, ONCE):
        records.create(collection, "row", FIRST)
    return records


# ── the order inside an update ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("collection", "changes", "options", "answer"),
    [
        pytest.param(*(ONCE, {"pinnedReleaseId": "x"}, {"id": ""}, InvalidInput), id="empty key"),
        pytest.param(
            *(ONCE, {"pinnedReleaseId": "x", "unknown": 1}, {}, ImmutableRecord),
            id="immutable row before unknown field",
        ),
        pytest.param(
            *("actual", {"unknown": 1, "pinnedReleaseId.value": "x"}, {}, ProtectedField),
            id="protected field before unknown field",
        ),
        pytest.param(
            *("actual", {"status.value": "x"}, {}, InvalidInput),
            id="unknown field",
        ),
        pytest.param(
            *("actual", {"scope": "x"}, {}, InvalidInput),
            id="key attribute",
        ),
        pytest.param(
            *("actual", {"version": 3, "status": "x"}, {"expected_version": 0}, InvalidInput),
            id="version present while expected_version is used",
        ),
        pytest.param(
            *("actual", {"createdAt": T0}, {}, InvalidInput),
            id="created_at",
        ),
        pytest.param(
            *(PLAIN, {}, {}, InvalidInput),
            id="nothing to write",
        ),
    ],
)
def test_reports_the_first_fault_of_an_update(
    records: Records,
    collection: str,
    changes: dict[str, Any],
    options: dict[str, Any],
    answer: type[TidegateError],
) -> None:
    records.create("actual", "row", Actual("active", "rel_001", scope="row"))
    id = options.pop("id", "row")

    with pytest.raises(TidegateError) as refusal:
        records.update(collection, id, changes, **options)
    assert type(refusal.value) is answer


def test_writes_the_time_if_nothing_else_changes(records: Records) -> None:
    records.create("actual", "row", Actual("active", "rel_001", scope="row"))

    assert records.update("actual", "row", {}).value.version == 1


# ── names, one call, special attributes ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("names", ["status", [1], [""], ["statsu"]])
def test_a_call_may_protect_more_existing_names(records: Records, names: Any) -> None:
    with pytest.raises(InvalidInput):
        records.update(PLAIN, "row", {"attempts": 1}, protected_attributes=names)
    with pytest.raises(ProtectedField):
        records.update(GUARDED, "row", {"pinnedReleaseId": "x"}, protected_attributes=["status"])
    records.update(GUARDED, "row", {"status": "x"})


def test_fills_in_versions_and_times_itself(records: Records) -> None:
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


def test_leases_follow_their_own_rules_under_any_policy() -> None:
    assert LEASES.guarding is Guarding.PLAIN
    leases = Leases(MemoryStore(ROWS))
    assert leases.acquire("row", "token", now=T0, seconds=1).token == "token"
    with pytest.raises(InvalidDefinition):
        Leases(MemoryStore(ROWS), "plain")


# ── a transition on rows of one's own ─────────────────────────────────────────────────────────────

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
    stored = transition_append_event(
        fixtures, ROW, {"status": "warming"}, event(), expected_version=0, outbox=event("OUTBOX#1")
    )

    assert isinstance(stored.value, ReleaseStateActual)
    assert (stored.value.version, stored.value.updated_at) == (1, NOW)
    versions = {fixtures.get(EVENT, f"{PK}/{sk}").version for sk in ("EVENT#1", "OUTBOX#1")}
    assert versions == {stored.version}


UNKNOWN = {"status": "warming", "notes": "x"}


@pytest.mark.parametrize(
    ("changes", "event_row", "outbox", "expected", "answer"),
    [
        pytest.param(
            *({}, event(), None, 0, InvalidInput),
            id="no changes",
        ),
        pytest.param(
            *({"status": "x"}, event(pk="RELEASE#service-b"), None, 0, InvalidInput),
            id="event row in another partition",
        ),
        pytest.param(
            *({"status": "x"}, event(), event("OUTBOX#1", "RELEASE#service-b"), 0, InvalidInput),
            id="outbox row in another partition",
        ),
        pytest.param(
            *(UNKNOWN, event(), None, 0, InvalidInput),
            id="unknown field",
        ),
        pytest.param(
            *({"version": 2}, event(), None, 0, InvalidInput),
            id="version among the changes",
        ),
        pytest.param(
            *({"pinnedReleaseId": "rel_002"}, event(), None, 0, ProtectedField),
            id="protected field",
        ),
        pytest.param(
            *({"status": "x"}, event(), None, 3, VersionConflict),
            id="wrong expected version",
        ),
        pytest.param(
            *({"status": "x"}, event("EVENT#0"), None, 0, DuplicateEvent),
            id="used event key",
        ),
        pytest.param(
            *({"status": "x"}, event("EVENT#0"), None, 3, VersionConflict),
            id="wrong version and used event key",
        ),
    ],
)
def test_refuses_a_transition_as_a_whole(
    fixtures: Records,
    changes: dict[str, Any],
    event_row: CreateRow,
    outbox: CreateRow | None,
    expected: int,
    answer: type[TidegateError],
) -> None:
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
def test_a_transition_creates_no_row(fixtures: Records, expected: int | None) -> None:
    gone = Key(ROW.collection, f"{PK}/NOWHERE")

    with pytest.raises(NotFound):
        transition_append_event(fixtures, gone, {"status": "x"}, event(), expected_version=expected)
    assert fixtures.find(EVENT, f"{PK}/EVENT#1") is None


class Pinned(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"origin": "provenance", "sureness": "confidence"},
):
    """A model of the caller whose Python names differ from the stored ones."""

    status: str = ""
    origin: dict[str, Any] | None = None
    sureness: dict[str, Any] | None = None


class Told(msgspec.Struct, frozen=True):
    text: str = ""


PINNED, TOLD = Collection("pinned", Pinned), Collection("told", Told)
MINE = Key("pinned", "a/ACTUAL")


@pytest.fixture
def mine() -> Records:
    schema = Schema(Vocabulary(()), (PINNED, TOLD))
    records = Records(MemoryStore(schema), ManualClock(NOW))
    records.create(MINE.collection, MINE.id, Pinned("active"))
    return records


def claiming(**changes: Any) -> dict[str, Any]:
    """Return the accepted document with members of its provenance or first evidence changed."""
    document = deepcopy(ACCEPTED)
    for path, value in changes.items():
        where = document["provenance"]
        if path.startswith("evidence_"):
            where, path = where["evidence"][0], path.removeprefix("evidence_")
        if value is None:
            where.pop(path, None)
        else:
            where[path] = value
    return document


def of_factory() -> dict[str, Any]:
    """Build evidence about content that does not show its digest."""
    document = claiming(
        mode="imported",
        evidence_kind="factory_batch_manifest",
        evidence_source="partner-factory",
        evidence_digest=None,
    )
    document["confidence"]["reasons"] = ["unique_factory_manifest_match"]
    return document


NO_AUTHORITY = {
    "a guess": claiming(mode="inferred"),
    "of another mode": claiming(mode="imported"),
    "recorded in 2099": claiming(
        observed_at="2099-01-01T00:00:00Z", recorded_at="2099-01-01T00:00:00Z"
    ),
    "recorded before it was observed": claiming(recorded_at="2020-01-01T00:00:00Z"),
    "evidence of later": claiming(evidence_observed_at="2026-12-31T00:00:00Z"),
    "content without a digest": of_factory(),
}


@pytest.mark.parametrize("name", NO_AUTHORITY)
def test_a_transition_on_rows_of_the_caller_follows_the_rules_of_the_registry(
    mine: Records, name: str
) -> None:
    document = NO_AUTHORITY[name]
    renamed = {"origin": document["provenance"], "sureness": document["confidence"]}

    for changes in (document, renamed):
        with pytest.raises(RejectedEvidence):
            transition_append_event(mine, MINE, changes, CreateRow("told", "a/1", Told()))

    assert mine.get(MINE.collection, MINE.id).value == Pinned("active")
    sound = {"origin": ACCEPTED["provenance"], "sureness": ACCEPTED["confidence"]}
    transition_append_event(mine, MINE, sound, CreateRow("told", "a/1", Told()))
    assert mine.get(MINE.collection, MINE.id).value.origin == ACCEPTED["provenance"]


@pytest.mark.parametrize(
    "changes",
    [
        {"origin": IfAbsent(ACCEPTED["provenance"]), "sureness": ACCEPTED["confidence"]},
        {"confidence": Remove()},
        {"provenance": ACCEPTED["provenance"]},
        {"sureness": ACCEPTED["confidence"]},
        {"origin.mode": "inferred"},
    ],
    ids=str,
)
def test_accepts_authority_as_a_whole_or_not_at_all(mine: Records, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        transition_append_event(mine, MINE, changes, CreateRow("told", "a/1", Told()))
    assert mine.find("told", "a/1") is None


def test_binds_a_transition_to_its_subject_if_the_caller_knows_it(mine: Records) -> None:
    told = CreateRow("told", "a/1", Told())
    other = Subject("elsewhere", "rel_009", "sha256:" + "0" * 64)

    with pytest.raises(RejectedEvidence):
        transition_append_event(mine, MINE, ACCEPTED, told, subject=other)


def test_a_transition_may_protect_more_for_itself(mine: Records) -> None:
    told = CreateRow("told", "a/1", Told())

    with pytest.raises(ProtectedField):
        transition_append_event(mine, MINE, {"status": "x"}, told, protected_attributes=["status"])
    assert mine.find("told", "a/1") is None


def test_validates_authority_inside_the_transition(fixtures: Records) -> None:
    document = deepcopy(ACCEPTED)
    document["confidence"]["level"] = "low"

    with pytest.raises(RejectedEvidence):
        transition_append_event(fixtures, ROW, document, event(), expected_version=0)
    transition_append_event(fixtures, ROW, ACCEPTED, event(), expected_version=0)
