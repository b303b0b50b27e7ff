"""Lifting a quarantine does the same through each door."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.served_fleet import CHANNEL, ServedFleet
from tests.verbs.doors import ApiCall, Form, SharedServers, Verb, VerbCase, check
from tidegate.domain.access import steps
from tidegate.domain.access.roles import Role

PAGE = f"/channels/{CHANNEL}"
ARTIFACT = "sha256:ad3ee330675cc7af279efd76defc64cde6750079924f1cb12d68d6cd521ad182"  # of web.1
OPERATOR = (Role.FLEET_OPERATOR,)
MANAGER = (Role.RELEASE_MANAGER,)
WHY = "it was the disk"


def start(fleet: ServedFleet) -> None:
    fleet.sail()


def halt(fleet: ServedFleet) -> None:
    fleet.sail()
    fleet.fail("web-01")
    (row,) = fleet.viewer.get("/v1/quarantine").json()["items"]
    assert row["closure_hash"] == ARTIFACT


LIFT = Verb(
    steps.LIFT_QUARANTINE,
    ApiCall(
        "POST",
        "/v1/quarantine/lift",
        {"channel": CHANNEL, "closure_hash": ARTIFACT, "reason": WHY},
    ),
    ("quarantine", "lift", CHANNEL, ARTIFACT, "--reason", WHY),
    Form(f"{PAGE}/lift", {"closure_hash": ARTIFACT, "reason": WHY}, PAGE),
)

CASES = (
    VerbCase(LIFT, "of a release that a host rolled back", OPERATOR, halt),
    VerbCase(LIFT, "as a release manager", MANAGER, halt, "missing_permission"),
    VerbCase(LIFT, "where there is none", OPERATOR, start, "quarantine_not_found"),
)


@pytest.mark.req("OP-14", engines=None, reason="the doors are above the engine")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_does_the_same_through_each_door(
    case: VerbCase, tmp_path: Path, shared: SharedServers
) -> None:
    check(case, tmp_path, shared)
