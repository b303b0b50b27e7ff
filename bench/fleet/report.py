"""The results as tables: the same text on the terminal and in docs/performance.md."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from bench.fleet.fleets import BATCH
from bench.fleet.measure import CLIENTS, PROCESSES
from bench.fleet.results import PEERS, PROMISED_HOSTS, Floor, Results, floors
from bench.tables import put, table

BEGIN = "<!-- fleet: begin (written by `python -m bench fleet`) -->"
END = "<!-- fleet: end -->"


def text(results: Results) -> str:
    """All tables, as Markdown that reads as plain text too."""
    parts = (_setting, _reports, _stages, _growth, _size, _floors)
    return "\n\n".join(part(results) for part in parts)


def write(path: Path, results: Results) -> None:
    """Replace the tables on the page. Raises: ValueError: the file has no marks."""
    put(path, BEGIN, END, text(results))


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
    return f"{title} ({PROCESSES} processes, one rollout)\n\n" + table(
        ["", "reports/s", "facts/s", "CPU of a report, µs", "conflicts"], rows
    )


def _stages(results: Results) -> str:
    whole = sum(results.stages.values())
    rows = [
        [name, f"{spent:.1f}", f"{100 * spent / whole:.0f} %"]
        for name, spent in results.stages.items()
    ]
    rows.append(["all", f"{whole:.1f}", "100 %"])
    return "### CPU of a report by stage, in batches on sqlite\n\n" + table(
        ["stage", "µs", "share"], rows
    )


def _growth(results: Results) -> str:
    rows = [
        [
            f"{sizes[0].hosts:,}",
            f"{median(item.first for item in sizes):.0f}",
            f"{median(item.later for item in sizes):.0f}",
        ]
        for sizes in zip(*results.growth, strict=True)
    ]
    ratios = f"{min(results.growths):.2f} in the best round, {median(results.growths):.2f} in the"
    return (
        "### CPU of a report by the size of its rollout, µs\n\n"
        f"Medians of {len(results.growth)} rounds that took turns. Large ÷ small of later reports: "
        f"{ratios} median one.\n\n" + table(["hosts", "first report of a host", "later ones"], rows)
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
    return f"### A fleet of {size.hosts:,} hosts on sqlite\n\n" + table(["", "found"], rows)


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
    return f"### Floors of the fleet\n\n{note}" + table(
        ["floor", "bound", "found", "reached"], rows
    )


def _figure(floor: Floor) -> str:
    return f"{floor.found:,.0f}" if floor.found >= 100 else f"{floor.found:.2f}"
