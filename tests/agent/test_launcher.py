"""The agent updates itself through a channel; an agent that does not start is rolled back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agent.agent_process import AgentProcess
from tests.agent.fleet_server import FleetServer, until
from tests.agent.single_host import ContentSource
from tidegate.agent.drivers import Switched, SwitchRequest, SymlinkDriver
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
    """A fake agent in a release; it writes down which one it is."""
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


def test_a_channel_updates_the_agent_and_rolls_one_back_that_does_not_start(
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
        until(lambda: (host.root / "fell-back").exists(), "it rolls back", lambda: host.log)
        server.reaches(rollout, "web-41", HostState.REVERTED)

        assert (host.root / "current").resolve() == good
        assert host.log.count("ended with 1") == 3
        assert started()[-1] == "2"
        assert host.stop() == 0
    finally:
        if host.is_running:
            host.stop()  # the launcher kills its agent


# ── the launcher alone: its agents are programs that keep running, or end at once ──

GOOD, OTHER, BAD = (f"sha256:{letter * 64}" for letter in "abc")
STAYS, ENDS = "exec sleep 600\n", "exit 1\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for closure, text in ((GOOD, STAYS), (OTHER, STAYS), (BAD, ENDS)):
        place = root / "releases" / closure.replace(":", "-")
        place.mkdir(parents=True)
        (place / "start").write_text(text)
    return root


def switch(root: Path, closure: str) -> None:
    """Switch as an agent does, to content that is already there."""
    driver = SymlinkDriver(root, ContentSource())
    assert driver.switch(SwitchRequest(closure, "", "")) == Switched()


def is_well(root: Path) -> bool:
    return subprocess.run([LAUNCHER, "--check", root], check=False, timeout=60).returncode == 0


def points_to(root: Path, closure: str) -> bool:
    return os.readlink(root / "current").endswith(closure.rpartition(":")[2])


def is_up(root: Path, closure: str) -> bool:
    try:
        return (root / "running").read_text().endswith(closure.rpartition(":")[2])
    except FileNotFoundError:
        return False


@contextmanager
def launched(root: Path) -> Iterator[None]:
    settings = {"AGENT_LAUNCHER_SOON_SECONDS": "3", "AGENT_LAUNCHER_STARTS_MAX": "1"}
    launcher = subprocess.Popen([LAUNCHER, root, "/bin/false"], env={**os.environ, **settings})
    try:
        yield
    finally:
        launcher.terminate()
        launcher.wait(60)


def fall_back(root: Path) -> None:
    """Switch from a good release to one that does not start, and let the launcher roll back."""
    until(lambda: is_up(root, GOOD), "the good agent runs")
    switch(root, BAD)
    until(lambda: (root / "fell-back").exists() and points_to(root, GOOD), "it rolls back")


def test_an_order_for_the_agent_after_a_rollback_passes_the_check(root: Path) -> None:
    switch(root, GOOD)
    with launched(root):
        fall_back(root)
        until(lambda: is_up(root, GOOD), "the good agent runs again")
        assert not is_well(root), "the release that was ordered does not run"

        switch(root, GOOD)  # `channel rollback` orders it

        until(lambda: is_well(root), "the check passes")


def test_an_agent_after_a_rollback_passes_the_check_only_once_it_runs(root: Path) -> None:
    switch(root, GOOD)
    with launched(root):
        fall_back(root)

    (root / "releases" / GOOD.replace(":", "-") / "start").write_text(ENDS)
    switch(root, GOOD)
    with launched(root):
        until(lambda: not (root / "fell-back").exists(), "it sees that the link is not its own")

    assert not is_well(root)


def test_a_restart_of_the_launcher_forgets_nothing(root: Path) -> None:
    switch(root, GOOD)
    with launched(root):
        fall_back(root)
        until(lambda: is_up(root, GOOD), "the good agent runs again")
    with launched(root):
        until(lambda: is_up(root, GOOD), "the good agent runs again")
        assert not is_well(root)
    switch(root, OTHER)  # the agent did it just before it ended
    with launched(root):
        until(lambda: is_well(root), "the check passes")
        switch(root, BAD)
        until(lambda: (root / "fell-back").exists() and points_to(root, OTHER), "it rolls back")


def test_a_switch_while_the_launcher_stops_can_be_rolled_back(root: Path) -> None:
    switch(root, GOOD)
    with launched(root):
        until(lambda: is_up(root, GOOD), "the good agent runs")
    switch(root, BAD)

    with launched(root):
        until(lambda: (root / "fell-back").exists(), "it rolls back")

    assert points_to(root, GOOD)


def test_writes_what_runs_once(root: Path) -> None:
    switch(root, GOOD)
    with launched(root):
        until(lambda: is_up(root, GOOD), "the good agent runs")
        (root / "running").write_text("marked")
        switch(root, GOOD)
        (root / "fell-back").touch()
        switch(root, GOOD)
        until(lambda: not (root / "fell-back").exists(), "it has checked again")

        assert (root / "running").read_text() == "marked"
