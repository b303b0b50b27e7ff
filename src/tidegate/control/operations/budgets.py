"""Set and remove budgets."""

from __future__ import annotations

from typing import Any

from tidegate.control.fleet.reader import FleetReader
from tidegate.control.operations.execute import Execute
from tidegate.control.operations.protection import GuardedVerb, ProtectionGuard
from tidegate.control.queries.reads import Reads
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.access import callers, roles, steps
from tidegate.domain.fleet import claims, rows, slices as fleet_slices
from tidegate.kernel import model, slices as kernel_slices


class BudgetOperations:
    """The verbs of a budget. Each returns the log position of the change, 0 if nothing changed.

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
        caller: callers.Caller,
        budget_id: str,
        selector: str,
        *,
        max_in_flight: int | None = None,
        max_in_flight_pct: int | None = None,
    ) -> model.Position:
        """Limit how many of the hosts that match a selector are in flight at once. To loosen a
        budget that covers hosts of a protected channel takes a second person.

        Raises:
            InvalidInput, InvalidSelector.
        """
        caller.demand(steps.SET_BUDGET, roles.EVERYWHERE)
        command = fleet_slices.SetBudget(
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
        loosened = (
            found if found is not None and fleet_slices.loosens_budget(found, command) else None
        )
        return self._run(
            caller, steps.SET_BUDGET, fleet_slices.set_budget, command, arguments, loosened
        )

    def remove(self, caller: callers.Caller, budget_id: str) -> model.Position:
        """Remove the limit. If it covers hosts of a protected channel, that takes a second person.
        Raises: BudgetNotFound.
        """
        caller.demand(steps.REMOVE_BUDGET, roles.EVERYWHERE)
        command = fleet_slices.RemoveBudget(budget_id=budget_id, operator=caller.id)
        arguments = {"budget_id": budget_id}
        return self._run(
            caller,
            steps.REMOVE_BUDGET,
            fleet_slices.remove_budget,
            command,
            arguments,
            self._find(budget_id),
        )

    def _run(
        self,
        caller: callers.Caller,
        step: steps.Step,
        item: kernel_slices.Slice,
        command: fleet_slices.SetBudget | fleet_slices.RemoveBudget,
        arguments: dict[str, Any],
        loosened: rows.Budget | None,
    ) -> model.Position:
        """Execute the command; through the guard if it loosens a budget."""

        def run(by: callers.Caller) -> CommandOutcome:
            return self._execute(item, command, by)

        channels = () if loosened is None else self._list_channels(loosened)
        if not channels:
            return run(caller).position
        verb = GuardedVerb(
            step=step,
            channels=channels,
            arguments=arguments,
            rehearse=lambda: self._execute.rehearse(item, command),
        )
        earlier = lambda: self._execute.earlier(item, command, caller)  # noqa: E731
        return self._guard.run(caller, verb, run, earlier).position

    def _find(self, budget_id: str) -> rows.Budget | None:
        found = self._reads.find(rows.budget_key(budget_id), rows.Budget)
        return None if found is None or found.row.removed else found.row

    def _list_channels(self, budget: rows.Budget) -> tuple[str, ...]:
        """List the channels with hosts that the budget limits."""
        fleet = self._reads.find(rows.fleet_key(), rows.Fleet)
        hosts = claims.members(budget.selector, self._fleet.hosts())
        return tuple(
            scope.channel
            for scope in (() if fleet is None else fleet.row.channels)
            if claims.members(scope.selector, hosts)
        )
