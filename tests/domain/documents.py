"""Documents of provenance and confidence, valid and invalid, and an oracle that judges them.

The oracle restates the rules as one conjunction, without their order and without the code under
test: a document is authoritative for a subject exactly if every condition of it holds.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

Document = dict[str, Any]

REASONS = {
    ("operator_command", "release-control-plane"): "operator_command_authority",
    ("factory_batch_manifest", "partner-factory"): "unique_factory_manifest_match",
    ("codepipeline_execution", "service-ci"): "codepipeline_execution_authority",
    ("submodule_pin", "service-ci"): "unique_submodule_pin_match",
}
MODES = {
    "operator_command": "native",
    "factory_batch_manifest": "imported",
    "codepipeline_execution": "native",
    "submodule_pin": "imported",
}
STRANGE: tuple[Any, ...] = (
    *(None, True, 0, 1.5, "", " ", "high ", "x" * 2_049, [], {}, ["high"], {"level": "high"}),
    *("inferred", "medium", "2026-02-29T00:00:00Z", "2026-04-24 19:00:00Z", "a\nb", "\ud800"),
)


def good(pair: tuple[str, str], scope: str, release_id: str, digest: str) -> Document:
    """Build a document that authorises this release in this scope, by this kind of evidence."""
    kind, source = pair
    is_operator = kind == "operator_command"
    ref = f"operator://deploy/{scope}/{release_id}" if is_operator else f"s3://{source}/{kind}.json"
    said: Document = {"ref": ref, "observed_at": "2026-04-24T19:00:00Z"}
    if not is_operator:
        said["digest"] = digest
    return {
        "provenance": {
            "mode": MODES[kind],
            "system": source,
            "kind": kind,
            "recorded_at": "2026-04-24T19:00:01Z",
            **said,
            "evidence": [{"kind": kind, "source": source, **said}],
        },
        "confidence": {"level": "high", "reasons": [REASONS[pair]]},
    }


# ── invalid documents ─────────────────────────────────────────────────────────────────────────────


def generated(count: int, subject: Callable[[int], tuple[str, str, str]]) -> Iterator[Document]:
    """Generate documents for the subjects 0 … count-1: some unchanged, most changed in some
    place.
    """
    for number in range(count):
        chance = Random(number)
        document = good(chance.choice(list(REASONS)), *subject(number))
        for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
            _spoil(document, chance)
        yield document


def _spoil(document: Document, chance: Random) -> None:
    """Change the document somewhere; it may still be valid afterwards."""
    place, key = chance.choice(list(_places(document)))
    match chance.randrange(6):
        case 0 if isinstance(place, dict):
            place[chance.choice(("notes", "Mode", "ttl", "digest", "commit_sha"))] = "x"
        case 1:
            del place[key]
        case 2 if isinstance(place[key], list):
            place[key] += deepcopy(place[key])  # repeated
        case 3 if isinstance(place[key], str):
            place[key] = chance.choice((place[key] + "x", place[key].upper(), place[key].lower()))
        case 4 if isinstance(place[key], str):
            place[key] = chance.choice(_times())
        case _:
            place[key] = deepcopy(chance.choice(STRANGE))


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(node) if isinstance(node, dict) else range(len(node))
    for key in keys:
        yield node, key
        if isinstance(node[key], dict | list) and node[key]:
            yield from _places(node[key])


def _times() -> tuple[str, ...]:
    day = "2026-04-24T"
    return (
        *(f"{day}18:59:59Z", f"{day}19:00:00.5Z", f"{day}19:00:01.000000001Z", f"{day}20:00:00Z"),
        *(f"{day}21:00:00+02:00", f"{day}19:00:00z", f"{day}24:00:00Z", f"{day}19:00:60Z"),
    )


# ── the oracle ────────────────────────────────────────────────────────────────────────────────────


def authorises(document: Document, scope: str, release_id: str, digest: str, now: datetime) -> bool:
    """Return whether the document may be the authority for the release on the scope's row."""
    try:
        return all(_rules(document, scope, release_id, digest, now))
    except (KeyError, TypeError, AttributeError, ValueError, IndexError):
        return False  # not even of the form that the rules require


def _rules(
    document: Document, scope: str, release_id: str, digest: str, now: datetime
) -> Iterator[bool]:
    provenance, confidence = document["provenance"], document["confidence"]
    evidence = provenance["evidence"]
    first = evidence[0]
    texts = [provenance[name] for name in ("mode", "system", "kind", "ref")]
    yield set(document) == {"provenance", "confidence"}
    yield set(provenance) <= {
        *("mode", "system", "kind", "ref", "observed_at", "recorded_at", "evidence"),
        *("commit_sha", "import_run_id", "digest"),
    }
    yield set(confidence) == {"level", "reasons"}
    yield type(evidence) is list and len(evidence) <= 16
    for entry in evidence:
        texts += [entry[name] for name in ("kind", "source", "ref")]
        yield set(entry) <= {"kind", "source", "ref", "observed_at", "digest"}
        yield [entry.get(name) for name in ("kind", "source", "ref")] == texts[4:7]
        yield entry.get("digest", "") == first.get("digest", "")
        yield instant(entry["observed_at"]) <= instant(provenance["observed_at"])
        texts += [entry["digest"]] if entry.get("digest", "") != "" else []
    optional = [provenance[n] for n in ("import_run_id", "digest") if n in provenance]
    yield all(type(text) is str for text in optional)
    texts += [text for text in optional if text != ""]
    yield all(type(t) is str and 0 < len(t.encode()) <= 2_048 and t.isprintable() for t in texts)
    yield instant(provenance["observed_at"]) <= instant(provenance["recorded_at"])
    yield instant(provenance["recorded_at"]) <= now + timedelta(minutes=5)
    if "commit_sha" in provenance:
        yield re.fullmatch("(?i)[0-9a-f]{40}|[0-9a-f]{64}", provenance["commit_sha"]) is not None
    yield texts[1:4] == [first["source"], first["kind"], first["ref"]]
    yield confidence["level"] == "high"
    yield confidence["reasons"] == [REASONS[first["kind"], first["source"]]]
    yield MODES[first["kind"]] == provenance["mode"]
    shown = first.get("digest")
    yield shown == digest or (first["kind"] == "operator_command" and shown is None)
    yield "digest" not in provenance or provenance["digest"] == shown
    if first["kind"] == "operator_command":
        yield first["ref"] == f"operator://deploy/{scope}/{release_id}"


def instant(text: str) -> datetime:
    """Parse the time of an RFC 3339 text digit by digit. Raises: ValueError."""
    parts = re.fullmatch(
        r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d+)?(?:Z|([+-])(\d\d):(\d\d))",
        text,
        re.ASCII,
    )
    if parts is None or text.endswith("\n"):
        raise ValueError(text)
    year, month, day, hour, minute, second = (int(part) for part in parts.groups()[:6])
    if not (1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]):
        raise ValueError(text)
    if (
        hour > 23
        or minute > 59
        or second > 59
        or int(parts[9] or 0) > 23
        or int(parts[10] or 0) > 59
    ):
        raise ValueError(text)
    micros = int((parts[7] or ".0")[1:7].ljust(6, "0"))
    sign = -1 if parts[8] == "-" else 1
    offset = timedelta(hours=int(parts[9] or 0), minutes=int(parts[10] or 0)) * sign
    return datetime(year, month, day, hour, minute, second, micros, tzinfo=UTC) - offset
