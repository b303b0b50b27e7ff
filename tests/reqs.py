"""A pytest plugin that reports which requirement points are proved, and on which engines.

A test names its points: `@pytest.mark.req("CB-1", "CB-2")`. It runs on the engine that its `engine`
parameter names, and its points require a pass on each of ENGINES. Two forms require less, with a
reason:

    req("RO-9", engines=None, reason="…")      needs no engine
    req("CB-24", only="dynamodb", reason="…")  is about one engine

A point is proved if its tests passed on every engine that any of them requires, and none failed. If
one of its tests runs on engines, a test without an engine proves nothing by itself. The points are
those of `docs/requirements.md`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ENGINES = ("sqlite", "postgres", "dynamodb")
NO_ENGINE = "no engine"
EVERY = "every engine"
PROPERTY = "req"
FORMS = ({"engines", "reason"}, {"only", "reason"})
ROW = re.compile(r"^\| ([A-Z]{2}-\d+) \| (.+) \|$", re.MULTILINE)


@dataclass(slots=True)
class Tally:
    """The results of the tests that name a point, by engine."""

    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    scopes: set[str] = field(default_factory=set)  # what the tests require: EVERY, or one name

    @property
    def wanted(self) -> set[str]:
        """Where it must have passed; a point without a test must pass on every engine."""
        scopes = self.scopes or {EVERY}
        return {*(scopes - {EVERY}), *(ENGINES if EVERY in scopes else ())}

    @property
    def proved(self) -> bool:
        return not self.failed and self.passed >= self.wanted

    def cell(self, engine: str) -> str:
        if engine in self.failed:
            return "FAILED"
        if engine in self.passed:
            return "passed"
        return "missing" if engine in self.wanted else "-"


def points(root: Path) -> dict[str, str]:
    """The points by id, in the order of the document."""
    return dict(ROW.findall((root / "docs" / "requirements.md").read_text()))


def check(mark: pytest.Mark, takes_engine: bool, known: Mapping[str, str]) -> None:
    """Refuse a mark that could never count.

    Raises:
        ValueError: it says what is wrong.
    """
    said = mark.kwargs
    if not mark.args or not any(set(said) <= form for form in FORMS):
        raise ValueError('req takes ids of points, and engines=None or only="…" with a reason')
    if unknown := [point for point in mark.args if point not in known]:
        raise ValueError(f"req names unknown points: {', '.join(map(str, unknown))}")
    if said.get("engines") is not None:
        raise ValueError("req takes engines=None only: the engine fixture says which others")
    if "only" in said and said["only"] not in ENGINES:
        raise ValueError(f"req takes one of {', '.join(ENGINES)} as only=")
    if said and not said.get("reason"):
        raise ValueError("req that calls for fewer engines must give the reason")
    if "engines" not in said and not takes_engine:
        raise ValueError("req on a test without the engine fixture must say engines=None")


def scope(mark: pytest.Mark) -> str:
    """Where the points of this mark must pass: EVERY, one engine, or NO_ENGINE."""
    return NO_ENGINE if "engines" in mark.kwargs else str(mark.kwargs.get("only", EVERY))


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
    """Collects the outcomes of a run, in the process that reports them."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self.known = known
        self.tallies: defaultdict[str, Tally] = defaultdict(Tally)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, claim in report.user_properties:
            if name != PROPERTY:
                continue
            assert isinstance(claim, list)
            engine, called_for, *named = claim
            for point in named:
                self.tallies[point].scopes.add(called_for)
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
        "markers",
        "req(*points, engines=None | only=..., reason=...): the requirement points a test proves",
    )
    config.stash[_KNOWN] = points(config.rootpath)
    if config.getoption("req_report") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Report(config.stash[_KNOWN]))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Check the marks here, where an error fails the collection."""
    takes_engine = "engine" in metafunc.fixturenames
    try:
        for mark in metafunc.definition.iter_markers(PROPERTY):
            check(mark, takes_engine, metafunc.config.stash[_KNOWN])
    except ValueError as error:
        pytest.fail(f"{metafunc.definition.nodeid}: {error}", pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Store the claims on the item; they travel with its reports, also from a worker."""
    callspec = getattr(item, "callspec", None)
    engine = callspec.params.get("engine") if callspec else None
    for mark in item.iter_markers(PROPERTY):
        called_for = scope(mark)
        where = NO_ENGINE if called_for == NO_ENGINE else str(engine)
        item.user_properties.append((PROPERTY, [where, called_for, *mark.args]))
