"""Everything as processes: ``tidegate serve``, twenty agents with their own directories, people.

Agents are forked from one process that has imported the agent already, because twenty starts of an
interpreter take longer than the story. An agent that restarts after a kill is ``tidegate agent``.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import httpx2
import psycopg
import pytest

from tests.cli.shell import Ran, Shell
from tests.servers.process import free_port

CHANNEL: Final = "web-stable"
HOSTS: Final = tuple(f"web-{number:02d}" for number in range(1, 21))
CANARY, EARLY = HOSTS[:1], HOSTS[1:6]
RINGS: Final = {**dict.fromkeys(CANARY, "canary"), **dict.fromkeys(EARLY, "early")}
PASSWORD: Final = "correct horse battery\n"
SECONDS_MAX: Final = 60.0
PROGRAM: Final = (sys.executable, "-m", "tidegate")
LIMITS: Final = (
    *("reads-per-second", "writes-per-second", "agent-requests-per-second"),
    "sign-ins-per-minute",
)
SERVE: Final = tuple(word for name in LIMITS for word in (f"--{name}", "100000"))

POLICY: Final = {
    "waves": [
        {"name": "canary", "selector": "ring=canary", "soak_seconds": 1},
        {"name": "early", "selector": "ring=early", "soak_seconds": 2},
        {"name": "rest", "soak_seconds": 1},
    ],
    "sustained_failure_seconds": 1,
}
SETTINGS: Final = """\
server = "{url}"
state = "{place}/state"
poll_seconds = 5
tick_seconds = 0.5
heartbeat_seconds = 5
back_off_seconds_max = 0.5

[channels.{channel}]
driver = "symlink"
root = "{place}/site"
probes = "{place}/probes.toml"
"""
PROBES: Final = """\
[[probes]]
name = "good"
kind = "exec"
command = ["/bin/grep", "-q", "good", "{place}/site/current/app.txt"]
interval_seconds = 1
"""

# What no transcript contains, and what differs between two runs.
_SECRETS: Final = (
    (re.compile(r"\bt[eg]_[\w-]+"), "<token>"),
    (re.compile(r"\b[0-9a-f]{4}(-[0-9a-f]{4}){3}\b"), "<code>"),
)
_VARYING: Final = (
    (re.compile(r"http://127\.0\.0\.1:\d+"), "<url>"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+]00:00)?"), "<time>"),
    (re.compile(r"user_[a-z0-9]+"), "<user>"),
    (re.compile(r" at \d+\]"), " at <position>]"),
    (re.compile(r"up to \d+"), "up to <position>"),
    (re.compile(r"[ \t]{2,}"), "  "),  # columns are as wide as their contents
)


def until(condition: Callable[[], Any], what: str) -> None:
    """Wait for a condition; a failure names what did not happen."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"{what}: did not happen"
        time.sleep(0.05)


class ServerProcess:
    """``tidegate serve`` on one log. It may be killed, and restarts on the same port."""

    def __init__(self, tmp: Path, store: str, *options: str) -> None:
        self._options = options
        self.data = tmp / "data"
        self.store = store
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._said = tmp / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def where(self) -> tuple[str, ...]:
        return ("--data", str(self.data), "--store", self.store)

    def start(self) -> None:
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(
                [
                    *(*PROGRAM, "serve", *self.where, "--port", str(self.port)),
                    *(*SERVE, *self._options),
                ],
                stdout=said,
                stderr=said,
            )
        until(self._answers, "the server")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._said.read_text()
        try:
            return httpx2.get(f"{self.url}/livez").status_code == 200
        except httpx2.TransportError:
            return False

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        """Stop it in order, and return the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(SECONDS_MAX)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


class WorkerProcess:
    """``tidegate worker`` on the log of a server that runs none."""

    def __init__(self, tmp: Path, server: ServerProcess) -> None:
        with (tmp / "worker.log").open("ab") as said:
            self._process = subprocess.Popen(
                [*PROGRAM, "worker", *server.where], stdout=said, stderr=said
            )

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def _work(place: str) -> None:
    """Run an agent in a process that was forked for it."""
    said = os.open(f"{place}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(said, 1)
    os.dup2(said, 2)
    from tidegate.agent.command import run

    run(f"{place}/agent.toml", f"{place}/token")


class AgentHost:
    """One host: its directories, its settings and its agent."""

    def __init__(
        self, tmp: Path, host_id: str, url: str, token: str, *, channel: str = CHANNEL
    ) -> None:
        self.host_id = host_id
        self._place = tmp / "hosts" / host_id
        (self._place / "site").mkdir(parents=True)
        (self._place / "token").write_text(token)
        for name, text in (("agent.toml", SETTINGS), ("probes.toml", PROBES)):
            filled = text.format(url=url, place=self._place, channel=channel)
            (self._place / name).write_text(filled)
        self._forked: ForkServerProcess | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def accept(self, pattern: str) -> None:
        """Let the probe pass only content that matches this, from the next start on."""
        probe = PROBES.format(place=self._place).replace('"-q", "good"', f'"-qE", "{pattern}"')
        (self._place / "probes.toml").write_text(probe)

    def start(self) -> None:
        """Fork it from the process that has imported the agent."""
        context = get_context("forkserver")
        context.set_forkserver_preload(["tidegate.agent.command"])
        self._forked = context.Process(target=_work, args=(str(self._place),), daemon=True)
        self._forked.start()

    def come_back(self) -> None:
        """Start it by its command, as a supervisor does."""
        words = [*PROGRAM, "agent", "--config", str(self._place / "agent.toml")]
        with (self._place / "log").open("ab") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill it without warning, as a power failure would."""
        if self._forked is not None:
            self._forked.kill()
            self._forked.join()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def text(self) -> str:
        """Return the text of the content that runs."""
        try:
            return (self._place / "site" / "current" / "app.txt").read_text().strip()
        except FileNotFoundError:
            return ""

    @property
    def log(self) -> str:
        return (self._place / "log").read_text()


class Transcript:
    """Commands and their output, for people to read; without ids and times for comparing."""

    def __init__(self, place: Path) -> None:
        self._place = str(place)
        self._lines: list[str] = []

    def ran(self, who: str, words: tuple[str, ...], ran: Ran) -> None:
        said = (ran.out + ran.err).splitlines()
        self.tell(f"{who} $ tidegate {' '.join(words)}", *said, f"exit {ran.code}")

    def tell(self, *lines: str) -> None:
        self._lines += [*(line.rstrip() for line in lines), ""]

    @property
    def text(self) -> str:
        return _without("\n".join(self._lines).replace(self._place, "<tmp>"), _SECRETS)

    @property
    def compared(self) -> str:
        return _without(self.text, _VARYING)


def _without(text: str, masks: tuple[tuple[re.Pattern[str], str], ...]) -> str:
    for pattern, mask in masks:
        text = pattern.sub(mask, text)
    return text


class Person:
    """A person with a shell, whose commands are recorded in the transcript."""

    def __init__(self, tmp: Path, name: str, url: str, transcript: Transcript) -> None:
        self.name = name
        self._shell = Shell(tmp / name, url)
        self._transcript = transcript
        self._url = url

    def does(self, *words: str, stdin: str = "", code: int = 0) -> Ran:
        """Run a command, and fail on any exit code but the expected one."""
        ran = self._shell.run(*words, stdin=stdin)
        assert ran.code == code, (words, ran)
        self._transcript.ran(self.name, words, ran)
        return ran

    def waits(self, *words: str, code: int = 0) -> None:
        """Run a command that redraws its output until the end; only its last output is the same."""
        ran = self._shell.run(*words)
        assert ran.code == code, (words, ran)
        self._transcript.ran(self.name, words, Ran(ran.code, "…\n", ran.err))

    def sign_in(self) -> None:
        words = ("login", "--login", self.name, "--password-stdin", "--no-keep")
        self._shell.environ["TIDEGATE_TOKEN"] = self.does(*words, stdin=PASSWORD).out.strip()

    def client(self) -> httpx2.Client:
        """The same person as a client of the API."""
        headers = {"authorization": f"Bearer {self._shell.environ['TIDEGATE_TOKEN']}"}
        return httpx2.Client(base_url=self._url, headers=headers, timeout=SECONDS_MAX)


def policy_file(tmp: Path) -> str:
    path = tmp / "policy.json"
    path.write_text(json.dumps(POLICY))
    return str(path)


def store_url(request: pytest.FixtureRequest, engine: str, tmp: Path) -> str:
    """Return the URL of a fresh log on an engine that survives its process."""
    name = f"journey_{uuid4().hex[:16]}"
    match engine:
        case "postgres":
            url: str = request.getfixturevalue("postgres_url")
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
            return urlsplit(url)._replace(path=f"/{name}").geturl()
        case "dynamodb":
            endpoint = request.getfixturevalue("dynamodb_url")
            return f"dynamodb://{name}?region=local&endpoint={endpoint}"
    return f"sqlite:///{tmp / 'log.db'}"


def site(tmp: Path, text: str) -> str:
    """Create a directory to push."""
    place = tmp / "site"
    place.mkdir(exist_ok=True)
    (place / "app.txt").write_text(f"{text}\n")
    return str(place)
