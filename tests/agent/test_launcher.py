"""The agent ships itself: a channel brings a new agent, and one that does not start is undone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.agent_process import AgentProcess
from tests.agent.fleet_server import FleetServer, until
from tidegate.domain.hosts.states import HostState

ROOT = Path(__file__).parents[2]
LAUNCHER = ROOT / "packaging/agent/tidegate-agent-launcher"
PROBE = """
[[probes]]
name = "agent-starts"
kind = "exec"
command = ["{launcher}", "--check", "{root}"]
interval_seconds = 1
"""


def start_script(number: int) -> str:
    """The agent of a release; it leaves word of who it is."""
    return (
        f'echo {number} >> "$(dirname "$0")/../../started"\n'
        f'exec {sys.executable} -m tidegate.agent.program "$@"\n'
    )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FleetServer]:
    texts = (start_script(1), start_script(2), "exit 1\n")
    policy: dict[str, Any] = {"soak_seconds": 5, "sustained_failure_seconds": 20}
    server = FleetServer(tmp_path, *texts, file="start", **policy)
    yield server
    server.close()


def test_a_channel_updates_the_agent_and_one_that_does_not_start_is_undone(
    server: FleetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "AGENT_LAUNCHER_SOON_SECONDS", "3")
    host = AgentProcess(server, "web-41")
    (host.directory / "probes.toml").write_text(PROBE.format(root=host.root, launcher=LAUNCHER))
    installed = host.directory / "installed"
    installed.write_text(f'#!/bin/sh\nexec {sys.executable} -m tidegate.agent.program "$@"\n')
    installed.chmod(0o755)
    host.program = (str(LAUNCHER), str(host.root), str(installed))

    def started() -> list[str]:
        try:
            return (host.root / "started").read_text().split()
        except FileNotFoundError:
            return []

    try:
        host.start()
        for number in (1, 2):
            rollout = server.promote(f"web.{number}")
            until(lambda number=number: str(number) in started(), "it runs", lambda: host.log)  # type: ignore[misc]
            server.reaches(rollout, "web-41", HostState.CONVERGED)
        good = (host.root / "current").resolve()

        rollout = server.promote("web.3")
        until(lambda: (host.root / "fell-back").exists(), "it goes back", lambda: host.log)
        server.reaches(rollout, "web-41", HostState.REVERTED)

        assert (host.root / "current").resolve() == good
        assert host.log.count("ended with 1") == 3
        assert started()[-1] == "2"
        assert host.stop() == 0
    finally:
        if host.is_running:
            host.stop()  # the launcher ends its agent
