"""The registry of releases: error codes, versions, guards and authority."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.domain.refusal_checks import status_of
from tests.domain.registry import FOLDS, digest_of, manifest, operator, register, retire, transition
from tests.domain.registry_log import RegistryLog
from tidegate import errors
from tidegate.domain.packages.refusals import DigestMismatch
from tidegate.domain.provenance import EVIDENCE_MAX, TEXT_BYTES_MAX, RejectedEvidence
from tidegate.domain.publication.refusals import StaleGeneration
from tidegate.domain.releases.refusals import DuplicateEvent, ReleaseNotPinnable
from tidegate.domain.releases.rows import ACTUAL, COMMANDS, EVENTS, EVIDENCE
from tidegate.errors import (
    ConditionFailed,
    IllegalTransition,
    ImmutableRecord,
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


# ── codes and holes ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("error", "code", "base"),
    [
        pytest.param(
            *(ImmutableRecord, "immutable_record", errors.Refused), id="write to an immutable row"
        ),
        pytest.param(
            *(errors.ProtectedField, "protected_field", errors.Refused),
            id="change of a protected field",
        ),
        pytest.param(
            *(RejectedEvidence, "rejected_evidence", errors.Refused),
            id="evidence without authority",
        ),
        pytest.param(
            *(ConditionFailed, "condition_failed", errors.Conflict), id="failed condition"
        ),
        pytest.param(
            *(errors.VersionConflict, "version_conflict", ConditionFailed),
            id="stale version",
        ),
        pytest.param(
            *(errors.LeaseHeld, "lease_held", ConditionFailed), id="lease of another holder"
        ),
        pytest.param(*(errors.LeaseLost, "lease_lost", ConditionFailed), id="lost lease"),
        pytest.param(*(NotFound, "not_found", TidegateError), id="missing row"),
        pytest.param(
            *(InvalidInput, "invalid_input", errors.Invalid),
            id="invalid input",
        ),
        pytest.param(
            *(DuplicateEvent, "duplicate_event", ConditionFailed),
            id="duplicate_event",
        ),
        pytest.param(
            *(StaleGeneration, "stale_generation", ConditionFailed),
            id="stale_generation",
        ),
        pytest.param(
            *(errors.IdempotencyMismatch, "idempotency_mismatch", errors.Refused),
            id="idempotency_mismatch",
        ),
        pytest.param(*(LimitExceeded, "limit_exceeded", errors.TooLarge), id="limit_exceeded"),
    ],
)
def test_the_code_names_the_failure_and_the_family_what_to_do(
    error: type[TidegateError], code: str, base: type[TidegateError]
) -> None:
    assert (error.code, issubclass(error, base)) == (code, True)
    assert issubclass(error, TidegateError)


def test_policies_depend_on_the_kind_of_row_and_only_evidence_moves_the_pin(
    registry: RegistryLog,
) -> None:
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


def test_raw_access_cannot_repair_a_row_of_the_registry(registry: RegistryLog) -> None:
    registry.tell(register())
    raw = RawRecords(registry.store, registry.clock)
    (record,) = registry.store.range(ACTUAL.name, limit=5)

    with pytest.raises(TidegateError):
        raw.delete(ACTUAL.name, record.key.id, reason="tidy", actor="user_1")
    assert registry.store.get(record.key) == (record,)


# ── register, transition ──────────────────────────────────────────────────────────────────────────


def test_registers_at_version_0_and_requires_the_version_afterwards(
    registry: RegistryLog,
) -> None:
    assert isinstance(registry.refused(transition("rel_002", 0, "c1")), NotFound)
    registry.tell(register())
    assert registry.actual().version == 0
    assert isinstance(registry.refused(transition("rel_002", None, "c1")), VersionRequired)
    assert type(registry.refused(register(command_id="c9"))) is ConditionFailed
    registry.tell(transition("rel_002", 0, "c1"))
    assert registry.actual().version == 1


def test_names_the_guard_that_failed(registry: RegistryLog) -> None:
    registry.tell(register(), transition("rel_002", 0, "c1"))

    stale = registry.refused(transition("rel_003", 0, "c2"))
    assert isinstance(stale, StaleVersion)
    assert (stale.code, stale.facts) == ("version_conflict", {"expected": 0, "current": 1})
    used = registry.refused(transition("rel_003", 1, "c1"))
    assert isinstance(used, DuplicateEvent)
    assert "rel_002#c1" in str(used.facts["row"])


def test_recognizes_its_own_first_copy(registry: RegistryLog) -> None:
    command = transition("rel_002", 0, "c1")
    registry.tell(register(), command)
    before = registry.types()

    registry.tell(command)
    registry.clock.advance(timedelta(days=40))
    registry.tell(command)

    assert registry.types() == before


def test_writes_the_row_as_a_projection_in_the_commit_of_its_fact(registry: RegistryLog) -> None:
    registry.tell(register())
    (record,) = registry.store.range(ACTUAL.name, limit=5)
    (event,) = (e for e in registry.store.read(ALL).events if e.type == "ReleaseRegistered")

    assert record.version == event.position
    assert COST_MAX == 100


def test_distinguishes_two_promotions_of_one_release_in_one_second(registry: RegistryLog) -> None:
    registry.tell(
        register(),
        transition("rel_002", 0, "c1"),
        transition("rel_001", 1, "c2"),
        transition("rel_002", 2, "c3"),
    )

    ids = [record.key.id for record in registry.store.range(EVENTS.name, limit=10)]
    assert len(ids) == 4
    assert sum("#rel_002#" in id for id in ids) == 2


# ── silences ──────────────────────────────────────────────────────────────────────────────────────


def test_binds_authority_to_mode_time_release_and_scope(registry: RegistryLog) -> None:
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
    registry.tell(register())
    wrong = transition("rel_002", 0, "c1", digest=digest_of("rel_003"))
    assert isinstance(registry.refused(wrong), DigestMismatch)
    registry.offer("rel_002", "Terminating")
    assert isinstance(registry.refused(transition("rel_002", 0, "c1")), ReleaseNotPinnable)
    assert isinstance(registry.refused(transition("rel_009", 0, "c1")), NotFound)
    registry.tell(manifest(digest_of("rel_003"), expected_version=0))
    evidence = registry.actual().provenance.evidence[0]
    assert evidence.digest == digest_of("rel_003")


# ── decisions ─────────────────────────────────────────────────────────────────────────────────────


def test_retires_a_scope_and_keeps_its_rows(registry: RegistryLog) -> None:
    registry.tell(register(), retire(0, "c1"))
    refusal = registry.refused(transition("rel_002", 1, "c2"))

    assert isinstance(refusal, IllegalTransition)
    assert status_of(refusal) == 422
    assert len(registry.store.range(EVENTS.name, limit=10)) == 2
    assert "ttl" not in EVENTS.attributes
    (record,) = registry.store.range(ACTUAL.name, limit=1)
    assert b"2026-04-24T19:00:02.000000Z" in record.data
