"""The registry alone: a schema, releases, and an accepted document."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from tidegate.domain.outbox import declarations as outbox
from tidegate.domain.releases import declarations as releases
from tidegate.domain.releases.catalog import PUBLISHED
from tidegate.domain.releases.evidence import ImportManifest
from tidegate.domain.releases.facts import ReleaseOffered
from tidegate.domain.releases.slices import RegisterRelease, RetireRelease, TransitionRelease
from tidegate.kernel.folds import Folds
from tidegate.kernel.records.records import REPAIRS
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Schema
from tidegate.kernel.vocabulary import Vocabulary

T0 = datetime(2026, 4, 24, 19, 0, 2, tzinfo=UTC)
SCOPE = "service-a"

# The example of docs/design/releases.md, member by member.
ACCEPTED: dict[str, Any] = {
    "provenance": {
        "mode": "native",
        "system": "release-control-plane",
        "kind": "operator_command",
        "ref": "operator://deploy/service-a/rel_002",
        "observed_at": "2026-04-24T19:00:00Z",
        "recorded_at": "2026-04-24T19:00:01Z",
        "evidence": [
            {
                "kind": "operator_command",
                "source": "release-control-plane",
                "ref": "operator://deploy/service-a/rel_002",
                "observed_at": "2026-04-24T19:00:00Z",
            }
        ],
    },
    "confidence": {"level": "high", "reasons": ["operator_command_authority"]},
}


class OfferRelease(Struct, frozen=True):
    """Publishes a release to the registry, as a command of its own."""

    release_id: str
    digest: str
    lifecycle: str = PUBLISHED


offer_release = Slice(
    name="offer-release",
    command=OfferRelease,
    writes=(ReleaseOffered,),
    rows=lambda command: (),
    decide=lambda rows, command, now: (
        ReleaseOffered(command.release_id, command.digest, command.lifecycle),
    ),
)

SCHEMA = Schema(
    Vocabulary(
        (*releases.FACTS, *outbox.FACTS, *REPAIRS),
        (*releases.SLICES, *outbox.SLICES, offer_release),
    ),
    (*releases.COLLECTIONS, *outbox.COLLECTIONS),
)
FOLDS = Folds(SCHEMA, (*releases.FOLDS, *outbox.FOLDS))


def digest_of(release_id: str) -> str:
    """Return the content digest of a test release."""
    return f"sha256:{release_id.encode().hex():0<64}"


def operator(release_id: str, scope: str = SCOPE) -> dict[str, Any]:
    """Build the accepted document about another release."""
    document = deepcopy(ACCEPTED)
    ref = f"operator://deploy/{scope}/{release_id}"
    document["provenance"]["ref"] = document["provenance"]["evidence"][0]["ref"] = ref
    return document


def register(release_id: str = "rel_001", **changes: Any) -> RegisterRelease:
    scope = changes.pop("scope", SCOPE)
    members = {
        "release_id": release_id,
        "digest": digest_of(release_id),
        "authority": operator(release_id, scope),
        "command_id": "c0",
        "by": "user_1",
    }
    return RegisterRelease(scope=scope, **(members | changes))


def transition(
    release_id: str, expected_version: int | None, command_id: str, **changes: Any
) -> TransitionRelease:
    scope = changes.pop("scope", SCOPE)
    members = {
        "release_id": release_id,
        "digest": digest_of(release_id),
        "authority": operator(release_id, scope),
        "by": "user_1",
    }
    return TransitionRelease(
        scope=scope,
        expected_version=expected_version,
        command_id=command_id,
        **(members | changes),
    )


def retire(expected_version: int | None, command_id: str, **changes: Any) -> RetireRelease:
    members = {"scope": SCOPE, "reason": "replaced by service-b", "by": "user_1"}
    return RetireRelease(
        expected_version=expected_version, command_id=command_id, **(members | changes)
    )


def manifest(*digests: str, command_id: str = "m1", **changes: Any) -> ImportManifest:
    members = {
        "scope": SCOPE,
        "batch": "batch-2026-04-24",
        "ref": "s3://factory/batches/2026-04-24.json",
        "observed_at": "2026-04-24T18:59:00Z",
        "by": "user_1",
    }
    return ImportManifest(digests=digests, command_id=command_id, **(members | changes))
