"""A file keeps its executable bit from an author's checkout through review to the host and back."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.agent_process import AgentProcess
from tests.agent.fleet_server import CHANNEL, FleetServer
from tests.cli.shell import Shell
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.hosts.states import HostState

PROGRAM = "#!/bin/sh\necho good\n"
RUN_IT = """
import os, subprocess
subprocess.run([os.path.join(os.environ["TIDEGATE_CONTENT"], "bin", "run")], check=True)
"""
DRIVERS: dict[str, dict[str, Any]] = {
    "symlink": {},
    "command": {"driver": "command", "command": [sys.executable, "-c", RUN_IT], "probes": ""},
}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def person(fleet_server: FleetServer, name: str, role: Role) -> Shell:
    served = fleet_server.served
    return Shell(fleet_server.tmp / name, served.url, served.token(served.user(Grant(role))))


def done(shell: Shell, *words: str) -> str:
    """Run the command, which must succeed, and return its output."""
    ran = shell.run(*words)
    assert ran.code == 0, (words, ran)
    return ran.out


@pytest.fixture
def fleet_server(tmp_path: Path) -> Iterator[FleetServer]:
    made = FleetServer(tmp_path, "good one")
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("driver", DRIVERS)
def test_an_executable_file_is_executable_on_the_host(
    fleet_server: FleetServer, driver: str
) -> None:
    author = person(fleet_server, "ada", Role.AUTHOR)
    approver = person(fleet_server, "bo", Role.APPROVER)
    place = author.home / "site"
    done(author, "rev", "copy", "web.v1", "--workspace", "v2")
    done(author, "rev", "pull", "web.v2", str(place))
    (place / "bin").mkdir()
    (place / "bin" / "run").write_text(PROGRAM)
    (place / "bin" / "run").chmod(0o755)

    done(author, "rev", "push", "web.v2", str(place))
    done(author, "rev", "propose", "web.v2")
    done(approver, "rev", "approve", "web.v2")
    agent_process = AgentProcess(fleet_server, "web-1", **DRIVERS[driver])
    agent_process.start()
    try:
        fleet_server.reaches(fleet_server.promote("web.2"), "web-1", HostState.CONVERGED)
    finally:
        agent_process.end()

    (content,) = agent_process.directory.rglob("sha256-*")
    assert content.parent in (
        agent_process.root / "releases",
        agent_process.state / "content" / CHANNEL,
    )
    assert mode(content / "bin" / "run") == 0o755
    assert mode(content / "app.txt") == 0o644
    again = approver.home / "again"
    done(approver, "rev", "pull", "web.v2", str(again))
    assert mode(again / "bin" / "run") & 0o111
    assert not mode(again / "app.txt") & 0o111


def test_a_file_that_became_executable_is_shown_as_a_change(
    fleet_server: FleetServer,
) -> None:
    author = person(fleet_server, "ada", Role.AUTHOR)
    place = author.home / "site"
    done(author, "rev", "copy", "web.v1", "--workspace", "v2")
    done(author, "rev", "pull", "web.v2", str(place))
    (place / "app.txt").chmod(0o755)

    refused = author.run("rev", "pull", "web.v2", str(place))
    done(author, "rev", "push", "web.v2", str(place))

    assert "has changes that were not pushed" in refused.err
    (changed,) = author.run("rev", "diff", "web.v2", "-o", "json").json()["changes"]
    assert changed["what"] == "changed"
    assert "executable" not in changed["before"]
    assert changed["after"]["executable"] is True
    assert "app.txt" in (said := done(author, "rev", "diff", "web.v2"))
    assert "now executable" in said
    assert "0755" in done(author, "rev", "files", "web.v2")
