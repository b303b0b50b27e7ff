"""Setting and removing a budget have the same result through each door."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.served_fleet import CHANNEL, ServedFleet
from tests.verbs.doors import ApiCall, Form, SharedServers, Verb, VerbCase, check
from tidegate.domain.access import steps
from tidegate.domain.access.roles import Grant, Role

BUDGET = "web-hosts"
PATH = f"/v1/budgets/{BUDGET}"
OPERATOR = (Role.FLEET_OPERATOR,)
OF_CHANNEL = (Grant(Role.FLEET_OPERATOR, f"channel:{CHANNEL}"),)
REMOVE_FORM = Form("/maintenance/remove-budget", {"budget_id": BUDGET})


def limit(fleet: ServedFleet) -> None:
    done = fleet.operator.put(PATH, json={"selector": "app=web", "max_in_flight": 5})
    assert done.status_code == 200, done.text


def set_verb(selector: str) -> Verb:
    return Verb(
        steps.SET_BUDGET,
        ApiCall("PUT", PATH, {"selector": selector, "max_in_flight": 5}),
        ("budget", "create", BUDGET, "--hosts", selector, "--max", "5"),
        Form("/new/budget", {"budget_id": BUDGET, "selector": selector, "count": "5"}),
    )


SET = set_verb("app=web")
REMOVE = Verb(
    steps.REMOVE_BUDGET, ApiCall("DELETE", PATH), ("budget", "delete", BUDGET), REMOVE_FORM
)
REMOVE_BY_PUT = Verb(
    steps.REMOVE_BUDGET,
    ApiCall("PUT", PATH, {"selector": "app=web", "removed": True}),
    ("budget", "delete", BUDGET),
    REMOVE_FORM,
)

CASES = (
    VerbCase(SET, "a new one", OPERATOR),
    VerbCase(SET, "without a change", OPERATOR, limit, changes=False),
    VerbCase(SET, "as the operator of a channel", OF_CHANNEL, code="missing_permission"),
    VerbCase(set_verb("app="), "with an invalid selector", OPERATOR, code="invalid_selector"),
    VerbCase(REMOVE, "one that is set", OPERATOR, limit),
    VerbCase(REMOVE_BY_PUT, "by setting it as removed", OPERATOR, limit),
    VerbCase(REMOVE, "as the operator of a channel", OF_CHANNEL, limit, "missing_permission"),
    VerbCase(REMOVE, "an unknown one", OPERATOR, code="budget_not_found"),
)


@pytest.mark.req("OP-14", engines=None, reason="the doors are above the engine")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_does_the_same_through_each_door(
    case: VerbCase, tmp_path: Path, shared: SharedServers
) -> None:
    check(case, tmp_path, shared)
