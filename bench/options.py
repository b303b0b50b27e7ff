"""The options that the measuring benches share, and where their results go."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
STATE = Path(tempfile.gettempdir()) / "tidegate-bench"


def make_parser(bench: str, description: str | None) -> argparse.ArgumentParser:
    """Make the parser of a bench, with the option ``--state``."""
    parser = argparse.ArgumentParser(
        prog=f"python -m bench {bench}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--state", type=Path, default=STATE, help="where filled logs and results are kept"
    )
    return parser


def add_modes(parser: argparse.ArgumentParser, modes: Iterable[str], does: str) -> None:
    """Add ``--mode``, and ``--page`` for the tables of a long run."""
    parser.add_argument("--mode", choices=modes, default="ci", help=does)
    parser.add_argument(
        "--page",
        type=Path,
        help="file to write the tables into; default for a whole long run: docs/performance.md",
    )


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
