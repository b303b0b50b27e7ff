"""Maintenance windows over HTTP: form, status, paging, and forecast."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.api.served_fleet import CHANNEL, ServedFleet, serve_fleet
from tidegate.api.routes import ROUTES

NIGHTLY = {
    "window_id": "nightly",
    "kind": "allow",
    "start": "2026-11-17T02:00",
    "rule": "FREQ=DAILY",
    "duration_seconds": 7_200,
    "zone": "Europe/Berlin",
    "reason": "nights are quiet",
}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedFleet]:
    with serve_fleet(tmp_path / "data", ROUTES) as fleet:
        fleet.create()
        yield fleet


def test_creates_lists_shows_and_deletes(served: ServedFleet) -> None:
    client = served.operator

    created = client.post("/v1/windows", json=NIGHTLY)
    listed = client.get("/v1/windows").json()["items"]
    shown = client.get("/v1/windows/nightly")
    gone = client.post("/v1/windows/nightly/delete", json={"reason": "no need"})

    assert created.status_code == 201
    assert created.json()["zone"] == "Europe/Berlin"
    assert [item["window_id"] for item in listed] == ["nightly"]
    assert shown.headers["etag"].startswith(f'"{shown.json()["version"]}-')
    assert gone.status_code == 200
    assert client.get("/v1/windows/nightly").status_code == 404


def test_shows_whether_a_window_lasts_now(served: ServedFleet) -> None:
    client = served.operator
    now = served.clock()
    begun = f"{now - timedelta(hours=1):%Y-%m-%dT%H:%M}"
    later = f"{now + timedelta(hours=1):%Y-%m-%dT%H:%M}"
    spec = {**NIGHTLY, "rule": "", "zone": "UTC"}
    own = {"zone": "label:tz", "zone_default": "UTC"}
    for name, more in {"a": {"start": begun}, "b": {"start": later}, "c": own}.items():
        assert client.post("/v1/windows", json=spec | {"window_id": name} | more).is_success

    listed = client.get("/v1/windows").json()["items"]
    shown = [client.get(f"/v1/windows/{name}").json() for name in "abc"]
    served.clock.now += timedelta(hours=1)
    late = client.get("/v1/windows/a").json()

    assert [item.get("lasts_now") for item in listed] == [True, False, None]
    assert [item.get("lasts_now") for item in shown] == [True, False, None]
    assert late["lasts_now"] is False, "its end is exclusive"


def test_forecasts_in_local_time_and_in_utc(served: ServedFleet) -> None:
    client = served.operator
    client.post("/v1/windows", json=NIGHTLY)

    ahead = client.get("/v1/windows/nightly/next?count=2").json()["occurrences"]

    assert len(ahead) == 2
    assert ahead[0]["zone"] == "Europe/Berlin"
    assert " 02:00 CE" in ahead[0]["starts"]
    unknown = client.get("/v1/windows/nightly/next?host_id=nobody")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "host_not_found")


def test_checks_a_window_without_writing_it(served: ServedFleet) -> None:
    client = served.operator
    spec = {name: value for name, value in NIGHTLY.items() if name != "reason"}

    found = client.post("/v1/windows/check", json=spec).json()["occurrences"]
    bad = client.post("/v1/windows/check", json={**spec, "zone": "Berlin", "rule": "FREQ=HOURLY"})

    assert len(found) == 5
    assert client.get("/v1/windows").json()["items"] == []
    assert bad.json()["code"] == "malformed_window"
    assert len(bad.json()["faults"]) == 2


def test_an_edit_changes_only_what_it_names_and_needs_the_version(served: ServedFleet) -> None:
    client = served.operator
    etag = client.post("/v1/windows", json=NIGHTLY).headers["etag"]
    change = {"channels": [CHANNEL], "reason": "only here"}
    path = "/v1/windows/nightly"

    without = client.patch(path, json=change)
    done = client.patch(path, json=change, headers={"if-match": etag})
    stale = client.patch(path, json={"rule": "", "reason": "x"}, headers={"if-match": etag})

    assert without.status_code == 428
    assert done.json()["channels"] == [CHANNEL]
    assert done.json()["rule"] == "FREQ=DAILY"
    assert stale.status_code in (409, 412)


def test_a_plan_shows_when_each_wave_could_start(served: ServedFleet) -> None:
    """A promotion is not refused; it waits."""
    client = served.operator
    spec = {**NIGHTLY, "start": "2040-01-01T02:00", "rule": ""}
    assert client.post("/v1/windows", json=spec).status_code == 201
    asked = {"channel": CHANNEL, "release_id": "web.1"}

    planned = served.manager.post("/v1/rollouts/plan", json=asked).json()

    assert planned["earliest"][0]["sentence"] == (
        "Window nightly does not open in the next 400 days"
    )
    assert served.promote().status_code == 200


def test_a_channel_names_the_windows_that_cover_it(served: ServedFleet) -> None:
    served.create()
    other = {"channel": "other", "package": "default/web", "selector": "app=other"}
    assert served.manager.post("/v1/channels", json=other).status_code == 201
    for name, channels in (("here", [CHANNEL]), ("there", ["other"]), ("all", [])):
        made = served.operator.post(
            "/v1/windows", json=NIGHTLY | {"window_id": name, "channels": channels}
        )
        assert made.status_code == 201, made.text

    assert served.viewer.get(f"/v1/channels/{CHANNEL}").json()["windows"] == ["all", "here"]
