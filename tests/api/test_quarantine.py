"""Quarantine over HTTP: how it is listed and lifted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.served_fleet import CHANNEL, ServedFleet, serve_fleet


def test_lists_and_lifts_the_quarantine_of_a_failed_release(tmp_path: Path) -> None:
    with serve_fleet(tmp_path / "data") as fleet:
        fleet.sail()
        fleet.fail("web-01")
        other = {"channel": "web", "package": "web", "selector": "app=none"}
        assert fleet.manager.post("/v1/channels", json=other).status_code == 201
        (row,) = fleet.viewer.get("/v1/quarantine", params={"channel": CHANNEL}).json()["items"]
        elsewhere = fleet.viewer.get("/v1/quarantine", params={"channel": "web"}).json()["items"]
        body = {
            "channel": CHANNEL,
            "closure_hash": row["closure_hash"],
            "reason": "it was the disk",
        }

        refused = fleet.promote()
        lifted = fleet.operator.post("/v1/quarantine/lift", json=body)
        again = fleet.operator.post("/v1/quarantine/lift", json=body)

        assert (row["host_id"], elsewhere) == ("web-01", [])
        assert (refused.status_code, refused.json()["code"]) == (422, "closure_quarantined")
        assert lifted.status_code == 200, lifted.text
        assert lifted.json()["position"] > row["version"]
        assert (again.status_code, again.json()["code"]) == (404, "quarantine_not_found")
        assert fleet.viewer.get("/v1/quarantine").json()["items"] == []


@pytest.mark.req("OP-13", engines=None, reason="names in what an operator types and reads")
def test_names_the_release_and_is_lifted_by_its_name(tmp_path: Path) -> None:
    with serve_fleet(tmp_path / "data") as fleet:
        fleet.sail()
        fleet.fail("web-01")
        (row,) = fleet.viewer.get("/v1/quarantine").json()["items"]

        assert row["release_id"] == "web.1"
        assert (
            _lifted(fleet, {"channel": CHANNEL, "closure_hash": "web.1", "reason": "disk"}) == 200
        )
        assert fleet.viewer.get("/v1/quarantine").json()["items"] == []


def test_refuses_to_lift_with_missing_members(tmp_path: Path) -> None:
    with serve_fleet(tmp_path / "data") as fleet:
        for body in ({}, {"channel": CHANNEL}, {"channel": CHANNEL, "closure_hash": "a"}):
            assert _lifted(fleet, body) == 400


def _lifted(fleet: ServedFleet, body: dict[str, str]) -> int:
    return fleet.operator.post("/v1/quarantine/lift", json=body).status_code
