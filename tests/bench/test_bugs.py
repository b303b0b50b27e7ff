"""Planted bugs: each fits the current source, and a trial finds one of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.bugs import BUGS, SURVIVORS, NotPlanted, PlantedBug, hunt, plant

BUGS_MIN = 40


def test_there_are_enough_bugs_with_distinct_names() -> None:
    names = [bug.name for bug in BUGS]

    assert len(names) == len(set(names))
    assert len(names) - len(SURVIVORS) >= BUGS_MIN
    assert set(SURVIVORS) <= set(names)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name.replace(" ", "-"))
def test_can_be_planted_in_the_current_source(bug: PlantedBug, tmp_path: Path) -> None:
    plant(bug, tmp_path)

    # A copy that fails on an unknown name would count as found by any trial.
    planted = [str(tmp_path / "tidegate" / module) for module, _, _ in bug.edits]
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--quiet", "--select", "F821"]
    assert subprocess.run([*ruff, *planted], capture_output=True, text=True).stdout == ""


def test_reports_that_the_words_of_a_bug_are_gone(tmp_path: Path) -> None:
    gone = PlantedBug("gone", ("attack", "ssrf", "smoke", 0), (("errors.py", "no such words", ""),))

    with pytest.raises(NotPlanted, match="0 times"):
        plant(gone, tmp_path)


def test_finds_a_bug_in_the_copy() -> None:
    bug = next(bug for bug in BUGS if bug.name == "only the first address of a name is checked")

    assert "gets a request" in hunt(bug)
