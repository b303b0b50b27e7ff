"""What an agent does with a refused report: some are dropped, some are sent again later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agent.fleet_server import until
from tests.agent.lying_server import agent, manifest, serve_lies
from tests.agent.test_trust import RELEASES, WANTED, new_order, runs
from tidegate.agent import loop


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "HELD_SECONDS", 0.1)


def refusing(kind: str, times: int, **answer: Any) -> Any:
    """Refuse the first reports of a kind."""
    seen: list[int] = []

    def refuse(report: dict[str, Any]) -> dict[str, Any] | None:
        if report["kind"] != kind or len(seen) >= times:
            return None
        seen.append(report["seq"])
        return {"status": 409, "detail": "no", **answer}

    return refuse


def test_reports_convergence_again_after_an_early_convergence(tmp_path: Path) -> None:
    """The server may record the activation later than the agent did, so its soak ends later."""
    with serve_lies(**RELEASES) as server, agent(server, tmp_path) as link:
        server.refuse = refusing("Converged", 2, code="early_convergence", state="Soaking")
        server.manifest = 200, manifest(WANTED)
        server.orders.append(new_order())
        until(lambda: server.kinds().count("Converged") == 3, "it reports it again", server.kinds)

        said = [report for report in server.reports if report["kind"] == "Converged"]
        assert len({report["seq"] for report in said}) == 1
        assert [report["at"] for report in said] == sorted({report["at"] for report in said})
        assert runs(link) == "two"


def test_uses_the_number_that_the_server_expects_after_a_gap(tmp_path: Path) -> None:
    """A restored server has fewer reports; the agent continues from the last one that it has."""
    with serve_lies(**RELEASES) as server, agent(server, tmp_path):
        server.refuse = refusing("Converged", 1, code="sequence_gap", state="Soaking", expected=3)
        server.manifest = 200, manifest(WANTED)
        server.orders.append(new_order())
        until(lambda: server.kinds().count("Converged") == 2, "it reports it again", server.kinds)

        said = [report["seq"] for report in server.reports if report["kind"] == "Converged"]
        assert said[1] == 3


def test_drops_a_report_that_is_too_late_for_the_rollout(tmp_path: Path) -> None:
    with serve_lies(**RELEASES) as server, agent(server, tmp_path):
        server.refuse = refusing("Converged", 1, code="rollout_superseded", state="", status=410)
        server.manifest = 200, manifest(WANTED)
        server.orders.append(new_order())
        until(lambda: "Converged" in server.kinds(), "it converges", server.kinds)
        beats = server.heartbeats
        until(lambda: server.heartbeats >= beats + 5, "it keeps running")

        assert server.kinds().count("Converged") == 1


def test_sends_heartbeats_while_an_order_waits_for_its_manifest(tmp_path: Path) -> None:
    with serve_lies(**RELEASES) as server, agent(server, tmp_path):
        server.orders.append(new_order())
        until(lambda: len(server.manifests_asked) >= 2, "it fetches the manifest")
        beats = server.heartbeats
        until(lambda: server.heartbeats >= beats + 3, "its heartbeat arrives")

        assert server.kinds() == []


def test_sends_heartbeats_while_a_report_waits_for_a_paused_rollout(tmp_path: Path) -> None:
    with serve_lies(**RELEASES) as server, agent(server, tmp_path):
        server.refuse = refusing("DispatchAck", 10_000, code="rollout_paused", state="")
        server.manifest = 200, manifest(WANTED)
        server.orders.append(new_order())
        until(lambda: "DispatchAck" in server.kinds(), "it acknowledges", server.kinds)
        beats = server.heartbeats
        until(lambda: server.heartbeats >= beats + 3, "its heartbeat arrives")

        assert set(server.kinds()) == {"DispatchAck"}
