"""Budgets over HTTP: how many hosts may be disrupted at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.served_fleet import Crew, sailing


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    with sailing(tmp_path / "data") as crew:
        yield crew


def test_bounds_how_many_hosts_are_in_flight(crew: Crew) -> None:
    made = crew.operator.put("/v1/budgets/web", json={"selector": "app=web", "max_in_flight": 1})
    crew.sail(waves=[])

    (shown,) = crew.viewer.get("/v1/budgets").json()["items"]

    assert made.status_code == 200, made.text
    assert (shown["budget_id"], shown["max_in_flight"], shown["in_flight"]) == ("web", 1, 1)
    orders = [agent.order() is not None for agent in crew.agents.values()]
    assert orders == [True, False]


def test_removes_a_budget_either_way(crew: Crew) -> None:
    for name in ("one", "two"):
        crew.operator.put(f"/v1/budgets/{name}", json={"selector": "*", "max_in_flight_pct": 50})

    crew.operator.put("/v1/budgets/one", json={"selector": "*", "removed": True})
    removed = crew.operator.delete("/v1/budgets/two")

    assert removed.status_code == 200
    assert crew.viewer.get("/v1/budgets").json()["items"] == []
    missing = crew.operator.delete("/v1/budgets/three")
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
def test_refuses_budgets_that_cannot_be(crew: Crew, name: str, body: dict[str, object]) -> None:
    assert crew.operator.put(f"/v1/budgets/{name}", json=body).status_code == 400
