"""The results as a table: the same text on the terminal and in docs/performance.md."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from bench.pages.measure import Painted, Visit
from bench.tables import put

BEGIN = "<!-- pages: begin (written by `python -m bench pages`) -->"
END = "<!-- pages: end -->"
LOAD_MILLISECONDS = 1_000
REPAINT_MILLISECONDS = 16


class Results(Struct, frozen=True):
    """One run."""

    at: str
    machine: dict[str, str]
    hosts: int
    overview: Visit
    rollout: Visit
    painted: Painted

    def save(self, path: Path) -> None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))


def text(results: Results) -> str:
    """A table, as Markdown that reads as plain text too."""
    head = f"{results.at}; {results.hosts:,} hosts, each with its order.\n\n"
    head += "\n".join(f"- {name}: {value}" for name, value in results.machine.items())
    load, paint = f"≤ {LOAD_MILLISECONDS:,}", f"≤ {REPAINT_MILLISECONDS}"
    visits = {
        "overview, loaded": results.overview,
        "rollout's page, every square drawn": results.rollout,
    }
    rows = [
        (f"{name}: {which}", getattr(visit, said), load)
        for name, visit in visits.items()
        for which, said in (
            ("first visit after a start", "first"),
            ("a browser's first", "fresh"),
            ("again", "again"),
        )
    ]
    rows.append(("repaint of every square", results.painted.whole, paint))
    rows.append(("repaint of 1,000 squares", results.painted.some, paint))
    wide = max(len(name) for name, _, _ in rows)
    lines = [
        f"| {'':{wide}} | found, ms |   bound | reached |",
        f"|{'-' * (wide + 2)}|----------:|--------:|--------:|",
    ]
    for name, found, bound in rows:
        reached = found <= float(bound[2:].replace(",", ""))
        said = "yes" if reached else "**no**"
        lines.append(f"| {name:{wide}} | {found:9,.1f} | {bound:>7} | {said:>7} |")
    return head + "\n\n" + "\n".join(lines)


def write(path: Path, results: Results) -> None:
    """Replace the table on the page. Raises: ValueError: the file has no marks."""
    put(path, BEGIN, END, text(results))
