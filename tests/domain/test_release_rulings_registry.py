"""release-state.md §1.8–§1.9, §2.4–§2.5, §3.6, §10, ruling by ruling: the registry."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.domain.refusal_checks import status_of
from tests.domain.registry import (
    FOLDS,
    digest_of,
    manifest,
    operator,
    register,
    retire,
    transition,
)
from tests.domain.registry_log import RegistryLog
from tidegate import errors
from tidegate.domain.packages.refusals import DigestMismatch
from tidegate.domain.provenance import (
    BUILT_IN_RULES,
    EVIDENCE_MAX,
    TEXT_BYTES_MAX,
    Evidence,
    RejectedEvidence,
    Rules,
    Triple,
)
from tidegate.domain.publication.refusals import StaleGeneration
from tidegate.domain.releases.refusals import DuplicateEvent, ReleaseNotPinnable
from tidegate.domain.releases.rows import ACTUAL, COMMANDS, EVENTS, EVIDENCE
from tidegate.errors import (
    ConditionFailed,
    IllegalTransition,
    ImmutableRecord,
    InvalidDefinition,
    InvalidInput,
    LimitExceeded,
    NotFound,
    StaleVersion,
    TidegateError,
    VersionRequired,
)
from tidegate.kernel.collections import Writers
from tidegate.kernel.model import ALL, COST_MAX
from tidegate.kernel.records.records import RawRecords, Records
from tidegate.kernel.records.write_policy import WriteMode
from tidegate.kernel.replay import differences


@pytest.fixture
def registry() -> RegistryLog:
    return RegistryLog()


P = "provenance"
E = (P, "evidence", 0)


# ── §1.8, §1.9 codes and holes ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("point", "error", "code", "base"),
    [
        (
            "release-state.md §1.8 #1: `ErrImmutableModelMutation`",
            *(ImmutableRecord, "immutable_record", errors.Refused),
        ),
        (
            "release-state.md §1.8 #2: `ErrProtectedFieldMutation`",
            *(errors.ProtectedField, "protected_field", errors.Refused),
        ),
        (
            "release-state.md §1.8 #3: `ErrRejectedDeployAuthorityEvidence`",
            *(RejectedEvidence, "rejected_evidence", errors.Refused),
        ),
        (
            "release-state.md §1.8 #4: `ErrConditionFailed`",
            *(ConditionFailed, "condition_failed", errors.Conflict),
        ),
        (
            "release-state.md §1.8 #5: `ErrVersionConflict` | subclass of ConditionFailed",
            *(errors.VersionConflict, "version_conflict", ConditionFailed),
        ),
        (
            "release-state.md §1.8 #6: `ErrLeaseHeld` / `ErrLeaseNotOwned`",
            *(errors.LeaseHeld, "lease_held", ConditionFailed),
        ),
        (
            "release-state.md §1.8 #6: `ErrLeaseHeld` / `ErrLeaseNotOwned`",
            *(errors.LeaseLost, "lease_lost", ConditionFailed),
        ),
        (
            "release-state.md §1.8 #7: `ErrItemNotFound`",
            *(NotFound, "not_found", TidegateError),
        ),
        (
            (
                "release-state.md §1.8 #8: `ErrInvalidModel` | `ValidationError`;"
                " `ModelDefinitionError(ValueError)` at definition time"
            ),
            *(InvalidInput, "invalid_input", errors.Invalid),
        ),
        (
            "release-state.md §1.9 #13: Stable codes: … `duplicate_event`",
            *(DuplicateEvent, "duplicate_event", ConditionFailed),
        ),
        (
            "release-state.md §1.9 #13: Stable codes: … `stale_generation`",
            *(StaleGeneration, "stale_generation", ConditionFailed),
        ),
        (
            "release-state.md §1.9 #13: Stable codes: … `idempotency_mismatch`",
            *(errors.IdempotencyMismatch, "idempotency_mismatch", errors.Refused),
        ),
        (
            "release-state.md §1.9 #13: Stable codes: … `limit_exceeded`",
            *(LimitExceeded, "limit_exceeded", errors.TooLarge),
        ),
    ],
)
def test_names_what_failed_by_a_code_and_what_to_do_by_a_family(
    point: str, error: type[TidegateError], code: str, base: type[TidegateError]
) -> None:
    """release-state.md §10 #8: "one base class, `retryable` flag, failing guard named": the family
    says whether to repeat (ours: Unavailable and Unknown are to be repeated, no other).
    """
    del point
    assert (error.code, issubclass(error, base)) == (code, True)
    assert issubclass(error, TidegateError)


def test_keys_policies_by_the_kind_of_row_and_moves_the_pin_by_evidence_alone(
    registry: RegistryLog,
) -> None:
    """release-state.md §1.9 #8: "Key the policy by *row kind* derived from the key"
    release-state.md §1.9 #9: "`append_only`" and "`registry` (mutable through transitions only,
    never deletable, pins changeable only by a transition that carries valid evidence)"
    release-state.md §1.9 #10: "`transition` may set them, nothing else may"
    release-state.md §10 #1: "only `transition`/`register`/`swap` with accepted evidence; protected
    for everything else"
    release-state.md §10 #2: "no; `retire` is a transition"
    """
    registry.tell(register(), transition("rel_002", 0, "c1"))
    records = Records(registry.store, registry.clock)
    (row,) = (record.key.id for record in registry.store.range(ACTUAL.name, limit=5))
    for attempt in (
        lambda: records.update(ACTUAL.name, row, {"pinnedReleaseId": "rel_003"}),
        lambda: records.update(ACTUAL.name, row, {"status": "warming"}),
        lambda: records.delete(ACTUAL.name, row),
    ):
        with pytest.raises(ImmutableRecord):
            attempt()
    assert {item.writers for item in (ACTUAL, EVENTS, EVIDENCE, COMMANDS)} == {Writers.FOLDED}
    assert {item.policy.mode for item in (EVENTS, EVIDENCE, COMMANDS)} == {WriteMode.WRITE_ONCE}
    registry.tell(retire(1, "c2"))
    assert registry.actual().pinned_release_id == "rel_002"
    assert differences(registry.store, FOLDS) == []


def test_repairs_no_row_of_the_registry_raw(registry: RegistryLog) -> None:
    """release-state.md §10 #12: "repair tool requires a reason string and appends a
    `manual_repair` event in the same transaction"; what is folded it refuses.
    """
    registry.tell(register())
    raw = RawRecords(registry.store, registry.clock)
    (record,) = registry.store.range(ACTUAL.name, limit=5)

    with pytest.raises(TidegateError):
        raw.delete(ACTUAL.name, record.key.id, reason="tidy", actor="user_1")
    assert registry.store.get(record.key) == (record,)


# ── §2.5 register, transition ─────────────────────────────────────────────────────────────────────


def test_registers_at_version_0_and_asks_for_the_version_from_then_on(
    registry: RegistryLog,
) -> None:
    """release-state.md §2.5 #1: "`expected_version` mandatory; creation is a separate verb
    `register(scope, ...)` guarded by row-absent and yields version 0 (so the first transition uses
    expected 0). Missing row -> `not_found`, never an upsert"
    release-state.md §10 #3: "starts 0, mandatory expected value, no upsert"
    """
    assert isinstance(registry.refused(transition("rel_002", 0, "c1")), NotFound)
    registry.tell(register())
    assert registry.actual().version == 0
    assert isinstance(registry.refused(transition("rel_002", None, "c1")), VersionRequired)
    assert type(registry.refused(register(command_id="c9"))) is ConditionFailed
    registry.tell(transition("rel_002", 0, "c1"))
    assert registry.actual().version == 1


def test_says_which_guard_failed(registry: RegistryLog) -> None:
    """release-state.md §2.5 #3: "Report which guard failed: `version_conflict(expected, actual)` vs
    `duplicate_event(event_id)`"
    release-state.md §2.4 #7: "conflicting concurrent transaction": decided again, and then stale
    """
    registry.tell(register(), transition("rel_002", 0, "c1"))

    stale = registry.refused(transition("rel_003", 0, "c2"))
    assert isinstance(stale, StaleVersion)
    assert (stale.code, stale.facts) == ("version_conflict", {"expected": 0, "current": 1})
    used = registry.refused(transition("rel_003", 1, "c1"))
    assert isinstance(used, DuplicateEvent)
    assert "rel_002#c1" in str(used.facts["row"])


def test_finds_its_own_first_copy(registry: RegistryLog) -> None:
    """release-state.md §2.5 #4: "event id is a deterministic function of `command_id`; on
    `duplicate_event` read the stored event: equal payload hash -> return the original outcome,
    otherwise `idempotency_mismatch`"
    release-state.md §2.4 #8: "network ambiguity (timeout after send)" | a retry finds what the
    first attempt committed
    """
    command = transition("rel_002", 0, "c1")
    registry.tell(register(), command)
    before = registry.types()

    registry.tell(command)
    registry.clock.advance(timedelta(days=40))
    registry.tell(command)

    assert registry.types() == before


def test_writes_the_row_as_a_projection_in_the_commit_of_its_fact(registry: RegistryLog) -> None:
    """release-state.md §2.5 #5: "write the registry row as a projection **in the same transaction**
    as the conditional append, never as the condition's only source"
    release-state.md §10 #11: "max 100, one per key"; "memory engine enforces the same limits so
    tests cannot pass by accident"
    """
    registry.tell(register())
    (record,) = registry.store.range(ACTUAL.name, limit=5)
    (event,) = (e for e in registry.store.read(ALL).events if e.type == "ReleaseRegistered")

    assert record.version == event.position
    assert COST_MAX == 100


def test_tells_two_promotions_of_one_release_in_one_second_apart(registry: RegistryLog) -> None:
    """release-state.md §2.5 #6: "the seed shape (second-resolution time + release id) collides when
    one release is promoted twice within a second"; the command's id is the suffix.
    """
    registry.tell(
        register(),
        transition("rel_002", 0, "c1"),
        transition("rel_001", 1, "c2"),
        transition("rel_002", 2, "c3"),
    )

    ids = [record.key.id for record in registry.store.range(EVENTS.name, limit=10)]
    assert len(ids) == 4
    assert sum("#rel_002#" in id for id in ids) == 2


# ── §3.6 silences ─────────────────────────────────────────────────────────────────────────────────


def test_binds_authority_to_mode_time_release_and_scope(registry: RegistryLog) -> None:
    """release-state.md §3.6 #1: "`inferred` never authorises (visibility only)"
    release-state.md §3.6 #2: "require evidence.observed_at <= provenance.observed_at <=
    recorded_at, and recorded_at <= now + 5 min skew"
    release-state.md §3.6 #4: "ref template `operator://deploy/<service>/<release>` must match the
    scope"
    release-state.md §3.6 #6: "if present must be 40 or 64 hex"
    release-state.md §3.6 #7: "2 KiB per string, max 16 evidence entries"
    release-state.md §10 #4: "G3 + time order + scope binding + inferred never authorises"
    """
    registry.tell(register())

    def refusal(*path: Any, to: Any) -> TidegateError:
        document = operator("rel_002")
        node: Any = document
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = to
        return registry.refused(transition("rel_002", 0, "c1", authority=document))

    for mode in ("inferred", "imported"):
        assert isinstance(refusal(P, "mode", to=mode), RejectedEvidence)
    assert isinstance(refusal(*E, "observed_at", to="2026-04-24T19:00:00.5Z"), RejectedEvidence)
    assert isinstance(refusal(P, "recorded_at", to="2026-04-24T18:00:00Z"), RejectedEvidence)
    assert isinstance(refusal(P, "recorded_at", to="2026-04-24T19:05:03Z"), RejectedEvidence)
    assert isinstance(refusal(P, "commit_sha", to="abc"), InvalidInput)
    assert isinstance(refusal(P, "ref", to="x" * (TEXT_BYTES_MAX + 1)), LimitExceeded)
    entries = [operator("rel_002")[P]["evidence"][0]] * (EVIDENCE_MAX + 1)
    assert isinstance(refusal(P, "evidence", to=entries), LimitExceeded)
    other = transition("rel_002", 0, "c1", authority=operator("rel_002", "service-b"))
    assert isinstance(registry.refused(other), RejectedEvidence)


def test_binds_evidence_of_content_to_the_content_of_the_release(registry: RegistryLog) -> None:
    """release-state.md §3.6 #3: "require digest for artifact-bearing kinds and equality with the
    release's content digest"; packages.md §8.5 #7: "Only Published or DeletionProposed digests may
    be referenced by the release registry". A proposal alone takes no release away from a channel.
    """
    registry.tell(register())
    wrong = transition("rel_002", 0, "c1", digest=digest_of("rel_003"))
    assert isinstance(registry.refused(wrong), DigestMismatch)
    registry.offer("rel_002", "Terminating")
    assert isinstance(registry.refused(transition("rel_002", 0, "c1")), ReleaseNotPinnable)
    assert isinstance(registry.refused(transition("rel_009", 0, "c1")), NotFound)
    registry.tell(manifest(digest_of("rel_003"), expected_version=0))
    evidence = registry.actual().provenance.evidence[0]
    assert evidence.digest == digest_of("rel_003")


def test_takes_configured_triples_besides_the_four(registry: RegistryLog) -> None:
    """release-state.md §3.6 #5: "keep the four pairs verbatim as built-ins; allow a configuration
    table to add (kind, source, reason) triples; unknown stays refused"
    release-state.md §10 #5: "yes, additive table, four built-ins fixed"
    """
    rules = Rules([Triple("github_run", "github", "github_run_authority")])
    said = Evidence("github_run", "github", "r", "2026-04-24T19:00:00Z")
    assert rules.of(said).reason == "github_run_authority"
    with pytest.raises(RejectedEvidence):
        BUILT_IN_RULES.of(said)
    with pytest.raises(InvalidDefinition):
        Rules([Triple("operator_command", "release-control-plane", "another")])


# ── §10 decisions ─────────────────────────────────────────────────────────────────────────────────


def test_closes_a_scope_and_keeps_all_of_it(registry: RegistryLog) -> None:
    """release-state.md §10 #10: "no TTL on log rows; archival is a copy, never a move"
    release-state.md §10 #7: "store microseconds; keep floor/ceil rule at whatever resolution"
    """
    registry.tell(register(), retire(0, "c1"))
    refusal = registry.refused(transition("rel_002", 1, "c2"))

    assert isinstance(refusal, IllegalTransition)
    assert status_of(refusal) == 422
    assert len(registry.store.range(EVENTS.name, limit=10)) == 2
    assert "ttl" not in EVENTS.attributes
    (record,) = registry.store.range(ACTUAL.name, limit=1)
    assert b"2026-04-24T19:00:02.000000Z" in record.data
