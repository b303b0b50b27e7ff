"""Budgets over HTTP: how many hosts may be in flight at once."""

from __future__ import annotations

import pytest

from tests.api.served_fleet import ServedFleet


def test_limits_the_hosts_in_flight(fleet: ServedFleet) -> None:
    made = fleet.operator.put("/v1/budgets/web", json={"selector": "app=web", "max_in_flight": 1})
    fleet.sail(waves=[])

    (shown,) = fleet.viewer.get("/v1/budgets").json()["items"]

    assert made.status_code == 200, made.text
    assert (shown["budget_id"], shown["max_in_flight"], shown["in_flight"]) == ("web", 1, 1)
    orders = [agent.order() is not None for agent in fleet.agents.values()]
    assert orders == [True, False]


def test_removes_a_budget_by_put_or_by_delete(fleet: ServedFleet) -> None:
    for name in ("one", "two"):
        fleet.operator.put(f"/v1/budgets/{name}", json={"selector": "*", "max_in_flight_pct": 50})

    fleet.operator.put("/v1/budgets/one", json={"selector": "*", "removed": True})
    removed = fleet.operator.delete("/v1/budgets/two")

    assert removed.status_code == 200
    assert fleet.viewer.get("/v1/budgets").json()["items"] == []
    missing = fleet.operator.delete("/v1/budgets/three")
    assert (missing.status_code, missing.json()["code"]) == (404, "budget_not_found")


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("web", {}),
        ("web", {"selector": "=="}),
        ("web", {"selector": "*", "max_in_flight": 0}),
        ("web", {"selector": "*", "max_in_flight_pct": 101}),
        ("Web!", {"selector": "*", "max_in_flight": 1}),
    ],
)
def test_refuses_invalid_budgets(fleet: ServedFleet, name: str, body: dict[str, object]) -> None:
    assert fleet.operator.put(f"/v1/budgets/{name}", json=body).status_code == 400
