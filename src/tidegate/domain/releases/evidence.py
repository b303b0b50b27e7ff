"""Evidence that is stored without authority, and factory manifests, which may have authority.

manifest ──▶ its digests ──▶ one release     ──▶ a transition, by the rule of its triple
                         ──▶ none or several ──▶ EVIDENCE#factory#<batch>; the pin stays
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from tidegate.domain import provenance as domain_provenance
from tidegate.domain.releases import facts, refusals, rows as release_rows, slices
from tidegate.errors import Invalid, InvalidInput, TooLarge
from tidegate.kernel import codec, model

FACTORY = "factory"
DIGESTS_MAX = 16  # of one manifest
DOCUMENT_BYTES_MAX = 64 * 1024
MATCHES_SHOWN_MAX = 16


class KeepEvidence(Struct, frozen=True, kw_only=True):
    """Store an observation. It never authorises anything."""

    scope: str
    source: str
    batch: str
    document: dict[str, Any]
    command_id: str
    by: str


class ImportManifest(Struct, frozen=True, kw_only=True):
    """Import a factory's batch manifest about a scope: the digests of what it built.

    The expected version is required only if the manifest moves the pin.
    """

    scope: str
    batch: str
    ref: str  # where the manifest is stored
    observed_at: str  # RFC 3339
    digests: tuple[str, ...]
    command_id: str
    by: str
    expected_version: int | None = None
    import_run_id: str | None = None
    status: facts.PinStatus = facts.PinStatus.ACTIVE
    operations: tuple[str, ...] = ()


# ── keeping ───────────────────────────────────────────────────────────────────────────────────────


def rows_of_keeping(command: KeepEvidence) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    slices.check_names(command)
    model.at_most("bytes of an evidence document", len(codec.encode(command)), DOCUMENT_BYTES_MAX)
    return (
        release_rows.command_key(command.scope, command.command_id),
        release_rows.evidence_key(command.scope, command.source, command.batch),
    )


def decide_keeping(
    rows: tuple[release_rows.ExecutedCommand | None, release_rows.KeptEvidence | None],
    command: KeepEvidence,
    now: datetime,
    *,
    rules: domain_provenance.Rules,
) -> Sequence[Struct]:
    executed, kept = rows
    if slices.is_repeat(executed, command):
        return ()
    evidence = facts.EvidenceKept(
        scope=command.scope,
        command_id=command.command_id,
        request=slices.request_of(command),
        by=command.by,
        recorded_at=now,
        source=command.source,
        batch=command.batch,
        document=command.document,
        reason=_why_not(command.document, rules),
    )
    return () if _is_stored(kept, evidence) else (evidence,)


def _why_not(document: dict[str, Any], rules: domain_provenance.Rules) -> str:
    """Why the document has no authority, for later readers."""
    try:
        authority = domain_provenance.claim(document, rules)
    except domain_provenance.RejectedEvidence as refusal:
        return refusal.detail
    except (Invalid, TooLarge) as fault:
        return f"malformed: {fault.detail}"
    return "it claims no authority" if authority is None else "it was kept, not used"


def _is_stored(kept: release_rows.KeptEvidence | None, evidence: facts.EvidenceKept) -> bool:
    """Whether the same evidence is stored already, by any command.

    Raises:
        DuplicateEvent: its key is used for something else.
    """
    if kept is None:
        return False
    if kept.document != evidence.document:
        raise refusals.DuplicateEvent(
            release_rows.evidence_key(evidence.scope, evidence.source, evidence.batch).id
        )
    return True


# ── importing ─────────────────────────────────────────────────────────────────────────────────────


def rows_of_import(command: ImportManifest) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    slices.check_names(command)
    slices.check_operations(command.operations)
    slices.check_status(command.status)
    model.check_text("ref", command.ref, domain_provenance.TEXT_BYTES_MAX)
    domain_provenance.moment(command.observed_at, "observed_at")
    if not command.digests or len(set(command.digests)) != len(command.digests):
        raise InvalidInput("a manifest names digests, each once", field="digests")
    model.at_most("digests of a manifest", len(command.digests), DIGESTS_MAX)
    for digest in command.digests:
        model.check_text("a digest", digest, domain_provenance.TEXT_BYTES_MAX // 8)
    return (
        release_rows.actual_key(command.scope),
        release_rows.command_key(command.scope, command.command_id),
        release_rows.evidence_key(command.scope, FACTORY, command.batch),
        *(release_rows.matches_key(digest) for digest in command.digests),
    )


def decide_import(
    rows: tuple[Any, ...], command: ImportManifest, now: datetime, *, rules: domain_provenance.Rules
) -> Sequence[Struct]:
    actual, executed, kept, *matches = rows
    if slices.is_repeat(executed, command):
        return ()
    found = [row for row in matches if row is not None]
    releases = {release_id: row.digest for row in found for release_id in row.release_ids}
    if len(releases) == 1 and not any(row.crowded for row in found):
        ((release_id, digest),) = releases.items()
        return _transition_by_manifest(actual, command, release_id, digest, now, rules)
    evidence = facts.EvidenceKept(
        scope=command.scope,
        command_id=command.command_id,
        request=slices.request_of(command),
        by=command.by,
        recorded_at=now,
        source=FACTORY,
        batch=command.batch,
        document=manifest_document(command),
        reason=_ambiguity(found, len(releases)),
        matches=tuple(sorted(releases)[:MATCHES_SHOWN_MAX]),
    )
    return () if _is_stored(kept, evidence) else (evidence,)


def _ambiguity(found: Sequence[release_rows.DigestMatches], count: int) -> str:
    more = " at least" if any(row.crowded for row in found) else ""
    return f"it matches{more} {count} releases, one would be authority"


def manifest_document(command: ImportManifest) -> dict[str, Any]:
    """The manifest as it is stored."""
    document: dict[str, Any] = {
        "ref": command.ref,
        "observed_at": command.observed_at,
        "digests": list(command.digests),
    }
    if command.import_run_id is not None:
        document["import_run_id"] = command.import_run_id
    return document


def _transition_by_manifest(
    actual: release_rows.Actual | None,
    command: ImportManifest,
    release_id: str,
    digest: str,
    now: datetime,
    rules: domain_provenance.Rules,
) -> Sequence[Struct]:
    """The facts of the transition for a manifest with one match, after all checks of a transition.

    Only a published release is a match, and its row is among the rows that were read.
    """
    transition = slices.TransitionRelease(
        scope=command.scope,
        release_id=release_id,
        digest=digest,
        authority=manifest_authority(command, digest, now),
        command_id=command.command_id,
        by=command.by,
        expected_version=command.expected_version,
        status=command.status,
        operations=command.operations,
    )
    actual = slices.demand_version(actual, command.scope, command.expected_version)
    authority = slices.demand_authority(transition, now, rules)
    return slices.transition_facts(actual, transition, slices.request_of(command), authority, now)


def manifest_authority(command: ImportManifest, digest: str, now: datetime) -> dict[str, Any]:
    """The authority that a manifest with one match claims, by the built-in rule of its kind."""
    observed = {"ref": command.ref, "observed_at": command.observed_at, "digest": digest}
    provenance: dict[str, Any] = {
        "mode": str(domain_provenance.Mode.IMPORTED),
        "system": domain_provenance.FACTORY_MANIFEST.source,
        "kind": domain_provenance.FACTORY_MANIFEST.kind,
        "recorded_at": codec.time_text(now),
        **observed,
        "evidence": [
            {
                "kind": domain_provenance.FACTORY_MANIFEST.kind,
                "source": domain_provenance.FACTORY_MANIFEST.source,
                **observed,
            }
        ],
    }
    if command.import_run_id is not None:
        provenance["import_run_id"] = command.import_run_id
    confidence = {
        "level": domain_provenance.HIGH,
        "reasons": [domain_provenance.FACTORY_MANIFEST.reason],
    }
    return {"provenance": provenance, "confidence": confidence}
