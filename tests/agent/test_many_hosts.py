"""Many hosts request the manifest at once: a server in a process of its own, real clients."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier

import pytest

from tests.agent.fleet_server import CHANNEL, FleetServer
from tests.operations.processes import Server, opened, served
from tidegate.agent import identity
from tidegate.agent.client import AgentClient
from tidegate.clock import system_clock
from tidegate.control.operations.promotion_planning import Promote

HOSTS = 16


def ask_at_once(clients: list[AgentClient]) -> set[bytes]:
    """Request it with all clients at once; the distinct bodies. Raises: ServerAway, Answered."""
    ready = Barrier(len(clients))

    def ask(client: AgentClient) -> bytes:
        client.heartbeat("1", {})  # this opens the session
        ready.wait()
        return client.manifest(CHANNEL)

    with ThreadPoolExecutor(len(clients)) as pool:
        return set(pool.map(ask, clients))


@pytest.fixture
def promoted(tmp_path: Path) -> Iterator[tuple[Server, list[AgentClient]]]:
    """Hosts, and a server without a worker, after a promotion that published no manifest."""
    fleet_server = FleetServer(tmp_path, "good one", "good two", "good three")
    tokens = {name: fleet_server.token(name) for name in (f"web-{n}" for n in range(HOSTS))}
    bearer = fleet_server.manager.headers["authorization"].removeprefix("Bearer ")
    fleet_server.close()
    with opened(tmp_path / "data") as installation:
        asked = Promote(channel=CHANNEL, release_id="web.1", command_id="c1", by="user_x")
        installation.promotions.promote(asked)
    with ExitStack() as stack:
        server = stack.enter_context(served(tmp_path / "data", bearer, "--worker", "false"))
        clients = []
        for name, token in tokens.items():
            state = tmp_path / name
            state.mkdir(mode=0o700)
            client = AgentClient(server.url, identity.load_or_create_key(state), system_clock)
            stack.callback(client.close)
            client.enroll(token)
            clients.append(client)
        yield server, clients


def test_all_hosts_that_ask_at_once_get_the_same_manifest(
    promoted: tuple[Server, list[AgentClient]],
) -> None:
    server, clients = promoted

    (first,) = ask_at_once(clients)

    assert b"web.1" in first
    with server.client() as manager:
        for release_id in ("web.2", "web.3"):
            path = f"/v1/channels/{CHANNEL}/promote"
            manager.post(path, json={"release_id": release_id}).raise_for_status()
            (body,) = ask_at_once(clients)
            assert release_id.encode() in body
