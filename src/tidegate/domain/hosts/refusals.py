"""Why a host's report or order is refused. Each refusal names the state that refuses it."""

from __future__ import annotations

from datetime import datetime

from tidegate.domain.hosts.states import HostState
from tidegate.domain.times import describe_time
from tidegate.errors import Forbidden, Formatted, Gone, NotFound, Refused


class HostNotInRollout(Formatted, NotFound):
    """The rollout has no order for this host, so nothing can be reported about it."""

    code = "host_not_in_rollout"
    message = "{rollout_id} has no order for {host_id}"
    rollout_id: str
    host_id: str


class RolloutUnknown(Formatted, NotFound):
    """There is no rollout with this id."""

    code = "rollout_unknown"
    message = "there is no rollout {rollout_id}"
    rollout_id: str


class WrongHost(Formatted, Forbidden):
    """An agent reports for its own host only."""

    code = "wrong_host"
    message = "{host_id} reports of {found}; an agent speaks for its own host"
    host_id: str
    found: str


# ── numbers and times of reports ──────────────────────────────────────────────────────────────────


class SequenceGap(Formatted, Refused):
    """An earlier report is missing; send reports from the expected number on."""

    code = "sequence_gap"
    message = "report {found} came before report {expected}"
    state: str
    found: int
    expected: int


class SequenceRegression(Formatted, Refused):
    """A report with this number was already received; this one changes nothing."""

    code = "sequence_regression"
    message = "report {found} is known, the next one is {expected}"
    state: str
    found: int
    expected: int


class ClockSkew(Refused):
    """The report's time lies in the future; set the host's clock."""

    code = "clock_skew"

    def __init__(self, state: str, found: datetime, latest: datetime) -> None:
        super().__init__(
            f"the report says {found.isoformat()}, the latest allowed is {latest.isoformat()}",
            state=state,
            found=found.isoformat(),
            latest=latest.isoformat(),
        )


# ── refused by the record ─────────────────────────────────────────────────────────────────────────


class HostInvariant(Refused):
    """The report contradicts what the server knows about the host."""

    code = "host_invariant"

    def __init__(self, state: str, detail: str) -> None:
        super().__init__(f"the host is {state}: {detail}", state=state)


class WrongClosure(HostInvariant):
    """The report is about another artifact than the order."""

    code = "wrong_closure"

    def __init__(self, state: str, found: str, expected: str) -> None:
        super().__init__(state, f"the report names closure {found!r}, expected {expected!r}")
        self.facts |= {"found": found, "expected": expected}


class EarlyConvergence(HostInvariant):
    """The host cannot have converged yet: it is still soaking, or an enforced probe has not
    passed.
    """

    code = "early_convergence"

    def __init__(self, state: str, missing: tuple[str, ...]) -> None:
        super().__init__(state, "not converged yet: " + "; ".join(missing))
        self.facts |= {"missing": missing}


class UndeclaredProbe(HostInvariant):
    """The probe is not in the topology of this activation, or not with this mode."""

    code = "undeclared_probe"

    def __init__(self, state: str, probe_name: str, detail: str) -> None:
        super().__init__(state, f"probe {probe_name!r} {detail}")
        self.facts |= {"probe_name": probe_name}


class UnsustainedFailure(HostInvariant):
    """The probes that are reported as failing have not failed for long enough."""

    code = "unsustained_failure"


class HostBusy(Formatted, Refused):
    """The host already has an order; the next one waits until that order is over."""

    code = "host_busy"
    message = "{host_id} is busy with its order of {rollout_id}"
    host_id: str
    rollout_id: str


class HostUnderWay(Refused):
    """The host is carrying out its order, so it cannot be skipped; wait until it finishes."""

    code = "host_under_way"

    def __init__(self, host_id: str, doing: str, until: datetime | None) -> None:
        by = "" if until is None else f" by {describe_time(until)}"
        super().__init__(
            f"{host_id} is {doing}; it finishes or fails{by}",
            host_id=host_id,
            until=None if until is None else until.isoformat(),
        )


class OrderRepeated(Formatted, Refused):
    """The host already has the order of this attempt."""

    code = "order_repeated"
    message = "{host_id} has attempt {attempt} of {rollout_id} already"
    rollout_id: str
    host_id: str
    attempt: int


class OrderCancelled(Gone):
    """The order was cancelled; drop it, and roll back if its target already runs."""

    code = "order_cancelled"

    def __init__(self, rollout_id: str, host_id: str) -> None:
        super().__init__(
            f"the order of {rollout_id} for {host_id} was taken back",
            rollout_id=rollout_id,
            host_id=host_id,
            state=HostState.PENDING.value,
        )


# ── refused by the rollout ────────────────────────────────────────────────────────────────────────


class RolloutIsHalted(Refused):
    """A host of the rollout failed: no order and no acknowledgement until it is cleared."""

    code = "rollout_halted"


class RolloutIsPaused(Refused):
    """An operator paused the rollout: no order and no acknowledgement until it is resumed."""

    code = "rollout_paused"


class RolloutNotDispatchable(Refused):
    """The rollout gives no orders in its current state."""

    code = "rollout_not_dispatchable"


class RolloutIsSuperseded(Gone):
    """Another rollout replaced this one on the channel; ask for the new order."""

    code = "rollout_superseded"


class RolloutIsPruned(Gone):
    """The rollout is past its retention and accepts nothing any more."""

    code = "rollout_pruned"


class LateHostFailed(Refused):
    """A late host failed; no other late host gets the release until that one is skipped."""

    code = "late_host_failed"


class WaveNotReached(Refused):
    """The host's wave is not due yet."""

    code = "wave_not_reached"


class ClosureQuarantined(Refused):
    """The release failed on this channel; no host gets it until the quarantine is lifted."""

    code = "closure_quarantined"
