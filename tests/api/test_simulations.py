"""A rollout is simulated over HTTP with the channel's own plan, in the format of the CLI."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.api.served_fleet import CHANNEL, HOSTS, ServedFleet

URL = "/v1/rollouts/simulate"
ASKED = {"channel": CHANNEL, "release_id": "web.1"}


@pytest.fixture
def fleet(fleet: ServedFleet) -> ServedFleet:
    fleet.create()
    return fleet


def test_simulates_a_rollout_and_changes_nothing(fleet: ServedFleet) -> None:
    before = fleet.installation.log.head()

    found = fleet.viewer.post(URL, json=ASKED)

    assert found.status_code == 200, found.text
    told = found.json()
    assert told["state"] == "Terminal"
    assert [wave["name"] for wave in told["waves"]] == ["canary", "all"]
    assert told["waves"][0]["seconds"]["median"] > 30
    assert told["timeline"][-1] == {"seconds": told["seconds"], "what": "the rollout succeeded"}
    assert fleet.installation.log.head() == before
    assert fleet.viewer.post(URL, json=ASKED).json() == told


def test_simulates_failing_hosts_and_several_seeds(fleet: ServedFleet) -> None:
    told = fleet.viewer.post(
        URL, json={**ASKED, "failing": [HOSTS[0]], "runs": 2, "seed": 9}
    ).json()

    assert told["ends"] == {"Reverted": 2}
    assert told["stops"] == [{"what": "a host failed: probes", "runs": 2}]
    assert f"halted: {HOSTS[0]} failed" in [moment["what"] for moment in told["timeline"]]


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"channel": "nowhere"}, 404),
        ({"release_id": "web.99"}, 404),
        ({"failing": ["db-1"]}, 400),
        ({"odds": {"lost": 2.0}}, 400),
        ({"odds": {"luck": 0.1}}, 400),
        ({"runs": 6}, 400),
        ({"seed": -1}, 400),
        ({"start_at": "2020-01-01T00:00:00Z"}, 400),
        ({"start_at": "2026-12-24T02:00:00"}, 400),
    ],
)
def test_refuses_invalid_simulations(
    fleet: ServedFleet, asked: dict[str, Any], status: int
) -> None:
    assert fleet.viewer.post(URL, json={**ASKED, **asked}).status_code == status


def test_waits_for_a_requested_start(fleet: ServedFleet) -> None:
    at_once = fleet.viewer.post(URL, json=ASKED).json()
    start = (fleet.clock() + timedelta(hours=3)).isoformat()

    told = fleet.viewer.post(URL, json={**ASKED, "start_at": start}).json()
    plan = fleet.viewer.post("/v1/rollouts/plan", json={**ASKED, "start_at": start}).json()

    hosts = sum(wave["hosts"] for wave in told["waves"])
    stretch = {"by": "start", "window_id": "", "begins": 0, "ends": 10_800, "hosts": hosts}
    assert told["held"] == [stretch]
    assert (told["waits_seconds"], told["seconds"]) == (10_800, at_once["seconds"] + 10_800)
    assert datetime.fromisoformat(plan["earliest"][0]["at"]) == datetime.fromisoformat(start)
