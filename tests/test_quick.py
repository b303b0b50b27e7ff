"""Tests in turn: each on memory and one other engine, and every requirement point on all."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests import quick
from tests.quick import ON_ALL_ENGINES, TURNS

pytest_plugins = ("pytester",)

ROOT = Path(__file__).parents[1]
ALL = {"memory", *TURNS}
RULES = 40
POINTS = 20
MODULE = f"""
    import pytest

    pytestmark = pytest.mark.in_turn

    @pytest.mark.parametrize("number", range({RULES}))
    def test_rule(engine, number):
        pass

    @pytest.mark.req("AA-1")
    @pytest.mark.parametrize("number", range({POINTS}))
    def test_point(engine, number):
        pass
"""
COLLECTED = re.compile(r"test_some\.py::(\w+)\[(\w+)-(\d+)\]")


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with tests in turn that uses our plugins."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # each run would import them again
    pytester.makeconftest(
        'pytest_plugins = ("tests.reqs", "tests.quick", "tests.servers.fixtures")'
    )
    pytester.mkdir("docs").joinpath("requirements.md").write_text("| AA-1 | the first |\n")
    pytester.makepyfile(test_some=MODULE)
    return pytester


def engines_of(project: pytest.Pytester, test: str, *args: str) -> list[set[str]]:
    """The engines that each case of a test runs on."""
    result = project.runpytest_inprocess("--collect-only", "-q", *args)
    engines: defaultdict[str, set[str]] = defaultdict(set)
    for name, engine, number in COLLECTED.findall(result.stdout.str()):
        if name == test:
            engines[number].add(engine)
    return list(engines.values())


def test_runs_each_rule_on_memory_and_one_other_engine(project: pytest.Pytester) -> None:
    kept = engines_of(project, "test_rule")

    assert len(kept) == RULES
    assert {len(engines) for engines in kept} == {2}
    assert all("memory" in engines for engines in kept)
    assert set().union(*kept) == ALL


def test_runs_the_first_tests_of_a_requirement_point_on_all_engines(
    project: pytest.Pytester,
) -> None:
    kept = engines_of(project, "test_point")

    assert [len(engines) for engines in kept] == [4] * ON_ALL_ENGINES + [2] * (
        POINTS - ON_ALL_ENGINES
    )


@pytest.mark.parametrize(
    "args", [("--engines", "memory,sqlite,postgres,dynamodb"), ("test_some.py::test_rule",)]
)
def test_runs_a_named_test_on_every_engine(project: pytest.Pytester, args: tuple[str, ...]) -> None:
    assert engines_of(project, "test_rule", *args) == [ALL] * RULES


def test_runs_every_test_everywhere_in_a_long_run(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick, "LONG", True)

    assert engines_of(project, "test_rule") == [ALL] * RULES
