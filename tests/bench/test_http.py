"""The harness of bench/http runs whole, on a server that answers correctly."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.http import report
from bench.http.measure import REST
from bench.http.metered import FRAMES
from bench.http.results import Cost, Floor, Results, at_share
from tests.bench.harness import ROOT, measured


def test_measures_a_server_whole_and_writes_the_page(tmp_path: Path) -> None:
    results = measured("http", report, Results, tmp_path)

    assert results.report.requests > 0
    assert results.poll.requests > 0
    assert tuple(results.frames) == (*FRAMES, REST)
    assert results.running.ordered == results.running.agents
    assert results.following.events >= 4


def test_the_docs_have_marks_for_its_tables() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()

    assert page.count(report.BEGIN) == page.count(report.END) == 1


@pytest.mark.parametrize(("share", "found"), [(0.5, 3.0), (0.99, 4.0), (0.0, 1.0)])
def test_computes_the_time_that_a_share_of_the_responses_does_not_exceed(
    share: float, found: float
) -> None:
    assert at_share([4.0, 1.0, 3.0, 2.0], share) == found


def test_divides_the_cpu_among_the_requests() -> None:
    cost = Cost.of(0.5, 2.0, [0.001] * 1_000)

    assert (cost.cpu_microseconds, cost.per_second, cost.requests) == (500.0, 500.0, 1_000)


@pytest.mark.parametrize(("at_least", "reached"), [(True, True), (False, False)])
def test_compares_the_figures_with_the_floors(at_least: bool, reached: bool) -> None:
    assert Floor("of something", 1.0, 2.0, at_least).reached is reached
