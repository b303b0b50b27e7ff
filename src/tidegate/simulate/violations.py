"""The error for a broken invariant."""

from __future__ import annotations

from collections.abc import Callable


class InvariantViolation(AssertionError):
    """An invariant of the simulation is broken."""


def demand(holds: bool, what: Callable[[], str]) -> None:
    if not holds:
        raise InvariantViolation(what())
