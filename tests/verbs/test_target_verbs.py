"""Testing a target has the same result through each door."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import force_setattr

from tests.api.served_fleet import ServedFleet
from tests.verbs.doors import ApiCall, SharedServers, Verb, VerbCase, check
from tidegate.config import TargetSetting
from tidegate.domain.access import steps
from tidegate.domain.access.roles import Role


def configure(fleet: ServedFleet) -> None:
    """Add a target that could get intents to the settings."""
    settings = fleet.installation.settings
    directory = Path(settings.data) / "effects"
    directory.mkdir()
    target = TargetSetting(kind="file", directory=str(directory))
    force_setattr(settings, "targets", {"record": target})


TEST = Verb(
    steps.TEST_TARGET,
    ApiCall("POST", "/v1/targets/record/test"),
    ("target", "test", "record"),
    "the dashboard has no page of targets",
)
OPERATOR = (Role.FLEET_OPERATOR,)
CASES = (
    VerbCase(TEST, "one of the settings", OPERATOR, configure, changes=False),
    VerbCase(TEST, "an unknown one", OPERATOR, code="target_unknown"),
    VerbCase(TEST, "as a viewer", (Role.VIEWER,), configure, "missing_permission"),
)


@pytest.mark.req("OP-14", engines=None, reason="the doors are above the engine")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_does_the_same_through_each_door(
    case: VerbCase, tmp_path: Path, shared: SharedServers
) -> None:
    check(case, tmp_path, shared)
