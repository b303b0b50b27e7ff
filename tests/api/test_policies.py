"""A policy over HTTP: shown with every member, and checked before it is used."""

from __future__ import annotations

from typing import Any

from tests.api.served_fleet import CHANNEL, ServedFleet

CHECK = "/v1/policies/check"


def test_shows_a_policy_with_every_member_so_that_it_can_be_sent_back(fleet: ServedFleet) -> None:
    seen = fleet.create().headers["etag"]

    shown = fleet.viewer.get(f"/v1/channels/{CHANNEL}/policy").json()["policy"]
    again = fleet.manager.patch(
        f"/v1/channels/{CHANNEL}", json={"policy": shown}, headers={"if-match": seen}
    )

    assert shown["ack_seconds"] == 900, "members with default values are shown, too"
    assert shown["waves"][0]["converged_min"] == 1
    assert again.status_code == 200, again.text
    assert again.headers["etag"] == seen, "it is the same policy"
    assert fleet.viewer.get("/v1/channels/none/policy").status_code == 404


def test_checks_a_policy_on_its_channel_and_changes_nothing(fleet: ServedFleet) -> None:
    fleet.create()
    before = fleet.viewer.get(f"/v1/channels/{CHANNEL}").headers["etag"]
    policy: dict[str, Any] = {"waves": [{"name": "all", "converged_min": 9}], "edges": ["nowhere"]}

    faulty = fleet.viewer.post(CHECK, json={"policy": policy, "channel": CHANNEL}).json()
    policy["edges"] = []
    sound = fleet.viewer.post(CHECK, json={"policy": policy, "channel": CHANNEL}).json()

    assert [fault["sentence"] for fault in faulty["faults"]] == [
        f"{CHANNEL} waits for nowhere, which does not exist."
    ]
    assert (faulty["policy"], faulty["changes"]) == (None, None)
    assert sound["faults"] == []
    assert [warning["path"] for warning in sound["warnings"]] == ["waves[0].converged_min"]
    assert "waves[0].converged_min" in [change["path"] for change in sound["changes"]]
    assert fleet.viewer.get(f"/v1/channels/{CHANNEL}").headers["etag"] == before


def test_checks_a_policy_of_any_form_without_a_channel(fleet: ServedFleet) -> None:
    documents: list[Any] = [None, 7, [], {"waves": 7}]
    for policy in documents:
        checked = fleet.viewer.post(CHECK, json={"policy": policy})
        assert checked.status_code == 200, checked.text
        assert len(checked.json()["faults"]) == 1
    assert fleet.viewer.post(CHECK, json={"policy": {}, "channel": "none"}).status_code == 404


def test_checks_a_policy_for_a_channel_that_does_not_exist_yet(fleet: ServedFleet) -> None:
    fleet.create()
    fleet.enroll("next-01", app="next")
    body = {
        "channel": "next",
        "package": "default/web",
        "selector": "tier=canary",
        "policy": {"waves": [{"name": "all", "converged_min": 9}], "edges": ["nowhere"]},
    }

    faulty = fleet.viewer.post(CHECK, json=body).json()
    edged = {
        **body,
        "selector": "app=next",
        "policy": {"waves": [{"converged_min": 9}], "edges": [CHANNEL]},
    }
    sound = fleet.viewer.post(CHECK, json=edged).json()
    wrong = fleet.viewer.post(CHECK, json=body | {"selector": "=="})

    assert [fault["sentence"] for fault in faulty["faults"]] == [
        "next waits for nowhere, which does not exist.",
        "web-01 would be in web-stable and in next, both of package web",
    ]
    assert (sound["faults"], sound["changes"]) == ([], None)
    assert "the wave takes 1 host now" in sound["warnings"][0]["sentence"]
    assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_selector")
    assert fleet.viewer.get("/v1/channels/next").status_code == 404, "nothing is created"


def test_reports_every_fault_of_a_policy_at_once(fleet: ServedFleet) -> None:
    policy = {"waves": [{"percent": 0}, {"count": 0}]}
    body = {"channel": CHANNEL, "package": "default/web", "selector": "app=web", "policy": policy}

    refused = fleet.manager.post("/v1/channels", json=body).json()

    assert refused["code"] == "malformed_policy"
    assert refused["faults"] == [
        "waves[0].percent is 0; allowed is 1 to 100.",
        "waves[1].count is 0; allowed is 1 or more.",
    ]
    assert refused["detail"] == " ".join(refused["faults"])
