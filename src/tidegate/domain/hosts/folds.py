"""How facts become the rows of hosts: follow-ups of the machine's effects, and two views.

    DispatchReserved ─▶ host record ─▶ [HostStateChanged,] HostJoined, and a row of dispatch_queue
    a report         ─▶ host record ─▶ HostStateChanged, if the rollout must know

Of all facts of hosts the rollout's machine reads only HostJoined, HostStateChanged and HostSkipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import get_args

from msgspec import Struct

from tidegate.domain.hosts import (
    effects as host_effects,
    facts,
    machine,
    orders,
    probes,
    refusals,
    rows,
    states,
)
from tidegate.kernel.folds import Fold, Machine, WorkRow

# ── records ───────────────────────────────────────────────────────────────────────────────────────


def step_record(
    record: rows.HostRecord | None, fact: facts.HostEvent, now: datetime
) -> tuple[rows.HostRecord, Sequence[Struct]]:
    """Step the machine for the control plane.

    Raises:
        OrderRepeated: the order of a known attempt, whose slots would be taken twice.
        Refused: the machine refuses the event.
    """
    after, effects = machine.step(record, fact, now)
    if isinstance(fact, facts.DispatchReserved) and after is record:
        raise refusals.OrderRepeated(fact.rollout_id, fact.host_id, fact.attempt)
    return after, follow_ups(record, after, effects, now)


def follow_ups(
    before: rows.HostRecord | None,
    after: rows.HostRecord,
    effects: Sequence[host_effects.Effect],
    now: datetime,
) -> tuple[Struct, ...]:
    """Return the facts for the rollout and the order for the agent that these effects cause."""
    return tuple(_follow_ups(before, after, effects, now))


def _follow_ups(
    before: rows.HostRecord | None,
    after: rows.HostRecord,
    effects: Sequence[host_effects.Effect],
    now: datetime,
) -> Iterator[Struct]:
    for effect in effects:
        match effect:
            case host_effects.RecordTransition() if before is not None:
                yield _changed(before, after, effect)
            case host_effects.QueueDispatch():
                key = rows.dispatch_key(after.host_id, after.rollout_id, after.attempt)
                yield WorkRow(key, orders.to_queued_dispatch(after, now))
                yield _joined(after)


def _changed(
    before: rows.HostRecord, after: rows.HostRecord, effect: host_effects.RecordTransition
) -> facts.HostStateChanged:
    freed = before.busy and not after.busy
    retaken = before.state is states.HostState.DEFERRED and after.state is states.HostState.SOAKING
    lost = after.rollback_failed and not before.rollback_failed
    if after.state is not states.HostState.FAILED:
        lost = before.rollback_failed  # repeats what the rollout counted, once it is over
    still_open = probes.open_failures(after) if after.left is None else ()
    return facts.HostStateChanged(
        rollout_id=effect.rollout_id,
        host_id=effect.host_id,
        at=effect.at,
        from_=effect.from_,
        to=effect.to,
        wave=before.wave,
        attempt=after.attempt,
        late=before.late,
        left=before.left is not None or after.left is not None,
        rollback_failed=lost,
        freed=freed,
        budgets=before.budgets if freed else (),
        retaken=retaken,
        slots=after.slots if retaken else (),
        cleared_probes=tuple(
            [name for name in probes.open_failures(before) if name not in still_open]
        ),
    )


def _joined(after: rows.HostRecord) -> facts.HostJoined:
    return facts.HostJoined(
        rollout_id=after.rollout_id,
        host_id=after.host_id,
        at=after.dispatched_at,
        wave=after.wave,
        attempt=after.attempt,
        late=after.late,
    )


def _record_ids(fact: facts.HostFact) -> tuple[str, ...]:
    return (rows.record_id(fact.rollout_id, fact.host_id),)


# ── open failures of probes ───────────────────────────────────────────────────────────────────────


def step_probe_failure(
    row: rows.ProbeFailure | None, fact: facts.ProbeResult | facts.HostStateChanged, now: datetime
) -> rows.ProbeFailure | None:
    """Open the row with a failure; a pass, or the end of the probed activation, removes it."""
    if isinstance(fact, facts.HostStateChanged) or fact.status is states.ProbeStatus.PASS:
        return None
    return rows.ProbeFailure(
        rollout_id=fact.rollout_id,
        host_id=fact.host_id,
        probe_name=fact.probe_name,
        wave=fact.wave,
        observed_at=fact.at,
        failure_reason=fact.failure_reason,
    )


def _probe_failure_ids(fact: facts.ProbeResult | facts.HostStateChanged) -> tuple[str, ...]:
    if isinstance(fact, facts.HostStateChanged):
        names = fact.cleared_probes
    else:
        names = (fact.probe_name,) if fact.mode is states.ProbeMode.ENFORCE else ()
    return tuple([rows.probe_failure_id(fact.rollout_id, fact.host_id, name) for name in names])


# ── orders ────────────────────────────────────────────────────────────────────────────────────────


def step_order(
    row: rows.HostOrder | None, fact: facts.DispatchReserved | facts.HostStateChanged, now: datetime
) -> rows.HostOrder | None:
    """Raises: HostBusy: the host has another order."""
    if isinstance(fact, facts.DispatchReserved) or fact.retaken:
        if row is not None:
            raise refusals.HostBusy(row.host_id, row.rollout_id)
        return rows.HostOrder(fact.host_id, fact.rollout_id, fact.attempt)
    assert row is not None, f"{fact.host_id} is freed of an order that it does not have"
    assert row.rollout_id == fact.rollout_id, f"{fact.host_id} is busy with {row.rollout_id}"
    return None


def _order_ids(fact: facts.DispatchReserved | facts.HostStateChanged) -> tuple[str, ...]:
    if isinstance(fact, facts.HostStateChanged) and not (fact.freed or fact.retaken):
        return ()
    return (fact.host_id,)


def nothing(id: str, fact: Struct) -> None:
    """Return no row: the state before the first fact."""


RECORDS_FOLD = Machine(
    collection=rows.HOST_RECORDS,
    number=1,
    reads=get_args(facts.HostEvent),
    ids=_record_ids,
    start=nothing,
    step=step_record,
)
PROBE_FAILURES_FOLD = Fold(
    collection=rows.PROBE_FAILURES,
    number=1,
    reads=(facts.ProbeResult, facts.HostStateChanged),
    ids=_probe_failure_ids,
    start=nothing,
    step=step_probe_failure,
)
ORDERS_FOLD = Fold(
    collection=rows.HOST_ORDERS,
    number=1,
    reads=(facts.DispatchReserved, facts.HostStateChanged),
    ids=_order_ids,
    start=nothing,
    step=step_order,
)
FOLDS = (PROBE_FAILURES_FOLD, RECORDS_FOLD, ORDERS_FOLD)
