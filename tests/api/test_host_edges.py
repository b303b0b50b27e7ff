"""Edges on hosts over HTTP: they name hosts, and a host that was removed holds no rollout."""

from __future__ import annotations

from tests.api.served_fleet import CHANNEL, ServedFleet

URL = f"/v1/channels/{CHANNEL}"
EDGE = {"before": "web-01", "after": "web-02"}


def test_refuses_a_policy_with_an_edge_to_an_unknown_host(
    fleet: ServedFleet,
) -> None:
    stranger = {"host_edges": [{"before": "web-01", "after": "web-99"}]}
    new = {"channel": "other", "package": "default/db", "selector": "app=web", "policy": stranger}

    made = fleet.manager.post("/v1/channels", json=new)
    seen = fleet.create().headers["etag"]
    edited = fleet.manager.patch(URL, json={"policy": stranger}, headers={"if-match": seen})

    for answer in (made, edited):
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed_policy")
        assert answer.json()["detail"] == ("web-99 waits for web-01, but web-99 was never a host.")
    assert fleet.viewer.get("/v1/channels/other").status_code == 404
    assert "host_edges" not in fleet.viewer.get(URL).json()["policy"]


def test_promotes_past_an_edge_on_a_retired_host_with_a_warning(fleet: ServedFleet) -> None:
    fleet.create(host_edges=[EDGE])
    fleet.operator.post("/v1/hosts/web-01/retire", json={"reason": "sold"})

    plan = fleet.viewer.get(f"{URL}/plan").json()
    promoted = fleet.promote()
    fleet.dispatch()

    assert plan["idle_edges"] == [{**EDGE, "reason": "web-01 is retired"}]
    assert promoted.status_code == 200, promoted.text
    rollout_id = promoted.json()["rollout_id"]
    why = fleet.viewer.get(
        f"/v1/rollouts/{rollout_id}/explain", params={"host_id": "web-02"}
    ).json()
    (said,) = (item["reason"] for item in why["verdicts"] if item["gate"] == "host-edge")
    assert said.endswith("the edge web-01 → web-02 has no effect, web-01 is retired")
    assert fleet.agents["web-02"].poll().status_code == 200
    # The same policy may be sent again.
    shown = fleet.viewer.get(URL)
    same = fleet.manager.patch(
        URL, json={"policy": shown.json()["policy"]}, headers={"if-match": shown.headers["etag"]}
    )
    assert same.status_code == 200, same.text
