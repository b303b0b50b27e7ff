"""A served fleet for agents that run as processes: on the system's clock, with a worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.api.served_fleet import CHANNEL as CHANNEL, ServedFleet
from tests.api.serving import serving
from tests.servers.process import free_port
from tidegate.domain.hosts.rows import HostRecord, record_key
from tidegate.domain.hosts.states import HostState

SECONDS_MAX = 90.0  # an order that a killed agent took is sent again after 30


def until(condition: Callable[[], object], what: str, seen: Callable[[], object] = str) -> None:
    """Wait until the condition holds; on a timeout, fail with what was expected and found."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"{what}: {seen()}"
        time.sleep(0.02)


class FleetServer:
    """A server with web.1 … web.n published, and ``web-stable`` to deliver them to all hosts."""

    def __init__(
        self, tmp: Path, *texts: str, store: str = "", file: str = "app_txt", **policy: Any
    ) -> None:
        self.tmp = tmp
        self._file = file  # of each release; _ is a dot
        self._settings: dict[str, Any] = {"store": store} if store else {}
        self._stack = ExitStack()
        self._port = free_port()
        self.open(is_set_up=True)
        self._publish(*texts)
        waves = [{"name": "all", "soak_seconds": policy.pop("soak_seconds", 1)}]
        self.fleet.create(**{"waves": waves, "sustained_failure_seconds": 1, **policy})

    def open(self, *, is_set_up: bool = False) -> None:
        """Serve, always on the same port."""
        self.served = self._stack.enter_context(
            serving(self.tmp / "data", is_set_up=is_set_up, port=self._port, **self._settings)
        )
        if not is_set_up:
            self.served.skip_names()
        self.fleet = ServedFleet(self.served)
        self.installation = self.served.installation
        self.manager = self.fleet.manager
        self._stack.enter_context(self.fleet.working())

    def close(self) -> None:
        """Stop the server; its data stays on disk."""
        self._stack.close()

    def _publish(self, *texts: str) -> None:
        before = ""
        for number, text in enumerate(texts, 1):
            name = f"default.web.v{number}"
            tasks = {"tasks": [{"type": "edit", "source": before}]} if before else {}
            self.fleet.draft(f"v{number}", **tasks)
            self.fleet.push(name, **{self._file: text})
            self.fleet.publish(name)
            before = name

    def promote(self, release_id: str) -> str:
        """Promote a release and return the rollout's id."""
        promoted = self.fleet.promote(release_id)
        assert promoted.status_code == 200, promoted.text
        return f"{CHANNEL}@{release_id}"

    def token(self, host_id: str) -> str:
        return self.fleet.token(host_id, app="web")

    def record(self, rollout_id: str, host_id: str) -> HostRecord | None:
        found = self.installation.reads.find(record_key(rollout_id, host_id), HostRecord)
        return None if found is None else found.row

    def reaches(self, rollout_id: str, host_id: str, state: HostState) -> HostRecord:
        def there() -> bool:
            record = self.record(rollout_id, host_id)
            return record is not None and record.state is state

        until(there, f"{host_id} is {state}", lambda: self.record(rollout_id, host_id))
        record = self.record(rollout_id, host_id)
        assert record is not None
        return record
