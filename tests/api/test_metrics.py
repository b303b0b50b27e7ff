"""What is counted about reports: also those that a batch, answered 200, did not get through."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.served_fleet import ServedFleet, serve_fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ServedFleet]:
    with serve_fleet(tmp_path / "data") as fleet:
        fleet.sail()
        yield fleet


def refused(fleet: ServedFleet) -> dict[str, int]:
    text = fleet.viewer.get("/metrics", headers={"accept": "text/plain"}).text
    found = re.findall(r'tidegate_reports_refused_total\{code="([a-z_]+)"\} ([0-9.]+)', text)
    return {code: int(float(number)) for code, number in found}


def test_counts_refused_reports_by_their_code_alone_and_in_a_batch(fleet: ServedFleet) -> None:
    agent = fleet.agents["web-01"]
    order = agent.order()
    assert order is not None
    early = agent.report("Converged", 1, current_closure=order["target_closure"])
    assert refused(fleet) == {}

    batch = [early, agent.report("ActivationStarted", 1, rollout_id="web-stable@web.9"), early]
    answer = agent.send("POST", "/v1/agent/events", json={"reports": batch})
    alone = agent.send("POST", "/v1/agent/events", json={"report": early})

    assert (answer.status_code, alone.status_code) == (200, 409)
    assert refused(fleet) == {"invalid_transition": 3, "rollout_unknown": 1}
    assert agent.acknowledge(order).status_code == 200
    assert sum(refused(fleet).values()) == 4
