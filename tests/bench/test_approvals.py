"""The bench of approvals: it runs in its smallest mode, and detects a package without a lane."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench.approvals.command import SUBJECT
from tests.bench.harness import run_part


@pytest.mark.in_bench
def test_eight_simultaneous_approvals_all_succeed(tmp_path: Path) -> None:
    code, found = run_part("approvals", "sqlite", tmp_path)

    assert (code, found["failures"]) == (0, [])
    assert found["counts"]["approvals"] == 8
    assert found["counts"]["refused"] == 0


def test_approvals_that_never_overlap_prove_nothing() -> None:
    assert all(part.blind_spots(Counter()) for part in SUBJECT.parts)
