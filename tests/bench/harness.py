"""Run whole benches in their smallest mode, and return the results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeVar

import msgspec

ROOT = Path(__file__).parents[2]

Results = TypeVar("Results")


def measured(name: str, report: Any, kind: type[Results], home: Path) -> Results:
    """Run the bench; its results are the same in its file, on the page and on the screen."""
    page = home / "performance.md"
    page.write_text(f"Before.\n{report.BEGIN}\nstale words\n{report.END}\nAfter.\n")
    places = ["--state", str(home / "state"), "--page", str(page)]
    run = subprocess.run(
        [sys.executable, "-m", "bench", name, "--mode", "tiny", *places],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    results = msgspec.json.decode((home / "state" / f"{name}.json").read_bytes(), type=kind)
    written = page.read_text()
    assert written.startswith("Before.\n")
    assert written.endswith("After.\n")
    assert "stale words" not in written
    assert report.text(results) in written
    assert report.text(results) in run.stdout
    return results


def run_part(subject: str, part: str, home: Path, **environ: str) -> tuple[int, dict[str, Any]]:
    """Run one trial of the smallest mode; the exit code, the counts and the failures."""
    result = home / "result.json"
    words = [subject, part, "--mode", "smoke", "--seed", "1", "--trial", "0"]
    run = subprocess.run(
        [sys.executable, "-m", "bench", *words, "--result", str(result)],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.exists(), run.stdout + run.stderr
    return run.returncode, json.loads(result.read_text())
