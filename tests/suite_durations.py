"""A pytest plugin that prints, after a run, how long each part of the suite took.

A part is a directory of tests (`tests/contract`), or a test file directly in `tests`. Its time is
the sum over its tests, so with several workers it is more than the wall time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import PurePosixPath

import pytest


def part_of(nodeid: str) -> str:
    """The part that a test belongs to: the first two components of its path."""
    return "/".join(PurePosixPath(nodeid.partition("::")[0]).parts[:2])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    seconds: defaultdict[str, float] = defaultdict(float)
    outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for outcome, reports in terminalreporter.stats.items():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[part_of(report.nodeid)] += report.duration
                if outcome:  # successful set-up and tear-down are filed under ""
                    outcomes[part_of(report.nodeid)][outcome] += 1
    if seconds:
        terminalreporter.section("parts")
    for part in sorted(seconds):
        counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes[part].items())
        terminalreporter.write_line(f"{seconds[part]:8.1f} s  {part}  ({counts})")
