"""Documents of authority, each with one fault, and the expected rejection."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from tests.domain.registry import ACCEPTED
from tidegate.domain.provenance import RejectedEvidence
from tidegate.errors import InvalidInput, TidegateError

MISSING: Any = object()
P, C, E = "provenance", "confidence", ("provenance", "evidence", 0)


Spoil = Callable[[dict[str, Any]], Any]


def at(*path: str | int, to: Any = MISSING) -> Spoil:
    """Set the member at this path, or remove it."""

    def spoil(document: dict[str, Any]) -> None:
        node: Any = document
        for key in path[:-1]:
            node = node[key]
        if to is MISSING:
            del node[path[-1]]
        else:
            node[path[-1]] = to

    return spoil


def twice(**changes: Any) -> Spoil:
    """Repeat the evidence with other members."""

    def spoil(document: dict[str, Any]) -> None:
        evidence = document["provenance"]["evidence"]
        evidence.append({**evidence[0], **changes})

    return spoil


def spoilt(*spoils: Spoil) -> dict[str, Any]:
    document = deepcopy(ACCEPTED)
    for spoil in spoils:
        spoil(document)
    return document


# The rejections in their order of evaluation: (row of the reference, fault, what it is).
REJECTIONS: list[tuple[int, str, Spoil, type[TidegateError]]] = [
    (2, "provenance without confidence", at(C), InvalidInput),
    (2, "confidence without provenance", at(P), InvalidInput),
    (3, "provenance is null", at(P, to=None), InvalidInput),
    (3, "provenance is a list", at(P, to=[]), InvalidInput),
    (3, "confidence is a text", at(C, to="high"), InvalidInput),
    (4, "a free-form key in provenance", at(P, "notes", to="probably manifest A"), InvalidInput),
    (4, "a free-form key in confidence", at(C, "notes", to="sure"), InvalidInput),
    (5, "mode is missing", at(P, "mode"), InvalidInput),
    (5, "mode is empty", at(P, "mode", to=""), InvalidInput),
    (5, "mode is a number", at(P, "mode", to=1), InvalidInput),
    (5, "mode is unknown", at(P, "mode", to="guessed"), InvalidInput),
    (6, "system is missing", at(P, "system"), InvalidInput),
    (6, "kind is empty", at(P, "kind", to=""), InvalidInput),
    (6, "ref is null", at(P, "ref", to=None), InvalidInput),
    (7, "observed_at is no RFC 3339", at(P, "observed_at", to="2026/04/24"), InvalidInput),
    (7, "recorded_at is missing", at(P, "recorded_at"), InvalidInput),
    (7, "recorded_at is a number", at(P, "recorded_at", to=1777057200), InvalidInput),
    (8, "commit_sha is a number", at(P, "commit_sha", to=7), InvalidInput),
    (8, "commit_sha is empty", at(P, "commit_sha", to=""), InvalidInput),
    (8, "commit_sha is short", at(P, "commit_sha", to="abc123"), InvalidInput),
    (8, "import_run_id is null", at(P, "import_run_id", to=None), InvalidInput),
    (8, "digest is a list", at(P, "digest", to=[]), InvalidInput),
    (9, "evidence is missing", at(P, "evidence"), InvalidInput),
    (9, "evidence is a tuple", at(P, "evidence", to=({},)), InvalidInput),
    (9, "an entry is a text", at(P, "evidence", to=["manifest A"]), InvalidInput),
    (10, "evidence is empty", at(P, "evidence", to=[]), RejectedEvidence),
    (11, "a free-form key in an entry", at(*E, "notes", to="x"), InvalidInput),
    (11, "an entry without kind", at(*E, "kind"), InvalidInput),
    (11, "an entry with an empty source", at(*E, "source", to=""), InvalidInput),
    (11, "an entry without ref", at(*E, "ref"), InvalidInput),
    (11, "an entry with a bad time", at(*E, "observed_at", to="Friday"), InvalidInput),
    (11, "an entry with a digest of null", at(*E, "digest", to=None), InvalidInput),
    (12, "another ref", twice(ref="operator://deploy/service-a/rel_003"), RejectedEvidence),
    (12, "another kind", twice(kind="submodule_pin"), RejectedEvidence),
    (12, "another source", twice(source="service-ci"), RejectedEvidence),
    (12, "a digest in one entry only", twice(digest="sha256:ab"), RejectedEvidence),
    (13, "an unsupported kind", at(*E, "kind", to="hearsay"), RejectedEvidence),
    (13, "a kind from a wrong source", at(*E, "source", to="service-ci"), RejectedEvidence),
    (14, "kind differs from its evidence", at(P, "kind", to="submodule_pin"), RejectedEvidence),
    (14, "system differs from its evidence", at(P, "system", to="service-ci"), RejectedEvidence),
    (14, "ref differs from its evidence", at(P, "ref", to="operator://x"), RejectedEvidence),
    (15, "digest is empty", at(P, "digest", to=""), RejectedEvidence),
    (15, "digest differs from its evidence", at(P, "digest", to="sha256:ab"), RejectedEvidence),
    (16, "level is missing", at(C, "level"), InvalidInput),
    (16, "level is empty", at(C, "level", to=""), InvalidInput),
    (17, "medium confidence", at(C, "level", to="medium"), RejectedEvidence),
    (17, "low confidence", at(C, "level", to="low"), RejectedEvidence),
    (17, "another spelling of high", at(C, "level", to="High"), RejectedEvidence),
    (18, "reasons is a text", at(C, "reasons", to="operator_command_authority"), InvalidInput),
    (18, "reasons is missing", at(C, "reasons"), InvalidInput),
    (18, "a reason is empty", at(C, "reasons", to=[""]), InvalidInput),
    (18, "a reason is a number", at(C, "reasons", to=[1]), InvalidInput),
    (19, "no reason", at(C, "reasons", to=[]), RejectedEvidence),
    (19, "another reason", at(C, "reasons", to=["unique_submodule_pin_match"]), RejectedEvidence),
    (
        19,
        "the reason twice",
        at(C, "reasons", to=["operator_command_authority"] * 2),
        RejectedEvidence,
    ),
]
