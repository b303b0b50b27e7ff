"""The results as a table."""

from __future__ import annotations

from bench.abuse.results import Case, Results
from bench.tables import table


def text(results: Results) -> str:
    headings = ["", "memory, MB", "allowed", "CPU", "/livez p50, ms", "p99", "polls", "served"]
    rows = [_row(case) for case in (results.alone, *results.cases)]
    pace = f"{results.agents} agents poll every {results.every:g} s"
    said = [
        f"{results.at}. {pace}; {results.seconds:g} s for each case.",
        "\n".join(f"- {name}: {value}" for name, value in results.machine.items()),
        table(headings, rows),
    ]
    broken = results.broken()
    said.append("\n".join(f"BROKEN {line}" for line in broken) or "Every bound holds.")
    if not results.are_times_judged:
        said.append("Response times are not checked in this mode.")
    return "\n\n".join(said)


def _row(case: Case) -> list[str]:
    return [
        case.name,
        f"+{case.growth_bytes / 1e6:.1f}",
        f"{case.growth_bytes_max / 1e6:.0f}",
        f"{case.cpu_share:.0%}",
        f"{case.live_median_ms:.1f}",
        f"{case.live_tail_ms:.1f}",
        f"{case.polls:,}",
        "yes" if case.is_served else "NO",
    ]
