"""Whole agents as processes on real directories, against a real server, through interruptions."""

from __future__ import annotations

import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.agent.agent_process import AgentProcess
from tests.agent.fleet_server import CHANNEL, FleetServer, until
from tests.agent.journal_lines import acknowledged, twin as taken
from tidegate.agent.journal import Journal, ReportLine, TwinLine
from tidegate.api.agents.order_waiters import OrderWaiters
from tidegate.domain.access.roles import Role
from tidegate.domain.channels.rows import Quarantined, quarantine_key
from tidegate.domain.hosts import agent_side
from tidegate.domain.hosts.facts import DispatchAck
from tidegate.domain.hosts.report_json import event_to_json
from tidegate.domain.hosts.states import HostState

MOOR = Callable[..., tuple[FleetServer, AgentProcess]]


@pytest.fixture
def start_agent(tmp_path: Path) -> Iterator[MOOR]:
    """Start a server with these releases and one host, and stop both afterwards."""
    with ExitStack() as stack:

        def made(*texts: str, channel: dict[str, Any] | None = None, **policy: Any) -> Any:
            fleet_server = FleetServer(tmp_path, *texts, **policy)
            stack.callback(fleet_server.close)
            agent_process = AgentProcess(fleet_server, "web-1", **channel or {})
            stack.callback(agent_process.end)
            return fleet_server, agent_process

        yield made


def test_brings_a_release_to_a_directory_and_converges(start_agent: MOOR) -> None:
    fleet_server, agent_process = start_agent("good one")
    agent_process.start()

    rollout_id = fleet_server.promote("web.1")
    record = fleet_server.reaches(rollout_id, "web-1", HostState.CONVERGED)

    assert agent_process.text == "good one"
    assert record.current_closure == record.target_closure
    assert agent_process.stop() == 0
    key = agent_process.state / "key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(agent_process.state.stat().st_mode) == 0o700


def test_rolls_back_a_release_that_fails_its_probe(start_agent: MOOR) -> None:
    fleet_server, agent_process = start_agent("good one", "bad two")
    agent_process.start()
    good = fleet_server.reaches(fleet_server.promote("web.1"), "web-1", HostState.CONVERGED)

    record = fleet_server.reaches(fleet_server.promote("web.2"), "web-1", HostState.REVERTED)

    assert agent_process.text == "good one"
    assert record.reverted_to == good.target_closure
    assert record.failure == "probes"
    key = quarantine_key(CHANNEL, record.target_closure)
    assert fleet_server.installation.reads.find(key, Quarantined) is not None


def test_resumes_the_soak_after_a_kill(start_agent: MOOR) -> None:
    fleet_server, agent_process = start_agent("good one", soak_seconds=3)
    agent_process.start()
    rollout_id = fleet_server.promote("web.1")
    fleet_server.reaches(rollout_id, "web-1", HostState.SOAKING)

    agent_process.kill()
    agent_process.start()

    fleet_server.reaches(rollout_id, "web-1", HostState.CONVERGED)
    assert agent_process.text == "good one"


def test_resumes_an_activation_after_a_kill(start_agent: MOOR, tmp_path: Path) -> None:
    """The activation program of the killed agent ends before the new agent runs it again."""
    go, ran = tmp_path / "go", tmp_path / "ran"
    script = (
        "import os, pathlib, time\n"
        f"ran = open({str(ran)!r}, 'a'); ran.write('begun\\n'); ran.flush()\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.02)\n"
        "ran.write('done\\n')\n"
    )
    command = [sys.executable, "-c", script]
    fleet_server, agent_process = start_agent(
        "good one", channel={"driver": "command", "command": command, "probes": ""}
    )
    agent_process.start()
    rollout_id = fleet_server.promote("web.1")
    fleet_server.reaches(rollout_id, "web-1", HostState.ACTIVATING)
    until(lambda: ran.exists() and "begun" in ran.read_text(), "the program runs")

    agent_process.kill()
    agent_process.start()
    until(lambda: ran.read_text().count("begun") == 2, "the program runs again")
    go.touch()

    fleet_server.reaches(rollout_id, "web-1", HostState.CONVERGED)
    assert ran.read_text() == "begun\nbegun\ndone\n"


def test_works_while_the_server_is_down_and_reports_later(start_agent: MOOR) -> None:
    fleet_server, agent_process = start_agent(
        "good one", "bad two", soak_seconds=0, sustained_failure_seconds=3
    )
    agent_process.start()
    fleet_server.reaches(fleet_server.promote("web.1"), "web-1", HostState.CONVERGED)
    rollout_id = fleet_server.promote("web.2")
    fleet_server.reaches(rollout_id, "web-1", HostState.SOAKING)
    until(lambda: agent_process.text == "bad two", "the second release runs")

    fleet_server.close()
    until(lambda: agent_process.text == "good one", "it rolls back without the server")
    agent_process.kill()
    agent_process.start()
    time.sleep(1)  # the server does not answer: the agent must not give up
    assert agent_process.text == "good one"
    fleet_server.open()

    record = fleet_server.reaches(rollout_id, "web-1", HostState.REVERTED)
    assert record.failure == "probes"


def test_d22_a_report_that_is_always_refused_blocks_no_other(start_agent: MOOR) -> None:
    fleet_server, agent_process = start_agent("good one")
    agent_process.start()
    until(lambda: "works for" in agent_process.log, "it is enrolled")
    assert agent_process.stop() == 0
    unknown = taken("web-stable@web.99")
    journal = Journal(agent_process.state)
    journal.append(TwinLine(unknown, "/none"), acknowledged(unknown))
    journal.close()

    agent_process.start()
    rollout_id = fleet_server.promote("web.1")

    fleet_server.reaches(rollout_id, "web-1", HostState.CONVERGED)
    assert (
        "DispatchAck of web-stable@web.99 is refused for good: rollout_unknown" in agent_process.log
    )


@pytest.mark.parametrize("stop", ["freeze", "hold"])
def test_drops_an_order_during_a_stop_and_gets_it_again(start_agent: MOOR, stop: str) -> None:
    """The order was sent before the stop began. The agent drops it and can take other orders."""
    fleet_server, agent_process = start_agent("good one")
    agent_process.start()
    until(lambda: "works for" in agent_process.log, "it is enrolled")
    assert agent_process.stop() == 0
    waiters = fleet_server.served.application.parts[OrderWaiters]
    until(lambda: waiters.count == 0, "its poll has ended: it takes no order")
    rollout_id = fleet_server.promote("web.1")
    fleet_server.reaches(rollout_id, "web-1", HostState.PENDING)
    order = fleet_server.installation.deliveries.poll("web-1")
    assert order is not None
    twin = agent_side.record_from_order(order, None, fleet_server.installation.clock())
    said = {"target_closure": order.target_closure, "current_closure_at_dispatch": ""}
    after, event, _ = agent_side.report(
        twin, DispatchAck, fleet_server.installation.clock(), **said
    )
    journal = Journal(agent_process.state)
    journal.append(
        TwinLine(twin, "/v1/agent/releases/web.1"), ReportLine(event_to_json(event), after)
    )
    journal.close()
    operator = fleet_server.served.as_role(Role.FLEET_OPERATOR)
    started, ended, code = {
        "freeze": ("/v1/freezes", "/v1/freezes/sale/end", "channel_frozen"),
        "hold": (f"/v1/channels/{CHANNEL}/hold", f"/v1/channels/{CHANNEL}/unhold", "channel_held"),
    }[stop]
    body = {"reason": "a sale"} | ({"freeze_id": "sale"} if stop == "freeze" else {})
    assert operator.post(started, json=body).is_success

    agent_process.start()
    until(
        lambda: f"is refused for good: {code}" in agent_process.log,
        "it drops the order",
        lambda: agent_process.log,
    )
    assert agent_process.text == ""
    assert operator.post(ended, json={"reason": "over"}).is_success

    record = fleet_server.reaches(rollout_id, "web-1", HostState.CONVERGED)
    assert (record.attempt, agent_process.text) == (2, "good one"), "the order was withdrawn"


def test_d26_reports_a_deferral(start_agent: MOOR) -> None:
    script = "import sys; print('kernel', file=sys.stderr); sys.exit(75)"
    command = [sys.executable, "-c", script]
    fleet_server, agent_process = start_agent(
        "good one", channel={"driver": "command", "command": command}
    )
    agent_process.start()

    record = fleet_server.reaches(fleet_server.promote("web.1"), "web-1", HostState.DEFERRED)

    assert record.last_event_seq == 3


def test_removes_what_is_staged_at_the_deadline_of_the_reboot(start_agent: MOOR) -> None:
    script = "import sys; sys.exit(75 if 'two' in open('app.txt').read() else 0)"
    command = [sys.executable, "-c", script]
    fleet_server, agent_process = start_agent(
        "good one",
        "good two",
        channel={"driver": "command", "command": command, "probes": ""},
        deferral_seconds=2,
    )
    agent_process.start()
    good = fleet_server.reaches(fleet_server.promote("web.1"), "web-1", HostState.CONVERGED)

    record = fleet_server.reaches(fleet_server.promote("web.2"), "web-1", HostState.REVERTED)

    assert record.failure == "deferral"
    assert record.reverted_to == good.target_closure
    assert record.activation_completed_at is None, "it was never switched"
    key = quarantine_key(CHANNEL, record.target_closure)
    assert fleet_server.installation.reads.find(key, Quarantined) is None


def test_d25_rolls_back_to_what_ran_and_not_to_what_failed(start_agent: MOOR) -> None:
    fleet_server, agent_process = start_agent("good one", "bad two", "bad three")
    agent_process.start()
    good = fleet_server.reaches(fleet_server.promote("web.1"), "web-1", HostState.CONVERGED)
    fleet_server.reaches(fleet_server.promote("web.2"), "web-1", HostState.REVERTED)

    record = fleet_server.reaches(fleet_server.promote("web.3"), "web-1", HostState.REVERTED)

    assert record.current_closure_at_dispatch == good.target_closure
    assert record.reverted_to == good.target_closure
    assert agent_process.text == "good one"


def test_a_host_that_takes_the_next_release_has_not_regressed(start_agent: MOOR) -> None:
    """Heartbeats report what runs at all times, also while the next release soaks."""
    fleet_server, agent_process = start_agent("good one", "good two", soak_seconds=3)
    agent_process.start()
    first = fleet_server.promote("web.1")
    fleet_server.reaches(first, "web-1", HostState.CONVERGED)

    fleet_server.reaches(fleet_server.promote("web.2"), "web-1", HostState.CONVERGED)

    before = fleet_server.record(first, "web-1")
    assert before is not None
    assert before.regressed_at is None


def test_stops_at_once_on_a_signal(start_agent: MOOR) -> None:
    fleet_server, agent_process = start_agent("good one", soak_seconds=60)
    agent_process.start()
    rollout_id = fleet_server.promote("web.1")
    fleet_server.reaches(rollout_id, "web-1", HostState.SOAKING)

    assert agent_process.stop() == 0
    assert "Traceback" not in agent_process.log


def test_waits_for_a_server_that_is_down_at_the_first_start(start_agent: MOOR) -> None:
    fleet_server, agent_process = start_agent("good one")
    fleet_server.close()
    agent_process.start(enrolls=False)
    until(lambda: "not enrolled yet" in agent_process.log, "it tries to enroll")

    fleet_server.open()

    until(lambda: agent_process.is_enrolled, "it is enrolled", lambda: agent_process.log)


def test_only_one_agent_works_on_a_host(start_agent: MOOR) -> None:
    _, agent_process = start_agent("good one")
    agent_process.start()
    until(lambda: "works for" in agent_process.log, "it works")

    second = agent_process.another()
    second.start()

    until(lambda: "another agent runs on" in agent_process.log, "the second is refused")
    second.end()
