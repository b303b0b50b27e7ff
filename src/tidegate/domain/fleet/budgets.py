"""How many hosts of a budget may be in flight at once, over all rollouts.

A plan freezes how many slots a budget has for its rollout; the row counts what is taken by all of
them. A bound that was tightened since counts at once, a looser one with the next plan, and a
budget that was removed bounds nothing more.
"""

from __future__ import annotations

from tidegate.domain.fleet.rows import Budget


def slots(budget: Budget, members: int) -> int | None:
    """How many of this many members may be in flight; None: as many as there are.

    A share is rounded down, and never to nothing. With both bounds the smaller one counts.
    """
    bounds = []
    if budget.max_in_flight is not None:
        bounds.append(budget.max_in_flight)
    if budget.max_in_flight_pct is not None:
        bounds.append(max(1, budget.max_in_flight_pct * members // 100))
    return min(bounds) if bounds else None


def current_bound(budget: Budget, frozen: int) -> int | None:
    """What holds now for an order whose plan froze this many slots; None: nothing does."""
    if budget.removed:
        return None
    return frozen if budget.max_in_flight is None else min(frozen, budget.max_in_flight)
