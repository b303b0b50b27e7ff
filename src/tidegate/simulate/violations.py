"""How a broken invariant is reported, and the check that reports it."""

from __future__ import annotations

from collections.abc import Callable


class InvariantViolation(AssertionError):
    """Something that must hold does not."""


def demand(holds: bool, what: Callable[[], str]) -> None:
    if not holds:
        raise InvariantViolation(what())
