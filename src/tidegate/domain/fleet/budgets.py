"""How many hosts of a budget may be in flight at once, over all rollouts.

A plan freezes the slots of a budget for its rollout; the row counts what all rollouts have taken. A
lower bound applies at once, a higher one with the next plan, and a removed budget limits nothing.
"""

from __future__ import annotations

from tidegate.domain.fleet.rows import Budget


def slots(budget: Budget, members: int) -> int | None:
    """Return how many of this many members may be in flight; None: no limit.

    A share is rounded down, but at least 1. With both bounds the smaller one counts.
    """
    bounds = []
    if budget.max_in_flight is not None:
        bounds.append(budget.max_in_flight)
    if budget.max_in_flight_pct is not None:
        bounds.append(max(1, budget.max_in_flight_pct * members // 100))
    return min(bounds) if bounds else None


def current_bound(budget: Budget, frozen: int) -> int | None:
    """Return the current limit for an order whose plan froze this many slots; None: no limit."""
    if budget.removed:
        return None
    return frozen if budget.max_in_flight is None else min(frozen, budget.max_in_flight)
