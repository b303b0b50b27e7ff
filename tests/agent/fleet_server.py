"""A real server in a thread, with the worker's dispatcher, timers and manifests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

from prometheus_client import CollectorRegistry

from tests.api.people import People
from tests.api.serving import ADMIN, Served, serving
from tests.servers.process import free_port
from tidegate.control.fleet.dispatch import Dispatcher
from tidegate.control.fleet.timers import Timers
from tidegate.control.worker import Counters, make_manifests_loop
from tidegate.domain.access.roles import Role
from tidegate.domain.hosts.rows import HostRecord, record_key
from tidegate.domain.hosts.states import HostState
from tidegate.kernel.model import Meta

CHANNEL = "web-stable"


SECONDS_MAX = 90.0  # an order that a dying agent took is handed out again after 30


def until(condition: Callable[[], object], what: str, seen: Callable[[], object] = str) -> None:
    """Wait for it; a failure says what did not come, and what was there instead."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"{what}: {seen()}"
        time.sleep(0.02)


class FleetServer:
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
        manifests = make_manifests_loop(here, Counters(CollectorRegistry()))
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
        made = self.installation.enrollment.make_token(
            f"t{time.monotonic_ns()}", host_id, {"app": "web"}, Meta(actor=ADMIN)
        )
        return made.token

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
