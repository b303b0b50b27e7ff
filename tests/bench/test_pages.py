"""The harness of bench/pages runs whole: a served rollout, visited by a real browser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from bench.pages import report
from bench.pages.report import Results

ROOT = Path(__file__).parents[2]


def test_visits_a_rollout_and_writes_the_page(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"Before.\n{report.BEGIN}\nstale words\n{report.END}\nAfter.\n")
    places = ["--state", str(tmp_path / "state"), "--page", str(page)]

    run = subprocess.run(
        [sys.executable, "-m", "bench", "pages", "--mode", "tiny", *places],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )

    found = (tmp_path / "state" / "pages.json").read_bytes()
    results = msgspec.json.decode(found, type=Results)
    assert results.hosts == 50
    assert results.rollout.first > 0
    assert results.painted.whole > 0
    written = page.read_text()
    assert written.startswith("Before.\n")
    assert written.endswith("After.\n")
    assert "stale words" not in written
    assert report.text(results) in written
    assert report.text(results) in run.stdout


def test_has_its_place_in_the_docs() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()

    assert page.count(report.BEGIN) == page.count(report.END) == 1
