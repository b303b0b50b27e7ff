"""Hosts enroll, and enroll again after a re-image, with the agent as a process."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from tests.agent.agent_process import AgentProcess
from tests.agent.fleet_server import FleetServer, until
from tidegate.clock import system_clock
from tidegate.domain.fleet.rows import Host, host_key
from tidegate.domain.hosts.states import HostState
from tidegate.kernel.replay import differences

Make = Callable[[str], AgentProcess]


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FleetServer]:
    store = ""
    if request.param == "postgres":
        url: str = request.getfixturevalue("postgres_url")
        name = f"agents_{uuid4().hex[:16]}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        store = urlsplit(url)._replace(path=f"/{name}").geturl()
    server = FleetServer(tmp_path, "good", "good 2", store=store)
    try:
        yield server
        installation = server.installation
        assert differences(installation.store, installation.folds) == []
    finally:
        server.close()


@pytest.fixture
def make(server: FleetServer) -> Iterator[Make]:
    """Make agent processes, and stop them at the end."""
    made: list[AgentProcess] = []

    def one(host_id: str) -> AgentProcess:
        made.append(AgentProcess(server, host_id))
        return made[-1]

    yield one
    for host in made:
        host.end()


def post(server: FleetServer, path: str, **body: Any) -> dict[str, Any]:
    answer = server.fleet.operator.post(path, json=body)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def host_of(server: FleetServer, host_id: str) -> Host:
    found = server.installation.reads.find(host_key(host_id), Host)
    assert found is not None
    return found.row


def test_a_join_token_enrolls_new_hosts_and_takes_no_name_that_exists(
    server: FleetServer, make: Make
) -> None:
    until_ = (system_clock() + timedelta(hours=1)).isoformat()
    labels = {"app": "web", "zone": "b"}
    made = post(server, "/v1/join-tokens", labels=labels, limit=2, until=until_)
    first, second, third = (make(name) for name in ("web-21", "web-22", "web-23"))
    for host in (first, second, third):
        host.take_token(made["token"])

    first.start()
    rollout = server.promote("web.1")
    server.reaches(rollout, "web-21", HostState.CONVERGED)
    assert host_of(server, "web-21").labels == labels
    assert first.text == "good"

    impostor = AgentProcess.another(second)  # another machine that claims the name web-21
    settings = second.directory / "agent.toml"
    settings.write_text(settings.read_text().replace('host = "web-22"', 'host = "web-21"'))
    impostor.start(enrolls=False)
    assert impostor.wait() != 0
    assert "there is a host web-21 already" in impostor.log
    assert "tidegate host re-enroll web-21" in impostor.log

    settings.write_text(settings.read_text().replace('host = "web-21"', 'host = "web-22"'))
    second.start()
    server.reaches(rollout, "web-22", HostState.CONVERGED)
    third.start(enrolls=False)
    assert third.wait() != 0
    assert "token_refused" in third.log
    assert "all of its 2 hosts" in third.log


def test_a_re_imaged_host_enrolls_under_its_name_and_the_old_key_ends(
    server: FleetServer, make: Make
) -> None:
    host = make("web-31")
    host.start()
    rollout = server.promote("web.1")
    server.reaches(rollout, "web-31", HostState.CONVERGED)
    assert host.stop() == 0
    old_key = host_of(server, "web-31").public_key
    stolen = host.directory / "stolen"  # the old disk
    host.state.rename(stolen)
    shutil.rmtree(host.root)
    host.root.mkdir()

    host.start(enrolls=False)  # with the token of its first start
    assert host.wait() != 0
    assert "token_replayed" in host.log
    assert host_of(server, "web-31").public_key == old_key

    again = post(server, "/v1/hosts/web-31/re-enroll", reason="new disk")
    host.take_token(again["token"])
    host.start()
    until(lambda: host_of(server, "web-31").public_key != old_key, "the new key is valid")
    assert host_of(server, "web-31").replaced_key == old_key
    server.reaches(server.promote("web.2"), "web-31", HostState.CONVERGED)
    assert host.text == "good 2"
    assert host.stop() == 0

    host.state.rename(host.directory / "new")
    stolen.rename(host.state)
    host.start(enrolls=False)
    until(
        lambda: "web-31 enrolled again with another key" in host.log,
        "the old key is refused",
        lambda: host.log,
    )
