"""A real server, its dispatcher and timers, and agents as processes on directories of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from pathlib import Path
from threading import Event, Thread
from typing import Any

from prometheus_client import CollectorRegistry

from tests.api.serving import ADMIN, Served, serving
from tests.api.test_packages import People
from tests.servers.process import free_port
from tidegate.control.fleet.dispatch import Dispatcher
from tidegate.control.fleet.enrollment import Enrollment
from tidegate.control.fleet.timers import Timers
from tidegate.control.worker import Counters, ManifestsLoop
from tidegate.domain.access.roles import Role
from tidegate.domain.hosts.rows import HostRecord, record_key
from tidegate.domain.hosts.states import HostState
from tidegate.kernel.model import Meta

CHANNEL = "web-stable"
ROOT = Path(__file__).parents[2]
SECONDS_MAX = 90.0  # an order that a dying agent took is handed out again after 30
PROBE = """
[[probes]]
name = "good"
kind = "exec"
command = ["/bin/grep", "-q", "good", "{root}/current/app.txt"]
interval_seconds = 1
"""


def until(condition: Callable[[], object], what: str, seen: Callable[[], object] = str) -> None:
    """Wait for it; a failure says what did not come, and what was there instead."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"{what}: {seen()}"
        time.sleep(0.02)


class Harbour:
    """web.1 … web.n are published, ``web-stable`` takes them to all hosts."""

    def __init__(self, tmp: Path, *texts: str, **policy: Any) -> None:
        self.tmp = tmp
        self._stack = ExitStack()
        self._port = free_port()
        self.open(is_set_up=True)
        self._publish(*texts)
        self._create(policy)

    def open(self, *, is_set_up: bool = False) -> None:
        """Serve, always on the same port."""
        self.served: Served = self._stack.enter_context(
            serving(self.tmp / "data", is_set_up=is_set_up, port=self._port)
        )
        self.installation = self.served.installation
        self._stack.enter_context(self._working())

    def close(self) -> None:
        """The server goes away; what it has is on disk."""
        self._stack.close()

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Orders, timers and manifests, as the worker does them."""
        here = self.installation
        dispatcher = Dispatcher(here.lanes, here.fleet_reader, here.clock)
        due = Timers(here.store, here.control, here.lanes, here.clock)
        manifests = ManifestsLoop(here, Counters(CollectorRegistry()))
        done = Event()

        def work() -> None:
            while not done.wait(0.05):
                manifests.round()
                dispatcher.run_pass(thorough=True)
                due.tick()
                here.nudge()

        thread = Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _publish(self, *texts: str) -> None:
        people = People(self.served)
        self.manager = self.served.as_role(Role.RELEASE_MANAGER)
        before = ""
        for number, text in enumerate(texts, 1):
            name = f"default.web.v{number}"
            tasks = {"tasks": [{"type": "edit", "source": before}]} if before else {}
            people.draft(f"v{number}", **tasks)
            people.push(name, app_txt=text)
            people.publish(name)
            before = name

    def _create(self, policy: dict[str, Any]) -> None:
        waves = [{"name": "all", "soak_seconds": policy.pop("soak_seconds", 1)}]
        made = self.manager.post(
            "/v1/channels",
            json={
                "channel": CHANNEL,
                "package": "default/web",
                "selector": "app=web",
                "policy": {"waves": waves, "sustained_failure_seconds": 1, **policy},
            },
        )
        assert made.status_code == 201, made.text

    def promote(self, release_id: str) -> str:
        """The rollout that it opens."""
        path = f"/v1/channels/{CHANNEL}/promote"
        promoted = self.manager.post(path, json={"release_id": release_id})
        assert promoted.status_code == 200, promoted.text
        return f"{CHANNEL}@{release_id}"

    def token(self, host_id: str) -> str:
        made = Enrollment(self.installation).make_token(
            f"t{time.monotonic_ns()}", host_id, {"app": "web"}, Meta(actor=ADMIN)
        )
        return made.token

    def record(self, rollout_id: str, host_id: str) -> HostRecord | None:
        found = self.installation.find(record_key(rollout_id, host_id), HostRecord)
        return None if found is None else found.row

    def reaches(self, rollout_id: str, host_id: str, state: HostState) -> HostRecord:
        def there() -> bool:
            record = self.record(rollout_id, host_id)
            return record is not None and record.state is state

        until(there, f"{host_id} is {state}", lambda: self.record(rollout_id, host_id))
        record = self.record(rollout_id, host_id)
        assert record is not None
        return record


class Hull:
    """One host: its directories, its settings, and its agent as a process."""

    def __init__(self, harbour: Harbour, host_id: str, **channel: Any) -> None:
        self.host_id = host_id
        self.directory = harbour.tmp / host_id
        self.root = self.directory / "root"
        self.root.mkdir(parents=True)
        self.state = self.directory / "state"
        self._process: subprocess.Popen[bytes] | None = None
        (self.directory / "token").write_text(harbour.token(host_id))
        (self.directory / "probes.toml").write_text(PROBE.format(root=self.root))
        self._configure(harbour.served.url, channel)

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

    def another(self) -> Hull:
        """The same host, for a second process."""
        twin = copy(self)
        twin._process = None
        return twin

    def start(self, *, enrolls: bool = True) -> None:
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tidegate", "agent"),
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
        """As the power would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self) -> int:
        """As a supervisor would; the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(SECONDS_MAX)
        self._process = None
        return code

    def wait(self) -> int:
        """Until it ends by itself; the exit code."""
        assert self._process is not None
        code = self._process.wait(SECONDS_MAX)
        self._process = None
        return code

    def end(self) -> None:
        if self._process is not None:
            self.kill()

    @property
    def is_enrolled(self) -> bool:
        return (self.state / "identity.json").exists()

    @property
    def text(self) -> str:
        """What the content that runs says."""
        try:
            return (self.root / "current" / "app.txt").read_text()
        except FileNotFoundError:
            return ""

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()
