"""Checks that ``explain`` names what each open rollout of a simulated fleet waits for."""

from __future__ import annotations

from datetime import datetime

from tidegate.control.fleet.reader import FleetReader
from tidegate.domain.gates.explain import explain
from tidegate.domain.gates.inputs import Explanation, Wait, WaitEnds
from tidegate.simulate.violations import InvariantViolation

READY = "ready"
OVER = "concluded"


class ExplanationChecker:
    """Checks every open rollout after a pass.

    Raises, from ``look``:
        InvariantViolation.
    """

    def __init__(self) -> None:
        self._unnamed: dict[str, int] = {}  # rollout → the tally's version when no wait was named

    def look(self, reader: FleetReader, now: datetime) -> None:
        """Demand that each rollout names a wait. A rollout whose hosts are all done may name none
        once: the next pass must advance it.
        """
        ids = [row.rollout_id for row in reader.open_rollouts()]
        state = reader.state(ids, now, late=True)
        before, self._unnamed = self._unnamed, {}
        for rollout_id in ids:
            if rollout_id in state.faults:
                continue
            found = explain(state, rollout_id)
            for wait in found.waits:
                _check(found, wait)
            if all(wait.code == READY and not wait.hosts for wait in found.waits):
                version = state.sight(rollout_id).tally.version
                if before.get(rollout_id) == version:
                    raise InvariantViolation(f"OP-10: nothing says why {rollout_id} waits")
                self._unnamed[rollout_id] = version


def _check(found: Explanation, wait: Wait) -> None:
    faults = []
    if "no host waits" in found.answer:
        faults.append("it says that no host waits")
    if not wait.sentence:
        faults.append("it says nothing")
    if wait.hosts and not wait.some:
        faults.append("it names no host")
    if wait.ends is WaitEnds.NEVER and not wait.remedies and wait.code != OVER:
        faults.append("it names no command")
    if wait.ends is WaitEnds.BY_ITSELF and wait.until is None and wait.code != READY:
        faults.append("it does not say when it ends")
    if faults:
        raise InvariantViolation(f"OP-10: {wait.code} of {found.rollout_id}: {', '.join(faults)}")
