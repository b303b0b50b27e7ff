"""Real servers are killed under load: what they acknowledged exists after each restart.

A kill does not lose what the system has in memory, so this proves nothing about syncs: ``power``
does. It proves that nothing is acknowledged before it is committed, that an interrupted start can
be repeated, and that a request without a response can be sent again.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from pathlib import Path

from bench.faults import http_load, workload
from bench.faults.http_load import HttpLoad, LoadLedger
from bench.faults.server import DoesNotStart, ServerProcess, prepare, serving
from bench.trials import Findings, Trial

KILLS = {"smoke": 2, "ci": 5, "full": 10, "long": 10}  # of one trial
FIRST_ACK_SECONDS_MAX = 60.0
LOAD_SECONDS_MAX = 0.7  # from the first acknowledgement to the kill


def run(trial: Trial) -> Findings:
    findings, random = Findings(), trial.random()
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        data = Path(name) / "data"
        token = prepare(data)
        ledger = LoadLedger()
        for number in range(KILLS[trial.mode]):
            seconds = random.random() * LOAD_SECONDS_MAX
            early = random.random() < 0.2  # some kills happen during a start
            try:
                if early:
                    _kill_start(data, random.random() * 2.0)
                    findings.counts["starts killed"] += 1
                _cycle(data, token, ledger, f"k{number}", seconds, findings)
            except DoesNotStart as error:
                findings.failures.append(f"after kill {number}: {error}")
                return findings
        try:
            with serving(data) as server:
                _check(server.port, token, ledger, 0, findings)
                if server.stop() != 0:
                    findings.failures.append("it does not stop gracefully")
        except DoesNotStart as error:
            findings.failures.append(f"after the last kill: {error}")
            return findings
        findings.failures += ledger.odd
        findings.counts["acknowledged"] += len(ledger.acknowledged)
        with closing(workload.opened(data)) as installation:
            findings.failures += workload.differences_of(installation)[:3]
    return findings


def _kill_start(data: Path, seconds: float) -> None:
    server = ServerProcess(data)
    time.sleep(seconds)  # any point of the start will do
    server.kill()


def _cycle(
    data: Path, token: str, ledger: LoadLedger, prefix: str, seconds: float, findings: Findings
) -> None:
    """Start, compare with the ledger, load, kill."""
    before = len(ledger.acknowledged)
    with serving(data) as server:
        _check(server.port, token, ledger, max(0, before - 500), findings)
        before = len(ledger.acknowledged)
        with HttpLoad(server.port, token, ledger, prefix=prefix):
            came = http_load.wait_until(
                lambda: len(ledger.acknowledged) > before, FIRST_ACK_SECONDS_MAX
            )
            if not came:
                findings.failures.append("nothing is acknowledged")
            time.sleep(seconds)
            server.kill()
    findings.counts["kills"] += 1
    findings.counts["requests without an answer"] += len(ledger.unknown)


def _check(port: int, token: str, ledger: LoadLedger, since: int, findings: Findings) -> None:
    wrong = http_load.missing(port, token, ledger.acknowledged[since:])
    wrong += http_load.resend_unknown(port, token, ledger)
    findings.failures += wrong[:5]
