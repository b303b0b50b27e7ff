"""The harness of bench/registry runs whole, on registries whose replay equals the rows."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from bench.registry import report
from bench.registry.measure import Verb
from bench.registry.results import GROWTH_MAX, Results, at_share, floors
from bench.registry.sample_registry import PER_PACKAGE, fill
from tidegate.domain.composition import FOLDS, SCHEMA
from tidegate.domain.packages.rows import REVISIONS
from tidegate.domain.releases.rows import ACTUAL
from tidegate.engines.sqlite import SqliteStore
from tidegate.kernel.replay import differences

ROOT = Path(__file__).parents[2]
ROUNDS = 3


def test_measures_every_verb_in_both_registries_and_writes_the_page(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"Before.\n{report.BEGIN}\nold\n{report.END}\nAfter.\n")
    sizes = ["--revisions", "1100", "--rounds", str(ROUNDS)]
    places = ["--state", str(tmp_path / "state"), "--page", str(page)]

    run = subprocess.run(
        [sys.executable, "-m", "bench", "registry", *sizes, *places],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )

    found = (tmp_path / "state" / "registry.json").read_bytes()
    results = msgspec.json.decode(found, type=Results)
    assert results.sizes == (1_000, 1_100)
    for size in results.sizes:
        assert {verb: len(times) for verb, times in results.took[str(size)].items()} == {
            str(verb): ROUNDS for verb in Verb
        }
    written = page.read_text()
    assert written.startswith("Before.\n")
    assert written.endswith("After.\n")
    assert "old" not in written
    assert report.text(results) in written
    assert report.text(results) in run.stdout


def test_fills_a_registry_that_replay_agrees_with(tmp_path: Path) -> None:
    path = tmp_path / "town.db"

    fill(path, 2 * PER_PACKAGE)

    with closing(SqliteStore(str(path), SCHEMA)) as store:
        assert len(store.range(REVISIONS.name, limit=1_000)) == 2 * PER_PACKAGE
        assert len(store.range(ACTUAL.name, limit=1_000)) == 2
        assert differences(store, FOLDS) == []


def test_the_docs_have_marks_for_its_tables() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()

    assert page.count(report.BEGIN) == page.count(report.END) == 1


@pytest.mark.parametrize(("share", "found"), [(0.5, 2.0), (0.51, 3.0), (0.99, 4.0), (0.0, 1.0)])
def test_computes_the_time_that_a_share_of_the_rounds_does_not_exceed(
    share: float, found: float
) -> None:
    assert at_share([4.0, 1.0, 3.0, 2.0], share) == found


def test_compares_the_large_registry_with_the_small_one() -> None:
    took = {
        size: {str(verb): [each] for verb in Verb} for size, each in (("1000", 2.0), ("2000", 4.0))
    }
    results = Results("now", {}, 1, (1_000, 2_000), took)

    growing = [floor for floor in floors(results) if floor.bound == GROWTH_MAX]

    assert {floor.found for floor in growing} == {2.0}
    assert not any(floor.reached for floor in growing)
    assert all(floor.reached for floor in floors(results) if floor not in growing)
