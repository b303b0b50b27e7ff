"""The contract scenarios on every engine, and against the built wheel without the other tests."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from importlib.metadata import distribution
from pathlib import Path
from shutil import copytree
from typing import Any
from zipfile import ZipFile

import msgspec
import pytest

from tests.contract.address import Address
from tests.contract.scenarios.runner import HOME, SCHEMA, Scenario, run, scenarios
from tidegate.engines.memory import MemoryStore
from tidegate.kernel.store import Store

ROOT = Path(__file__).parents[2]
SCENARIOS = scenarios()


@pytest.fixture
def stage(address: Address | None) -> Iterator[Store]:
    with closing(MemoryStore(SCHEMA) if address is None else address.open(SCHEMA)) as store:
        yield store


@pytest.mark.req("RS-1", "RS-2", "RS-3", "RS-5", "RS-6", "RS-7", "RS-13", "RS-14")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name[:2])
def test_every_step_meets_its_expectation(stage: Store, scenario: Scenario) -> None:
    assert run(scenario, stage) == len(scenario.steps)


def test_has_the_four_scenarios_of_the_seed() -> None:
    """ "contract runners execute release-state scenarios 06–09" """
    assert [scenario.name[:2] for scenario in SCENARIOS] == ["06", "07", "08", "09"]


def environment_of(wheel: Path, home: Path) -> tuple[Path, Path]:
    """Build a fresh environment with the wheel and its declared dependencies, and nothing else.

    Returns its python and its site-packages. The dependencies are linked, not downloaded.
    """
    venv.create(home, with_pip=False)
    (site,) = home.glob("lib/python*/site-packages")
    with ZipFile(wheel) as archive:
        archive.extractall(site)
    (metadata,) = site.glob("tidegate-*.dist-info/METADATA")
    needed = re.findall(r"^Requires-Dist: ([\w.-]+)(?!.*extra ==)", metadata.read_text(), re.M)
    for name in needed:
        files = distribution(name).files or ()
        for top in {file.parts[0] for file in files if file.parts[0] != ".."}:
            (site / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    return home / "bin" / "python", site


@pytest.mark.long
def test_the_built_wheel_passes_in_a_fresh_environment(tmp_path: Path) -> None:
    """RS-13, the half that no engine of this process can show: the shipped wheel is sufficient."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=100)
    (wheel,) = tmp_path.glob("*.whl")
    python, site = environment_of(wheel, tmp_path / "fresh")
    copytree(HOME, tmp_path / "scenarios")

    def ran(*arguments: str) -> str:
        done = subprocess.run(
            [python, "-I", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert ran("-c", "import tidegate; print(tidegate.__file__)").startswith(str(site))
    said = ran("scenarios/runner.py", "memory:", "sqlite:///scenarios.db")
    assert said.count("steps as written") == 2 * len(SCENARIOS)


# ── a runner that could not fail would prove nothing ──────────────────────────────────────────────

OPPOSITE = {
    "ok": ("error", "ErrConditionFailed"),
    "error": ("ok", True),
    "errors": ("ok", True),
    "item_absent": ("item_contains", {"PK": "there"}),
    "item_equals": ("item_absent", True),
    "item_contains": ("item_absent", True),
}


def turned() -> Iterator[Any]:
    """Each scenario with one expectation inverted."""
    for path in sorted(HOME.glob("*.json")):
        content = msgspec.json.decode(path.read_bytes())
        for number, step in enumerate(content["steps"]):
            other = deepcopy(content)
            said = next(name for name in OPPOSITE if name in step["expect"])
            other["steps"][number]["expect"] = dict([OPPOSITE[said]])
            yield pytest.param(msgspec.convert(other, Scenario), id=f"{path.stem}-{number + 1}")


@pytest.mark.parametrize("scenario", list(turned()))
def test_notices_any_step_with_another_result(scenario: Scenario) -> None:
    with pytest.raises(AssertionError):
        run(scenario, MemoryStore(SCHEMA))


@pytest.mark.parametrize(
    "expect",
    [{}, {"okay": True}, {"error": "ErrSomething"}, {"ok": True, "error": "ErrInvalidModel"}],
)
def test_refuses_a_scenario_without_a_known_expectation(expect: dict[str, Any]) -> None:
    content = msgspec.json.decode(Path(HOME / "06_write_policy.json").read_bytes())
    content["steps"][0]["expect"] = expect

    with pytest.raises((msgspec.ValidationError, ValueError)):
        msgspec.convert(content, Scenario)
