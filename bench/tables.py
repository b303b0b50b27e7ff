"""Markdown tables that read as plain text, and their place on a page: for every bench."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    rule = "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
    lines = [
        " | ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
        for line in (headings, *rows)
    ]
    return "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])])


def put(path: Path, begin: str, end: str, text: str) -> None:
    """Replace the text between the marks; people write the text around them.

    Raises:
        ValueError: the file has no marks.
    """
    before, found_begin, rest = path.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise ValueError(f"{path.name} lacks the marks between which the tables go")
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")
