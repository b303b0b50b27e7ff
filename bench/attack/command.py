"""`python -m bench attack`: the parts, and the number of trials of each in each mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from bench import trials
from bench.trials import Part, Subject, imported


def _demand(name: str, least: int = 1) -> Callable[[Counter[str]], list[str]]:
    def blind_spots(counts: Counter[str]) -> list[str]:
        return [] if counts[name] >= least else [f"{name}: {counts[name]}, not {least}"]

    return blind_spots


def _part(name: str, demanded: str, least: int = 1, **trials: int) -> Part:
    sizes = {"smoke": 1, "ci": 1, "full": 1, "long": 1, **trials}
    return Part(name, sizes, imported(f"bench.attack.{name}"), _demand(demanded, least))


SUBJECT = Subject(
    "attack",
    (
        _part("raw", "requests", 500, ci=2, full=10, long=100),
        _part("json", "bodies", 500),
        _part("rates", "refused with 429", 10),
        _part("permissions", "cells", 1_000),
        _part("ssrf", "forms", 70),
        _part("secrets", "secrets", 5),
        _part("agent", "hostile responses", 6),
        _part("xss", "pages", 60),
        Part(
            "load",
            {"smoke": 1, "ci": 2, "full": 2, "long": 2},
            imported("bench.attack.load"),
            _demand("abusers", 1),
            is_alone=True,
        ),
    ),
)


def main(arguments: Sequence[str]) -> int:
    return trials.main(SUBJECT, arguments)
