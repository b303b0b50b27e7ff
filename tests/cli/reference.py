"""Write docs/cli.md: ``python -m tests.cli.reference``."""

from __future__ import annotations

from pathlib import Path

from tidegate.__main__ import COMMANDS
from tidegate.cli.reference import reference
from tidegate.cli.root import root

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"

if __name__ == "__main__":
    PAGE.write_text(reference(root(COMMANDS)))
