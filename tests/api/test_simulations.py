"""A rollout is simulated over HTTP with the channel's own plan, in the shape the CLI shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.served_fleet import CHANNEL, HOSTS, ServedFleet, serve_fleet

URL = "/v1/rollouts/simulate"
ASKED = {"channel": CHANNEL, "release_id": "web.1"}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ServedFleet]:
    with serve_fleet(tmp_path / "data") as fleet:
        fleet.create()
        yield fleet


def test_tells_how_a_rollout_would_go_and_changes_nothing(fleet: ServedFleet) -> None:
    before = fleet.installation.log.head()

    found = fleet.viewer.post(URL, json=ASKED)

    assert found.status_code == 200, found.text
    told = found.json()
    assert told["state"] == "Terminal"
    assert [wave["name"] for wave in told["waves"]] == ["canary", "all"]
    assert told["waves"][0]["seconds"]["median"] > 30
    assert told["timeline"][-1] == {"seconds": told["seconds"], "what": "the rollout is Terminal"}
    assert fleet.installation.log.head() == before
    assert fleet.viewer.post(URL, json=ASKED).json() == told


def test_plays_hosts_that_fail_and_several_seeds(fleet: ServedFleet) -> None:
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
    ],
)
def test_refuses_what_cannot_be_played(
    fleet: ServedFleet, asked: dict[str, Any], status: int
) -> None:
    assert fleet.viewer.post(URL, json={**ASKED, **asked}).status_code == status
