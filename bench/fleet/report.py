"""The results as tables: the same text on the terminal and in docs/performance.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.fleet.fleets import BATCH
from bench.fleet.measure import CLIENTS, PROCESSES
from bench.fleet.results import PEERS, PROMISED_HOSTS, Floor, Results, floors

BEGIN = "<!-- fleet: begin (written by `python -m bench fleet`) -->"
END = "<!-- fleet: end -->"


def text(results: Results) -> str:
    """All tables, as Markdown that reads as plain text too."""
    parts = (_setting, _reports, _stages, _growth, _size, _floors)
    return "\n\n".join(part(results) for part in parts)


def write(path: Path, results: Results) -> None:
    """Replaces what stands between the marks; the words around it are a person's.

    Raises:
        ValueError: the file has no marks.
    """
    before, begin, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path.name} lacks the marks between which the tables go")
    path.write_text(f"{before}{BEGIN}\n\n{text(results)}\n\n{END}{after}")


def _setting(results: Results) -> str:
    facts = [f"- {name}: {value}" for name, value in results.machine.items()]
    return f"{results.at}.\n\n" + "\n".join(facts)


def _reports(results: Results) -> str:
    rows = [
        [
            name,
            f"{rate.per_second:,.0f}",
            f"{rate.facts_per_second:,.0f}",
            f"{rate.microseconds:,.0f}",
            f"{rate.conflicts}",
        ]
        for name, rate in results.reports.items()
    ]
    title = f"### Durable reports, in batches of {BATCH}, and of {CLIENTS} clients one by one"
    return f"{title} ({PROCESSES} processes, one rollout)\n\n" + _table(
        ["", "reports/s", "facts/s", "CPU of a report, µs", "conflicts"], rows
    )


def _stages(results: Results) -> str:
    whole = sum(results.stages.values())
    rows = [
        [name, f"{spent:.1f}", f"{100 * spent / whole:.0f} %"]
        for name, spent in results.stages.items()
    ]
    rows.append(["all", f"{whole:.1f}", "100 %"])
    return "### CPU of a report by stage, in batches on sqlite\n\n" + _table(
        ["stage", "µs", "share"], rows
    )


def _growth(results: Results) -> str:
    rows = [
        [f"{item.hosts:,}", f"{item.first:.0f}", f"{item.later:.0f}"] for item in results.growth
    ]
    return "### CPU of a report by the size of its rollout, µs\n\n" + _table(
        ["hosts", "first report of a host", "later ones"], rows
    )


def _size(results: Results) -> str:
    size = results.size
    rows = [
        ["opening its rollout, s", f"{size.open_seconds:.2f}"],
        ["facts of the opening", f"{size.open_facts}"],
        ["plan pass, nobody ordered, s", f"{size.fresh_pass_seconds:.2f}"],
        ["plan pass, everybody ordered, s", f"{size.full_pass_seconds:.2f}"],
        ["rebuild of all views, facts", f"{results.rebuilt_facts:,}"],
        ["rebuild of all views, facts/s", f"{results.rebuilt_per_second:,.0f}"],
        *([name, envelope] for name, envelope in PEERS.items()),
    ]
    return f"### A fleet of {size.hosts:,} hosts on sqlite\n\n" + _table(["", "found"], rows)


def _floors(results: Results) -> str:
    note = ""
    if results.size.hosts != PROMISED_HOSTS:
        note = f"The floors are meant for {PROMISED_HOSTS:,} hosts; this run had fewer.\n\n"
    rows = [
        [
            floor.text,
            f"{'≥' if floor.at_least else '≤'} {floor.bound:,g}",
            _figure(floor),
            "yes" if floor.reached else "**no**",
        ]
        for floor in floors(results)
    ]
    return f"### Floors of the fleet\n\n{note}" + _table(
        ["floor", "bound", "found", "reached"], rows
    )


def _figure(floor: Floor) -> str:
    return f"{floor.found:,.0f}" if floor.found >= 100 else f"{floor.found:.2f}"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    rule = "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
    lines = [
        " | ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
        for line in (headings, *rows)
    ]
    return "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])])
