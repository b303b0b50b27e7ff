"""release-state.md §3.1–§3.5, ruling by ruling: provenance, confidence and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest

from tests.domain.registry import (
    SCOPE,
    SEED,
    register,
    transition,
)
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
from tidegate.domain.releases.rows import (
    KeptEvidence,
    evidence_key,
)
from tidegate.errors import (
    InvalidInput,
    TidegateError,
)
from tidegate.kernel import codec


@pytest.fixture
def registry() -> RegistryLog:
    return RegistryLog()


# ── §3.1–§3.4 documents ───────────────────────────────────────────────────────────────────────────


def test_has_the_closed_shape_of_the_documents() -> None:
    """release-state.md §3.1 #1: "`mode` | yes | `native`, `imported`, `inferred`"
    release-state.md §3.1 #2: "`system` | yes | non-empty string"
    release-state.md §3.1 #3: "`kind` | yes | non-empty string"
    release-state.md §3.1 #4: "`ref` | yes | non-empty string: stable path / ARN / URL"
    release-state.md §3.1 #5: "`observed_at` | yes | RFC3339 string"
    release-state.md §3.1 #6: "`recorded_at` | yes | RFC3339 string"
    release-state.md §3.1 #7: "`commit_sha` | no"
    release-state.md §3.1 #8: "`import_run_id` | no"
    release-state.md §3.1 #9: "`digest` | no, G3 only"
    release-state.md §3.1 #10: "`evidence` | yes | list, at least one object"
    release-state.md §3.1 #11: "`kind`, `source`, `ref`, `observed_at` required non-empty strings";
    "`digest` optional string; nothing else"
    release-state.md §3.1 #12: "`level` required string"; "`reasons` required list of non-empty
    strings"; "nothing else"
    release-state.md §0.2 #11: "`provenance.digest` key allowed"
    """
    required = {"mode", "system", "kind", "ref", "observed_at", "recorded_at", "evidence"}
    optional = {"commit_sha", "import_run_id", "digest"}
    assert set(Provenance.__struct_fields__) == required | optional
    assert set(Evidence.__struct_fields__) == {"kind", "source", "ref", "observed_at", "digest"}
    assert set(Confidence.__struct_fields__) == {"level", "reasons"}
    for name in required:
        document = deepcopy(SEED)
        del document["provenance"][name]
        with pytest.raises(InvalidInput):
            claim(document)
    document = deepcopy(SEED)
    entry = document["provenance"]["evidence"][0]
    digest = "sha256:" + "ab" * 32
    entry["digest"] = document["provenance"]["digest"] = digest
    document["provenance"] |= {"commit_sha": "0" * 40, "import_run_id": ""}
    assert isinstance(claim(document), Authority)


def test_stores_documents_on_the_row_and_unvalidated_ones_beside_it(registry: RegistryLog) -> None:
    """release-state.md §3.1 #13: "both may also sit on event rows, where they are **not**
    validated"; release-state.md §3.6 #9: "enforce in the domain layer on register + transition, and
    on import; evidence/event rows store anything well-formed with `authority=false`"
    release-state.md §3.6 #8: "keep (null provenance -> invalid_input)"
    """
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
    ("point", "kind", "source", "reason"),
    [
        (
            "release-state.md §3.2 #1: `operator_command` | `release-control-plane`",
            *("operator_command", "release-control-plane", "operator_command_authority"),
        ),
        (
            "release-state.md §3.2 #2: `factory_batch_manifest` | `partner-factory`",
            *("factory_batch_manifest", "partner-factory", "unique_factory_manifest_match"),
        ),
        (
            "release-state.md §3.2 #3: `codepipeline_execution` | `service-ci`",
            *("codepipeline_execution", "service-ci", "codepipeline_execution_authority"),
        ),
        (
            "release-state.md §3.2 #4: `submodule_pin` | `service-ci`",
            *("submodule_pin", "service-ci", "unique_submodule_pin_match"),
        ),
    ],
)
def test_maps_evidence_to_its_one_reason(point: str, kind: str, source: str, reason: str) -> None:
    """release-state.md §3.2 #5: "any other pair (including right kind + wrong source)" | "refused
    as unsupported evidence".
    """
    del point
    found = {(triple.kind, triple.source): triple.reason for triple in BUILT_IN}
    assert found[kind, source] == reason
    assert len(found) == 4
    with pytest.raises(RejectedEvidence):
        BUILT_IN_RULES.of(Evidence(kind, f"{source}-2", "ref", "2026-04-24T19:00:00Z"))


def test_compares_what_evidence_says_as_tuples_without_its_time() -> None:
    """release-state.md §3.3 #1: "`observed_at` is not part of it, so the same fact observed twice
    at different times is agreement, while two *different* refs are a conflict"
    release-state.md §3.3 #2: "PROPOSAL: compare tuples"
    release-state.md §0.2 #9: "kind+source+ref+digest"
    release-state.md §0.2 #10: "top-level provenance must equal its evidence" | "yes (kind,
    system=source, ref, and digest when given)"
    release-state.md §10 #18: "Compare evidence as tuples, not joined strings"
    """
    twice = deepcopy(SEED)
    first = twice["provenance"]["evidence"][0]
    twice["provenance"]["evidence"].append(first | {"observed_at": "2026-04-24T18:00:00Z"})
    assert isinstance(claim(twice), Authority)
    for change in ({"ref": "x"}, {"digest": "sha256:ab"}):
        other = deepcopy(SEED)
        other["provenance"]["evidence"].append(first | change)
        with pytest.raises(RejectedEvidence):
            claim(other)
    forged = Evidence("a", "b|c", "d", "t"), Evidence("a", "b", "c|d", "t")
    assert forged[0].signature != forged[1].signature
    misaligned = deepcopy(SEED)
    misaligned["provenance"]["system"] = "service-ci"
    with pytest.raises(RejectedEvidence):
        claim(misaligned)


DAY = "2026-04-24"


@pytest.mark.parametrize(
    ("point", "texts", "accepted"),
    [
        (
            (
                "release-state.md §3.4 #1: accept, normalise to UTC micros for comparison, keep the"
                " text"
            ),
            [f"{DAY}T19:00:00{end}" for end in ("Z", ".1Z", ".123456789Z", "+05:30", "-00:00")],
            True,
        ),
        (
            (
                "release-state.md §3.4 #2: lower-case `t`/`z`, space separator, no offset, no"
                " seconds, `+0000`, comma fraction, `2026/04/24`, `Friday`, epoch digits"
            ),
            [
                *(f"{DAY}t19:00:00Z", f"{DAY}T19:00:00z", f"{DAY} 19:00:00Z", f"{DAY}T19:00:00"),
                *(f"{DAY}T19:00Z", f"{DAY}T19:00:00+0000", f"{DAY}T19:00:00,5Z"),
                *("2026/04/24", "Friday", "1777057200", f"{DAY}T19:00:00Z\n"),
            ],
            False,
        ),
        (
            "release-state.md §3.4 #3: `2026-02-29` / `2026-02-30` / `2026-04-31` at midnight Z",
            [f"{day}T00:00:00Z" for day in ("2026-02-29", "2026-02-30", "2026-04-31")],
            False,
        ),
        ("release-state.md §3.4 #4: `T24:00:00Z` | refuse", [f"{DAY}T24:00:00Z"], False),
        ("release-state.md §3.4 #5: `T23:59:60Z` (leap second)", [f"{DAY}T23:59:60Z"], False),
        ("release-state.md §3.4 #6: offset `+24:00`", [f"{DAY}T19:00:00+24:00"], False),
        (
            "release-state.md §3.4 #7: refuse; use an ASCII-only digit class",
            [f"{DAY}T19:00:0\u0660Z", "\uff12026-04-24T19:00:00Z"],
            False,
        ),
    ],
)
def test_reads_times_strictly(point: str, texts: list[str], accepted: bool) -> None:
    """release-state.md §10 #17: "use a strict parser with an ASCII digit class"."""
    del point
    for text in texts:
        if accepted:
            assert moment(text).utcoffset() == timedelta()
        else:
            with pytest.raises(InvalidInput):
                moment(text)


# ── §3.5 rejections ───────────────────────────────────────────────────────────────────────────────


def spoilt(*path: Any, to: Any = ...) -> Callable[[], Any]:
    """The seed's document with one member changed, or without it."""

    def make() -> Any:
        document: Any = deepcopy(SEED)
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
SECOND = [SEED[P]["evidence"][0], SEED[P]["evidence"][0] | {"ref": "other"}]


@pytest.mark.parametrize(
    ("point", "make", "answer"),
    [
        ("release-state.md §3.5 #1: item is null", lambda: None, InvalidInput),
        ("release-state.md §3.5 #2: neither key present | **passes**", dict, None),
        ("release-state.md §3.5 #3: exactly one of the pair present", spoilt(C), InvalidInput),
        (
            "release-state.md §3.5 #4: provenance / confidence not an object",
            spoilt(P, to=[]),
            InvalidInput,
        ),
        (
            "release-state.md §3.5 #5: unknown key in provenance, then in confidence",
            spoilt(P, "notes", to="x"),
            InvalidInput,
        ),
        (
            "release-state.md §3.5 #6: `mode` missing/empty/not string, or outside the three",
            spoilt(P, "mode", to="guessed"),
            InvalidInput,
        ),
        ("release-state.md §3.5 #7: `system`, `kind`, `ref`", spoilt(P, "ref"), InvalidInput),
        (
            "release-state.md §3.5 #8: `observed_at`, `recorded_at` missing or not RFC3339",
            spoilt(P, "recorded_at", to="today"),
            InvalidInput,
        ),
        (
            "release-state.md §3.5 #9: `commit_sha`, `import_run_id`, (`digest`) not a string",
            spoilt(P, "import_run_id", to=7),
            InvalidInput,
        ),
        (
            "release-state.md §3.5 #10: `evidence` missing/not a list, or an entry not an object",
            spoilt(P, "evidence", to=["x"]),
            InvalidInput,
        ),
        (
            "release-state.md §3.5 #11: `evidence` empty | **RejectedEvidence**",
            spoilt(P, "evidence", to=[]),
            RejectedEvidence,
        ),
        (
            "release-state.md §3.5 #12: per entry: unknown key; missing/empty kind, source, ref",
            spoilt(*E, "source", to=""),
            InvalidInput,
        ),
        (
            "release-state.md §3.5 #13: signature differs from the first entry",
            spoilt(P, "evidence", to=SECOND),
            RejectedEvidence,
        ),
        (
            "release-state.md §3.5 #14: (kind, source) not in 3.2",
            spoilt(*E, "source", to="service-ci"),
            RejectedEvidence,
        ),
        (
            "release-state.md §3.5 #15: G3: top-level kind/system/ref differ from evidence",
            spoilt(P, "ref", to="operator://x"),
            RejectedEvidence,
        ),
        (
            "release-state.md §3.5 #16: G3: top-level digest present but empty or different",
            spoilt(P, "digest", to=""),
            RejectedEvidence,
        ),
        (
            "release-state.md §3.5 #17: confidence `level` missing/empty/not string",
            spoilt(C, "level", to=1),
            InvalidInput,
        ),
        (
            "release-state.md §3.5 #18: level other than `high` (medium, low, typo)",
            spoilt(C, "level", to="medium"),
            RejectedEvidence,
        ),
        (
            "release-state.md §3.5 #19: `reasons` not a list, or contains non-string/empty",
            spoilt(C, "reasons", to=[""]),
            InvalidInput,
        ),
        (
            "release-state.md §3.5 #20: not exactly one reason, or different from derived",
            spoilt(C, "reasons", to=["unique_submodule_pin_match"]),
            RejectedEvidence,
        ),
    ],
)
def test_rejects_in_order(
    registry: RegistryLog, point: str, make: Callable[[], Any], answer: type[TidegateError] | None
) -> None:
    """Each fault by itself, by the validator and by a transition; ``test_provenance`` has the pairs
    that tell their order, and ``release-state.md §3.5`` row by row in more spellings.
    """
    del point
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
