"""Everything that the registry refuses, each with the code of its refusal."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tidegate.domain.releases.slices import RegisterRelease, RetireRelease, TransitionRelease

Refusal = tuple[str, Struct, str]


def refusals(good: TransitionRelease, used: str, gone: str, gone_digest: str) -> Iterator[Refusal]:
    """Yield a description, the command, and its code. ``good`` is a transition that would be
    accepted, ``used`` the id of a command that was, ``gone`` a release that is being deleted.
    """
    yield "no version", replace(good, expected_version=None), "version_required"
    yield "a stale version", replace(good, expected_version=0), "version_conflict"
    yield "a used event key", replace(good, command_id=used), "duplicate_event"
    yield "an unknown scope", replace(good, scope="service-z"), "not_found"
    yield "an unknown release", replace(good, release_id="web.99"), "not_found"
    yield "another content", replace(good, digest="sha256:00"), "digest_mismatch"
    pin = replace(good, release_id=gone, digest=gone_digest)
    yield "a release that is being deleted", pin, "release_not_pinnable"
    first = RegisterRelease(
        scope=good.scope,
        release_id=good.release_id,
        digest=good.digest,
        authority=good.authority,
        command_id="again",
        by=good.by,
    )
    yield "a scope that exists", first, "condition_failed"
    retire = RetireRelease(scope=good.scope, reason=" ", command_id="end", by=good.by)
    yield "no reason to retire", replace(retire, expected_version=good.expected_version), _INVALID
    for what, document, code in _documents(good.authority):
        yield what, replace(good, authority=document), code


_INVALID, _REJECTED = "invalid_input", "rejected_evidence"


def _documents(good: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the seed's list of what is not deploy authority."""
    yield "provenance without confidence", _without(good, "confidence"), _INVALID
    yield "a note on the row", {**good, "notes": "probably manifest A"}, _INVALID
    yield "a free-form key", _changed(good, notes="probably manifest A"), _INVALID
    yield "no RFC 3339", _changed(good, observed_at="yesterday"), _INVALID
    entry = good["provenance"]["evidence"][0]
    other = {**entry, "ref": "operator://deploy/service-a/web.1"}
    yield "conflicting evidence", _changed(good, evidence=[entry, other]), _REJECTED
    hearsay = {**entry, "kind": "hearsay"}
    yield "unsupported evidence", _changed(good, kind="hearsay", evidence=[hearsay]), _REJECTED
    for level in ("medium", "low"):
        confidence = {**good["confidence"], "level": level}
        yield f"{level} confidence", {**good, "confidence": confidence}, _REJECTED
    reasons = {"level": "high", "reasons": ["it_felt_right"]}
    yield "another reason", {**good, "confidence": reasons}, _REJECTED
    yield "a guess", _changed(good, mode="inferred"), _REJECTED


def _changed(good: dict[str, Any], **members: Any) -> dict[str, Any]:
    document = deepcopy(good)
    document["provenance"] |= members
    return document


def _without(good: dict[str, Any], member: str) -> dict[str, Any]:
    return {name: value for name, value in good.items() if name != member}
