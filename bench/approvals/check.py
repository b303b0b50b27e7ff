"""Some rounds on one fresh log: eight proposals, approved at the same moment."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from pathlib import Path

from bench.trials import Findings, Trial
from tests.contract.approvals_at_once import APPROVALS, approve_at_once, opened_installation
from tests.differential.logs import Logs
from tidegate.domain.composition import FOLDS, SCHEMA
from tidegate.kernel.replay import differences

ROUNDS = {"smoke": 1, "ci": 5, "full": 50, "long": 50}


def run(trial: Trial) -> Findings:
    findings = Findings()
    with (
        tempfile.TemporaryDirectory(prefix="approvals-") as home,
        closing(Logs(trial.part, Path(home))) as logs,
        opened_installation(logs.store(SCHEMA), Path(home)) as installation,
    ):
        for number in range(ROUNDS[trial.mode]):
            began = time.monotonic()
            found = approve_at_once(installation, f"p{number}")
            findings.counts["rounds"] += 1
            findings.counts["approvals"] += len(found.answers)
            findings.counts["begun before another ended"] += found.overlapping
            elapsed = int(1_000 * (time.monotonic() - began))
            findings.counts["most milliseconds of a round"] = max(
                findings.counts["most milliseconds of a round"], elapsed
            )
            refused = [answer for answer in found.answers if answer != "done"]
            findings.counts["refused"] += len(refused)
            findings.failures += [f"round {number}: refused with {code}" for code in refused]
            if sorted(found.numbers) != list(range(1, APPROVALS + 1)):
                findings.failures.append(f"round {number}: numbers {sorted(found.numbers)}")
        findings.failures += [str(item) for item in differences(installation.store, FOLDS)][:5]
    return findings
