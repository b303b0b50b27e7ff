"""A bench of HTTP or of pages, run whole in its tiny mode, and the page of results it wrote."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, TypeVar

import msgspec

ROOT = Path(__file__).parents[2]

Results = TypeVar("Results")


def measured(name: str, report: Any, kind: type[Results], home: Path) -> Results:
    """What the bench of this name found: the same is in its file, on the page and on the screen."""
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
