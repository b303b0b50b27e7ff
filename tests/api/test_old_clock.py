"""A clock that once ran ahead: the server refuses to start, and says how to start it anyway."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.api.serving import serving
from tests.operations.processes import ServerProcess
from tidegate.clock import ManualClock, system_clock


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory that was written while the clock was a year ahead."""
    with serving(tmp_path / "data", clock=ManualClock(system_clock() + timedelta(days=365))):
        return tmp_path / "data"


@pytest.mark.parametrize("words", [("serve", "--port", "0"), ("worker",)])
def test_refuses_to_start_and_names_the_remedy(data: Path, words: tuple[str, ...]) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tidegate", *words, "--data", str(data)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ran.returncode == 6
    assert "--accept-clock" in ran.stderr


def test_serves_once_the_clock_is_accepted(data: Path) -> None:
    process = ServerProcess(data, "--accept-clock")
    try:
        process.wait()
        assert "365 days" in process.said() or "364 days" in process.said()
    finally:
        assert process.stop() == 0


def test_the_doctor_names_the_remedy(data: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tidegate", "doctor", "--data", str(data)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert "--accept-clock" in ran.stdout
