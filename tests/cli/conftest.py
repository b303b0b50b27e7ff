"""Servers and shells for tests of the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.api.served_fleet import ServedFleet, serve_fleet
from tests.api.serving import Served, serving
from tests.cli.shell import Shell
from tidegate.domain.access.roles import Grant, Role

Seat = Callable[..., Shell]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server for one test, set up by its administrator, on SQLite."""
    with serving(tmp_path / "data") as server:
        yield server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests of a module that do not affect each other."""
    with serving(tmp_path_factory.mktemp("shared") / "data") as server:
        yield server


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ServedFleet]:
    """A server for one test, with releases, hosts and a channel."""
    with serve_fleet(tmp_path / "data") as fleet:
        fleet.create()
        yield fleet


@pytest.fixture
def seat(tmp_path: Path, shared: Served) -> Seat:
    """Make a shell of a new person with these roles, or with all roles if none is given."""
    count = 0

    def seated(*roles: Role | Grant) -> Shell:
        nonlocal count
        count += 1
        grants = tuple(item if isinstance(item, Grant) else Grant(item) for item in roles or Role)
        return Shell(tmp_path / f"home-{count}", shared.url, shared.token(shared.user(*grants)))

    return seated
