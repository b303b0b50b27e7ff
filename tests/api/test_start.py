"""A server as an operator starts it: the process, its data directory, its first output, its end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.api.server_process import main_process, start_server
from tests.operations.processes import SECONDS_MAX
from tidegate import config
from tidegate.config import InvalidSetting, Settings

PERSON = {"login": "ada", "name": "Ada", "password": "a long password"}


def test_starts_with_a_code_and_stops_gracefully(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with start_server(data) as server:
        code = re.search(r"one-time code (\S+)", server.said())
        assert code
        made = httpx2.post(
            f"{server.url}/v1/setup",
            json={**PERSON, "code": code[1], "alone": True},
            timeout=SECONDS_MAX,
        )
        assert made.status_code == 201, made.text
        httpx2.get(f"{server.url}/v1/me", headers={"x-request-id": "mine"}, timeout=SECONDS_MAX)
        assert server.stop() == 0
    with start_server(data) as server:
        assert "one-time code" not in server.said(), "it is set up"
        session = httpx2.post(
            f"{server.url}/v1/sessions",
            json={"login": "ada", "password": PERSON["password"]},
            timeout=SECONDS_MAX,
        )
        assert session.status_code == 201

    assert oct(data.stat().st_mode)[-3:] == "700"
    assert oct((data / "secret").stat().st_mode)[-3:] == "600"


def test_logs_a_line_of_json_per_request(tmp_path: Path) -> None:
    with start_server(tmp_path / "data") as server:
        httpx2.get(f"{server.url}/v1/me", headers={"x-request-id": "mine"}, timeout=SECONDS_MAX)
        server.stop()
        lines = [json.loads(line) for line in server.said().splitlines() if line.startswith("{")]

    (line,) = [line for line in lines if line.get("request") == "mine"]
    assert (line["method"], line["route"], line["status"]) == ("GET", "/v1/me", 401)
    assert (line["principal"], line["code"]) == ("", "unauthenticated")
    assert line["ms"] >= 0


def test_loses_nothing_acknowledged_when_it_is_killed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with start_server(data) as server:
        code = re.search(r"one-time code (\S+)", server.said())
        assert code
        httpx2.post(
            f"{server.url}/v1/setup",
            json={**PERSON, "code": code[1], "alone": True},
            timeout=SECONDS_MAX,
        )
        server.stop(signal.SIGKILL)
    with start_server(data) as server:
        assert httpx2.get(f"{server.url}/v1/setup", timeout=SECONDS_MAX).json() == {
            "set_up": True,
            "alone": True,
        }


def test_refuses_a_data_directory_that_others_can_read(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    data.chmod(0o755)

    process = main_process(data)

    assert process.process.wait(SECONDS_MAX) == 1
    assert process.said().strip() == "store_refused: data can be read by others; chmod 0700 it"


def test_refuses_a_data_directory_that_cannot_be_created(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.touch()

    process = main_process(data)

    assert process.process.wait(SECONDS_MAX) == 1
    assert process.said().strip() == f"store_refused: {data} cannot be made: File exists"


def test_only_one_server_uses_a_data_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with start_server(data):
        second = main_process(data)

        assert second.process.wait(SECONDS_MAX) == 1
        assert second.said().strip() == "store_refused: another server serves data already"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "usage"),
        (["serve", "--data"], "each flag"),
        (["serve", "--data", "x", "--colour", "red"], "no setting colour"),
        (["serve", "--data", "x", "--port", "many"], "TIDEGATE_PORT"),
        (["serve", "--data", "x", "--host", "0.0.0.0"], "from other machines"),
        (["serve", "--data", "x", "--trusted-proxies", "lb-1"], "'lb-1' does not appear to be"),
        (["serve", "--data", "x", "--trusted-proxies", "::/0"], "which is every address"),
        (["serve", "--data", "x", "--config", "nowhere.toml"], "cannot be read"),
    ],
)
def test_reports_wrong_settings_in_one_line(tmp_path: Path, flags: list[str], says: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tidegate.main", *flags],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "TIDEGATE_DATA": "unused"},
        timeout=SECONDS_MAX,
        check=False,
    )

    assert ran.returncode in (1, 2)
    assert says in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


def test_flags_override_the_environment_which_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tidegate.toml"
    file.write_text('data = "from file"\nport = 1\nthreads = 3\n')
    environ = {"TIDEGATE_PORT": "2", "TIDEGATE_BEHIND_PROXY": "true"}

    found = config.load({"data": "from flag", "port": None}, environ, file)

    assert found == Settings(data="from flag", port=2, threads=3, behind_proxy=True)


@pytest.mark.parametrize(
    "text", ["data = 1", 'colour = "red"', "[data]", "port = 70000", "threads = 0", "="]
)
def test_refuses_a_file_with_a_bad_setting(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tidegate.toml"
    file.write_text(text)

    with pytest.raises(InvalidSetting):
        config.load({}, {}, file)
