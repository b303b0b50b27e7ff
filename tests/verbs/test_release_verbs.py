"""Register, transition, retire, evidence and manifests: the results, and who may do it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.api.served_fleet import CHANNEL, ServedFleet
from tests.domain.documents import good
from tests.verbs.doors import ApiCall, SharedServers, Verb, VerbCase, check
from tidegate.domain.access import steps
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.content.manifests import FileManifest

MANAGER = (Role.RELEASE_MANAGER,)
OTHERS_MANAGER = (Grant(Role.RELEASE_MANAGER, "channel:other"), Role.VIEWER)
URL = f"/v1/releases/{CHANNEL}"
ACTUAL = f"{URL}/actual"
DIGESTS = {
    "web.1": FileManifest(()).digest,
    "web.2": FileManifest.of({"a.txt": b"2"}).digest,
}
MISSING = "missing_permission"


def pin(release: str) -> dict[str, Any]:
    digest = DIGESTS.get(release, f"sha256:{'0' * 64}")
    evidence = good(("operator_command", "release-control-plane"), CHANNEL, release, digest)
    return {"releaseId": release, "digest": digest, **evidence}


def register(fleet: ServedFleet) -> None:
    done = fleet.manager.post(f"{URL}/register", json=pin("web.1"))
    assert done.status_code == 201, done.text


def channel_with_pin(fleet: ServedFleet) -> None:
    register(fleet)
    channel(fleet)


def channel(fleet: ServedFleet) -> None:
    body = {"channel": CHANNEL, "package": "default/web", "selector": "app=web"}
    made = fleet.manager.post("/v1/channels", json=body)
    assert made.status_code == 201, made.text


def on_scope(step: steps.Step, name: str, body: dict[str, Any], etag_of: str = "") -> Verb:
    return Verb(
        step,
        ApiCall("POST", f"{URL}/{name}", body, etag_of),
        "the command line has no registry: it promotes",
        "the dashboard has no registry: it promotes",
    )


WEAK = pin("web.2")
WEAK["confidence"] = {**WEAK["confidence"], "level": "medium"}
REGISTER = on_scope(steps.REGISTER_RELEASE, "register", pin("web.1"))
REGISTER_UNKNOWN = on_scope(steps.REGISTER_RELEASE, "register", pin("web.9"))
TRANSITION = on_scope(steps.TRANSITION_RELEASE, "transition", pin("web.2"), ACTUAL)
TRANSITION_WEAKLY = on_scope(steps.TRANSITION_RELEASE, "transition", WEAK, ACTUAL)
TRANSITION_UNSEEN = on_scope(steps.TRANSITION_RELEASE, "transition", pin("web.2"))
RETIRE = on_scope(steps.RETIRE_RELEASE, "retire", {"reason": "over"}, ACTUAL)
RETIRE_UNSEEN = on_scope(steps.RETIRE_RELEASE, "retire", {"reason": "over"})
KEEP = on_scope(
    steps.KEEP_EVIDENCE,
    "evidence",
    {"source": "factory", "batch": "b-1", "document": {"seen": ["web.2"]}},
)
IMPORT = on_scope(
    steps.IMPORT_MANIFEST,
    "manifests",
    {
        "batch": "b-1",
        "ref": "s3://factory/b-1.json",
        "observedAt": "2026-04-24T19:30:00Z",
        "digests": [DIGESTS["web.2"]],
    },
    ACTUAL,
)

CASES = (
    VerbCase(REGISTER, "a new scope", MANAGER),
    VerbCase(REGISTER, "as the manager of another channel", OTHERS_MANAGER, code=MISSING),
    VerbCase(REGISTER, "a channel", MANAGER, channel, "pin_of_channel"),
    VerbCase(TRANSITION, "a channel", MANAGER, channel_with_pin, "pin_of_channel"),
    VerbCase(IMPORT, "of a channel", MANAGER, channel_with_pin, "pin_of_channel"),
    VerbCase(RETIRE, "a channel", MANAGER, channel_with_pin, "pin_of_channel"),
    VerbCase(REGISTER_UNKNOWN, "a release that does not exist", MANAGER, code="not_found"),
    VerbCase(TRANSITION, "to another release", MANAGER, register),
    VerbCase(TRANSITION, "as the manager of another channel", OTHERS_MANAGER, register, MISSING),
    VerbCase(TRANSITION_WEAKLY, "on weak evidence", MANAGER, register, "rejected_evidence"),
    VerbCase(TRANSITION_UNSEEN, "without a version", MANAGER, register, "version_required"),
    VerbCase(RETIRE, "a scope", MANAGER, register),
    VerbCase(RETIRE, "as the manager of another channel", OTHERS_MANAGER, register, MISSING),
    VerbCase(RETIRE_UNSEEN, "without a version", MANAGER, register, "version_required"),
    VerbCase(KEEP, "of a factory", MANAGER, register),
    VerbCase(KEEP, "as the manager of another channel", OTHERS_MANAGER, register, MISSING),
    VerbCase(IMPORT, "that matches a release", MANAGER, register),
    VerbCase(IMPORT, "as the manager of another channel", OTHERS_MANAGER, register, MISSING),
)


@pytest.mark.req("OP-14", engines=None, reason="the doors are above the engine")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_does_the_same_through_each_door(
    case: VerbCase, tmp_path: Path, shared: SharedServers
) -> None:
    check(case, tmp_path, shared)
