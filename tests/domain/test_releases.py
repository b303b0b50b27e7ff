"""The registry's decisions and folds, without any engine: each transition, each guard, their
order.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import product
from typing import Any, get_args

import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.domain.registry import (
    ACCEPTED,
    FOLDS,
    SCHEMA,
    SCOPE,
    T0,
    digest_of,
    manifest,
    operator,
    register,
    retire,
    transition,
)
from tidegate.domain.outbox.facts import IntentRequested
from tidegate.domain.outbox.states import RequestedState
from tidegate.domain.packages.refusals import DigestMismatch
from tidegate.domain.provenance import RejectedEvidence, Rules, Triple
from tidegate.domain.releases import declarations as releases
from tidegate.domain.releases.evidence import DIGESTS_MAX, DOCUMENT_BYTES_MAX, KeepEvidence
from tidegate.domain.releases.facts import (
    EvidenceKept,
    PinStatus,
    RegistryChange,
    ReleaseOffered,
    ReleaseRegistered,
    ReleaseRetired,
    ReleaseTransitioned,
)
from tidegate.domain.releases.folds import (
    MATCHES_MAX,
    release_matches,
    step_actual,
    step_command,
    step_event,
    step_evidence,
)
from tidegate.domain.releases.refusals import DuplicateEvent, ReleaseNotPinnable
from tidegate.domain.releases.registry import BUILT_IN, registry_under
from tidegate.domain.releases.rows import (
    Actual,
    DigestMatches,
    ExecutedCommand,
    KeptEvidence,
    KnownRelease,
    event_id,
)
from tidegate.domain.releases.slices import OPERATIONS_MAX
from tidegate.errors import (
    ConditionFailed,
    IllegalTransition,
    InvalidInput,
    LimitExceeded,
    NotFound,
    StaleVersion,
    TidegateError,
    VersionRequired,
)
from tidegate.kernel.records.write_policy import Guarding
from tidegate.kernel.slices import Slice

OFFERED = {
    name: KnownRelease(name, digest_of(name), "Published") for name in ("rel_001", "rel_002")
}


def decided(item: Slice, rows: tuple[Any, ...], command: Struct, now: datetime = T0) -> list[Any]:
    """Return the facts of a command on these rows; its names are checked as in the runtime."""
    assert item.rows is not None
    assert len(item.rows(command)) == len(rows)
    return list(item.decide(rows, command, now))


def registered(**changes: Any) -> ReleaseRegistered:
    (fact,) = decided(BUILT_IN.register, (None, None, OFFERED["rel_001"]), register(**changes))
    assert isinstance(fact, ReleaseRegistered)
    return fact


def actual(version: int = 0, status: PinStatus = PinStatus.ACTIVE) -> Actual:
    return replace(step_actual(None, registered(), T0), version=version, status=status)


def moved(row: Actual, command: Any) -> ReleaseTransitioned:
    fact, *_ = decided(BUILT_IN.transition, (row, None, OFFERED[command.release_id]), command)
    assert isinstance(fact, ReleaseTransitioned)
    return fact


# ── what is current ───────────────────────────────────────────────────────────────────────────────

STATES: dict[str, Actual | None] = {
    "absent": None,
    "active": actual(3),
    "warming": actual(3, PinStatus.WARMING),
    "retired": actual(3, PinStatus.RETIRED),
}
SAMPLES: dict[type, RegistryChange] = {
    ReleaseRegistered: registered(),
    ReleaseTransitioned: moved(actual(3), transition("rel_002", 3, "c4")),
    ReleaseRetired: decided(BUILT_IN.retire, (actual(3), None), retire(3, "c4"))[0],
}
EDGES: dict[tuple[str, type], PinStatus] = {
    ("absent", ReleaseRegistered): PinStatus.ACTIVE,
    ("active", ReleaseTransitioned): PinStatus.ACTIVE,
    ("active", ReleaseRetired): PinStatus.RETIRED,
    ("warming", ReleaseTransitioned): PinStatus.ACTIVE,
    ("warming", ReleaseRetired): PinStatus.RETIRED,
}


@pytest.mark.parametrize(("state", "fact"), list(product(STATES, SAMPLES)))
def test_accepts_exactly_the_transitions_of_the_diagram(state: str, fact: type) -> None:
    assert set(SAMPLES) == set(get_args(RegistryChange))
    if (state, fact) in EDGES:
        assert step_actual(STATES[state], SAMPLES[fact], T0).status is EDGES[state, fact]
    else:
        with pytest.raises(IllegalTransition):
            step_actual(STATES[state], SAMPLES[fact], T0)


@pytest.mark.parametrize("version", [2, 4, 5])
def test_a_fact_may_follow_only_the_version_before_it(version: int) -> None:
    with pytest.raises(IllegalTransition):
        step_actual(actual(version), SAMPLES[ReleaseTransitioned], T0)


def test_starts_at_version_0_and_remembers_where_the_pin_was() -> None:
    """Version starts at 0; "status, previousReleaseId, version, provenance, confidence"."""
    row = actual()
    assert (row.version, row.pinned_release_id, row.previous_release_id) == (0, "rel_001", None)

    row = step_actual(row, moved(row, transition("rel_002", 0, "c1")), T0)
    assert (row.version, row.pinned_release_id, row.previous_release_id) == (
        1,
        "rel_002",
        "rel_001",
    )

    row = step_actual(row, moved(row, transition("rel_002", 1, "c2")), T0)
    assert (row.version, row.pinned_release_id, row.previous_release_id) == (
        2,
        "rel_002",
        "rel_001",
    )

    row = step_actual(row, moved(row, transition("rel_001", 2, "c3")), T0)
    assert (row.version, row.pinned_release_id, row.previous_release_id) == (
        3,
        "rel_001",
        "rel_002",
    )


# ── guards and their order ────────────────────────────────────────────────────────────────────────

USED = ExecutedCommand(request="another", row="RELEASE#service-a/EVENT#x", registry_version=1)
GONE = KnownRelease("rel_002", digest_of("rel_002"), "Terminating")
CHANGED = KnownRelease("rel_002", "sha256:00", "Published")

# Each transition violates its own column and all later ones, and satisfies those before it.
TRANSITIONS: list[tuple[str, tuple[Any, Any, Any], int | None, Any, type[TidegateError]]] = [
    ("the command's id says something else", (actual(9), USED, GONE), 0, {}, DuplicateEvent),
    ("no version", (None, None, GONE), None, {}, VersionRequired),
    ("no row", (None, None, GONE), 0, {}, NotFound),
    ("a stale version", (actual(1, PinStatus.RETIRED), None, GONE), 0, {}, StaleVersion),
    ("a version of the future", (actual(0), None, GONE), 1, {}, StaleVersion),
    ("a retired scope", (actual(0, PinStatus.RETIRED), None, GONE), 0, {}, IllegalTransition),
    ("no such release", (actual(), None, None), 0, {}, NotFound),
    ("another content", (actual(), None, CHANGED), 0, {}, DigestMismatch),
    ("a deletion that has begun", (actual(), None, GONE), 0, {}, ReleaseNotPinnable),
    ("no document", (actual(), None, OFFERED["rel_002"]), 0, {}, InvalidInput),
    (
        "a free-form note",
        (actual(), None, OFFERED["rel_002"]),
        0,
        {**ACCEPTED, "notes": "x"},
        InvalidInput,
    ),
    (
        "the document of another release",
        (actual(), None, OFFERED["rel_002"]),
        0,
        operator("rel_001"),
        RejectedEvidence,
    ),
]


@pytest.mark.parametrize(
    ("rows", "version", "authority", "error"),
    [pytest.param(*case[1:], id=case[0]) for case in TRANSITIONS],
)
def test_names_the_first_guard_that_failed(
    rows: tuple[Any, Any, Any], version: int | None, authority: Any, error: type[TidegateError]
) -> None:
    with pytest.raises(error) as refusal:
        decided(
            BUILT_IN.transition, rows, transition("rel_002", version, "c1", authority=authority)
        )

    assert type(refusal.value) is error


def test_distinguishes_a_stale_version_from_a_used_key_by_its_code() -> None:
    """ "A stale expected version and a used event key are told apart" """
    with pytest.raises(StaleVersion) as stale:
        decided(BUILT_IN.transition, (actual(4), None, None), transition("rel_002", 3, "c1"))
    with pytest.raises(DuplicateEvent) as used:
        decided(BUILT_IN.transition, (actual(4), USED, None), transition("rel_002", 3, "c1"))

    assert (stale.value.code, stale.value.facts) == (
        "version_conflict",
        {"expected": 3, "current": 4},
    )
    assert (used.value.code, used.value.facts) == ("duplicate_event", {"row": USED.row})


def test_finds_its_own_first_copy_and_changes_nothing() -> None:
    command = transition("rel_002", 0, "c1")
    fact = moved(actual(), command)
    executed = step_command(None, fact, T0)

    assert decided(BUILT_IN.transition, (actual(1), executed, None), command) == []
    with pytest.raises(DuplicateEvent):
        decided(BUILT_IN.transition, (actual(1), executed, None), replace(command, by="user_2"))


def test_registers_a_scope_once() -> None:
    with pytest.raises(ConditionFailed):
        decided(BUILT_IN.register, (actual(), None, OFFERED["rel_001"]), register())


@pytest.mark.parametrize(
    "changes",
    [
        {"scope": ""},
        {"scope": "Service-A"},
        {"scope": "service-a/ACTUAL"},
        {"scope": "service#a"},
        {"scope": "x" * 129},
        {"release_id": "rel/2"},
        {"release_id": "rel#2"},
        {"command_id": "c 1"},
        {"command_id": ""},
        {"command_id": "c#1"},
        {"by": ""},
        {"status": "retired"},
        {"status": "paused"},
        {"operations": ("alias", "alias")},
        {"operations": ("Alias",)},
        {"operations": tuple(f"op{n}" for n in range(OPERATIONS_MAX + 1))},
    ],
    ids=str,
)
def test_refuses_a_name_that_could_be_part_of_another_key(changes: dict[str, Any]) -> None:
    command = replace(register(), **changes)

    assert BUILT_IN.register.rows is not None
    with pytest.raises((InvalidInput, LimitExceeded)):
        BUILT_IN.register.rows(command)


@pytest.mark.parametrize("reason", ["", "  ", "x" * 1_025])
def test_retiring_requires_a_reason(reason: str) -> None:
    assert BUILT_IN.retire.rows is not None
    with pytest.raises((InvalidInput, LimitExceeded)):
        BUILT_IN.retire.rows(retire(0, "c1", reason=reason))


def test_uses_the_triples_of_the_installation() -> None:
    rules = Rules([Triple("argo_sync", "argo", "argo_sync_authority", bears_artifact=False)])
    said = {"ref": "argo://app", "observed_at": "2026-04-24T19:00:00Z"}
    document = {
        "provenance": {
            "mode": "imported",
            "system": "argo",
            "kind": "argo_sync",
            "recorded_at": "2026-04-24T19:00:01Z",
            **said,
            "evidence": [{"kind": "argo_sync", "source": "argo", **said}],
        },
        "confidence": {"level": "high", "reasons": ["argo_sync_authority"]},
    }
    command = transition("rel_002", 0, "c1", authority=document)
    rows = (actual(), None, OFFERED["rel_002"])

    assert len(decided(registry_under(rules).transition, rows, command)) == 1
    with pytest.raises(RejectedEvidence):
        decided(BUILT_IN.transition, rows, command)


# ── history rows ──────────────────────────────────────────────────────────────────────────────────


def test_shapes_keys_by_scope_kind_and_command() -> None:
    """ "PK = RELEASE#service-a, SK = EVENT#2026-04-24T19:00:00Z#rel_002" """
    command = transition("rel_002", 0, "c1", operations=("lambda-alias",))
    fact, intent = decided(BUILT_IN.transition, (actual(), None, OFFERED["rel_002"]), command)

    assert event_id(SCOPE, fact.recorded_at, fact.release_id, fact.command_id) == (
        "RELEASE#service-a/EVENT#2026-04-24T19:00:02.000000Z#rel_002#c1"
    )
    assert intent.intent_id == "RELEASE#service-a/OUTBOX#lambda-alias#rel_002#c1"


def test_gives_an_effect_a_key_that_no_other_promotion_has() -> None:
    """The same release promoted again after a rollback is separate work."""
    again = [
        decided(
            BUILT_IN.transition,
            (actual(version), None, OFFERED["rel_002"]),
            transition("rel_002", version, f"c{version}", operations=("alias",)),
        )[1]
        for version in (0, 2)
    ]

    assert [intent.idempotency_key for intent in again] == [
        "service-a:rel_002:alias:1",
        "service-a:rel_002:alias:3",
    ]
    state = RequestedState(release_id="rel_002", digest=digest_of("rel_002"), status="active")
    assert all(isinstance(i, IntentRequested) and i.requested_state == state for i in again)


def test_writes_rows_of_history_once() -> None:
    for fact in SAMPLES.values():
        with pytest.raises(DuplicateEvent):
            step_event(step_event(None, fact, T0), fact, T0)
        with pytest.raises(DuplicateEvent):
            step_command(step_command(None, fact, T0), fact, T0)


def test_no_folded_collection_accepts_generic_calls() -> None:
    assert {item.guarding for item in releases.COLLECTIONS} == {Guarding.FOLDED}
    assert SCHEMA.collection("release_actual").protected == {"pinnedReleaseId"}
    folded = [fold.collection.name for fold in FOLDS.folds]
    assert {item.name for item in releases.COLLECTIONS} <= set(folded)


# ── evidence ──────────────────────────────────────────────────────────────────────────────────────


def keeping(document: dict[str, Any], **changes: Any) -> KeepEvidence:
    members = {"scope": SCOPE, "source": "ci", "batch": "b1", "command_id": "k1", "by": "user_1"}
    return KeepEvidence(document=document, **(members | changes))


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({**ACCEPTED, "confidence": {"level": "low", "reasons": ["x"]}}, "visibility only"),
        ({"seen": ["anything"]}, "claims no authority"),
        ({"provenance": 1}, "malformed"),
        (ACCEPTED, "kept, not used"),
    ],
)
def test_stores_every_observation_and_why_it_is_not_authoritative(
    document: dict[str, Any], reason: str
) -> None:
    (fact,) = decided(BUILT_IN.keep_evidence, (None, None), keeping(document))
    row = step_evidence(None, fact, T0)

    assert isinstance(fact, EvidenceKept)
    assert reason in row.reason
    assert row.authority is False
    assert row.document == document


def test_stores_a_repeated_batch_once() -> None:
    (fact,) = decided(BUILT_IN.keep_evidence, (None, None), keeping({"a": 1}))
    row = step_evidence(None, fact, T0)

    later = keeping({"a": 1}, command_id="k2")
    assert decided(BUILT_IN.keep_evidence, (None, row), later) == []
    with pytest.raises(DuplicateEvent):
        decided(BUILT_IN.keep_evidence, (None, row), keeping({"a": 2}, command_id="k3"))
    with pytest.raises(DuplicateEvent):
        step_evidence(row, fact, T0)


def test_limits_what_is_stored() -> None:
    assert BUILT_IN.keep_evidence.rows is not None
    with pytest.raises(LimitExceeded):
        BUILT_IN.keep_evidence.rows(keeping({"a": "x" * DOCUMENT_BYTES_MAX}))
    with pytest.raises(InvalidInput):
        BUILT_IN.keep_evidence.rows(keeping({"a": 0.5}))


ONE = DigestMatches(digest_of("rel_002"), ("rel_002",))
TWO = DigestMatches(digest_of("rel_002"), ("rel_002", "rel_009"))
NONE = DigestMatches(digest_of("rel_002"))
CROWDED = DigestMatches(digest_of("rel_002"), ("rel_002",), crowded=True)


@pytest.mark.parametrize(
    ("matches", "names"),
    [
        ((None,), ()),
        ((NONE,), ()),
        ((TWO,), ("rel_002", "rel_009")),
        ((CROWDED,), ("rel_002",)),
        ((ONE, DigestMatches("sha256:00", ("rel_007",))), ("rel_002", "rel_007")),
    ],
)
def test_stores_a_manifest_that_matches_no_release_or_several(
    matches: tuple[DigestMatches | None, ...], names: tuple[str, ...]
) -> None:
    digests = [digest_of("rel_002"), "sha256:00"][: len(matches)]

    (fact,) = decided(
        BUILT_IN.import_manifest, (actual(), None, None, *matches), manifest(*digests)
    )

    assert isinstance(fact, EvidenceKept)
    assert (fact.source, fact.batch, fact.matches) == ("factory", "batch-2026-04-24", names)


def test_a_manifest_that_matches_one_release_moves_the_pin() -> None:
    command = manifest(digest_of("rel_002"), expected_version=0, import_run_id="run-7")

    (fact,) = decided(BUILT_IN.import_manifest, (actual(), None, None, ONE), command)

    assert isinstance(fact, ReleaseTransitioned)
    assert fact.release_id == "rel_002"
    assert fact.provenance.mode == "imported"
    assert fact.provenance.import_run_id == "run-7"
    assert fact.confidence.reasons == ("unique_factory_manifest_match",)


@pytest.mark.parametrize(
    ("row", "changes", "error"),
    [
        (actual(), {}, VersionRequired),
        (None, {"expected_version": 0}, NotFound),
        (actual(2), {"expected_version": 1}, StaleVersion),
        (actual(0, PinStatus.RETIRED), {"expected_version": 0}, IllegalTransition),
        (
            actual(),
            {"expected_version": 0, "observed_at": "2026-04-24T19:00:03Z"},
            RejectedEvidence,
        ),
    ],
)
def test_a_manifest_must_pass_every_guard_of_a_transition(
    row: Actual | None, changes: dict[str, Any], error: type[TidegateError]
) -> None:
    with pytest.raises(error):
        decided(
            BUILT_IN.import_manifest,
            (row, None, None, ONE),
            manifest(digest_of("rel_002"), **changes),
        )


def test_recognizes_an_import_that_was_done_already() -> None:
    command = manifest(digest_of("rel_002"), expected_version=0)
    (fact,) = decided(BUILT_IN.import_manifest, (actual(), None, None, ONE), command)
    executed = step_command(None, fact, T0)
    kept = KeptEvidence(
        scope=SCOPE,
        source="factory",
        batch=command.batch,
        authority=False,
        document={"other": True},
        reason="",
        recorded_at=T0,
        command_id="m0",
        by="user_1",
    )

    assert decided(BUILT_IN.import_manifest, (actual(1), executed, None, ONE), command) == []
    with pytest.raises(DuplicateEvent):
        decided(BUILT_IN.import_manifest, (actual(1), None, kept, None), command)


@pytest.mark.parametrize(
    "command",
    [
        manifest(),
        manifest("sha256:a", "sha256:a"),
        manifest("sha256:a", ref=""),
        manifest("sha256:a", observed_at="yesterday"),
        manifest("sha256:a", batch="b/1"),
        manifest("sha256:a", status="retired"),
        manifest("x" * 300),
        manifest(*(f"sha256:{n}" for n in range(DIGESTS_MAX + 1))),
    ],
    ids=lambda command: str(command)[:60],
)
def test_refuses_a_malformed_manifest(command: Any) -> None:
    assert BUILT_IN.import_manifest.rows is not None
    with pytest.raises((InvalidInput, LimitExceeded)):
        BUILT_IN.import_manifest.rows(command)


def test_only_a_release_that_may_be_pinned_counts_as_a_match() -> None:
    row = DigestMatches("sha256:a")
    for release_id, lifecycle in (("web.1", "Published"), ("web.2", "Published")):
        row = release_matches.step(row, ReleaseOffered(release_id, "sha256:a", lifecycle), T0)
    assert row.release_ids == ("web.1", "web.2")

    row = release_matches.step(row, ReleaseOffered("web.1", "sha256:a", "DeletionProposed"), T0)
    assert row.release_ids == ("web.1", "web.2")
    row = release_matches.step(row, ReleaseOffered("web.1", "sha256:a", "Terminating"), T0)

    assert row == DigestMatches("sha256:a", ("web.2",))


def test_never_finds_a_match_after_it_found_several() -> None:
    row = DigestMatches("sha256:a")
    for number in range(MATCHES_MAX + 1):
        row = release_matches.step(
            row, ReleaseOffered(f"web.{number}", "sha256:a", "Published"), T0
        )
    assert row.crowded

    for number in range(MATCHES_MAX):
        gone = ReleaseOffered(f"web.{number}", "sha256:a", "Deleted")
        row = release_matches.step(row, gone, T0 + timedelta(days=1))

    assert row == DigestMatches("sha256:a", crowded=True)
