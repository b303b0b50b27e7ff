"""A join token enrolls many new hosts, with labels, a limit and an expiry time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from tests.api.served_fleet import ServedFleet, WireAgent
from tidegate.domain.hosts.protocol import join_message
from tidegate.kernel.model import Meta


def create(fleet: ServedFleet, limit: int = 3, **members: Any) -> dict[str, Any]:
    until = (fleet.clock() + timedelta(hours=2)).isoformat()
    body = {"labels": {"app": "db"}, "limit": limit, "until": until, **members}
    made = fleet.operator.post("/v1/join-tokens", json=body)
    assert made.status_code == 201, made.text
    return dict(made.json())


def join(agent: WireAgent, token: str, host_id: str | None = None) -> httpx2.Response:
    name = host_id or agent.host_id
    proof = agent.key.sign(join_message(token, agent.host_id, agent.public_key)).hex()
    body = {"token": token, "public_key": agent.public_key, "proof": proof, "host_id": name}
    return agent.client.post("/v1/agent/enroll", json=body)


def new_agent(fleet: ServedFleet, host_id: str) -> WireAgent:
    return WireAgent(fleet.served, host_id, fleet.clock)


def code(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


@pytest.mark.req("OP-12", engines=None, reason="an operation of a served fleet")
def test_enrolls_new_hosts_with_its_labels_up_to_its_limit(fleet: ServedFleet) -> None:
    made = create(fleet, limit=2)
    agents = [new_agent(fleet, f"db-0{number}") for number in range(3)]

    answers = [join(agent, made["token"]) for agent in agents]

    assert [answer.status_code for answer in answers] == [200, 200, 403]
    assert code(answers[2]) == (403, "token_refused")
    assert "all of its 2 hosts" in answers[2].json()["detail"]
    assert agents[0].open().status_code == 200
    assert fleet.operator.get("/v1/hosts/db-01").json()["labels"] == {"app": "db"}
    shown = fleet.operator.get(f"/v1/join-tokens/{made['join_id']}").json()
    assert (shown["enrolled"], shown["limit"]) == (2, 2)
    assert "token" not in shown


@pytest.mark.parametrize("end", [None, "revoke", "retire"])
@pytest.mark.req("OP-12", engines=None, reason="an operation of a served fleet")
def test_never_enrolls_a_name_that_exists(fleet: ServedFleet, end: str | None) -> None:
    if end is not None:
        fleet.operator.post(f"/v1/hosts/web-01/{end}", json={"reason": "x"})

    refused = join(new_agent(fleet, "web-01"), create(fleet)["token"])

    assert code(refused) == (409, "host_exists")
    assert "tidegate host re-enroll web-01" in refused.json()["detail"]


def test_an_agent_that_missed_the_response_gets_it_again(fleet: ServedFleet) -> None:
    made, agent = create(fleet, limit=1), new_agent(fleet, "db-01")

    answers = [join(agent, made["token"]) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()


def test_keeps_its_limit_with_many_agents_at_once(fleet: ServedFleet) -> None:
    token = create(fleet, limit=3)["token"]
    agents = [new_agent(fleet, f"db-{number:02}") for number in range(8)]

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda agent: join(agent, token), agents))

    assert sorted(answer.status_code for answer in answers) == [200] * 3 + [403] * 5


def test_only_one_of_many_agents_gets_a_name(fleet: ServedFleet) -> None:
    token = create(fleet, limit=8)["token"]
    agents = [new_agent(fleet, "db-01") for _ in range(6)]

    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda agent: join(agent, token), agents))

    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 5


def test_enrolls_no_host_after_its_end_or_its_deletion(fleet: ServedFleet) -> None:
    late, gone = create(fleet), create(fleet)
    deleted = fleet.operator.post(f"/v1/join-tokens/{gone['join_id']}/delete")
    assert deleted.status_code == 200, deleted.text
    assert code(join(new_agent(fleet, "db-01"), gone["token"])) == (403, "token_refused")
    again = fleet.operator.post(f"/v1/join-tokens/{gone['join_id']}/delete")
    assert code(again) == (404, "join_token_not_found")

    fleet.wait(3 * 3_600)

    refused = join(new_agent(fleet, "db-01"), late["token"])
    assert code(refused) == (403, "token_refused")
    assert "expired" in refused.json()["detail"]


def test_refuses_a_wrong_secret_and_a_proof_of_another_name(fleet: ServedFleet) -> None:
    token = create(fleet)["token"]
    agent = new_agent(fleet, "db-01")

    assert code(join(agent, token[:-4] + "0000")) == (403, "token_refused")
    assert code(join(agent, token, host_id="db-02")) == (403, "bad_proof")
    assert code(agent.enroll(token)) == (400, "invalid_input")  # a join token names no host


@pytest.mark.parametrize("days", [-1, 91])
def test_expires_within_ninety_days(fleet: ServedFleet, days: int) -> None:
    until = (fleet.clock() + timedelta(days=days)).isoformat()

    refused = fleet.operator.post("/v1/join-tokens", json={"limit": 1, "until": until})

    assert code(refused) == (400, "invalid_input")


def test_a_repeated_request_gets_the_same_token(fleet: ServedFleet) -> None:
    until = (fleet.clock() + timedelta(days=1)).isoformat()
    headers = {"idempotency-key": "k1"}

    first, again = (
        fleet.operator.post("/v1/join-tokens", json={"limit": 1, "until": until}, headers=headers)
        for _ in range(2)
    )

    assert first.status_code == 201
    assert first.json()["token"] == again.json()["token"]


def test_is_void_after_a_restore(fleet: ServedFleet) -> None:
    token = create(fleet)["token"]

    assert fleet.installation.enrollment.void_tokens(Meta(actor="restore")) > 0

    assert code(join(new_agent(fleet, "db-01"), token)) == (403, "token_refused")
