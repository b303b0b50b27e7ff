"""Facts that a host reports: people see them; selectors see only those that an operator allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import fields

from tests.api.served_fleet import ServedFleet, serve_fleet
from tidegate import config
from tidegate.config import InvalidSetting, check_settings
from tidegate.domain.fleet.slices import FACTS_EVERY
from tidegate.domain.hosts.protocol import HostFacts
from tidegate.kernel.replay import differences

FACTS = {
    "os": "debian",
    "os_version": "12",
    "kernel": "6.1.0-18-amd64",
    "arch": "x86_64",
    "addresses": ["10.0.4.17", "2001:db8::17"],
}


def beat(fleet: ServedFleet, host_id: str = "web-01", **members: Any) -> httpx2.Response:
    body = {"agent_version": "1.0", "current_closures": {}, **members}
    return fleet.agents[host_id].send("POST", "/v1/agent/heartbeat", json=body)


def shown(fleet: ServedFleet, host_id: str = "web-01") -> dict[str, Any]:
    found = fleet.operator.get(f"/v1/hosts/{host_id}")
    assert found.status_code == 200, found.text
    return dict(found.json())


def test_facts_are_shown_and_selectors_do_not_see_them(tmp_path: Path) -> None:
    with serve_fleet(tmp_path / "data") as fleet:
        before = shown(fleet)["labels"]
        assert beat(fleet).json()["facts_missing"] is True

        assert "facts_missing" not in beat(fleet, facts=FACTS).json()
        assert "facts_missing" not in beat(fleet).json()  # the server stores them

        found = shown(fleet)
        assert found["facts"] == FACTS
        assert found["labels"] == before
        page = fleet.operator.get("/v1/hosts", params={"selector": "fact/arch=x86_64"}).json()
        assert page["items"] == []


def test_facts_are_bounded_and_typed(tmp_path: Path) -> None:
    with serve_fleet(tmp_path / "data") as fleet:
        for facts in (
            {"arch": "x" * 33},
            {"addresses": ["10.0.0.1"] * 17},
            {"addresses": "10.0.0.1"},
            {"color": "green"},
            {"os": 12},
        ):
            refused = beat(fleet, facts=facts)
            assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request"), facts
        assert shown(fleet).get("facts") is None


def test_allowed_facts_are_labels_that_selectors_see(tmp_path: Path) -> None:
    with serve_fleet(tmp_path / "data", fact_labels="arch, kernel") as fleet:
        before = shown(fleet)["labels"]

        beat(fleet, facts=FACTS)

        assert shown(fleet)["labels"] == {
            **before,
            "fact/arch": "x86_64",
            "fact/kernel": "6.1.0-18-amd64",
        }
        page = fleet.operator.get("/v1/hosts", params={"selector": "fact/arch=x86_64"}).json()
        assert [item["host_id"] for item in page["items"]] == ["web-01"]
        installation = fleet.installation
        assert differences(installation.store, installation.folds) == []


def test_a_fact_that_is_not_allowed_any_more_is_no_label(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serve_fleet(data, fact_labels="arch") as fleet:
        before = shown(fleet)["labels"]
        beat(fleet, facts=FACTS)
        fleet.installation.heartbeats._allowed_facts = ()

        beat(fleet)

        assert shown(fleet)["labels"] == before


def test_explains_why_facts_are_refused_and_keeps_the_labels(tmp_path: Path) -> None:
    with serve_fleet(tmp_path / "data", fact_labels="arch") as fleet:
        fleet.create()
        body = {"channel": "arm", "package": "default/web", "selector": "fact/arch=aarch64"}
        made = fleet.manager.post("/v1/channels", json=body)
        assert made.status_code == 201, made.text
        before = shown(fleet)["labels"]

        assert beat(fleet, facts={"arch": "aarch64"}).status_code == 200

        found = shown(fleet)
        assert found["labels"] == before
        assert "web-01 would be in" in found["facts_refused"]
        fleet.clock.advance(FACTS_EVERY)
        beat(fleet, facts={"arch": "x86_64"})
        assert shown(fleet).get("facts_refused", "") == ""


def test_an_error_of_the_setting_names_what_is_allowed() -> None:
    for key in ("color", "addresses", "agent_version"):
        with pytest.raises(InvalidSetting, match=f"'{key}'; allowed are arch, kernel, os"):
            check_settings({"data": "/srv/tidegate", "fact_labels": f"arch,{key}"})
    assert set(config.FACT_KEYS) <= {field.name for field in fields(HostFacts)}
