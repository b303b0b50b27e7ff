"""Deploy authority: every reason to reject a claim, alone and in order."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import product
from typing import Any

import msgspec
import pytest

from tests.domain.documents import MODES, REASONS, authorises, generated, good, instant
from tests.domain.registry import ACCEPTED, T0
from tests.domain.spoilt_documents import REJECTIONS, C, E, P, Spoil, at, spoilt, twice
from tidegate.domain.provenance import (
    BUILT_IN_RULES,
    EVIDENCE_MAX,
    SKEW_MAX,
    TEXT_BYTES_MAX,
    Authority,
    Confidence,
    Mode,
    Provenance,
    RejectedEvidence,
    Rules,
    Subject,
    Triple,
    authority_for,
    bind,
    claim,
    moment,
)
from tidegate.errors import InvalidDefinition, InvalidInput, LimitExceeded, TidegateError
from tidegate.kernel import codec

pure = pytest.mark.req("RS-6", engines=None, reason="validation is pure and runs before any engine")
SUBJECT = Subject("service-a", "rel_002", "sha256:ab")


def accepts(document: object, now: datetime = T0, rules: Rules = BUILT_IN_RULES) -> bool:
    """Return whether it is authoritative; a refusal is raised."""
    return isinstance(authority_for(document, SUBJECT, now, rules), Authority)


@pure
def test_accepts_the_example_of_the_design_page_and_keeps_every_member() -> None:
    """ "Actual-state rows that claim deploy authority should carry deterministic metadata" """
    authority = authority_for(ACCEPTED, SUBJECT, T0)

    assert msgspec.json.decode(codec.encode(authority)) == ACCEPTED
    codec.prepare(Authority)
    assert codec.decode(codec.encode(authority), Authority) == authority


@pure
@pytest.mark.parametrize(
    ("spoil", "error"),
    [pytest.param(spoil, error, id=f"{row} {name}") for row, name, spoil, error in REJECTIONS],
)
def test_refuses_the_document_with_any_one_rule_broken(
    spoil: Spoil, error: type[TidegateError]
) -> None:
    with pytest.raises(error) as refusal:
        claim(spoilt(spoil))

    assert type(refusal.value) is error


@pure
def test_reports_the_first_of_two_faults() -> None:
    """Each later fault is added to each earlier one; the earlier one is reported, word for word."""

    def told(*spoils: Spoil) -> str:
        with pytest.raises(TidegateError) as refusal:
            claim(spoilt(*spoils))
        return refusal.value.detail

    pairs = 0
    for (row, _, spoil, _), (later, _, more, _) in product(REJECTIONS, REJECTIONS):
        if not 4 <= row < later or {row, later} & {9, 10} or (row, later) == (11, 12):
            continue  # a fault that removes the place of the other, or repeats it
        if row in (12, 13, 14) and later in (13, 14):
            continue  # both are about the same members
        assert told(more, spoil) == told(spoil), (row, later)
        pairs += 1
    assert pairs > 500


@pure
def test_reads_entries_one_by_one_so_a_malformed_one_counts_only_if_it_is_reached() -> None:
    malformed: dict[str, Any] = {"kind": ""}

    with pytest.raises(RejectedEvidence, match=r"evidence\[1\] conflicts"):
        claim(spoilt(twice(ref="x"), lambda d: d[P]["evidence"].append(malformed)))
    with pytest.raises(InvalidInput, match=r"evidence\[1\]"):
        claim(spoilt(lambda d: d[P]["evidence"].append(malformed), twice(ref="x")))


@pure
@pytest.mark.parametrize("item", [{}, {"status": "active", "notes": "anything"}])
def test_finds_no_claim_without_either_document(item: dict[str, Any]) -> None:
    assert claim(item) is None
    with pytest.raises(InvalidInput, match="no authority is claimed"):
        authority_for(item, SUBJECT, T0)


@pure
@pytest.mark.parametrize("item", [None, [], "provenance"])
def test_refuses_a_malformed_item(item: object) -> None:
    with pytest.raises(InvalidInput):
        claim(item)


# ── evidence ──────────────────────────────────────────────────────────────────────────────────────


@pure
@pytest.mark.parametrize(
    ("pair", "reason"), list(product(product(MODES, {s for _, s in REASONS}), REASONS.values()))
)
def test_maps_each_kind_and_source_to_its_one_reason(pair: tuple[str, str], reason: str) -> None:
    kind, source = pair
    known = next(known for known in REASONS if known[0] == kind)
    document = good(known, "service-a", "rel_002", "sha256:ab")
    document[P]["system"] = document[P]["evidence"][0]["source"] = source
    document[C]["reasons"] = [reason]

    if REASONS.get(pair) == reason:
        assert claim(document) is not None
    else:
        with pytest.raises(RejectedEvidence):
            claim(document)


@pure
def test_counts_the_same_fact_seen_twice_as_agreement() -> None:
    document = spoilt(twice(observed_at="2026-04-24T18:00:00Z"))

    assert len(authority_for(document, SUBJECT, T0).provenance.evidence) == 2


@pure
def test_compares_signatures_as_tuples_so_that_no_separator_forges_agreement() -> None:
    document = spoilt(
        at(P, "ref", to="a|sha256:ab"),
        at(*E, "ref", to="a|sha256:ab"),
        twice(ref="a", digest="sha256:ab|"),
    )

    with pytest.raises(RejectedEvidence, match="conflicts"):
        claim(document)


@pure
def test_accepts_triples_that_an_installation_adds_and_no_others() -> None:
    rules = Rules([Triple("argo_sync", "argo", "argo_sync_authority")])
    document = good(("submodule_pin", "service-ci"), "service-a", "rel_002", "sha256:ab")
    text = msgspec.json.encode(document).decode().replace("submodule_pin", "argo_sync")
    document = msgspec.json.decode(text.replace("service-ci", "argo"))
    document[C]["reasons"] = ["argo_sync_authority"]

    assert authority_for(document, SUBJECT, T0, rules).provenance.kind == "argo_sync"
    assert accepts(ACCEPTED, rules=rules)
    with pytest.raises(RejectedEvidence, match="not supported"):
        claim(document, BUILT_IN_RULES)


@pure
@pytest.mark.parametrize(
    "triple",
    [
        Triple("submodule_pin", "service-ci", "because"),
        Triple("guess", "nobody", "hunch", mode=Mode.INFERRED),
        Triple("guess", "", "hunch"),
        Triple("guess", "nobody", ""),
    ],
)
def test_an_added_triple_cannot_redefine_or_loosen_a_rule(triple: Triple) -> None:
    with pytest.raises(InvalidDefinition):
        Rules([triple])


# ── times ─────────────────────────────────────────────────────────────────────────────────────────

DAY = "2026-04-24T19:00:00"
TIMES = (f"{DAY}Z", f"{DAY}.1Z", f"{DAY}.123456789Z", f"{DAY}+05:30", f"{DAY}-00:00")
REFUSED = (
    *("2026-04-24t19:00:00Z", f"{DAY}z", "2026-04-24 19:00:00Z", DAY, "2026-04-24T19:00Z"),
    *(f"{DAY}+0000", f"{DAY},5Z", f"{DAY}.Z", "2026/04/24T19:00:00Z", "Friday", "1777057200"),
    *(f"{DAY}Z\n", f" {DAY}Z", "2026-02-29T00:00:00Z", "2026-02-30T00:00:00Z"),
    *("2026-04-31T00:00:00Z", "2026-04-24T24:00:00Z", "2026-04-24T23:59:60Z", f"{DAY}+24:00"),
    *(f"{DAY}+05:60", "2026-13-01T00:00:00Z", "0000-01-01T00:00:00Z", "2026-04-24T19:00:0٣Z"),
    *("0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"),
)


@pure
@pytest.mark.parametrize("text", TIMES)
def test_reads_rfc_3339_and_keeps_the_text(text: str) -> None:
    document = spoilt(at(*E, "observed_at", to=text))

    found = claim(document)

    assert found is not None
    assert found.provenance.evidence[0].observed_at == text
    assert moment(text) == instant(text)


@pure
@pytest.mark.parametrize("text", REFUSED)
@pytest.mark.parametrize("path", [(P, "observed_at"), (P, "recorded_at"), (*E, "observed_at")])
def test_refuses_every_other_spelling_of_a_time(text: str, path: tuple[str | int, ...]) -> None:
    """ "non-RFC3339 timestamps" """
    with pytest.raises(InvalidInput):
        claim(spoilt(at(*path, to=text)))


# ── limits ────────────────────────────────────────────────────────────────────────────────────────


@pure
def test_limits_every_text_and_the_number_of_entries() -> None:
    entry = ACCEPTED[P]["evidence"][0]
    longest = "x" * TEXT_BYTES_MAX
    both = (at(P, "ref", to=longest), at(*E, "ref", to=longest))

    assert claim(spoilt(*both)) is not None
    assert claim(spoilt(at(P, "evidence", to=[entry] * EVIDENCE_MAX))) is not None
    for spoil in (
        at(P, "evidence", to=[entry] * (EVIDENCE_MAX + 1)),
        at(P, "ref", to=longest + "x"),
        at(P, "import_run_id", to=longest + "x"),
        at(*E, "digest", to="ä" * 1_025),
        at(C, "reasons", to=[longest + "x"]),
    ):
        with pytest.raises(LimitExceeded):
            claim(spoilt(spoil))


# ── binding ───────────────────────────────────────────────────────────────────────────────────────


@pure
@pytest.mark.parametrize(("pair", "mode"), list(product(REASONS, Mode)))
def test_each_kind_authorises_in_its_own_mode_and_never_by_inference(
    pair: tuple[str, str], mode: Mode
) -> None:
    """ "Low confidence is visibility-only", and so is inferred evidence."""
    document = good(pair, "service-a", "rel_002", "sha256:ab")
    document[P]["mode"] = str(mode)

    if mode == MODES[pair[0]]:
        assert accepts(document)
    else:
        with pytest.raises(RejectedEvidence, match="never as"):
            authority_for(document, SUBJECT, T0)


@pure
@pytest.mark.parametrize(
    ("evidence", "observed", "recorded", "holds"),
    [
        ("18:00:00Z", "19:00:00Z", "19:00:01Z", True),
        ("19:00:00Z", "19:00:00Z", "19:00:00Z", True),
        ("19:00:00.000001Z", "19:00:00Z", "19:00:01Z", False),
        ("19:00:00Z", "19:00:02Z", "19:00:01Z", False),
        ("21:00:00+02:00", "19:00:00Z", "15:00:00-04:00", True),
        ("21:00:01+02:00", "19:00:00Z", "19:00:01Z", False),
    ],
)
def test_requires_times_in_the_order_of_events(
    evidence: str, observed: str, recorded: str, holds: bool
) -> None:
    day = "2026-04-24T"
    document = spoilt(
        at(*E, "observed_at", to=day + evidence),
        at(P, "observed_at", to=day + observed),
        at(P, "recorded_at", to=day + recorded),
    )

    if holds:
        assert accepts(document)
    else:
        with pytest.raises(RejectedEvidence):
            authority_for(document, SUBJECT, T0)


@pure
def test_accepts_a_record_from_a_clock_that_is_ahead_by_the_skew_and_no_more() -> None:
    recorded = moment(ACCEPTED[P]["recorded_at"])

    assert accepts(ACCEPTED, recorded - SKEW_MAX)
    with pytest.raises(RejectedEvidence, match="ahead of"):
        authority_for(ACCEPTED, SUBJECT, recorded - SKEW_MAX - timedelta(microseconds=1))


@pure
@pytest.mark.parametrize("pair", [pair for pair in REASONS if pair[0] != "operator_command"])
@pytest.mark.parametrize("digest", [None, "", "sha256:cd"])
def test_binds_evidence_about_content_to_the_content_of_the_release(
    pair: tuple[str, str], digest: str | None
) -> None:
    document = good(pair, "service-a", "rel_002", "sha256:ab")
    assert accepts(document)
    for place in (document[P], document[P]["evidence"][0]):
        del place["digest"]
    if digest is not None:
        document[P]["evidence"][0]["digest"] = digest

    with pytest.raises(RejectedEvidence):
        authority_for(document, SUBJECT, T0)


@pure
@pytest.mark.parametrize(
    "subject",
    [
        Subject("service-b", "rel_002", "sha256:ab"),
        Subject("service-a", "rel_003", "sha256:ab"),
        Subject("service", "a/rel_002", "sha256:ab"),
    ],
)
def test_binds_an_operators_command_to_its_scope_and_release(subject: Subject) -> None:
    authority = claim(ACCEPTED)
    assert authority is not None

    with pytest.raises(RejectedEvidence, match="a command on this release"):
        bind(authority, subject, T0)


@pure
def test_an_operator_may_show_only_the_digest_of_the_release() -> None:
    assert accepts(spoilt(at(*E, "digest", to="sha256:ab")))

    with pytest.raises(RejectedEvidence):
        authority_for(spoilt(at(*E, "digest", to="sha256:cd")), SUBJECT, T0)


# ── all of it ─────────────────────────────────────────────────────────────────────────────────────


@pure
def test_judges_3000_generated_documents_as_the_oracle_does() -> None:
    def subject(number: int) -> tuple[str, str, str]:
        return f"scope-{number}", "rel_002", "sha256:ab"

    verdicts: list[bool] = []
    for number, document in enumerate(generated(3_000, subject)):
        expected = authorises(document, *subject(number), T0)
        try:
            if set(document) - {P, C}:
                raise InvalidInput("the registry refuses other members")
            authority_for(document, Subject(*subject(number)), T0)
        except (InvalidInput, LimitExceeded, RejectedEvidence):
            found = False
        else:
            found = True
        assert found == expected, document
        verdicts.append(found)

    assert 300 < sum(verdicts) < 2_000


def test_stores_documents_in_types_without_extra_members() -> None:
    for model, document in ((Provenance, ACCEPTED[P]), (Confidence, ACCEPTED[C])):
        codec.prepare(model)
        data = msgspec.json.encode({**document, "notes": "x"})
        with pytest.raises(InvalidInput):
            codec.decode(data, model)
