"""The bench of attacks: each part runs in its smallest mode and finds nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from bench.attack.raw import TEMPLATES, spoil
from bench.attack.xss import list_unvisited
from tests.bench.harness import run_part
from tidegate.dashboard.routes import PAGES

# How much a part must have done to be meaningful.
DEMANDED = {
    "raw": ("requests", 300),
    "json": ("bodies", 80),
    "rates": ("refused with 429", 100),
    "permissions": ("cells", 300),
    "ssrf": ("forms", 70),
    "secrets": ("secrets", 6),
    "agent": ("hostile responses", 3),
    "xss": ("pages", 60),
    "load": ("abusers", 2),
}


@pytest.mark.in_bench
@pytest.mark.parametrize("part", DEMANDED)
def test_holds_against_an_attack(part: str, tmp_path: Path) -> None:
    code, found = run_part("attack", part, tmp_path)

    name, least = DEMANDED[part]
    assert (code, found["failures"]) == (0, [])
    assert found["counts"][name] >= least


def test_spoils_requests_the_same_way_for_the_same_seed() -> None:
    first = [spoil(Random(7), template) for template in TEMPLATES]

    assert first == [spoil(Random(7), template) for template in TEMPLATES]
    assert first != list(TEMPLATES)


def test_visits_every_page_of_the_dashboard() -> None:
    shown = next(route for route in PAGES if route.path == "/approvals")
    more = (*PAGES, replace(shown, path="/forgotten"))

    assert list(list_unvisited()) == []
    assert list(list_unvisited(more)) == ["/forgotten"]
