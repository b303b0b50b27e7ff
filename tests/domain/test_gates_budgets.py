"""Budgets: no bound is exceeded, whatever is reserved and freed, by any number of dispatchers."""

from __future__ import annotations

from dataclasses import replace as altered
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import Struct
from msgspec.structs import replace

from tests.domain.gate_inputs import (
    ROLLOUT,
    T0,
    channel,
    fleet,
    fleet_state,
    standing,
    with_rollout,
)
from tests.domain.sample_control import SampleControl
from tidegate.domain.channels import facts as channel_facts
from tidegate.domain.channels.facts import WaveSpec
from tidegate.domain.fleet import declarations as fleet_domain
from tidegate.domain.fleet.budgets import current_bound, slots
from tidegate.domain.fleet.folds import budget_ids, step_budget
from tidegate.domain.fleet.refusals import BudgetExhausted
from tidegate.domain.fleet.rows import Budget, budget_key
from tidegate.domain.fleet.slices import RemoveBudget, SetBudget, remove_budget, set_budget
from tidegate.domain.gates.dispatch_pass import survey
from tidegate.domain.gates.inputs import DueOrder, FleetState, Versioned
from tidegate.domain.hosts import facts as host_facts
from tidegate.domain.hosts.facts import BudgetSlot, DispatchReserved, HostStateChanged
from tidegate.domain.hosts.states import HostPolicy, HostState
from tidegate.engines.memory import MemoryStore
from tidegate.kernel.folds import Folds
from tidegate.kernel.replay import differences
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Schema
from tidegate.kernel.vocabulary import Vocabulary


class Say(Struct, frozen=True, kw_only=True):
    """Writes facts that the hosts' own slices would decide."""

    reserved: tuple[DispatchReserved, ...] = ()
    changed: tuple[HostStateChanged, ...] = ()


def decide_say(rows: tuple[()], command: Say, now: datetime) -> tuple[Struct, ...]:
    return (*command.reserved, *command.changed)


say = Slice(
    name="say",
    command=Say,
    writes=(DispatchReserved, HostStateChanged),
    rows=lambda command: (),
    decide=decide_say,
)
SCHEMA = Schema(
    Vocabulary(
        (*channel_facts.FACTS, *fleet_domain.FACTS, *host_facts.FACTS),
        (*fleet_domain.SLICES, say),
    ),
    fleet_domain.COLLECTIONS,
)
FOLDS = Folds(SCHEMA, fleet_domain.FOLDS)
FREEING = (HostState.CONVERGED, HostState.DEFERRED, HostState.REVERTED, HostState.FAILED)


def reserved(order: DueOrder) -> DispatchReserved:
    return DispatchReserved(
        rollout_id=order.rollout_id,
        host_id=order.host_id,
        at=T0,
        channel=order.channel,
        target_closure=order.target_closure,
        wave=order.wave,
        policy=order.policy,
        attempt=order.attempt,
        budgets=order.budgets,
    )


def taking(host_id: str, *slots: BudgetSlot, rollout_id: str = ROLLOUT) -> DispatchReserved:
    return DispatchReserved(
        rollout_id=rollout_id,
        host_id=host_id,
        at=T0,
        channel="stable",
        target_closure="sha256:new",
        wave=0,
        policy=HostPolicy(),
        budgets=slots,
    )


def freeing(
    host_id: str, *budgets: str, to: HostState = HostState.CONVERGED, rollout_id: str = ROLLOUT
) -> HostStateChanged:
    return HostStateChanged(
        rollout_id=rollout_id,
        host_id=host_id,
        at=T0,
        from_=HostState.SOAKING,
        to=to,
        wave=0,
        budgets=budgets,
    )


class BudgetLog(SampleControl):
    """Budgets on a memory store."""

    def __init__(self, **bounds: Any) -> None:
        super().__init__(MemoryStore(SCHEMA), FOLDS)
        command = SetBudget(budget_id="all", selector="*", operator="user_op", **bounds)
        self.control.execute(set_budget, command)

    def say(self, *facts: DispatchReserved | HostStateChanged) -> None:
        for fact in facts:
            if isinstance(fact, DispatchReserved):
                self.control.execute(say, Say(reserved=(fact,)))
            else:
                self.control.execute(say, Say(changed=(fact,)))

    def budget(self, budget_id: str = "all") -> Budget:
        found = self.row(budget_key(budget_id))
        assert isinstance(found, Budget)
        return found


# ── one slot at a time ────────────────────────────────────────────────────────────────────────────


def test_takes_a_slot_with_an_order_and_frees_it_when_the_host_is_done() -> None:
    yard = BudgetLog(max_in_flight=1)
    slot = BudgetSlot("all", 1)

    yard.say(taking("web-00", slot))
    with pytest.raises(BudgetExhausted, match="all 1 slots of budget all"):
        yard.say(taking("web-01", slot))
    yard.say(freeing("web-00", "all"), taking("web-01", slot))

    assert yard.budget().in_flight == 1
    assert yard.types().count("DispatchReserved") == 2
    assert differences(yard.store, FOLDS) == []


def test_one_of_two_dispatchers_that_read_the_same_last_slot_gets_it() -> None:
    yard = BudgetLog(max_in_flight=1)
    slot = BudgetSlot("all", 1)
    rival = yard.rival()
    yard.committer.before.append(
        lambda: rival.execute(say, Say(reserved=(taking("web-00", slot, rollout_id="b@db.1"),)))
    )

    with pytest.raises(BudgetExhausted):
        yard.say(taking("web-00", slot))
    assert yard.budget().in_flight == 1
    assert differences(yard.store, FOLDS) == []


def test_refuses_the_whole_order_when_one_of_its_budgets_is_full() -> None:
    yard = BudgetLog(max_in_flight=5)
    zone = SetBudget(budget_id="zone", selector="*", operator="user_op", max_in_flight=1)
    yard.control.execute(set_budget, zone)

    both = (BudgetSlot("all", 5), BudgetSlot("zone", 1))
    yard.say(taking("web-00", *both))
    with pytest.raises(BudgetExhausted):
        yard.say(taking("web-01", *both))

    assert (yard.budget("all").in_flight, yard.budget("zone").in_flight) == (1, 1)


def test_a_stricter_budget_applies_at_once_and_a_looser_one_with_the_next_plan() -> None:
    yard = BudgetLog(max_in_flight=2)
    frozen = BudgetSlot("all", 2)
    bounds: dict[str, Any] = {"budget_id": "all", "selector": "*", "operator": "user_op"}
    yard.say(taking("web-00", frozen))

    yard.control.execute(set_budget, SetBudget(max_in_flight=1, **bounds))
    with pytest.raises(BudgetExhausted):
        yard.say(taking("web-01", frozen))
    yard.control.execute(set_budget, SetBudget(max_in_flight=9, **bounds))
    yard.say(taking("web-01", frozen))
    with pytest.raises(BudgetExhausted):
        yard.say(taking("web-02", frozen))
    yard.control.execute(remove_budget, RemoveBudget(budget_id="all", operator="user_op"))
    yard.say(taking("web-02", frozen))

    assert yard.budget().in_flight == 3
    assert differences(yard.store, FOLDS) == []


def test_stops_at_a_slot_that_is_freed_twice() -> None:
    with pytest.raises(AssertionError, match="was not taken"):
        step_budget(Budget(budget_id="all"), freeing("web-00", "all"), T0)


def test_does_not_change_budgets_when_a_host_advances_without_freeing() -> None:
    assert budget_ids(freeing("web-00")) == ()


# ── over any history ──────────────────────────────────────────────────────────────────────────────


@st.composite
def bounds(draw: st.DrawFn) -> dict[str, int | None]:
    number = draw(st.none() | st.integers(1, 6))
    share = draw(st.integers(1, 100) if number is None else st.none() | st.integers(1, 100))
    return {"max_in_flight": number, "max_in_flight_pct": share}


HOSTS = 8
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.booleans(), st.integers(1, HOSTS)),
        st.tuples(st.just("free"), st.booleans(), st.integers(0, HOSTS)),
        st.tuples(st.just("look"), st.booleans(), st.just(0)),
    ),
    max_size=25,
)


class World:
    """Two rollouts under two budgets. Each has a dispatcher, which may use outdated rows."""

    def __init__(self, all_: dict[str, Any], some: dict[str, Any]) -> None:
        self.rows = {
            "all": Budget(budget_id="all", selector="*", **all_),
            "some": Budget(budget_id="some", selector="host in (web-01,web-02,web-05)", **some),
        }
        where = channel(WaveSpec())
        self.state = fleet_state(where, fleet(HOSTS), self.rows.values())
        self.outstanding: dict[tuple[bool, str], DueOrder] = {}
        self.seen = {True: self.look(True), False: self.look(False)}

    def look(self, first: bool) -> FleetState:
        """Return what this dispatcher would read now."""
        standings = {
            host: Versioned(standing(host, HostState.SOAKING, busy=True), 50)
            for mine, host in self.outstanding
            if mine is first
        }
        state = with_rollout(self.state, standings=standings)
        return altered(state, budgets={id: Versioned(row, 40) for id, row in self.rows.items()})

    def dispatch(self, first: bool, orders_max: int) -> None:
        for order in survey(self.seen[first], ROLLOUT, orders_max=orders_max).orders:
            if (first, order.host_id) in self.outstanding:
                continue  # its record shows it in the commit
            try:
                self.step(reserved(order))
            except BudgetExhausted:
                continue
            self.outstanding[first, order.host_id] = order

    def free(self, first: bool, which: int) -> None:
        for (mine, host), order in list(self.outstanding.items()):
            if mine is first and host == f"web-{which:02}":
                to = FREEING[which % len(FREEING)]
                names = [slot.budget_id for slot in order.budgets]
                self.step(freeing(host, *names, to=to))
                del self.outstanding[mine, host]

    def step(self, fact: DispatchReserved | HostStateChanged) -> None:
        """Write all rows or none, as in a commit."""
        self.rows |= {id: step_budget(self.rows[id], fact, T0) for id in budget_ids(fact)}

    def taken(self, budget_id: str) -> int:
        return sum(
            slot.budget_id == budget_id
            for order in self.outstanding.values()
            for slot in order.budgets
        )


@given(bounds(), bounds(), STEPS)
def test_never_exceeds_a_bound_with_any_reservations_releases_and_stale_reads(
    all_: dict[str, Any], some: dict[str, Any], steps: list[tuple[str, bool, int]]
) -> None:
    world = World(all_, some)
    allowed = {
        "all": slots(world.rows["all"], HOSTS),
        "some": slots(world.rows["some"], 3),
    }
    for kind, first, number in steps:
        if kind == "pass":
            world.dispatch(first, number)
        elif kind == "free":
            world.free(first, number)
        else:
            world.seen[first] = world.look(first)

        for id, row in world.rows.items():
            most = allowed[id]
            assert most is not None
            assert row.in_flight == world.taken(id) <= most
            assert most >= 1
            assert current_bound(row, most) == most


@given(bounds(), bounds())
def test_uses_every_free_slot(all_: dict[str, Any], some: dict[str, Any]) -> None:
    """With current rows, a pass is refused nothing and leaves a host waiting only at a full
    budget.
    """
    world = World(all_, some)

    found = survey(world.look(True), ROLLOUT)
    for order in found.orders:
        world.step(reserved(order))

    assert {item.gate for item in found.held} <= {"disruption-budget"}
    assert len(found.orders) + sum(item.hosts for item in found.held) == HOSTS
    full = {id for id, row in world.rows.items() if row.in_flight == slots(row, members(id))}
    assert not found.held or full


def members(budget_id: str) -> int:
    return HOSTS if budget_id == "all" else 3


# ── defects of an older system, which must not come back ──────────────────────────────────────────


@pytest.mark.parametrize(
    ("set_to", "allowed"),
    [
        ({"max_in_flight_pct": 25}, 2),
        ({"max_in_flight_pct": 5}, 1),
        ({"max_in_flight": 3, "max_in_flight_pct": 25}, 2),
        ({"max_in_flight": 1, "max_in_flight_pct": 100}, 1),
    ],
)
def test_d09_enforces_a_share_and_the_smaller_of_both_bounds(
    set_to: dict[str, Any], allowed: int
) -> None:
    """D9: max_in_flight_pct is carried and never enforced."""
    budget = Budget(budget_id="all", selector="*", **set_to)

    orders = survey(fleet_state(channel(), fleet(8), (budget,)), ROLLOUT).orders

    assert len(orders) == allowed
    assert {order.budgets for order in orders} == {(BudgetSlot("all", allowed),)}


def test_d09_counts_orders_that_are_queued_and_not_acknowledged_across_passes() -> None:
    """D9: queued slots are not counted across ticks, so the next one passes the cap."""
    budget = Budget(budget_id="all", selector="*", max_in_flight=2)
    state = fleet_state(channel(), fleet(5), (budget,))

    first = survey(state, ROLLOUT).orders
    for order in first:
        budget = step_budget(budget, reserved(order), T0)
    pending = {
        order.host_id: Versioned(standing(order.host_id, HostState.PENDING, busy=True), 51)
        for order in first
    }
    next_tick = altered(
        with_rollout(state, standings=pending), budgets={"all": Versioned(budget, 41)}
    )

    assert len(first) == 2
    assert survey(next_tick, ROLLOUT).orders == ()
    freed = step_budget(budget, freeing(first[0].host_id, "all"), T0)
    again = altered(next_tick, budgets={"all": Versioned(freed, 42)})
    assert [order.host_id for order in survey(again, ROLLOUT).orders] == ["web-02"]


def test_d09_frees_its_slot_for_the_next_host_so_pending_orders_cannot_dead_lock() -> None:
    """A host counts from its order on, once, and only while its own order exists."""
    budget = Budget(budget_id="all", selector="*", max_in_flight=1)
    state = fleet_state(channel(), fleet(3), (budget,))
    done: dict[str, Versioned[Any]] = {}

    for _ in range(3):
        looked = altered(
            with_rollout(state, standings=dict(done)), budgets={"all": Versioned(budget, 41)}
        )
        (order,) = survey(looked, ROLLOUT).orders
        budget = step_budget(budget, reserved(order), T0)
        budget = step_budget(budget, freeing(order.host_id, "all"), T0)
        done[order.host_id] = Versioned(standing(order.host_id, HostState.CONVERGED), 52)

    assert sorted(done) == ["web-00", "web-01", "web-02"]
    assert replace(budget, in_flight=0) == budget
