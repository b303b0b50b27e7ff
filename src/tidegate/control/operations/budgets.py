"""What an operator does to a budget: set and remove it."""

from __future__ import annotations

from typing import Any

from tidegate.control.fleet.reader import FleetReader
from tidegate.control.operations.execute import Execute
from tidegate.control.operations.protection import GuardedVerb, ProtectionGuard
from tidegate.control.queries.reads import Reads
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.roles import EVERYWHERE
from tidegate.domain.access.steps import REMOVE_BUDGET, SET_BUDGET, Step
from tidegate.domain.fleet.claims import members
from tidegate.domain.fleet.rows import Budget, Fleet, budget_key, fleet_key
from tidegate.domain.fleet.slices import (
    RemoveBudget,
    SetBudget,
    loosens_budget,
    remove_budget,
    set_budget,
)
from tidegate.kernel.model import Position
from tidegate.kernel.slices import Slice


class BudgetOperations:
    """The verbs of a budget. Each returns the log position at which it was done, 0 if nothing had
    to change.

    Raises:
        MissingPermission.
    """

    def __init__(
        self, execute: Execute, reads: Reads, fleet: FleetReader, guard: ProtectionGuard
    ) -> None:
        self._execute = execute
        self._reads = reads
        self._fleet = fleet
        self._guard = guard

    def set(
        self,
        caller: Caller,
        budget_id: str,
        selector: str,
        *,
        max_in_flight: int | None = None,
        max_in_flight_pct: int | None = None,
    ) -> Position:
        """Limit how many of the hosts that match a selector are in flight at once. To ask for less
        than before takes a second person, if hosts of a protected channel are among them.

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
        arguments = {
            "budget_id": budget_id,
            "selector": selector,
            "max_in_flight": max_in_flight,
            "max_in_flight_pct": max_in_flight_pct,
        }
        found = self._find(budget_id)
        loosened = found if found is not None and loosens_budget(found, command) else None
        return self._run(caller, SET_BUDGET, set_budget, command, arguments, loosened)

    def remove(self, caller: Caller, budget_id: str) -> Position:
        """Remove the limit. If hosts of a protected channel are among those that it limits, that
        takes a second person. Raises: BudgetNotFound.
        """
        caller.demand(REMOVE_BUDGET, EVERYWHERE)
        command = RemoveBudget(budget_id=budget_id, operator=caller.id)
        arguments = {"budget_id": budget_id}
        return self._run(
            caller, REMOVE_BUDGET, remove_budget, command, arguments, self._find(budget_id)
        )

    def _run(
        self,
        caller: Caller,
        step: Step,
        item: Slice,
        command: SetBudget | RemoveBudget,
        arguments: dict[str, Any],
        loosened: Budget | None,
    ) -> Position:
        """Decide the command; if it loosens a budget, as the guard allows."""

        def run(by: Caller) -> CommandOutcome:
            return self._execute(item, command, by)

        channels = () if loosened is None else self._list_channels(loosened)
        if not channels:
            return run(caller).position
        verb = GuardedVerb(step=step, channels=channels, arguments=arguments)
        earlier = lambda: self._execute.earlier(item, command, caller)  # noqa: E731
        return self._guard.run(caller, verb, run, earlier).position

    def _find(self, budget_id: str) -> Budget | None:
        found = self._reads.find(budget_key(budget_id), Budget)
        return None if found is None or found.row.removed else found.row

    def _list_channels(self, budget: Budget) -> tuple[str, ...]:
        """The channels with hosts that the budget limits."""
        fleet = self._reads.find(fleet_key(), Fleet)
        hosts = members(budget.selector, self._fleet.hosts())
        return tuple(
            scope.channel
            for scope in (() if fleet is None else fleet.row.channels)
            if members(scope.selector, hosts)
        )
