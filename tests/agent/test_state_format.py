"""The state directory of an agent: used if its format is known, refused with one sentence else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.agent_process import Hull
from tests.agent.fleet_server import Harbour, until
from tidegate.agent.errors import StateFormatRefused
from tidegate.agent.state_format import FILE, STATE_FORMAT, check_format
from tidegate.domain.hosts.states import HostState


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    path.mkdir()
    return path


def test_marks_a_new_directory_and_takes_it_again(state: Path) -> None:
    (state / "lock").touch()  # what is there before the format is looked at

    check_format(state)
    check_format(state)

    assert (state / FILE).read_text() == f"{STATE_FORMAT}\n"


@pytest.mark.parametrize("name", ["key", "identity.json", "journal", "running.json"])
def test_refuses_what_an_agent_without_a_format_left(state: Path, name: str) -> None:
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
    harbour = Harbour(tmp_path, "good one")
    hull = Hull(harbour, "web-1")
    try:
        hull.start()
        harbour.reaches(harbour.promote("web.1"), "web-1", HostState.CONVERGED)
        hull.stop()
        (hull.state / FILE).unlink()
        journal = (hull.state / "journal").read_bytes()

        hull.start(enrolls=False)
        until(lambda: "older agent" in hull.log, "the refusal", lambda: hull.log)
        code = hull.wait()
    finally:
        hull.end()
        harbour.close()

    assert code != 0
    (line,) = [line for line in hull.log.splitlines() if "older agent" in line]
    assert "move the directory away" in line
    assert "Traceback" not in hull.log
    assert hull.text == "good one"
    assert (hull.state / "journal").read_bytes() == journal
