"""The harness of bench/fleet runs whole, on fleets whose replay equals the rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import msgspec
import pytest

from bench.fleet import measure, report
from bench.fleet.fleets import REPORTS_PER_HOST, Here, at_work, channel_name, rollout_of, sqlite_url
from bench.fleet.measure import Growth, Rate, Size
from bench.fleet.results import Results, floors
from bench.fleet.stages import STAGES
from tidegate.domain.composition import FOLDS
from tidegate.domain.rollouts.states import RolloutState
from tidegate.kernel.replay import differences

ROOT = Path(__file__).parents[2]
HOSTS = 40


def test_measures_reports_stages_sizes_and_rebuild_and_writes_the_page(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"Before.\n{report.BEGIN}\nyesterday\n{report.END}\nAfter.\n")
    sizes = ["--hosts", str(HOSTS), "--reporting", "32", "--rounds", "1", "--sqlite-only"]
    places = ["--state", str(tmp_path / "state"), "--page", str(page)]

    run = subprocess.run(
        [sys.executable, "-m", "bench", "fleet", *sizes, *places],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )

    found = (tmp_path / "state" / "fleet.json").read_bytes()
    results = msgspec.json.decode(found, type=Results)
    assert {name: rate.reports for name, rate in results.reports.items()} == {
        "sqlite, in batches": 32 * REPORTS_PER_HOST,
        "sqlite, one by one": 32 * REPORTS_PER_HOST,
    }
    assert all(rate.errors == 0 for rate in results.reports.values())
    assert tuple(results.stages) == STAGES
    assert [[item.hosts for item in sizes] for sizes in results.growth] == [[measure.SMALL, HOSTS]]
    assert results.size.hosts == HOSTS
    assert results.rebuilt_facts > 7 * 32
    written = page.read_text()
    assert written.startswith("Before.\n")
    assert written.endswith("After.\n")
    assert "yesterday" not in written
    assert report.text(results) in written
    assert report.text(results) in run.stdout


def test_opens_a_rollout_of_any_size_with_the_same_number_of_facts(tmp_path: Path) -> None:
    facts = set()
    for hosts in (10, 40):
        home = tmp_path / str(hosts)
        home.mkdir()
        facts.add(measure.fill(home, 1, hosts, print).open_facts)

    assert len(facts) == 1


def test_moves_its_hosts_through_the_rollout_and_replay_agrees(tmp_path: Path) -> None:
    measure.fill(tmp_path, 2, 20, print)

    rounds = measure.growth([measure.crowd(tmp_path, 2, 20, 20, 3, Random(1))])
    assert [len(sizes) for sizes in rounds] == [1, 1, 1]
    facts, _ = measure.rebuilding(tmp_path)

    with at_work(sqlite_url(tmp_path), tmp_path, Here()) as fleet:
        assert facts == len(fleet.store.feed(after=0, limit=facts + 1).events)
        for number in range(2):
            tally = fleet.fleet_reader.tally(rollout_of(channel_name(number))).row
            assert tally.state is RolloutState.TERMINAL
        assert differences(fleet.store, FOLDS) == []


def test_the_docs_have_marks_for_its_tables() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()

    assert page.count(report.BEGIN) == page.count(report.END) == 1


@pytest.mark.parametrize(
    ("seconds", "later", "reached"), [(0.2, 149.0, True), (0.201, 150.1, False)]
)
def test_compares_a_rate_with_its_floor(seconds: float, later: float, reached: bool) -> None:
    rate = Rate(reports=1_000, facts=2_000, seconds=seconds, cpu_seconds=0.1)
    results = Results(
        "now",
        {},
        {"sqlite, in batches": rate, "sqlite, one by one": rate},
        dict.fromkeys(STAGES, 1.0),
        (
            (Growth(100, 100.0, 100.0), Growth(100_000, 151.0, 151.0)),
            (Growth(100, 100.0, 100.0), Growth(100_000, 300.0, later)),
        ),
        Size(100_000, 1.0, 2, 0.5, 0.5),
        20_000,
        1.0,
    )

    held = {floor.text: floor.reached for floor in floors(results)}

    assert held["sqlite, in batches, reports/s"] is reached
    assert held["sqlite, in batches, facts/s"] is reached
    assert held["CPU of a later report, large ÷ small"] is reached
    assert "postgres, in batches, reports/s" not in held
