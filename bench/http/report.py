"""The results as tables: the same text on the terminal and in docs/performance.md."""

from __future__ import annotations

from pathlib import Path

from bench.http.results import PROMISED_AGENTS, Cost, Results, floors
from bench.tables import put, table

BEGIN = "<!-- http: begin (written by `python -m bench http`) -->"
END = "<!-- http: end -->"


def text(results: Results) -> str:
    """All tables, as Markdown that reads as plain text too."""
    parts = (_setting, _routes, _frames, _running, _following, _floors)
    return "\n\n".join(part(results) for part in parts)


def write(path: Path, results: Results) -> None:
    """Replace the tables on the page. Raises: ValueError: the file has no marks."""
    put(path, BEGIN, END, text(results))


def _setting(results: Results) -> str:
    return f"{results.at}.\n\n" + "\n".join(f"- {n}: {v}" for n, v in results.machine.items())


def _routes(results: Results) -> str:
    def row(name: str, cost: Cost) -> list[str]:
        waits = f"{cost.median_ms:.1f} / {cost.tail_ms:.1f}"
        return [name, f"{cost.cpu_microseconds:,.0f}", f"{cost.per_second:,.0f}", waits]

    headings = ["", "server's CPU, µs", "per second", "median / p99, ms"]
    rows = [
        row("durable single report", results.report),
        row("unchanged poll", results.poll),
    ]
    return "### The hot routes\n\n" + table(headings, rows)


def _frames(results: Results) -> str:
    rows = [[name, f"{spent:,.0f}"] for name, spent in results.frames.items()]
    rows.append(["all", f"{sum(results.frames.values()):,.0f}"])
    return "### CPU of a report by frame, µs\n\n" + table(["frame", "µs"], rows)


def _running(results: Results) -> str:
    found = results.running
    rows = [
        ["polls answered, orders among them", f"{found.polls:,}, {found.ordered:,}"],
        ["poll, median / p99, ms", f"{found.poll_median_ms:.1f} / {found.poll_tail_ms:.1f}"],
        ["report, median / p99, ms", f"{found.report_median_ms:.1f} / {found.report_tail_ms:.1f}"],
        ["CPU of the server, share of a core", f"{found.cpu_share:.0%}"],
        ["resident over the run, MiB", " → ".join(f"{mib:.0f}" for mib in found.resident_mib)],
        ["of it private, MiB", " → ".join(f"{mib:.0f}" for mib in found.private_mib)],
    ]
    title = f"### {found.agents:,} agents that poll every {found.every:g} s while a rollout runs"
    return f"{title}\n\n" + table(["", "found"], rows)


def _following(results: Results) -> str:
    found = results.following
    rows = [
        ["events that each of them got", f"{found.events:,}"],
        ["server's CPU per event and subscriber, µs", f"{found.cpu_microseconds:.1f}"],
        ["last report's answer to last subscriber, ms", f"{found.last_milliseconds:.0f}"],
    ]
    return f"### {found.subscribers:,} subscribers by SSE\n\n" + table(["", "found"], rows)


def _floors(results: Results) -> str:
    note = ""
    if results.running.agents != PROMISED_AGENTS:
        note = f"\n\nThe floors are meant for {PROMISED_AGENTS:,} agents; this run had fewer."
    rows = [
        [
            floor.text,
            f"{'≥' if floor.at_least else '≤'} {floor.bound:g}",
            f"{floor.found:,.2f}",
            "yes" if floor.reached else "**no**",
        ]
        for floor in floors(results)
    ]
    return f"### Floors over HTTP{note}\n\n" + table(["floor", "bound", "found", "reached"], rows)
