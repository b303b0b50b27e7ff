"""Provenance and confidence of a release: what is accepted and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest

from tests.domain.registry import ACCEPTED, SCOPE, register, transition
from tests.domain.registry_log import RegistryLog
from tidegate.domain.provenance import (
    BUILT_IN,
    BUILT_IN_RULES,
    Authority,
    Confidence,
    Evidence,
    Provenance,
    RejectedEvidence,
    claim,
    moment,
)
from tidegate.domain.releases.evidence import KeepEvidence
from tidegate.domain.releases.rows import KeptEvidence, evidence_key
from tidegate.errors import InvalidInput, TidegateError
from tidegate.kernel import codec


@pytest.fixture
def registry() -> RegistryLog:
    return RegistryLog()


# ── documents ─────────────────────────────────────────────────────────────────────────────────────


def test_has_the_closed_shape_of_the_documents() -> None:
    required = {"mode", "system", "kind", "ref", "observed_at", "recorded_at", "evidence"}
    optional = {"commit_sha", "import_run_id", "digest"}
    assert set(Provenance.__struct_fields__) == required | optional
    assert set(Evidence.__struct_fields__) == {"kind", "source", "ref", "observed_at", "digest"}
    assert set(Confidence.__struct_fields__) == {"level", "reasons"}
    for name in required:
        document = deepcopy(ACCEPTED)
        del document["provenance"][name]
        with pytest.raises(InvalidInput):
            claim(document)
    document = deepcopy(ACCEPTED)
    entry = document["provenance"]["evidence"][0]
    digest = "sha256:" + "ab" * 32
    entry["digest"] = document["provenance"]["digest"] = digest
    document["provenance"] |= {"commit_sha": "0" * 40, "import_run_id": ""}
    assert isinstance(claim(document), Authority)


def test_stores_documents_on_the_row_and_unvalidated_ones_as_evidence(
    registry: RegistryLog,
) -> None:
    document = {"provenance": None, "confidence": {"level": "low", "notes": "a guess"}}
    registry.tell(register())
    refusal = registry.refused(transition("rel_002", 0, "c1", authority=document))
    assert isinstance(refusal, InvalidInput)
    registry.tell(
        KeepEvidence(
            scope=SCOPE, source="ci", batch="b1", document=document, command_id="c2", by="user_1"
        )
    )
    (record,) = registry.store.get(evidence_key(SCOPE, "ci", "b1"))
    assert record is not None
    kept = codec.decode(record.data, KeptEvidence)
    assert (kept.authority, kept.document) == (False, document)
    assert registry.actual().version == 0


@pytest.mark.parametrize(
    ("kind", "source", "reason"),
    [
        pytest.param(
            *("operator_command", "release-control-plane", "operator_command_authority"),
            id="operator_command: release-control-plane",
        ),
        pytest.param(
            *("factory_batch_manifest", "partner-factory", "unique_factory_manifest_match"),
            id="factory_batch_manifest: partner-factory",
        ),
        pytest.param(
            *("codepipeline_execution", "service-ci", "codepipeline_execution_authority"),
            id="codepipeline_execution: service-ci",
        ),
        pytest.param(
            *("submodule_pin", "service-ci", "unique_submodule_pin_match"),
            id="submodule_pin: service-ci",
        ),
    ],
)
def test_maps_evidence_to_its_one_reason(kind: str, source: str, reason: str) -> None:
    found = {(triple.kind, triple.source): triple.reason for triple in BUILT_IN}
    assert found[kind, source] == reason
    assert len(found) == 4
    with pytest.raises(RejectedEvidence):
        BUILT_IN_RULES.of(Evidence(kind, f"{source}-2", "ref", "2026-04-24T19:00:00Z"))


def test_compares_evidence_as_tuples_without_its_time() -> None:
    twice = deepcopy(ACCEPTED)
    first = twice["provenance"]["evidence"][0]
    twice["provenance"]["evidence"].append(first | {"observed_at": "2026-04-24T18:00:00Z"})
    assert isinstance(claim(twice), Authority)
    for change in ({"ref": "x"}, {"digest": "sha256:ab"}):
        other = deepcopy(ACCEPTED)
        other["provenance"]["evidence"].append(first | change)
        with pytest.raises(RejectedEvidence):
            claim(other)
    forged = Evidence("a", "b|c", "d", "t"), Evidence("a", "b", "c|d", "t")
    assert forged[0].signature != forged[1].signature
    misaligned = deepcopy(ACCEPTED)
    misaligned["provenance"]["system"] = "service-ci"
    with pytest.raises(RejectedEvidence):
        claim(misaligned)


DAY = "2026-04-24"


@pytest.mark.parametrize(
    ("texts", "accepted"),
    [
        pytest.param(
            [f"{DAY}T19:00:00{end}" for end in ("Z", ".1Z", ".123456789Z", "+05:30", "-00:00")],
            True,
            id="RFC 3339",
        ),
        pytest.param(
            [
                *(f"{DAY}t19:00:00Z", f"{DAY}T19:00:00z", f"{DAY} 19:00:00Z", f"{DAY}T19:00:00"),
                *(f"{DAY}T19:00Z", f"{DAY}T19:00:00+0000", f"{DAY}T19:00:00,5Z"),
                *("2026/04/24", "Friday", "1777057200", f"{DAY}T19:00:00Z\n"),
            ],
            False,
            id="other spellings of a time",
        ),
        pytest.param(
            [f"{day}T00:00:00Z" for day in ("2026-02-29", "2026-02-30", "2026-04-31")],
            False,
            id="2026-02-29 / 2026-02-30 / 2026-04-31 at midnight Z",
        ),
        pytest.param([f"{DAY}T24:00:00Z"], False, id="T24:00:00Z: refuse"),
        pytest.param([f"{DAY}T23:59:60Z"], False, id="T23:59:60Z (leap second)"),
        pytest.param([f"{DAY}T19:00:00+24:00"], False, id="offset +24:00"),
        pytest.param(
            [f"{DAY}T19:00:0\u0660Z", "\uff12026-04-24T19:00:00Z"],
            False,
            id="digits that are not ASCII",
        ),
    ],
)
def test_reads_times_strictly(texts: list[str], accepted: bool) -> None:
    for text in texts:
        if accepted:
            assert moment(text).utcoffset() == timedelta()
        else:
            with pytest.raises(InvalidInput):
                moment(text)


# ── rejections ────────────────────────────────────────────────────────────────────────────────────


def spoilt(*path: Any, to: Any = ...) -> Callable[[], Any]:
    """Return the accepted document with one member changed or removed."""

    def make() -> Any:
        document: Any = deepcopy(ACCEPTED)
        node = document
        for key in path[:-1]:
            node = node[key]
        if to is ...:
            del node[path[-1]]
        else:
            node[path[-1]] = to
        return document

    return make


P, C = "provenance", "confidence"
E = (P, "evidence", 0)
SECOND = [ACCEPTED[P]["evidence"][0], ACCEPTED[P]["evidence"][0] | {"ref": "other"}]


@pytest.mark.parametrize(
    ("make", "answer"),
    [
        pytest.param(lambda: None, InvalidInput, id="item is null"),
        pytest.param(dict, None, id="neither key present: passes"),
        pytest.param(spoilt(C), InvalidInput, id="exactly one of the pair present"),
        pytest.param(spoilt(P, to=[]), InvalidInput, id="provenance / confidence not an object"),
        pytest.param(
            spoilt(P, "notes", to="x"),
            InvalidInput,
            id="unknown key in provenance, then in confidence",
        ),
        pytest.param(
            spoilt(P, "mode", to="guessed"),
            InvalidInput,
            id="mode missing/empty/not string, or outside the three",
        ),
        pytest.param(spoilt(P, "ref"), InvalidInput, id="system, kind, ref"),
        pytest.param(
            spoilt(P, "recorded_at", to="today"),
            InvalidInput,
            id="observed_at, recorded_at missing or not RFC3339",
        ),
        pytest.param(
            spoilt(P, "import_run_id", to=7),
            InvalidInput,
            id="commit_sha, import_run_id, (digest) not a string",
        ),
        pytest.param(
            spoilt(P, "evidence", to=["x"]),
            InvalidInput,
            id="evidence missing/not a list, or an entry not an object",
        ),
        pytest.param(
            spoilt(P, "evidence", to=[]), RejectedEvidence, id="evidence empty: RejectedEvidence"
        ),
        pytest.param(
            spoilt(*E, "source", to=""),
            InvalidInput,
            id="per entry: unknown key; missing/empty kind, source, ref",
        ),
        pytest.param(
            spoilt(P, "evidence", to=SECOND),
            RejectedEvidence,
            id="signature differs from the first entry",
        ),
        pytest.param(
            spoilt(*E, "source", to="service-ci"),
            RejectedEvidence,
            id="wrong source",
        ),
        pytest.param(
            spoilt(P, "ref", to="operator://x"),
            RejectedEvidence,
            id="top-level kind/system/ref differ from evidence",
        ),
        pytest.param(
            spoilt(P, "digest", to=""),
            RejectedEvidence,
            id="top-level digest present but empty or different",
        ),
        pytest.param(
            spoilt(C, "level", to=1), InvalidInput, id="confidence level missing/empty/not string"
        ),
        pytest.param(
            spoilt(C, "level", to="medium"),
            RejectedEvidence,
            id="level other than high (medium, low, typo)",
        ),
        pytest.param(
            spoilt(C, "reasons", to=[""]),
            InvalidInput,
            id="reasons not a list, or contains non-string/empty",
        ),
        pytest.param(
            spoilt(C, "reasons", to=["unique_submodule_pin_match"]),
            RejectedEvidence,
            id="not exactly one reason, or different from derived",
        ),
    ],
)
def test_rejects_in_order(
    registry: RegistryLog, make: Callable[[], Any], answer: type[TidegateError] | None
) -> None:
    document = make()
    if answer is None:
        assert claim(document) is None
        answer = InvalidInput
    else:
        with pytest.raises(answer):
            claim(document)
    if isinstance(document, dict):
        registry.tell(register())
        assert isinstance(
            registry.refused(transition("rel_002", 0, "c1", authority=document)), answer
        )
