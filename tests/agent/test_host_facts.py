"""The facts that the agent reports about its machine."""

from __future__ import annotations

import platform
from ipaddress import ip_address
from pathlib import Path

from tests.agent.agent_process import AgentProcess
from tests.agent.fleet_server import FleetServer, until
from tidegate.agent.host_facts import read_host_facts
from tidegate.domain.fleet.rows import Liveness, liveness_key
from tidegate.domain.hosts.protocol import ADDRESSES_MAX
from tidegate.kernel.model import Meta

_META = Meta(actor="host_web-09")


def test_reads_the_facts_of_this_machine() -> None:
    facts = read_host_facts()

    assert facts.os
    assert facts.kernel == platform.release()
    assert facts.arch == platform.machine()
    assert len(facts.addresses) <= ADDRESSES_MAX
    assert not [text for text in facts.addresses if ip_address(text).is_loopback]


def test_sends_facts_at_the_start_and_again_if_the_server_lacks_them(tmp_path: Path) -> None:
    server = FleetServer(tmp_path, "good")
    host = AgentProcess(server, "web-09")

    def said() -> Liveness | None:
        found = server.installation.reads.find(liveness_key("web-09"), Liveness)
        return None if found is None else found.row

    def has_facts() -> bool:
        row = said()
        return row is not None and row.facts == read_host_facts()

    try:
        host.start()
        until(has_facts, "the server has the facts", said)

        row = said()
        assert row is not None
        forgotten = Liveness(host_id="web-09", last_seen_at=row.last_seen_at)
        server.installation.records(_META).save("host_liveness", "web-09", forgotten)

        until(has_facts, "the agent sends them again", said)
    finally:
        host.end()
        server.close()
