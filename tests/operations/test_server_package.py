"""The server as a package: built, alone with what its lock names, and working."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import httpx2
import pytest
from packaging.requirements import Requirement

from tests.environments import build_wheel, link_distributions, make_environment, run_alone
from tests.servers.process import free_port, speaks_http, until
from tidegate import __version__

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "packaging/server.lock").read_text()
TOOLS = {"hatchling", "mypy", "playwright", "pytest", "ruff", "schemathesis"}


def list_locked() -> list[Requirement]:
    lines = re.findall(r"^([a-z0-9][^\\\n]*?) \\$", LOCK, re.MULTILINE)
    return [Requirement(line) for line in lines]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with only the built package and what its lock names."""
    home = tmp_path_factory.mktemp("alone")
    site = make_environment(home / "venv", build_wheel(ROOT, home))
    here = [item for item in list_locked() if item.marker is None or item.marker.evaluate()]
    link_distributions(site, [item.name for item in here])
    return home / "venv/bin/python"


def test_the_lock_of_the_server_is_a_part_of_the_whole_lock() -> None:
    whole = (ROOT / "requirements.lock").read_text()

    items = list_locked()

    assert {"apsw", "boto3", "psycopg", "uvicorn"} <= {item.name for item in items}
    assert not {item.name for item in items} & TOOLS
    for item in items:
        assert f"\n{item.name}{item.specifier}" in f"\n{whole}", "run script/lock"
    hashes = re.findall(r"--hash=(\S+)", LOCK)
    assert len(hashes) > len(items)
    assert set(hashes) <= set(re.findall(r"--hash=(\S+)", whole)), "run script/lock"


def test_has_the_drivers_of_every_engine_and_target(python: Path) -> None:
    engines = "import tidegate.engines.postgres, tidegate.engines.dynamodb, boto3, tidegate.library"

    done = run_alone(python, "-c", engines)
    tools = run_alone(python, "-c", "import pytest")

    assert done.returncode == 0, done.stderr
    assert "No module named 'pytest'" in tools.stderr


def test_serves_the_api_and_the_dashboard(python: Path, tmp_path: Path) -> None:
    port, data = free_port(), tmp_path / "data"
    version = run_alone(python, "-m", "tidegate", "--version")
    words = [str(python), "-m", "tidegate", "serve", "--data", str(data), "--port", str(port)]

    server = subprocess.Popen(words, env={"PATH": "/usr/bin:/bin"}, cwd=tmp_path)
    try:
        assert until(lambda: speaks_http(port), seconds_max=60.0), "the server does not answer"
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", follow_redirects=True) as client:
            page, ready = client.get("/"), client.get("/readyz")
    finally:
        server.terminate()
        code = server.wait(60)
    doctor = run_alone(python, "-m", "tidegate", "doctor", "--data", str(data))

    assert version.stdout.split()[-1] == __version__
    assert ready.status_code == 200
    assert page.status_code == 200
    assert "<h1" in page.text
    assert code == 0
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
