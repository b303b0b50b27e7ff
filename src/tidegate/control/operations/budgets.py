"""What an operator does to a budget: set and remove it."""

from __future__ import annotations

from tidegate.control.operations.execute import Execute
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.roles import EVERYWHERE
from tidegate.domain.access.steps import REMOVE_BUDGET, SET_BUDGET
from tidegate.domain.fleet.slices import RemoveBudget, SetBudget, remove_budget, set_budget
from tidegate.kernel.model import Position


class BudgetOperations:
    """The verbs of a budget. Each returns the log position at which it was done, 0 if nothing had
    to change.

    Raises:
        MissingPermission.
    """

    def __init__(self, execute: Execute) -> None:
        self._execute = execute

    def set(
        self,
        caller: Caller,
        budget_id: str,
        selector: str,
        *,
        max_in_flight: int | None = None,
        max_in_flight_pct: int | None = None,
    ) -> Position:
        """Limit how many of the hosts that match a selector are in flight at once.

        Raises:
            InvalidInput, InvalidSelector.
        """
        caller.demand(SET_BUDGET, EVERYWHERE)
        command = SetBudget(
            budget_id=budget_id,
            selector=selector,
            operator=caller.id,
            max_in_flight=max_in_flight,
            max_in_flight_pct=max_in_flight_pct,
        )
        return self._execute(set_budget, command, caller).position

    def remove(self, caller: Caller, budget_id: str) -> Position:
        """Remove the limit. Raises: BudgetNotFound."""
        caller.demand(REMOVE_BUDGET, EVERYWHERE)
        command = RemoveBudget(budget_id=budget_id, operator=caller.id)
        return self._execute(remove_budget, command, caller).position
