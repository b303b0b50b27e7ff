"""A re-imaged or retired host enrolls again under its name, with a token made for that name."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from tests.api.served_fleet import CHANNEL, ROLLOUT, ServedFleet, WireAgent
from tidegate.domain.fleet.credentials import CERT_REVOCATIONS
from tidegate.domain.fleet.rows import Fleet, fleet_key

HOST = "web-01"


def token(fleet: ServedFleet, **body: Any) -> str:
    made = fleet.operator.post(f"/v1/hosts/{HOST}/re-enroll", json=body)
    assert made.status_code == 201, made.text
    return str(made.json()["token"])


def new_agent(fleet: ServedFleet) -> WireAgent:
    """The agent of a fresh image, with a new key."""
    return WireAgent(fleet.served, HOST, fleet.clock)


def shown(fleet: ServedFleet) -> dict[str, Any]:
    return dict(fleet.operator.get(f"/v1/hosts/{HOST}").json())


def hosts_counted(fleet: ServedFleet) -> int:
    found = fleet.installation.reads.find(fleet_key(), Fleet)
    assert found is not None
    return found.row.hosts


def retire(fleet: ServedFleet) -> None:
    done = fleet.operator.post(f"/v1/hosts/{HOST}/retire", json={"reason": "sold"})
    assert done.status_code == 200, done.text


@pytest.mark.req("OP-12", engines=None, reason="an operation of a served fleet")
def test_replaces_the_key_of_a_host_and_refuses_the_old_one(fleet: ServedFleet) -> None:
    old, before = fleet.agents[HOST], shown(fleet)
    assert old.poll().status_code == 204
    agent = new_agent(fleet)

    enrolled = agent.enroll(token(fleet, reason="new disk"))

    assert enrolled.status_code == 200, enrolled.text
    assert agent.open().status_code == 200
    assert agent.poll().status_code == 204
    after = shown(fleet)
    assert (after["public_key"], after["labels"]) == (agent.public_key, before["labels"])
    asked, opened = old.poll(), old.open()
    assert (asked.status_code, asked.json()["code"]) == (401, "key_refused")
    assert (opened.status_code, opened.json()["code"]) == (403, "key_revoked")
    for refused in (asked, opened):
        assert "web-01 enrolled again with another key" in refused.json()["detail"]


@pytest.mark.req("OP-12", engines=None, reason="an operation of a served fleet")
def test_a_re_imaged_host_gets_the_release_that_its_channel_has(fleet: ServedFleet) -> None:
    fleet.sail()
    fleet.succeed()
    fleet.agents[HOST].beat(**{CHANNEL: fleet.agents[HOST].current["target_closure"]})
    agent = new_agent(fleet)
    agent.enroll(token(fleet, reason="new disk"))
    assert agent.open().status_code == 200
    assert fleet.promote().json()["code"] == "already_promoted"
    fleet.clock.advance(timedelta(seconds=5))

    agent.beat()

    assert fleet.viewer.get(f"/v1/rollouts/{ROLLOUT}").json()["degraded"] is True
    again = fleet.promote()
    assert (again.status_code, again.json()["rollout_id"]) == (200, f"{ROLLOUT}~2")
    fleet.dispatch()
    assert agent.order() is not None


@pytest.mark.req("OP-12", engines=None, reason="an operation of a served fleet")
def test_revokes_the_old_key_in_the_same_commit(fleet: ServedFleet) -> None:
    old = fleet.agents[HOST].public_key

    fleet_token = token(fleet, reason="new disk")
    assert shown(fleet)["public_key"] == old  # nothing changes until the token is used
    position = int(new_agent(fleet).enroll(fleet_token).headers["tidegate-position"])

    reads = fleet.installation.reads
    (revoked,) = (row.row for row in reads.range(CERT_REVOCATIONS, limit=10))
    assert (revoked.public_key, revoked.host_id) == (old, HOST)
    events = fleet.operator.get("/v1/events", params={"after": position - 2}).json()["items"]
    told = [(event["type"], event["data"].get("reason")) for event in events[:2]]
    assert told == [("tidegate.HostRevoked", "new disk"), ("tidegate.HostEnrolled", None)]


def test_refuses_a_first_enrollment_token_for_an_enrolled_host(
    fleet: ServedFleet,
) -> None:
    refused = new_agent(fleet).enroll(fleet.token(HOST))

    assert (refused.status_code, refused.json()["code"]) == (409, "host_enrolled")
    assert "tidegate host re-enroll web-01" in refused.json()["detail"]
    assert fleet.agents[HOST].poll().status_code == 204


def test_refuses_the_old_key_to_enroll_again(fleet: ServedFleet) -> None:
    old = fleet.agents[HOST]
    first = old.enroll(token(fleet))
    assert (first.status_code, first.json()["code"]) == (403, "token_refused")
    assert "empty state directory" in first.json()["detail"]
    assert new_agent(fleet).enroll(token(fleet)).status_code == 200

    again = old.enroll(token(fleet))

    assert (again.status_code, again.json()["code"]) == (403, "key_revoked")


def test_re_enrolls_a_retired_host(fleet: ServedFleet) -> None:
    count = hosts_counted(fleet)
    retire(fleet)
    assert hosts_counted(fleet) == count - 1
    plain = fleet.operator.post("/v1/hosts/enroll", json={"host_id": HOST})
    assert (plain.status_code, plain.json()["code"]) == (410, "host_retired")
    assert "tidegate host re-enroll web-01" in plain.json()["detail"]
    agent = new_agent(fleet)

    assert agent.enroll(token(fleet)).status_code == 200

    assert agent.open().status_code == 200
    assert ("status" in shown(fleet), hosts_counted(fleet)) == (False, count)  # enrolled
    assert fleet.agents[HOST].open().json()["code"] == "key_revoked"


def test_a_host_retired_after_the_token_was_made_stays_retired(fleet: ServedFleet) -> None:
    made = token(fleet)
    retire(fleet)

    refused = new_agent(fleet).enroll(made)

    assert (refused.status_code, refused.json()["code"]) == (410, "host_retired")
    assert shown(fleet)["status"] == "retired"


def test_an_older_token_does_not_replace_a_newer_key(fleet: ServedFleet) -> None:
    older, newer = token(fleet), token(fleet)
    agent = new_agent(fleet)
    assert agent.enroll(newer).status_code == 200

    refused = new_agent(fleet).enroll(older)

    assert (refused.status_code, refused.json()["code"]) == (403, "token_refused")
    assert "after this token was made" in refused.json()["detail"]
    assert shown(fleet)["public_key"] == agent.public_key


def test_only_one_of_many_agents_gets_the_name(fleet: ServedFleet) -> None:
    tokens = [token(fleet) for _ in range(6)]
    agents = [new_agent(fleet) for _ in tokens]

    with ThreadPoolExecutor(6) as threads:
        answers = list(
            threads.map(lambda pair: pair[0].enroll(pair[1]), zip(agents, tokens, strict=True))
        )

    (winner,) = (
        agent for agent, answer in zip(agents, answers, strict=True) if answer.status_code == 200
    )
    assert shown(fleet)["public_key"] == winner.public_key
    assert {answer.json().get("code") for answer in answers} == {None, "token_refused"}


def test_enrolls_again_after_a_revocation_in_between(fleet: ServedFleet) -> None:
    made = token(fleet)
    fleet.operator.post(f"/v1/hosts/{HOST}/revoke", json={"reason": "stolen"})
    agent = new_agent(fleet)

    assert agent.enroll(made).status_code == 200

    assert agent.open().status_code == 200
