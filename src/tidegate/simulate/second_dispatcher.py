"""A second dispatcher that sends orders against closed gates, to compare gates and rows.

The production dispatcher checks the gates, and the commit of an order checks the rows again. So a
fault of one is hidden by the other. This dispatcher evaluates the gates of a random host, then
tries the order regardless, and demands that both checks agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from tidegate.control.fleet.reader import FleetReader
from tidegate.domain.gates import dispatch_pass, explain, inputs
from tidegate.domain.rollouts.order_slices import ReserveDispatch, reserve_dispatch
from tidegate.errors import TidegateError
from tidegate.simulate.control_plane import SimulatedControlPlane
from tidegate.simulate.violations import InvariantViolation

# The gates that the commit checks again. An order is not refused because another gate has closed
# meanwhile.
TWICE: Final = frozenset(
    {
        *("halted", "dispatchable", "paused", "freeze", "hold", "window", "quarantine"),
        *("start-at", "wave-promotion", "disruption-budget", "host-busy"),
    }
)


class SecondDispatcher:
    """Tries an order in each pass. It has its own random numbers."""

    def __init__(
        self, control_plane: SimulatedControlPlane, seed: int, wake: Callable[[Sequence[str]], None]
    ) -> None:
        self._control_plane = control_plane
        self._random = Random(f"rival {seed}")
        self._wake = wake

    def try_order(self) -> None:
        """Try the order of a random waiting host. Raises: InvariantViolation, SimulatedCrash."""
        fleet_reader: FleetReader = self._control_plane.fleet_reader
        ids = [row.rollout_id for row in fleet_reader.open_rollouts()]
        if not ids:
            return
        rollout_id = self._random.choice(ids)
        state = fleet_reader.state([rollout_id], self._control_plane.clock())
        sight = state.sight(rollout_id)
        waiting = [command for host in sight.chart.waves if (command := _order(sight, host))]
        if not waiting:
            return
        command = self._random.choice(waiting)
        verdicts = explain.judge(state, rollout_id, command.host_id)
        shut = [verdict for verdict in verdicts if not verdict.passed]
        if shut and not any(verdict.gate in TWICE for verdict in shut):
            return  # the commit does not check these gates
        answer = self._control_plane.record(rollout_id, reserve_dispatch, command)
        if isinstance(answer, TidegateError):
            if not shut:
                raise InvariantViolation(
                    f"every gate is open, and the rows say {answer.code}: {answer}"
                )
            return
        if shut:
            raise InvariantViolation(
                f"{shut[0].gate} is shut, {shut[0].reason}; the rows take the order"
            )
        self._wake([command.host_id])


def _order(sight: inputs.GateInput, host_id: str) -> ReserveDispatch | None:
    """The host's next order; None: it has had it."""
    tally = sight.tally.row
    found = sight.standings.get(host_id)
    attempt = dispatch_pass.attempt_of(None if found is None else found.row, tally.attempt)
    if attempt is None:
        return None
    wave = sight.chart.waves[host_id]
    return ReserveDispatch(
        rollout_id=tally.rollout_id,
        host_id=host_id,
        target_closure=tally.target_closure,
        wave=wave,
        policy=sight.chart.plan.host_policy(wave),
        attempt=attempt,
        budgets=sight.chart.slots_of(host_id),
    )
