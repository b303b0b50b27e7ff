"""The agent as a package: built, alone in an environment, and working with a real server."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.agent.agent_process import AgentProcess
from tests.agent.fleet_server import FleetServer
from tests.environments import (
    build_wheel,
    link_distributions,
    list_required,
    make_environment,
    run_alone,
)
from tidegate import __version__
from tidegate.domain.hosts.states import HostState

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "packaging/agent"
SERVER_ONLY = {"apsw", "click", "httptools", "jinja2", "prometheus-client", "rich", "uvicorn"}


def declared(file: Path) -> dict[str, str]:
    items = map(Requirement, tomllib.loads(file.read_text())["project"]["dependencies"])
    return {item.name: str(item.specifier) for item in items}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with only the built package and its requirements."""
    home = tmp_path_factory.mktemp("alone")
    site = make_environment(home / "venv", build_wheel(PACKAGE, home))
    (metadata,) = site.glob("tidegate_agent-*.dist-info/METADATA")
    names = re.findall(r"^Requires-Dist: ([\w.-]+)", metadata.read_text(), re.M)
    link_distributions(site, list_required(names))
    return home / "venv/bin/python"


def test_requires_a_part_of_what_the_server_requires() -> None:
    ours, servers = declared(PACKAGE / "pyproject.toml"), declared(ROOT / "pyproject.toml")

    assert ours.items() <= servers.items()
    assert not list_required(list(ours)) & SERVER_ONLY
    page = (ROOT / "docs/agent.md").read_text()
    listed = re.search(r"needs the packages (.*?)\.\s", page, re.S)
    assert listed is not None
    said = set(re.findall(r"`([\w-]+)`", listed[1]))
    assert said - {"typing-extensions"} == list_required(list(ours)) - {"typing-extensions"}


def test_starts_without_the_server_package(python: Path) -> None:
    program = (
        "import sys; from importlib.metadata import entry_points;"
        "(found,) = entry_points(group='console_scripts', name='tidegate-agent');"
        "sys.argv[0] = 'tidegate-agent'; sys.exit(found.load()())"
    )

    helped = run_alone(python, "-c", program, "--help")
    version = run_alone(python, "-c", program, "--version")
    unset = run_alone(python, "-c", program)
    dry = run_alone(
        python,
        *("-c", program, "install", "--user", "--dry-run"),
        *("--server", "https://tidegate.example", "--channel", "web=/srv/web"),
    )

    assert helped.returncode == 0, helped.stderr
    assert "--token-file" in helped.stdout
    assert version.stdout.strip() == __version__
    assert (unset.returncode, "say --config FILE" in unset.stderr) == (2, True)
    assert dry.returncode == 0, dry.stderr
    assert "tidegate-agent --config" in dry.stdout


def test_contains_every_module_that_the_agent_imports_and_none_of_the_server(
    python: Path,
) -> None:
    walk = (
        "import pkgutil, importlib, sys, tidegate.agent as agent;"
        "[importlib.import_module(m.name) for m in pkgutil.walk_packages(agent.__path__,"
        " 'tidegate.agent.')];"
        "print(*sorted({n.split('.')[1] for n in sys.modules if n.startswith('tidegate.')}))"
    )

    ran = run_alone(python, "-c", walk)
    server = run_alone(python, "-c", "import tidegate.control")

    assert ran.returncode == 0, ran.stderr
    assert not {"api", "cli", "control", "dashboard", "engines", "web"} & set(ran.stdout.split())
    assert "ModuleNotFoundError" in server.stderr


def test_works_with_a_real_server(python: Path, tmp_path: Path) -> None:
    server = FleetServer(tmp_path, "good")
    host = AgentProcess(server, "web-09")
    host.program = (str(python), "-m", "tidegate.agent.program")
    try:
        host.start()
        rollout = server.promote("web.1")

        server.reaches(rollout, "web-09", HostState.CONVERGED)

        assert host.text == "good"
        assert host.stop() == 0
    finally:
        host.end()
        server.close()
