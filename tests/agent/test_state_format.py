"""The agent's state directory: a known format is used, any other is refused with one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.agent_process import AgentProcess
from tests.agent.fleet_server import FleetServer, until
from tidegate.agent.errors import StateFormatRefused
from tidegate.agent.state_format import FILE, STATE_FORMAT, check_format
from tidegate.domain.hosts.states import HostState


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    path.mkdir()
    return path


def test_marks_a_new_directory_and_accepts_it_again(state: Path) -> None:
    (state / "lock").touch()  # the lock file, which is created before the format is checked

    check_format(state)
    check_format(state)

    assert (state / FILE).read_text() == f"{STATE_FORMAT}\n"


@pytest.mark.parametrize("name", ["key", "identity.json", "journal", "running.json"])
def test_refuses_the_state_of_an_agent_without_a_format(state: Path, name: str) -> None:
    (state / name).write_text("x")

    with pytest.raises(StateFormatRefused) as refused:
        check_format(state)

    assert refused.value.detail == (
        f"{state} was written by an older agent, whose digests this one would misread: move the"
        " directory away and start the agent with a new one-time token (tidegate host enroll)"
    )
    assert (state / name).read_text() == "x"
    assert not (state / FILE).exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1\n", "was written by an older agent"),
        (f"{STATE_FORMAT + 1}\n", "was written by a newer agent: upgrade this one"),
        ("", "is damaged"),
        ("two\n", "is damaged"),
        ("٢\n", "is damaged"),
    ],
)
def test_refuses_every_other_format(state: Path, text: str, told: str) -> None:
    (state / FILE).write_text(text)

    with pytest.raises(StateFormatRefused, match=told):
        check_format(state)

    assert (state / FILE).read_text() == text


def test_an_agent_refuses_the_state_of_an_older_one_and_keeps_what_runs(tmp_path: Path) -> None:
    fleet_server = FleetServer(tmp_path, "good one")
    agent_process = AgentProcess(fleet_server, "web-1")
    try:
        agent_process.start()
        fleet_server.reaches(fleet_server.promote("web.1"), "web-1", HostState.CONVERGED)
        agent_process.stop()
        (agent_process.state / FILE).unlink()
        journal = (agent_process.state / "journal").read_bytes()

        agent_process.start(enrolls=False)
        until(lambda: "older agent" in agent_process.log, "the refusal", lambda: agent_process.log)
        code = agent_process.wait()
    finally:
        agent_process.end()
        fleet_server.close()

    assert code != 0
    (line,) = [line for line in agent_process.log.splitlines() if "older agent" in line]
    assert "move the directory away" in line
    assert "Traceback" not in agent_process.log
    assert agent_process.text == "good one"
    assert (agent_process.state / "journal").read_bytes() == journal
