"""One host without a server: content, orders, and the agent's order runs on a real disk."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from tidegate.agent import probes
from tidegate.agent.drivers import Driver, Switched, SwitchOutcome, SwitchRequest, SymlinkDriver
from tidegate.agent.errors import ServerAway
from tidegate.agent.journal import Journal
from tidegate.agent.order_runs import OrderRuns, SwitchJob
from tidegate.agent.probe_schedule import ProbeJob
from tidegate.agent.probes import PASSED, ProbeOutcome
from tidegate.clock import ManualClock
from tidegate.domain.content.manifests import FileManifest
from tidegate.domain.hosts.facts import AgentEvent
from tidegate.domain.hosts.protocol import Order, ReleaseContent
from tidegate.domain.hosts.rows import HostRecord
from tidegate.domain.hosts.states import HostPolicy, HostState

T0 = datetime(2026, 4, 24, 20, 0, tzinfo=UTC)
HOST = "web-1"
CHANNEL = "web-stable"
ROLLOUT = "web-stable@web.2"
OLD = {"app.txt": b"one", "static/site.css": b"p {}"}
NEW = {"app.txt": b"two", "static/site.css": b"p {}", "static/new.js": b""}


def closure_of(files: Mapping[str, bytes], executables: Container[str] = ()) -> str:
    """Compute the digest as the server does."""
    return FileManifest.of(files, executables).digest


class ContentSource:
    """Serves content as a server would, and counts the requests."""

    def __init__(self, **releases: Mapping[str, bytes]) -> None:
        self.releases = {f"/{name}": dict(files) for name, files in releases.items()}
        self.executables: frozenset[str] = frozenset()
        self.asked = 0
        self.is_away = False
        self.starts: list[int] = []  # the offset from which each file was requested

    def listing(self, content: str) -> ReleaseContent:
        self._ask()
        manifest = FileManifest.of(self.releases[content], self.executables)
        return ReleaseContent(content, manifest.digest, manifest.files)

    def file(
        self,
        content: str,
        hashed: str,
        bytes_max: int,
        write: Callable[[bytes], object],
        start: int = 0,
    ) -> None:
        self._ask()
        self.starts.append(start)
        write(self.body(content, hashed)[start:])

    def body(self, content: str, hashed: str) -> bytes:
        found = self.releases[content].values()
        return next(data for data in found if sha256(data).hexdigest() == hashed)

    def _ask(self) -> None:
        self.asked += 1
        if self.is_away:
            raise ServerAway("away")


def order(closure: str = closure_of(NEW), rollout_id: str = ROLLOUT, **changes: Any) -> Order:
    policy = changes.pop("policy", {})
    members: dict[str, Any] = {
        "rollout_id": rollout_id,
        "host_id": HOST,
        "attempt": 1,
        "channel": CHANNEL,
        "wave": 0,
        "target_closure": closure,
        "policy": HostPolicy(**{"sustained_failure_seconds": 60, "soak_seconds": 30} | policy),
        "release_id": "web.2",
        "content": "/new",
        "enqueued_at": T0,
    }
    return Order(**members | changes)


class SingleHost:
    """One host: a directory, a driver, a journal, and its order runs. ``crash`` loses what is not
    on disk. The test runs each job by hand, and reports wait until the test confirms them.
    """

    def __init__(self, tmp: Path, driver: Driver | None = None, probe_file: str = "") -> None:
        self.state = tmp / "state"
        self.state.mkdir(exist_ok=True)
        self.clock = ManualClock(T0)
        self.content_source = ContentSource(old=OLD, new=NEW)
        (tmp / "root").mkdir(exist_ok=True)
        self.driver = driver or SymlinkDriver(tmp / "root", self.content_source)
        self.probe_file = probe_file
        self.journal = Journal(self.state)
        self.order_runs = self._order_runs()

    def _order_runs(self) -> OrderRuns:
        def load(channel: str) -> tuple[probes.Probe, ...]:
            return probes.load(self.probe_file)

        return OrderRuns(HOST, self.journal, {CHANNEL: self.driver}, load, self.clock)

    def crash(self) -> None:
        self.journal.close()
        self.journal = Journal(self.state)
        self.order_runs = self._order_runs()
        self.order_runs.resume()

    def wait(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    @property
    def twin(self) -> HostRecord:
        return self.journal.twins[ROLLOUT]

    def is_at(self, state: HostState) -> bool:
        return self.twin.state is state

    @property
    def said(self) -> list[AgentEvent]:
        return [entry.event for entry in self.journal.entries]

    @property
    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.said]

    def confirm(self) -> None:
        """Confirm every waiting report, as the server would."""
        for event in self.said:
            self.order_runs.confirm(event.rollout_id, event.seq)

    def switch(self, outcome: SwitchOutcome | None = None) -> SwitchJob:
        """Run the next job, which is a switch, and use ``outcome`` in place of the driver's if it
        is given.
        """
        job = self.order_runs.jobs.popleft()
        assert isinstance(job, SwitchJob)
        self.order_runs.end_switch(job, outcome or self.driver.switch(job.change))
        return job

    def check(self, result: ProbeOutcome = PASSED) -> None:
        """Run all requested probes with this result."""
        while self.order_runs.jobs:
            job = self.order_runs.jobs.popleft()
            assert isinstance(job, ProbeJob)
            self.order_runs.end_probe(job, result)

    def soak(self, **policy: int) -> None:
        """Take an order, and switch, so that the host soaks."""
        self.order_runs.take(order(policy=policy))
        self.confirm()
        self.switch()
        assert self.is_at(HostState.SOAKING)


def run_old_release(host: SingleHost) -> None:
    """Switch to the old content before any order arrives."""
    done = host.driver.switch(SwitchRequest(closure_of(OLD), "", "/old"))
    assert isinstance(done, Switched)
