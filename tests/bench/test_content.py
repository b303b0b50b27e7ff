"""A large file passes through the server and the command line without being held in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.content import MIB, Transfer, report
from tests.bench.harness import ROOT


@pytest.mark.in_bench
def test_a_large_file_is_streamed_both_ways(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "bench", "content", "--mode", "ci", "--state", str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout
    assert "bounds held" in run.stdout


def test_counts_half_a_file_as_half() -> None:
    lines = report(64 * MIB, [Transfer("download of the second half", 2.0, 1_000_000)])

    assert "| download of the second half | 2.0 | 17 | 1.0 |  |" in lines
