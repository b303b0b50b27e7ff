"""Metrics about reports, including those that were refused in a batch with status 200."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.api.protected_fleet import GLASS, HERE, ask, protect
from tests.api.served_fleet import ServedFleet, serve_fleet
from tidegate.domain.access.roles import Role


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ServedFleet]:
    with serve_fleet(tmp_path / "data") as fleet:
        fleet.sail()
        yield fleet


def refused(fleet: ServedFleet) -> dict[str, int]:
    text = fleet.viewer.get("/metrics", headers={"accept": "text/plain"}).text
    found = re.findall(r'tidegate_reports_refused_total\{code="([a-z_]+)"\} ([0-9.]+)', text)
    return {code: int(float(number)) for code, number in found}


def test_counts_refused_reports_by_their_code_alone_and_in_a_batch(fleet: ServedFleet) -> None:
    agent = fleet.agents["web-01"]
    order = agent.order()
    assert order is not None
    early = agent.report("Converged", 1, current_closure=order["target_closure"])
    assert refused(fleet) == {}

    batch = [early, agent.report("ActivationStarted", 1, rollout_id="web-stable@web.9"), early]
    answer = agent.send("POST", "/v1/agent/events", json={"reports": batch})
    alone = agent.send("POST", "/v1/agent/events", json={"report": early})

    assert (answer.status_code, alone.status_code) == (200, 409)
    assert refused(fleet) == {"invalid_transition": 3, "rollout_unknown": 1}
    assert agent.acknowledge(order).status_code == 200
    assert sum(refused(fleet).values()) == 4


def figures(fleet: ServedFleet, name: str) -> dict[tuple[str, ...], float]:
    """The series of a metric: its label values, in the order of the text."""
    text = fleet.viewer.get("/metrics", headers={"accept": "text/plain"}).text
    found = re.findall(rf"^{name}(?:\{{(.*)\}})? ([0-9.e+]+)$", text, re.M)
    return {tuple(re.findall(r'="([^"]*)"', labels)): float(number) for labels, number in found}


def test_shows_the_states_of_rollouts_and_hosts(fleet: ServedFleet) -> None:
    assert figures(fleet, "tidegate_rollouts") == {("web-stable", "Active"): 1}
    assert figures(fleet, "tidegate_rollout_halted") == {("web-stable",): 0}
    assert figures(fleet, "tidegate_rollout_wave") == {("web-stable",): 1}
    assert figures(fleet, "tidegate_rollout_waves") == {("web-stable",): 2}
    hosts = figures(fleet, "tidegate_rollout_hosts")
    assert (hosts["web-stable", "Pending"], hosts["web-stable", "unordered"]) == (1, 1)
    assert figures(fleet, "tidegate_hosts")["web-stable", "enrolled"] == 2
    none = {("request",): 0, ("review",): 0, ("revision",): 0}
    assert figures(fleet, "tidegate_approvals_waiting") == none

    fleet.fail("web-01")

    assert figures(fleet, "tidegate_rollout_halted") == {("web-stable",): 1}
    ended = figures(fleet, "tidegate_rollouts_concluded_total")
    assert ended["web-stable", "rolled_back"] == 0  # a retry may still succeed
    assert figures(fleet, "tidegate_quarantined") == {("web-stable",): 1}
    assert figures(fleet, "tidegate_rollout_hosts")["web-stable", "Reverted"] == 1


def test_shows_requests_and_reviews_that_wait(fleet: ServedFleet) -> None:
    on_call = fleet.served.as_role(Role.RELEASE_MANAGER, Role.ON_CALL)
    fleet.served.as_role(Role.APPROVER)
    protect(fleet, request_seconds=7_200)
    etag = {"if-match": fleet.manager.get(HERE).headers["etag"]}
    edited = on_call.patch(HERE, json={"policy": {"waves": []}}, headers=etag | GLASS)
    assert edited.status_code == 200, edited.text
    fleet.clock.advance(timedelta(hours=1))
    ask(fleet.manager.post(f"{HERE}/promote", json={"release_id": "web.2"}))
    fleet.clock.advance(timedelta(minutes=10))

    waiting = figures(fleet, "tidegate_approvals_waiting")
    oldest = figures(fleet, "tidegate_approvals_oldest_seconds")

    assert (waiting["request",], waiting["review",]) == (1, 1)
    assert (oldest["request",], oldest["review",]) == (600, 4_200)
    fleet.clock.advance(timedelta(hours=2))
    assert figures(fleet, "tidegate_approvals_waiting")["request",] == 0, "it has expired"


def test_shows_that_a_host_drifted_after_its_rollout_ended(fleet: ServedFleet) -> None:
    """Wrong version: only open rollouts were looked at, and they are seldom degraded."""
    fleet.converge("web-01")
    fleet.dispatch()
    fleet.converge("web-02")
    assert figures(fleet, "tidegate_rollouts") == {}
    assert figures(fleet, "tidegate_rollout_degraded") == {("web-stable",): 0}

    fleet.agents["web-01"].beat(**{"web-stable": "sha256:other"})

    assert figures(fleet, "tidegate_rollout_degraded") == {("web-stable",): 1}
