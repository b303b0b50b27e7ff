"""A pytest plugin that says which requirement points are proved, and on which engines.

A test names its points: `@pytest.mark.req("CB-1", "CB-2")`. It runs on the engine that its `engine`
parameter names; one that needs no engine says so and why: `req("RO-9", engines=None, reason="…")`.
A point is proved when tests that name it passed on each of ENGINES, or one without an engine
passed, and none that names it failed. The points are those of `docs/requirements.md`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ENGINES = ("sqlite", "postgres", "dynamodb")
NO_ENGINE = "no engine"
PROPERTY = "req"
ROW = re.compile(r"^\| ([A-Z]{2}-\d+) \| (.+) \|$", re.MULTILINE)


@dataclass(slots=True)
class Tally:
    """What became of the tests that name a point, by engine."""

    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)

    @property
    def proved(self) -> bool:
        return not self.failed and (NO_ENGINE in self.passed or self.passed.issuperset(ENGINES))

    def cell(self, engine: str) -> str:
        if engine in self.failed:
            return "FAILED"
        if engine in self.passed:
            return "passed"
        return "-" if NO_ENGINE in (engine, *self.passed) else "missing"


def points(root: Path) -> dict[str, str]:
    """The points by id, in the order of the document."""
    return dict(ROW.findall((root / "docs" / "requirements.md").read_text()))


def claims(marks: Iterable[pytest.Mark], engine: str | None, known: Mapping[str, str]) -> list[str]:
    """The points that these marks name; `engine` is None when the test takes none.

    Raises:
        ValueError: a mark says something that could never count.
    """
    named: list[str] = []
    for mark in marks:
        without_engine = "engines" in mark.kwargs
        if not mark.args or not set(mark.kwargs) <= {"engines", "reason"}:
            raise ValueError("req takes ids of points, and engines=None with a reason")
        if unknown := [point for point in mark.args if point not in known]:
            raise ValueError(f"req names unknown points: {', '.join(map(str, unknown))}")
        if without_engine and mark.kwargs["engines"] is not None:
            raise ValueError("req takes engines=None only: the engine fixture says which others")
        if without_engine and not mark.kwargs.get("reason"):
            raise ValueError("req with engines=None must give the reason why no engine is needed")
        if not without_engine and engine is None:
            raise ValueError("req on a test without the engine fixture must say engines=None")
        named += mark.args
    return named


def matrix(known: Mapping[str, str], tallies: Mapping[str, Tally]) -> list[str]:
    """The report: a line per point, then the points without proof."""
    columns = (*ENGINES, NO_ENGINE)
    lines = [" ".join(["point ", *(f"{name:9}" for name in columns), "what must hold"])]
    for point, text in known.items():
        tally = tallies.get(point, Tally())
        cells = (f"{tally.cell(name):9}" for name in columns)
        lines.append(" ".join([f"{point:6}", *cells, text]))
    unproved = [point for point in known if not tallies.get(point, Tally()).proved]
    return [*lines, "", f"without proof: {', '.join(unproved) or 'none'}"]


class Report:
    """Listens to the outcomes of a run, on the process that reports them."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self.known = known
        self.tallies: defaultdict[str, Tally] = defaultdict(Tally)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, claim in report.user_properties:
            if name != PROPERTY:
                continue
            assert isinstance(claim, list)
            engine, *named = claim
            for point in named:
                if report.failed:
                    self.tallies[point].failed.add(engine)
                elif report.when == "call" and report.passed:
                    self.tallies[point].passed.add(engine)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("requirements")
        for line in matrix(self.known, self.tallies):
            terminalreporter.write_line(line)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, Any, Any]:
        answer = yield
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        assert terminal is not None
        proved = sum(self.tallies[point].proved for point in self.known)
        terminal.ensure_newline()
        terminal.write_line(f"proved {proved} of {len(self.known)}")  # after pytest's closing line
        return answer


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--req-report", action="store_true", help="print which requirement points are proved"
    )


_KNOWN = pytest.StashKey[Mapping[str, str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "req(*points, engines=None, reason=...): the requirement points a test proves"
    )
    config.stash[_KNOWN] = points(config.rootpath)
    if config.getoption("req_report") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Report(config.stash[_KNOWN]))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Checks the marks where a fault becomes an error of collection."""
    engine = "some" if "engine" in metafunc.fixturenames else None
    marks = metafunc.definition.iter_markers(PROPERTY)
    try:
        claims(marks, engine, metafunc.config.stash[_KNOWN])
    except ValueError as error:
        pytest.fail(f"{metafunc.definition.nodeid}: {error}", pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Writes the claims on the item, whence they travel with its reports, from a worker too."""
    marks = list(item.iter_markers(PROPERTY))
    callspec = getattr(item, "callspec", None)
    engine = callspec.params.get("engine") if callspec else None
    for mark in marks:
        where = NO_ENGINE if "engines" in mark.kwargs else engine
        named = claims([mark], where, item.config.stash[_KNOWN])
        item.user_properties.append((PROPERTY, [str(where), *named]))
