"""Freezes and holds over HTTP: no order is dispatched during one."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.api.served_fleet import CHANNEL, ROLLOUT, ServedFleet
from tidegate.api.agents.order_waiters import OrderWaiters
from tidegate.domain.access.roles import Grant, Role


def test_freezes_dispatch_until_it_ends(fleet: ServedFleet) -> None:
    fleet.create()
    started = fleet.operator.post("/v1/freezes", json={"reason": "sale", "channels": [CHANNEL]})
    fleet.promote()
    fleet.dispatch()
    frozen = fleet.agents["web-01"].order()
    listed = fleet.viewer.get("/v1/freezes").json()["items"]

    freeze_id = started.json()["freeze_id"]
    ended = fleet.operator.post(f"/v1/freezes/{freeze_id}/end", json={"reason": "over"})
    fleet.dispatch()

    assert started.status_code == 201, started.text
    assert frozen is None
    assert listed == [started.json()]
    assert ended.status_code == 200
    assert fleet.agents["web-01"].order() is not None
    again = fleet.operator.post(f"/v1/freezes/{freeze_id}/end", json={"reason": "over"})
    assert (again.status_code, again.json()["code"]) == (404, "freeze_not_found")


def test_a_repeat_returns_the_same_freeze(fleet: ServedFleet) -> None:
    headers = {"idempotency-key": "one"}

    first = fleet.operator.post("/v1/freezes", json={"reason": "sale"}, headers=headers)
    again = fleet.operator.post("/v1/freezes", json={"reason": "sale"}, headers=headers)

    assert first.json() == again.json()
    assert len(fleet.viewer.get("/v1/freezes").json()["items"]) == 1


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"reason": "x", "channels": ["none"]}, 404),
        ({"reason": "x", "channels": ["A B"]}, 400),
        ({"reason": "x", "until": "2020-01-01T00:00:00Z"}, 400),
        ({"reason": "x", "until": "tomorrow"}, 400),
        ({"reason": "x", "until": "2030-01-01T00:00:00"}, 400),
        ({"reason": "x", "freeze_id": "No Name"}, 400),
    ],
)
def test_refuses_invalid_freezes(fleet: ServedFleet, body: dict[str, object], status: int) -> None:
    assert fleet.operator.post("/v1/freezes", json=body).status_code == status


def test_an_operator_of_one_channel_freezes_only_that_one(fleet: ServedFleet) -> None:
    fleet.create()
    own = fleet.served.as_role(Grant(Role.FLEET_OPERATOR, f"channel:{CHANNEL}"))

    all_of_them = own.post("/v1/freezes", json={"reason": "x"})
    both = own.post("/v1/freezes", json={"reason": "x", "channels": [CHANNEL, "other"]})
    one = own.post("/v1/freezes", json={"reason": "x", "channels": [CHANNEL]})

    assert [all_of_them.status_code, both.status_code, one.status_code] == [403, 403, 201]


# ── orders that are out already ───────────────────────────────────────────────────────────────────

CODES = {"freeze": "channel_frozen", "freeze of all": "channel_frozen", "hold": "channel_held"}
each_stop = pytest.mark.parametrize("stop", CODES)


def begin(fleet: ServedFleet, stop: str) -> None:
    if stop == "hold":
        path, said = f"/v1/channels/{CHANNEL}/hold", {"reason": "a look"}
    else:
        path, said = "/v1/freezes", {"reason": "sale", "freeze_id": "sale"}
        said |= {"channels": [CHANNEL]} if stop == "freeze" else {}  # type: ignore[dict-item]
    answer = fleet.operator.post(path, json=said)
    assert answer.is_success, answer.text


def finish(fleet: ServedFleet, stop: str) -> None:
    path = f"/v1/channels/{CHANNEL}/unhold" if stop == "hold" else "/v1/freezes/sale/end"
    answer = fleet.operator.post(path, json={"reason": "over"})
    assert answer.is_success, answer.text


@each_stop
def test_sends_no_order_that_was_reserved_before_the_stop(fleet: ServedFleet, stop: str) -> None:
    fleet.sail()

    begin(fleet, stop)
    stopped = [fleet.agents["web-01"].poll(wait) for wait in (0, 1)]
    finish(fleet, stop)

    assert [answer.status_code for answer in stopped] == [204, 204]
    fleet.converge("web-01")


@each_stop
def test_refuses_the_acknowledgement_alone_and_in_a_batch(fleet: ServedFleet, stop: str) -> None:
    """The simple request is answered on the fast path, the batch by its handler."""
    fleet.sail()
    agent = fleet.agents["web-01"]
    order = agent.order()
    assert order is not None
    begin(fleet, stop)

    alone = agent.acknowledge(order)
    ack = agent.report(
        "DispatchAck",
        1,
        target_closure=order["target_closure"],
        current_closure_at_dispatch="sha256:old",
    )
    started = agent.report("ActivationStarted", 2)
    batch = agent.send("POST", "/v1/agent/events", json={"reports": [ack, started]})
    none = agent.order()
    finish(fleet, stop)

    problem = alone.json()
    assert (alone.status_code, problem["code"]) == (409, CODES[stop])
    assert (problem["channel"], problem["rollout_id"]) == (CHANNEL, ROLLOUT)
    found = [(one["status"], one["code"]) for one in batch.json()["answers"]]
    assert found == [(409, CODES[stop]), (409, "sequence_gap")]
    assert none is None
    fleet.converge("web-01")  # sent again at once: its lease is from before the stop


@each_stop
def test_wakes_a_waiting_poll_when_the_stop_ends(fleet: ServedFleet, stop: str) -> None:
    fleet.sail()
    begin(fleet, stop)
    wakes: Any = fleet.served.application.parts[OrderWaiters]
    with ThreadPoolExecutor(1) as threads:
        poll = threads.submit(fleet.agents["web-01"].poll, 60)
        while not wakes._stopped:
            assert not poll.done()
            time.sleep(0.01)
        finish(fleet, stop)

        assert poll.result().json()["rollout_id"] == ROLLOUT


@each_stop
def test_explains_why_a_host_does_not_use_its_order(fleet: ServedFleet, stop: str) -> None:
    fleet.sail()
    begin(fleet, stop)
    fleet.dispatch()

    gate = "hold" if stop == "hold" else "freeze"
    path = f"/v1/rollouts/{ROLLOUT}"
    explained = fleet.viewer.get(f"{path}/explain", params={"host_id": "web-01"}).json()
    whole = fleet.viewer.get(f"{path}/explain").json()

    assert explained["answer"].startswith(f"{gate}: ")
    assert whole["answer"].startswith(f"{gate} holds 2 of 2 hosts: ")
    events = fleet.viewer.get("/v1/events", params={"type": "GateChanged"}).json()["items"]
    assert [(item["data"]["gate"], item["data"]["blocked"]) for item in events[-1:]] == [
        (gate, True)
    ]
