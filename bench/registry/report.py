"""The results as tables: the same text on the terminal and in docs/performance.md."""

from __future__ import annotations

from pathlib import Path

from bench.registry.measure import Verb
from bench.registry.results import MEDIAN, PEER, PROMISED_REVISIONS, TAIL, Results, floors
from bench.tables import put, table

BEGIN = "<!-- registry: begin (written by `python -m bench registry`) -->"
END = "<!-- registry: end -->"
UNKNOWN = "–"


def text(results: Results) -> str:
    """All tables, as Markdown that reads as plain text too."""
    return "\n\n".join((_setting(results), _waits(results), _floors(results)))


def write(path: Path, results: Results) -> None:
    """Replace the tables on the page. Raises: ValueError: the file has no marks."""
    put(path, BEGIN, END, text(results))


def _setting(results: Results) -> str:
    facts = [f"- {name}: {value}" for name, value in results.machine.items()]
    return f"{results.at}, {results.rounds:,} rounds, one client.\n\n" + "\n".join(facts)


def _waits(results: Results) -> str:
    headings = ["", *(f"{size:,} revisions" for size in results.sizes), "growth", "porch"]
    rows = [
        [
            str(verb),
            *(_pair(results, size, verb) for size in results.sizes),
            f"{results.growth(verb):.2f}",
            f"{PEER[verb]:,.0f}" if verb in PEER else UNKNOWN,
        ]
        for verb in Verb
    ]
    return "### A client waits for a verb, median / p99 in ms\n\n" + table(headings, rows)


def _pair(results: Results, size: int, verb: Verb) -> str:
    median, tail = (results.share(size, verb, share) for share in (MEDIAN, TAIL))
    return f"{median:.2f} / {tail:.2f}"


def _floors(results: Results) -> str:
    note = ""
    if results.sizes[-1] != PROMISED_REVISIONS:
        note = (
            f"\n\nThe floors are meant for {PROMISED_REVISIONS:,} revisions; this run had "
            f"{results.sizes[-1]:,}."
        )
    rows = [
        [
            floor.text,
            f"≤ {floor.bound:g}",
            f"{floor.found:.2f}",
            "yes" if floor.reached else "**no**",
        ]
        for floor in floors(results)
    ]
    return f"### Floors of the registry{note}\n\n" + table(
        ["floor", "bound", "found", "reached"], rows
    )
