"""`python -m bench faults`: the parts, and how often each is tried in each mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench import trials
from bench.trials import Part, Subject, imported


def _power_blind_spots(counts: Counter[str]) -> list[str]:
    blind = []
    if not counts["of them lost commits"]:
        blind.append("synchronous=NORMAL loses nothing here")
    if not counts["acknowledged before cuts"]:
        blind.append("no cut came after an acknowledgement")
    return blind


SUBJECT = Subject(
    "faults",
    (
        Part(
            "power",
            {"smoke": 1, "ci": 10, "full": 40, "long": 400},
            imported("bench.faults.power"),
            _power_blind_spots,
            preload="recorder",
        ),
    ),
)


def main(arguments: Sequence[str]) -> int:
    return trials.main(SUBJECT, arguments)
