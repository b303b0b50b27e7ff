"""Agents as processes with directories of their own, for a real server with worker and timers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from copy import copy
from pathlib import Path
from typing import Any

from tests.agent.fleet_server import CHANNEL, SECONDS_MAX, FleetServer, until

ROOT = Path(__file__).parents[2]
PROBE = """
[[probes]]
name = "good"
kind = "exec"
command = ["/bin/grep", "-q", "good", "{root}/current/app.txt"]
interval_seconds = 1
"""


class AgentProcess:
    """One host: its directories, its settings, and its agent as a process."""

    def __init__(self, fleet_server: FleetServer, host_id: str, **channel: Any) -> None:
        self.host_id = host_id
        self.directory = fleet_server.tmp / host_id
        self.root = self.directory / "root"
        self.root.mkdir(parents=True)
        self.state = self.directory / "state"
        self._process: subprocess.Popen[bytes] | None = None
        self.program: tuple[str, ...] = (sys.executable, "-m", "tidegate", "agent")
        (self.directory / "token").write_text(fleet_server.token(host_id))
        (self.directory / "probes.toml").write_text(PROBE.format(root=self.root))
        self._configure(fleet_server.served.url, channel)

    def _configure(self, url: str, channel: dict[str, Any]) -> None:
        chosen = {
            "driver": "symlink",
            "root": str(self.root),
            "probes": str(self.directory / "probes.toml"),
            **channel,
        }
        members = "\n".join(f"{name} = {json.dumps(value)}" for name, value in chosen.items())
        (self.directory / "agent.toml").write_text(
            f'server = "{url}"\nstate = "{self.state}"\n'
            "poll_seconds = 2\ntick_seconds = 0.2\nheartbeat_seconds = 1\n"
            f"back_off_seconds_max = 0.5\n[channels.{CHANNEL}]\n{members}\n"
        )

    def take_token(self, token: str) -> None:
        """Give the agent this token for its next start. A join token also needs a host name."""
        (self.directory / "token").write_text(token)
        settings = self.directory / "agent.toml"
        if "host =" not in settings.read_text():
            settings.write_text(f'host = "{self.host_id}"\n{settings.read_text()}')

    def another(self) -> AgentProcess:
        """A second agent process on the same host."""
        twin = copy(self)
        twin._process = None
        return twin

    def start(self, *, enrolls: bool = True) -> None:
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *self.program,
                    *("--config", str(self.directory / "agent.toml")),
                    *("--token-file", str(self.directory / "token")),
                ],
                stderr=log,
                stdout=log,
                cwd=ROOT,
                env={name: text for name, text in os.environ.items() if "TIDEGATE" not in name},
            )

        if enrolls:
            until(lambda: self.is_enrolled, "the host is enrolled", lambda: self.log)

    def kill(self) -> None:
        """Kill the process with SIGKILL, as a power cut would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self) -> int:
        """Stop the process with SIGTERM, as a supervisor would, and return the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(SECONDS_MAX)
        self._process = None
        return code

    def wait(self) -> int:
        """Wait until the process ends by itself, and return the exit code."""
        assert self._process is not None
        code = self._process.wait(SECONDS_MAX)
        self._process = None
        return code

    def end(self) -> None:
        if self._process is not None:
            self.kill()

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def is_enrolled(self) -> bool:
        return (self.state / "identity.json").exists()

    @property
    def text(self) -> str:
        """The text of the content that currently runs."""
        try:
            return (self.root / "current" / "app.txt").read_text()
        except FileNotFoundError:
            return ""

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()
