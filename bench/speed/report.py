"""The results as tables: the same text on the terminal and in docs/performance.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from bench.speed.floors import (
    FLOORS,
    OURS,
    PROMISED_EVENTS,
    Figure,
    append_ratio,
    read_ratio,
    rows_cost,
)
from bench.speed.measure import Sample, Work
from bench.speed.results import Results
from bench.speed.workload import BATCHES, CLIENTS, READS, Layout
from bench.tables import put, table

BEGIN = "<!-- measured: begin (written by `python -m bench speed`) -->"
END = "<!-- measured: end -->"
UNMEASURED = "–"

Column = tuple[str, Callable[[str], str]]  # heading, contender → text


def text(results: Results) -> str:
    """All tables, as Markdown that reads as plain text too."""
    parts = [
        _setting(results),
        _appends(results),
        _append_ratios(results),
        _waits(results),
        _cpu(results),
        _reads(results),
        _batches(results),
        _rows(results),
        _memory(results),
        floors(results),
    ]
    return "\n\n".join(part for part in parts if part)


def write(path: Path, results: Results) -> None:
    """Replace the tables on the page. Raises: ValueError: the file has no marks."""
    put(path, BEGIN, END, text(results))


def floors(results: Results) -> str:
    """Every floor with the figure found."""
    said = {True: "yes", False: "**no**", None: "not measured"}
    rows = []
    for floor in FLOORS:
        best = floor.best(results)
        rows.append(
            [
                floor.text,
                f"{'≤' if floor.at_most else '≥'} {floor.bound:g}",
                UNMEASURED if best is None else f"{best:.2f}",
                UNMEASURED if best is None else f"{median(floor.figure(results)):.2f}",
                said[floor.reached(results)],
            ]
        )
    note = ""
    if results.events != PROMISED_EVENTS:
        note = (
            f"\n\nThe floors are meant for a log of {PROMISED_EVENTS:,} events; this run had "
            f"{results.events:,}."
        )
    return f"### Floors{note}\n\n" + table(
        ["floor", "bound", "best round", "median", "reached"], rows
    )


def _setting(results: Results) -> str:
    facts = [f"{name}: {value}" for name, value in results.machine.items()]
    facts += [f"{name}: {title}" for name, title in results.titles.items()]
    best = f"best of {results.rounds} interleaved rounds, {results.seconds:g} s a cell"
    return f"{results.at}, {best}.\n\n" + "\n".join(f"- {fact}" for fact in facts)


def _appends(results: Results) -> str:
    columns = _on_both_logs(results, lambda sample: f"{sample.rate:,.0f}")
    return _section(results, "Conditional append of one event, commits per second", columns)


def _append_ratios(results: Results) -> str:
    parts = []
    for ours in OURS:
        columns = [
            _ratio(
                results, _heading(results, filled, size), _append_ratio(ours, size, filled=filled)
            )
            for filled in (False, True)
            for size in CLIENTS
        ]
        parts.append(_section(results, f"The same: {ours} as a multiple of each", columns))
    return "\n\n".join(part for part in parts if part)


def _waits(results: Results) -> str:
    columns = _on_both_logs(results, lambda it: f"{it.median:,.0f} / {it.p99:,.0f}")
    return _section(results, "A client waits for its commit, median / p99 in µs", columns)


def _cpu(results: Results) -> str:
    columns = _on_both_logs(results, lambda it: f"{it.client_cpu:,.0f} + {it.server_cpu:,.0f}")
    return _section(results, "CPU per commit in µs, clients' process + server", columns)


def _reads(results: Results) -> str:
    layout = Layout(results.events)
    found = {size: f"{layout.events_under(size):,} events" for size in READS}
    columns = [
        _measured(results, found[size], (Work.READ, size), lambda it: f"{it.median:,.0f}")
        for size in READS
    ]
    columns += [_ratio(results, f"÷ sqlite, {found[size]}", _read_ratio(size)) for size in READS]
    return _section(results, "Boundary read by one tag, median in µs", columns)


def _batches(results: Results) -> str:
    columns = [_batch(results, size) for size in BATCHES]
    return _section(results, "Batch append by one client, events per second", columns)


def _batch(results: Results, size: int) -> Column:
    heading = f"{size:,} a commit"
    return _measured(results, heading, (Work.BATCH, size), lambda it: f"{it.rate * size:,.0f}")


def _rows(results: Results) -> str:
    columns: list[Column] = []
    for size in CLIENTS:
        columns += [
            _measured(results, f"{work}, {size}", (work, size), lambda it: f"{it.rate:,.0f}")
            for work in (Work.ALONE, Work.ROWS)
        ]
        columns.append(_ratio(results, f"cost, {size}", _rows_cost(size)))
    title = "Event alone, and with state row, outbox row and idempotency key, commits per second"
    return _section(results, title, columns)


def _memory(results: Results) -> str:
    if results.memory is None:
        return ""
    rows = [
        [f"{mark.events:,}", f"{mark.resident / 2**20:.1f}", f"{mark.private / 2**20:.1f}"]
        for mark in results.memory
    ]
    return "### Resident memory of a process that appends to sqlite, MiB\n\n" + table(
        ["events", "resident", "of it private"], rows
    )


def _append_ratio(ours: str, size: int, *, filled: bool) -> Callable[[str], Figure]:
    """Ours compared with each other contender."""
    return lambda peer: append_ratio(ours, peer if peer != ours else "", size, filled=filled)


def _read_ratio(size: int) -> Callable[[str], Figure]:
    return lambda peer: read_ratio("sqlite", peer, size)


def _rows_cost(size: int) -> Callable[[str], Figure]:
    return lambda ours: rows_cost(ours, size)


def _heading(results: Results, filled: bool, clients: int) -> str:
    return f"{f'{results.events:,}' if filled else 'empty'}, {clients}"


def _on_both_logs(results: Results, show: Callable[[Sample], str]) -> list[Column]:
    return [
        _measured(
            results, _heading(results, filled, size), (Work.APPEND, size), show, filled=filled
        )
        for filled in (False, True)
        for size in CLIENTS
    ]


def _measured(
    results: Results,
    heading: str,
    cell: tuple[Work, int],
    show: Callable[[Sample], str],
    *,
    filled: bool = True,
) -> Column:
    def figure(name: str) -> str:
        sample = results.sample(name, *cell, filled=filled)
        return UNMEASURED if sample is None else show(sample)

    return heading, figure


def _ratio(results: Results, heading: str, figure_of: Callable[[str], Figure]) -> Column:
    def figure(name: str) -> str:
        found = figure_of(name)(results)
        return f"{median(found):.2f}" if found else UNMEASURED

    return heading, figure


def _section(results: Results, title: str, columns: Sequence[Column]) -> str:
    """A table of contenders; those without any figure are omitted, and so is an empty table."""
    rows = [[name, *(figure(name) for _, figure in columns)] for name in results.titles]
    rows = [row for row in rows if set(row[1:]) != {UNMEASURED}]
    if not rows:
        return ""
    return f"### {title}\n\n" + table(["", *(heading for heading, _ in columns)], rows)
