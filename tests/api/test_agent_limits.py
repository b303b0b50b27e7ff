"""Limits on how often a host may send requests; a replayed session proof opens no session."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import httpx2
import pytest

from tests.api.served_fleet import T0, WireAgent, serve_fleet
from tidegate.control.fleet.used_proofs import UsedProofs
from tidegate.domain.hosts.protocol import SKEW_SECONDS_MAX, session_message

RATE = 2  # per second; bursts are twice as large


@pytest.mark.parametrize("fast_path", [True, False], ids=["fast path", "usual path"])
@pytest.mark.parametrize("wait", [None, 0], ids=["plain", "with a query"])
def test_a_host_that_polls_too_often_limits_no_other_host(
    tmp_path: Path, fast_path: bool, wait: int | None
) -> None:
    with serve_fleet(
        tmp_path / "data", agent_requests_per_second=RATE, fast_path=fast_path
    ) as fleet:
        greedy, other = fleet.agents["web-01"], fleet.agents["web-02"]

        answers = [poll(greedy, wait) for _ in range(40 * RATE)]
        refused = [item for item in answers if item.status_code == 429]

        assert [item.status_code for item in answers[: 2 * RATE]] == [204] * 2 * RATE
        assert refused, "more requests than a burst, faster than the bucket refills"
        assert {item.json()["code"] for item in refused} == {"rate_limited"}
        assert all(int(item.headers["retry-after"]) >= 1 for item in refused)
        assert poll(other, wait).status_code == 204


def test_a_request_that_leaves_the_fast_path_counts_once(tmp_path: Path) -> None:
    with serve_fleet(tmp_path / "data", agent_requests_per_second=RATE, fast_path=True) as fleet:
        agent = fleet.agents["web-01"]

        answers = [
            agent.send("POST", "/v1/agent/events", json={"reports": []}) for _ in range(2 * RATE)
        ]

        assert [item.status_code for item in answers] == [200] * 2 * RATE


def poll(agent: WireAgent, wait: int | None) -> httpx2.Response:
    params = None if wait is None else {"wait": wait}
    return agent.send("GET", "/v1/agent/dispatch", params=params)


def proof_of(agent: WireAgent, nonce: str) -> dict[str, object]:
    time = int(agent.clock().timestamp())
    proof = agent.key.sign(session_message(agent.host_id, time, nonce)).hex()
    return {"host_id": agent.host_id, "time": time, "nonce": nonce, "proof": proof}


def test_a_replayed_session_proof_returns_no_key(tmp_path: Path) -> None:
    with serve_fleet(tmp_path / "data") as fleet:
        agent = fleet.agents["web-01"]
        body = proof_of(agent, "ab" * 16)

        first = agent.client.post("/v1/agent/session", json=body)
        again = agent.client.post("/v1/agent/session", json=body)
        fleet.clock.advance(timedelta(seconds=SKEW_SECONDS_MAX))
        late = agent.client.post("/v1/agent/session", json=body)

        assert first.status_code == 200
        for replayed in (again, late):
            assert (replayed.status_code, replayed.json()["code"]) == (403, "proof_replayed")
            assert "mac_key" not in replayed.json()


def test_a_host_may_open_several_sessions_in_one_second(tmp_path: Path) -> None:
    with serve_fleet(tmp_path / "data") as fleet:
        agent = fleet.agents["web-01"]

        opened = [
            agent.client.post("/v1/agent/session", json=proof_of(agent, f"{n:032x}")).status_code
            for n in range(3)
        ]

        assert opened == [200] * 3


def test_the_memory_of_proofs_is_bounded_in_size_and_time() -> None:
    proofs = UsedProofs(entries_max=3)
    assert [proofs.use(str(number), T0) for number in range(5)] == [True] * 5
    assert len(proofs) == 3
    assert not proofs.use("4", T0)

    proofs.use("5", T0 + timedelta(seconds=2 * SKEW_SECONDS_MAX + 1))

    assert len(proofs) == 1
