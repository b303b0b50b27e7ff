"""The harness of bench/pages runs whole: a served rollout, visited by a real browser."""

from __future__ import annotations

from pathlib import Path

from bench.pages import report
from bench.pages.report import Results
from tests.bench.harness import ROOT, measured


def test_visits_a_rollout_and_writes_the_page(tmp_path: Path) -> None:
    results = measured("pages", report, Results, tmp_path)

    assert results.hosts == 50
    assert results.rollout.first > 0
    assert results.painted.whole > 0


def test_the_docs_have_marks_for_its_tables() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()

    assert page.count(report.BEGIN) == page.count(report.END) == 1
