"""Deploy authority: which documents of provenance and confidence may authorise a pin.

    document ──▶ claim ──▶ Authority ──▶ bind ──▶ may authorise this release, in this scope, now
                  form, mapping          mode, time order, digest, reference

Evidence of low confidence, ambiguous evidence and guesses are stored but never authorise anything.
docs/design/releases.md lists the fields. A malformed document raises ``InvalidInput``; a
well-formed one without authority raises ``RejectedEvidence``. Of several faults, the first in the
order of the code is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from tidegate.errors import InvalidDefinition, InvalidInput, Refused
from tidegate.kernel import codec, model

TEXT_BYTES_MAX = 2_048
EVIDENCE_MAX = 16
SKEW_MAX: Final = timedelta(minutes=5)  # how far ahead of our clock a record may be
OPERATOR_REF = "operator://deploy/{scope}/{release_id}"
HIGH = "high"

# ASCII digits, a capital T, seconds but no leap second, no hour 24, a capital Z or a full offset;
# ``\Z`` allows no newline after it. ``datetime`` checks whether the day exists.
_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9])"
    r"(?:\.([0-9]+))?(Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])\Z"
)
_COMMIT_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", re.IGNORECASE)


class RejectedEvidence(Refused):
    """The evidence does not authorise a deployment; record it as evidence, or bring better."""

    code = "rejected_evidence"


class Mode(StrEnum):
    """How the claiming system knows what it claims."""

    NATIVE = "native"
    IMPORTED = "imported"
    INFERRED = "inferred"  # visible, never authority


# ── documents ─────────────────────────────────────────────────────────────────────────────────────


class Evidence(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One observation. Two that differ only in their time agree."""

    kind: str
    source: str
    ref: str
    observed_at: str
    digest: str | None = None

    @property
    def signature(self) -> tuple[str, str, str, str]:
        """Everything but its time. This is a tuple because joined text could be forged across
        the boundaries of its parts.
        """
        return self.kind, self.source, self.ref, self.digest or ""


class Provenance(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where a claim of authority comes from. Times are kept as the text that was sent."""

    mode: Mode
    system: str
    kind: str
    ref: str
    observed_at: str
    recorded_at: str
    evidence: tuple[Evidence, ...]
    commit_sha: str | None = None
    import_run_id: str | None = None
    digest: str | None = None


class Confidence(Struct, frozen=True, forbid_unknown_fields=True):
    """How certain the claim is, and the one reason that its evidence gives for it."""

    level: str
    reasons: tuple[str, ...]


class Authority(Struct, frozen=True):
    """A pair of documents that passed ``claim``."""

    provenance: Provenance
    confidence: Confidence

    @property
    def digest(self) -> str | None:
        """The digest of the content that the evidence is about."""
        return self.provenance.evidence[0].digest


# ── kinds of evidence ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Triple:
    """A kind of evidence from a source, and the only reason that it may give.

    ``bears_artifact``: it is about content, so it must carry the digest of that content.
    """

    kind: str
    source: str
    reason: str
    mode: Mode = Mode.IMPORTED
    bears_artifact: bool = True


OPERATOR_COMMAND = "operator_command"
FACTORY_MANIFEST = Triple(
    "factory_batch_manifest", "partner-factory", "unique_factory_manifest_match"
)
BUILT_IN: Final = (
    Triple(
        OPERATOR_COMMAND,
        "release-control-plane",
        "operator_command_authority",
        mode=Mode.NATIVE,
        bears_artifact=False,  # the operator names the release itself
    ),
    FACTORY_MANIFEST,
    Triple(
        "codepipeline_execution",
        "service-ci",
        "codepipeline_execution_authority",
        mode=Mode.NATIVE,
    ),
    Triple("submodule_pin", "service-ci", "unique_submodule_pin_match"),
)


# The evidence of automatic promotions by the worker. Only promotions may use it.
CHANNEL_SUCCESS: Final = Triple(
    "channel_success",
    "release-control-plane",
    "succeeded_on_required_channels",
    mode=Mode.NATIVE,
)


class Rules:
    """The triples of an installation: the four built-in ones and those that it adds.

    Raises:
        InvalidDefinition: a triple is malformed, redefines another, or would let a guess authorise.
    """

    def __init__(self, added: Iterable[Triple] = ()) -> None:
        self._triples: dict[tuple[str, str], Triple] = {}
        for triple in (*BUILT_IN, *added):
            if not all((triple.kind, triple.source, triple.reason)):
                raise InvalidDefinition(f"a triple needs kind, source and reason: {triple}")
            if triple.mode is Mode.INFERRED:
                raise InvalidDefinition(f"inferred evidence never authorises: {triple}")
            if (triple.kind, triple.source) in self._triples:
                raise InvalidDefinition(
                    f"{triple.kind} from {triple.source} has its reason already"
                )
            self._triples[triple.kind, triple.source] = triple

    def of(self, evidence: Evidence) -> Triple:
        """Raises: RejectedEvidence: no triple is defined for such evidence."""
        found = self._triples.get((evidence.kind, evidence.source))
        if found is None:
            raise RejectedEvidence(
                f"evidence of kind {evidence.kind!r} from {evidence.source!r} is not supported",
                kind=evidence.kind,
                source=evidence.source,
            )
        return found


BUILT_IN_RULES: Final = Rules()
AUTO_PROMOTE_RULES: Final = Rules((CHANNEL_SUCCESS,))


# ── a claim: form and mapping ─────────────────────────────────────────────────────────────────────

_PROVENANCE_KEYS = frozenset(Provenance.__struct_fields__)
_EVIDENCE_KEYS = frozenset(Evidence.__struct_fields__)
_CONFIDENCE_KEYS = frozenset(Confidence.__struct_fields__)


def claim(item: object, rules: Rules = BUILT_IN_RULES) -> Authority | None:
    """Read the authority that an item claims in its fields ``provenance`` and ``confidence``.

    None: it claims none. A field that is present counts even if it is null.

    Raises:
        InvalidInput, LimitExceeded: a field is malformed.
        RejectedEvidence: both are well-formed but give no authority.
    """
    if not isinstance(item, Mapping):
        raise InvalidInput(f"an item is an object, found {type(item).__name__}")
    present = [name for name in ("provenance", "confidence") if name in item]
    if not present:
        return None
    if len(present) == 1:
        raise InvalidInput(f"{present[0]} is alone; give provenance and confidence together")
    provenance = _object("provenance", item["provenance"])
    confidence = _object("confidence", item["confidence"])
    _closed("provenance", provenance, _PROVENANCE_KEYS)
    _closed("confidence", confidence, _CONFIDENCE_KEYS)
    accepted = _provenance(provenance)
    triple = rules.of(accepted.evidence[0])
    _check_alignment(accepted)
    return Authority(accepted, _confidence(confidence, triple))


def _provenance(content: Mapping[str, Any]) -> Provenance:
    where = "provenance"
    mode = _text(where, content, "mode")
    if mode not in list(Mode):
        raise InvalidInput(f"provenance.mode is {mode!r}, known are {[*Mode]}", field="mode")
    system, kind, ref = (_text(where, content, name) for name in ("system", "kind", "ref"))
    observed_at, recorded_at = (_time(where, content, n) for n in ("observed_at", "recorded_at"))
    commit_sha = _optional(where, content, "commit_sha")
    if commit_sha is not None and not _COMMIT_SHA.fullmatch(commit_sha):
        raise InvalidInput(
            f"provenance.commit_sha has 40 or 64 hex digits, found {commit_sha!r}",
            field="commit_sha",
        )
    return Provenance(
        Mode(mode),
        system,
        kind,
        ref,
        observed_at,
        recorded_at,
        commit_sha=commit_sha,
        import_run_id=_optional(where, content, "import_run_id"),
        digest=_optional(where, content, "digest"),
        evidence=_evidence(content.get("evidence")),
    )


def _evidence(entries: object) -> tuple[Evidence, ...]:
    """Parse the entries, which must all agree."""
    if not isinstance(entries, list):
        raise InvalidInput("provenance.evidence is not a list", field="evidence")
    contents = [_object(f"evidence[{number}]", entry) for number, entry in enumerate(entries)]
    if not contents:
        raise RejectedEvidence("there is no evidence")
    model.at_most("entries of provenance.evidence", len(contents), EVIDENCE_MAX)
    found: list[Evidence] = []
    for number, content in enumerate(contents):
        entry = _entry(f"evidence[{number}]", content)
        found.append(entry)
        if entry.signature != found[0].signature:
            raise RejectedEvidence(
                f"evidence[{number}] conflicts with evidence[0]: kind, source, ref and digest "
                "of all entries must agree",
                entry=number,
            )
    return tuple(found)


def _entry(where: str, content: Mapping[str, Any]) -> Evidence:
    _closed(where, content, _EVIDENCE_KEYS)
    kind, source, ref = (_text(where, content, name) for name in ("kind", "source", "ref"))
    observed_at = _time(where, content, "observed_at")
    return Evidence(kind, source, ref, observed_at, _optional(where, content, "digest"))


def _check_alignment(provenance: Provenance) -> None:
    """Check that the document agrees with its evidence."""
    entry = provenance.evidence[0]
    for name, claimed, evident in (
        ("kind", provenance.kind, entry.kind),
        ("system", provenance.system, entry.source),
        ("ref", provenance.ref, entry.ref),
    ):
        if claimed != evident:
            raise RejectedEvidence(
                f"provenance.{name} is {claimed!r}, its evidence says {evident!r}", field=name
            )
    digest = provenance.digest
    if digest is not None and (not digest or digest != entry.digest):
        raise RejectedEvidence(
            f"provenance.digest is {digest!r}, its evidence says {entry.digest!r}", field="digest"
        )


def _confidence(content: Mapping[str, Any], triple: Triple) -> Confidence:
    level = _text("confidence", content, "level")
    if level != HIGH:
        raise RejectedEvidence(
            f"confidence {level!r} is for visibility only; {HIGH!r} alone authorises",
            level=level,
        )
    reasons = content.get("reasons")
    if not isinstance(reasons, list):
        raise InvalidInput("confidence.reasons is not a list", field="reasons")
    for reason in reasons:
        _check_text("confidence.reasons", reason)
    if reasons != [triple.reason]:
        raise RejectedEvidence(
            f"the one reason that {triple.kind} from {triple.source} gives is {triple.reason!r}",
            reason=triple.reason,
        )
    return Confidence(level, tuple(reasons))


# ── members of a document ─────────────────────────────────────────────────────────────────────────


def _object(where: str, content: object) -> Mapping[str, Any]:
    if not isinstance(content, dict):
        raise InvalidInput(f"{where} is not an object", field=where)
    return content


def _closed(where: str, content: Mapping[str, Any], known: frozenset[str]) -> None:
    for name in content:
        if name not in known:
            raise InvalidInput(f"{where} has no member {name!r}", field=str(name))


def _text(where: str, content: Mapping[str, Any], name: str) -> str:
    if name not in content:
        raise InvalidInput(f"{where}.{name} is missing", field=name)
    return _check_text(f"{where}.{name}", content[name])


def _optional(where: str, content: Mapping[str, Any], name: str) -> str | None:
    """Read an optional text. None: it is absent. It may be empty but not null."""
    if name not in content:
        return None
    value = content[name]
    return value if value == "" else _check_text(f"{where}.{name}", value)


def _check_text(where: str, value: object) -> str:
    model.check_text(where, value, TEXT_BYTES_MAX)
    assert isinstance(value, str), "checked"
    return value


def _time(where: str, content: Mapping[str, Any], name: str) -> str:
    text = _text(where, content, name)
    moment(text, f"{where}.{name}")
    return text


def moment(text: str, where: str = "a time") -> datetime:
    """Parse an RFC 3339 time to UTC, to the microsecond. Raises: InvalidInput."""
    matched = _RFC3339.match(text)
    if matched is None:
        raise InvalidInput(f"{where} is not an RFC 3339 time: {text!r}", field=where)
    seconds, fraction, offset = matched.groups()
    micros = (fraction or "")[:6].ljust(6, "0")
    try:
        local = datetime.fromisoformat(f"{seconds}.{micros}{offset}")
        return local.astimezone(UTC)
    except (ValueError, OverflowError):  # no such day, hour or second
        raise InvalidInput(f"{where} names no moment: {text!r}", field=where) from None


# ── binding: this release, in this scope, now ─────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Subject:
    """The scope and release that a claim is used for."""

    scope: str
    release_id: str
    digest: str


def bind(
    authority: Authority, subject: Subject, now: datetime, rules: Rules = BUILT_IN_RULES
) -> None:
    """Check that the claim is about this subject and that its times are in a possible order.

    Raises:
        RejectedEvidence.
    """
    triple = check_made(authority, now, rules)
    _check_subject(authority, subject, triple)


def check_made(authority: Authority, now: datetime, rules: Rules = BUILT_IN_RULES) -> Triple:
    """Check that the claim may authorise something, regardless of its subject.

    Raises:
        RejectedEvidence: a guess, an impossible order of times, content without its digest.
    """
    triple = rules.of(authority.provenance.evidence[0])
    _check_mode(authority.provenance, triple)
    _check_order(authority.provenance, now)
    if triple.bears_artifact and not authority.digest:
        raise RejectedEvidence(f"evidence of kind {triple.kind} must show a digest")
    return triple


def _check_mode(provenance: Provenance, triple: Triple) -> None:
    if provenance.mode is not triple.mode:
        raise RejectedEvidence(
            f"{triple.kind} authorises as {triple.mode}, never as {provenance.mode}",
            mode=provenance.mode,
        )


def _check_order(provenance: Provenance, now: datetime) -> None:
    """Check that the observation precedes the claim, the claim precedes its record, and the record
    is not in the future.
    """
    observed_at = moment(provenance.observed_at)
    recorded_at = moment(provenance.recorded_at)
    late = [e.observed_at for e in provenance.evidence if moment(e.observed_at) > observed_at]
    if late:
        raise RejectedEvidence(
            f"evidence of {late[0]} cannot support an observation of {provenance.observed_at}"
        )
    if observed_at > recorded_at:
        raise RejectedEvidence(
            f"observed at {provenance.observed_at}, but recorded at {provenance.recorded_at}"
        )
    if recorded_at > now + SKEW_MAX:
        raise RejectedEvidence(
            f"recorded at {provenance.recorded_at}, which is ahead of {codec.time_text(now)}"
        )


def _check_subject(authority: Authority, subject: Subject, triple: Triple) -> None:
    digest = authority.digest
    if digest is not None and digest != subject.digest:
        raise RejectedEvidence(
            f"the evidence speaks of {digest or 'no digest'}, "
            f"{subject.release_id} has {subject.digest}",
            release_id=subject.release_id,
        )
    if triple.kind == OPERATOR_COMMAND:
        expected = OPERATOR_REF.format(scope=subject.scope, release_id=subject.release_id)
        if authority.provenance.ref != expected:
            raise RejectedEvidence(
                f"provenance.ref is {authority.provenance.ref!r}, "
                f"a command on this release is {expected!r}",
                field="ref",
            )


def authority_for(
    item: object, subject: Subject, now: datetime, rules: Rules = BUILT_IN_RULES
) -> Authority:
    """Read the authority that an item must claim, and bind it to its subject.

    Raises:
        InvalidInput, LimitExceeded, RejectedEvidence.
    """
    authority = claim(item, rules)
    if authority is None:
        raise InvalidInput("provenance and confidence are missing: no authority is claimed")
    bind(authority, subject, now, rules)
    return authority
