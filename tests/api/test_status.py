"""What ``tidegate status`` shows of a rollout that waits for a freeze, a window or a hold."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx2
import pytest

from tests.api.served_fleet import CHANNEL, ServedFleet
from tidegate.domain.access.roles import Role

HERE = f"/v1/channels/{CHANNEL}"


@pytest.fixture
def fleet(fleet: ServedFleet) -> ServedFleet:
    fleet.create()
    return fleet


def status(who: httpx2.Client) -> dict[str, Any]:
    found: dict[str, Any] = who.get("/v1/status").json()
    return found


def roll_back_behind_a_freeze(fleet: ServedFleet, **freeze: Any) -> dict[str, Any]:
    """web.2 succeeded after web.1; during a freeze, web.2 is rolled back to web.1."""
    for release in ("web.1", "web.2"):
        fleet.promote(release)
        fleet.succeed()
    body = {"reason": "holidays", "channels": [CHANNEL], "freeze_id": "xmas", **freeze}
    assert fleet.operator.post("/v1/freezes", json=body).status_code == 201
    back = fleet.manager.post(f"{HERE}/rollback", json={"reason": "slow"})
    assert back.status_code == 200, back.text
    fleet.dispatch(thorough=True)
    found: dict[str, Any] = back.json()
    return found


def test_a_rollback_that_waits_for_a_freeze_needs_attention(fleet: ServedFleet) -> None:
    until = (fleet.clock() + timedelta(days=9)).isoformat()
    roll_back_behind_a_freeze(fleet, until=until)

    found = status(fleet.served.as_role(Role.ON_CALL))

    assert found["is_well"] is False
    (item,) = found["attention"]
    assert (item["channel"], item["next"]) == (
        CHANNEL,
        f"tidegate channel rollback {CHANNEL} --to web.1 --now --reason …",
    )
    assert item["says"].startswith("the rollback to web.1 waits for freeze xmas of ")
    assert item["says"].endswith(" until 2026-05-03 20:00 UTC: holidays")
    assert found["channels"][0]["is_frozen"] is True


def test_status_shows_a_promotion_that_waits_for_a_freeze_of_every_channel(
    fleet: ServedFleet,
) -> None:
    body = {"reason": "holidays", "freeze_id": "xmas"}
    assert fleet.operator.post("/v1/freezes", json=body).status_code == 201
    fleet.promote()

    found = status(fleet.viewer)

    assert found["is_well"] is True
    (item,) = [one for one in found["notices"] if one["channel"] == CHANNEL]
    assert (item["kind"], item["next"]) == ("gate", f"tidegate rollout explain {CHANNEL}")
    assert item["says"].startswith("web.1 waits for freeze xmas of ")
    assert found["channels"][0]["is_frozen"] is True


def test_status_does_not_say_that_an_emergency_rollback_waits_for_a_freeze(
    fleet: ServedFleet,
) -> None:
    roll_back_behind_a_freeze(fleet)
    now = {"reason": "an outage", "now": True}
    on_call = fleet.served.as_role(Role.ON_CALL)
    assert on_call.post(f"{HERE}/rollback", json=now).status_code == 200

    found = status(fleet.viewer)

    assert (found["is_well"], found["channels"][0]["is_frozen"]) == (True, False)


def test_a_rollback_that_waits_for_a_window_needs_attention(fleet: ServedFleet) -> None:
    for release in ("web.1", "web.2"):
        fleet.promote(release)
        fleet.succeed()
    window = {
        "window_id": "nights",
        "kind": "allow",
        "start": "2026-05-01T02:00",
        "duration_seconds": 3_600,
        "rule": "FREQ=DAILY",
        "zone": "UTC",
        "channels": [CHANNEL],
        "reason": "only at night",
    }
    assert fleet.operator.post("/v1/windows", json=window).status_code == 201
    assert fleet.manager.post(f"{HERE}/rollback", json={"reason": "slow"}).status_code == 200
    fleet.dispatch(thorough=True)

    found = status(fleet.served.as_role(Role.ON_CALL))

    (item,) = found["attention"]
    assert item["says"].startswith("the rollback to web.1 waits: ")
    assert "nights" in item["says"]
    assert item["next"] == f"tidegate channel rollback {CHANNEL} --to web.1 --now --reason …"


def test_a_rollback_that_a_freeze_and_a_window_hold_names_both(fleet: ServedFleet) -> None:
    for release in ("web.1", "web.2"):
        fleet.promote(release)
        fleet.succeed()
    for freeze_id in ("xmas", "audit"):
        body = {"reason": "holidays", "channels": [CHANNEL], "freeze_id": freeze_id}
        assert fleet.operator.post("/v1/freezes", json=body).status_code == 201
    window = {
        "window_id": "nights",
        "kind": "allow",
        "start": "2026-03-01T00:00",
        "duration_seconds": 3_600,
        "reason": "nights only",
        "channels": [CHANNEL],
    }
    assert fleet.operator.post("/v1/windows", json=window).status_code == 201

    before = fleet.viewer.get(f"{HERE}/ladder").json()["warnings"]
    done = fleet.manager.post(f"{HERE}/rollback", json={"reason": "slow"}).json()["warnings"]
    on_call = fleet.served.as_role(Role.ON_CALL)
    explained = on_call.get(f"/v1/rollouts/{CHANNEL}@web.1~2/explain").json()["waits"]

    for warnings in (before, done):
        for stop in ("Freeze xmas", "Freeze audit", "Window nights"):
            assert sum(stop in line for line in warnings) == 1, warnings
        assert "--now --reason …" in warnings[-1], "once, after all of them"
    assert {wait["code"] for wait in explained} >= {"freeze", "window"}
    ended = [item["command"] for wait in explained for item in wait["remedies"]]
    for freeze_id in ("xmas", "audit"):
        assert f"tidegate freeze delete {freeze_id} --reason …" in ended
    assert f"tidegate rollout override {CHANNEL}@web.1~2 --gate window --reason …" in ended


# ── what does not move ────────────────────────────────────────────────────────────────────────────


def test_a_rollout_in_which_a_gate_holds_every_host_says_so(fleet: ServedFleet) -> None:
    start_at = (fleet.clock() + timedelta(hours=2)).isoformat()
    body = {"release_id": "web.1", "start_at": start_at}
    assert fleet.manager.post(f"{HERE}/promote", json=body).status_code == 200
    fleet.dispatch()

    (channel,) = status(fleet.viewer)["channels"]
    shown = fleet.viewer.get(f"/v1/rollouts/{CHANNEL}@web.1").json()

    says = "wave 1 of 2 (canary): 0 of 1 hosts done, waits for start-at"
    assert channel["progress"]["says"] == shown["progress"]["says"] == says
    fleet.wait(7_201)
    fleet.dispatch(thorough=True)
    (channel,) = status(fleet.viewer)["channels"]
    assert channel["progress"]["says"] == "wave 1 of 2 (canary): 0 of 1 hosts done"


def test_status_counts_the_hosts_that_the_newest_rollout_skipped(fleet: ServedFleet) -> None:
    fleet.promote()
    fleet.dispatch()
    fleet.converge("web-01")
    fleet.dispatch()
    body = {"host_id": "web-02", "reason": "switched off"}
    url = f"/v1/rollouts/{CHANNEL}@web.1/skip"
    assert fleet.operator.post(url, json=body).status_code == 200
    fleet.dispatch(thorough=True)

    found = status(fleet.viewer)

    assert found["channels"][0]["outcome"] == "succeeded"
    assert found["is_well"] is True
    (item,) = found["notices"]
    assert (item["kind"], item["channel"]) == ("skipped", CHANNEL)
    assert item["says"] == "1 host was skipped and does not run web.1"
    assert item["next"] == f"tidegate rollout show {CHANNEL} --hosts"


# ── what a dry run of a rollback shows ────────────────────────────────────────────────────────────


def test_a_dry_run_shows_what_delays_a_rollback_and_what_now_bypasses(
    fleet: ServedFleet,
) -> None:
    for release in ("web.1", "web.2"):
        fleet.promote(release)
        fleet.succeed()
    body = {"reason": "holidays", "channels": [CHANNEL], "freeze_id": "xmas"}
    assert fleet.operator.post("/v1/freezes", json=body).status_code == 201
    fleet.served.as_role(Role.APPROVER)
    guarded = fleet.manager.post(f"{HERE}/protect", json={"reason": "production"})
    assert guarded.status_code == 200, guarded.text

    plain = fleet.viewer.get(f"{HERE}/ladder").json()
    now = fleet.viewer.get(f"{HERE}/ladder", params={"now": "true"}).json()

    needs = f"emergency; {CHANNEL} is protected: also a second person, or --break-glass"
    command = f"tidegate channel rollback {CHANNEL} --now --reason …"
    (warning,) = plain["warnings"]
    assert warning == f"Freeze xmas holds it. To go back in spite of it: {command} (needs {needs})"
    assert now["warnings"] == [
        "It goes to all 2 hosts at once, without soak; budgets still apply",
        "Freeze xmas holds other orders; this rollback passes it",
        f"It needs {needs}",
    ]
