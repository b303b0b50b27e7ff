"""Abusive clients next to 1,000 agents: memory, and the response times of everyone else.

The abusive clients, the agents and the bounds are those of ``bench/abuse``. Memory, and whether the
others are served, matter in every mode. Response times matter only in the modes with long measures,
on an idle machine: five seconds on a busy machine prove little, so ci mode only counts a slow case.
A case that is too slow is tried once more, together with a new measure of the server without an
abusive client. First, a single client sends each kind of endless request until the server closes
the connection: this shows whether there is a limit, at any load.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.abuse import measure
from bench.abuse.attacks import ATTACKS, ENDLESS, UNFINISHED_BYTES_MAX, is_endless_taken
from bench.abuse.command import RATES
from bench.abuse.results import LIVE_MS_MAX, SLOWER_TIMES_MAX, Case
from bench.http.prepared_data import PreparedData, fill
from bench.http.server import Server, serving
from bench.trials import Findings, Trial

AGENTS = {"smoke": 50}
AGENTS_DEFAULT = 1_000
EVERY_SECONDS = 30.0
SECONDS = {"smoke": 2.0, "ci": 5.0, "full": 60.0, "long": 60.0}
GROUPS = 2  # trials that share the abusive clients
WARM_UP_SECONDS = 3.0
TIMES_JUDGED_IN = frozenset({"full", "long"})


def run(trial: Trial) -> Findings:
    findings = Findings()
    seconds = SECONDS[trial.mode]
    names = sorted(ATTACKS)[trial.number % GROUPS :: GROUPS]
    if trial.mode == "smoke":
        names = names[:2]
    with tempfile.TemporaryDirectory(prefix="load-") as home:
        prepared = fill(Path(home) / "data", 8, AGENTS.get(trial.mode, AGENTS_DEFAULT))
        with serving(prepared.data, *RATES) as server:
            findings.failures += _list_taken(server, findings)
            if findings.failures:
                return findings  # then a load would show nothing more
            _measure(prepared, server, measure.ALONE, WARM_UP_SECONDS)
            alone = _measure(prepared, server, measure.ALONE, seconds)
            findings.counts["most µs of /livez p99 alone"] = int(alone.live_tail_ms * 1e3)
            for name in names:
                case = _try(prepared, server, name, seconds, findings)
                if _is_slow(case, alone):
                    findings.counts["slow at first"] += 1
                    if trial.mode in TIMES_JUDGED_IN:
                        _try_again(prepared, server, name, seconds, findings)
    return findings


def _list_taken(server: Server, findings: Findings) -> Iterator[str]:
    for name in ENDLESS:
        findings.counts["endless requests"] += 1
        try:
            is_taken = is_endless_taken(name, server.port)
        except TimeoutError:
            yield f"{name}: the server neither reads it nor closes the connection"
            return
        if is_taken:
            yield f"{name}: the server took {UNFINISHED_BYTES_MAX / 1e6:.0f} MB of one request"
            return


def _measure(prepared: PreparedData, server: Server, name: str, seconds: float) -> Case:
    return measure.case(prepared, server, name, seconds, EVERY_SECONDS)


def _try(
    prepared: PreparedData, server: Server, name: str, seconds: float, findings: Findings
) -> Case:
    case = _measure(prepared, server, name, seconds)
    findings.counts["abusers"] += 1
    findings.counts["polls"] += case.polls
    kilobytes = int(case.growth_bytes / 1e3)
    findings.counts["most kilobytes of one"] = max(
        findings.counts["most kilobytes of one"], kilobytes
    )
    if case.growth_bytes > case.growth_bytes_max:
        findings.failures.append(f"{name}: memory grew by {case.growth_bytes / 1e6:.0f} MB")
    if not case.is_served:
        findings.failures.append(f"{name}: another client was not served")
    return case


def _try_again(
    prepared: PreparedData, server: Server, name: str, seconds: float, findings: Findings
) -> None:
    alone = _measure(prepared, server, measure.ALONE, seconds)
    case = _measure(prepared, server, name, seconds)
    if _is_slow(case, alone):
        tail = f"{case.live_tail_ms:.0f} ms, alone {alone.live_tail_ms:.0f} ms"
        findings.failures.append(f"{name}: p99 of /livez is {tail}")


def _is_slow(case: Case, alone: Case) -> bool:
    return case.live_tail_ms > max(LIVE_MS_MAX, SLOWER_TIMES_MAX * alone.live_tail_ms)
