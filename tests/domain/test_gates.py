"""The gates: each alone holds a host back and gives its reason, their order is fixed, and one
function explains them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as altered
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.domain.gate_inputs import (
    ROLLOUT,
    T0,
    channel,
    fleet,
    fleet_state,
    host,
    standing,
    with_rollout,
    with_tally,
)
from tidegate.domain.access.reasons import REASON_BYTES_MAX
from tidegate.domain.channels.facts import ChannelEdge, EdgeRequires, HostEdge, WaveSpec
from tidegate.domain.channels.rows import Freeze, Quarantined, Rung
from tidegate.domain.fleet.rows import Budget, Host
from tidegate.domain.gates.checks import GATES
from tidegate.domain.gates.dispatch_pass import (
    gate_changes,
    latecomers,
    list_blocked,
    list_outside_windows,
    next_skips,
    survey,
)
from tidegate.domain.gates.explain import explain, judge
from tidegate.domain.gates.host_checks import UNSTAGED
from tidegate.domain.gates.inputs import (
    BlockedHosts,
    FleetState,
    GateEvidence,
    GateVerdict,
    HandedOut,
    HostPresence,
    HostStanding,
    Latecomer,
    PrecedingChannel,
    Survey,
    Versioned,
)
from tidegate.domain.hosts.facts import BudgetSlot
from tidegate.domain.hosts.rows import HostOrder, HostRecord, ProbeFailure
from tidegate.domain.hosts.states import HostPolicy, HostState, describe_host_state
from tidegate.domain.provenance import Confidence, Mode, Provenance
from tidegate.domain.releases.facts import PinStatus
from tidegate.domain.releases.rows import Actual
from tidegate.domain.rollouts.rows import GateStatus, RolloutGates
from tidegate.domain.rollouts.states import DISPATCHABLE, Outcome, RolloutState
from tidegate.domain.windows.facts import WindowKind
from tidegate.domain.windows.rows import Window
from tidegate.errors import NotFound
from tidegate.kernel import codec

NAMES = (
    "halted",
    "dispatchable",
    "paused",
    "freeze",
    "hold",
    "quarantine",
    "channel-edges",
    "start-at",
    "window",
    "wave-promotion",
    "host-edge",
    "disruption-budget",
    "probe-failures",
    "freshness",
    "host-busy",
    "host-silent",
)
SECOND = timedelta(seconds=1)
WHO = "web-01"  # of wave 1, after web-00 by an edge and a wave
POLICY: dict[str, Any] = {
    "edges": (ChannelEdge("base", EdgeRequires.IDLE),),
    "freshness_seconds": 60,
    "host_edges": (HostEdge("web-00", WHO),),
}


def pin(age: timedelta = timedelta(), release: str = "web.2") -> Versioned[Actual]:
    observed = (T0 - age).isoformat().replace("+00:00", "Z")
    provenance = Provenance(Mode.NATIVE, "ci", "build", "run-1", observed, observed, ())
    return Versioned(
        Actual(
            scope="stable",
            status=PinStatus.ACTIVE,
            pinned_release_id=release,
            digest="sha256:new",
            provenance=provenance,
            confidence=Confidence("high", ("built here",)),
            updated_at=T0,
            version=1,
        ),
        80,
    )


def failing(host_id: str, wave: int) -> Versioned[ProbeFailure]:
    return Versioned(
        ProbeFailure(
            rollout_id=ROLLOUT, host_id=host_id, probe_name="http", wave=wave, observed_at=T0
        ),
        60,
    )


def base(state: RolloutState | None) -> PrecedingChannel:
    newest = None if state is None else "base@os.1"
    row = replace(channel(name="base"), newest_rollout_id=newest, newest_state=state)
    return PrecedingChannel(Versioned(row, 21), None, None, None, "")


def open_to(*standings: HostStanding, budget: Budget | None = None) -> FleetState:
    """Build a state in which every gate has something to check, and lets WHO pass."""
    bound = budget or Budget(budget_id="all", selector="*", max_in_flight=2, in_flight=1)
    state = fleet_state(
        channel(WaveSpec(count=1), WaveSpec(), **POLICY),
        fleet(3),
        (bound,),
        standings or (standing("web-00", HostState.CONVERGED),),
        {"current_wave": 1},
    )
    return with_rollout(state, pin=pin(), edges={"base": base(RolloutState.TERMINAL)})


def with_channel(state: FleetState, **changes: Any) -> FleetState:
    known = state.channels["stable"]
    changed = replace(known, row=replace(known.row, **changes))
    return altered(state, channels={**state.channels, "stable": changed})


def with_base(state: FleetState, newest: RolloutState | None) -> FleetState:
    return with_rollout(state, edges={"base": base(newest)})


def with_host(state: FleetState, **changes: Any) -> FleetState:
    known = state.hosts[WHO]
    return altered(
        state, hosts={**state.hosts, WHO: replace(known, row=replace(known.row, **changes))}
    )


def with_standings(state: FleetState, *standings: HostStanding) -> FleetState:
    return with_rollout(state, standings={item.host_id: Versioned(item, 50) for item in standings})


def frozen(state: FleetState, **changes: Any) -> FleetState:
    freeze = Freeze(freeze_id="f1", operator="user_op", reason="holidays", started_at=T0)
    return altered(state, freezes=(Versioned(replace(freeze, **changes), 70),))


def windowed(state: FleetState, **changes: Any) -> FleetState:
    """Build a window that was open for two hours, days ago. It covers WHO alone."""
    window = Window(
        window_id="nightly",
        kind=WindowKind.ALLOW,
        hosts=f"host={WHO}",
        start="2026-05-01T02:00",
        duration_seconds=7_200,
        reason="nights are quiet",
        operator="user_op",
        set_at=T0,
    )
    return altered(state, windows=(Versioned(replace(window, **changes), 75),))


def quarantined(state: FleetState) -> FleetState:
    row = Quarantined(
        channel="stable",
        closure_hash="sha256:new",
        quarantined_at=T0,
        rollout_id="stable@web.1",
        host_id="web-09",
        reason="rolled back",
    )
    return with_rollout(state, quarantined=Versioned(row, 61))


def busy(state: FleetState) -> FleetState:
    return altered(state, orders={WHO: Versioned(HostOrder(WHO, "other@db.1", 1), 63)})


# Each gate: how it is closed, what it reports, and the row that it reads.
SHUT: dict[str, tuple[Callable[[FleetState], FleetState], str, GateEvidence | None]] = {
    "halted": (
        lambda state: with_tally(state, halted_at=T0, halted_by="web-00"),
        "web-00 failed",
        GateEvidence("host_rollout_records", f"{ROLLOUT}/web-00", 50),
    ),
    "dispatchable": (
        lambda state: with_tally(state, state=RolloutState.SUPERSEDED),
        "the rollout was replaced",
        GateEvidence("rollout_tallies", ROLLOUT, 10),
    ),
    "paused": (
        lambda state: with_tally(state, paused_at=T0, paused_by="user_op"),
        "paused by user_op",
        GateEvidence("rollout_tallies", ROLLOUT, 10),
    ),
    "freeze": (frozen, "freeze f1: holidays", GateEvidence("freezes", "f1", 70)),
    "window": (
        windowed,
        "Window nightly never opens again",
        GateEvidence("windows", "nightly", 75),
    ),
    "hold": (
        lambda state: with_channel(state, held_at=T0, held_by="user_op", held_reason="audit"),
        "channel stable is held by user_op: audit",
        GateEvidence("channels", "stable", 20),
    ),
    "quarantine": (
        quarantined,
        "web.2 is quarantined on stable: rolled back on web-09",
        GateEvidence("quarantined_closures", "stable/sha256:new", 61),
    ),
    "channel-edges": (
        lambda state: with_base(state, RolloutState.ACTIVE),
        "stable waits until base is idle: base@os.1 is active",
        GateEvidence("channels", "base", 21),
    ),
    "start-at": (
        lambda state: with_tally(state, start_at=T0 + timedelta(hours=1)),
        "starts at 2026-05-04 09:00 UTC",
        GateEvidence("rollout_tallies", ROLLOUT, 10),
    ),
    "wave-promotion": (
        lambda state: with_tally(state, current_wave=0),
        "wave 2 waits for wave 1",
        GateEvidence("rollout_tallies", ROLLOUT, 10),
    ),
    "host-edge": (
        lambda state: with_standings(state, standing("web-00", HostState.SOAKING)),
        "waits for web-00, which is soaking",
        GateEvidence("host_rollout_records", f"{ROLLOUT}/web-00", 50),
    ),
    "disruption-budget": (
        lambda state: altered(
            state, budgets={"all": Versioned(replace(state.budgets["all"].row, in_flight=2), 40)}
        ),
        "budget all: 2 of 2 in flight",
        GateEvidence("budgets", "all", 40),
    ),
    "probe-failures": (
        lambda state: with_rollout(state, failures=(failing("web-00", 0),)),
        "probe http fails on web-00, of wave 1",
        GateEvidence("probe_failures", f"{ROLLOUT}/web-00/http", 60),
    ),
    "freshness": (
        lambda state: with_rollout(state, pin=pin(61 * SECOND)),
        (
            "the pin's evidence was observed at 2026-05-04T07:58:59Z, more than 60 s ago. "
            "Renew it: tidegate channel promote stable web.2 --refresh"
        ),
        GateEvidence("release_actual", "RELEASE#stable/ACTUAL", 80),
    ),
    "host-busy": (
        busy,
        "the host is busy with other@db.1",
        GateEvidence("host_orders", WHO, 63),
    ),
    "host-silent": (
        lambda state: with_host(state, silent_since=T0),
        "the host has not reported since 2026-05-04 08:00 UTC",
        GateEvidence("hosts", WHO, 30),
    ),
}


def names(state: FleetState, **more: Any) -> list[str]:
    return [order.host_id for order in survey(state, ROLLOUT, **more).orders]


def shut(state: FleetState, host_id: str = WHO) -> list[str]:
    return [verdict.gate for verdict in judge(state, ROLLOUT, host_id) if not verdict.passed]


def test_a_host_that_is_busy_with_this_very_rollout_says_so() -> None:
    own = altered(open_to(), orders={WHO: Versioned(HostOrder(WHO, ROLLOUT, 1), 63)})

    found = next(item for item in judge(own, ROLLOUT, WHO) if item.gate == "host-busy")

    assert (found.passed, found.reason) == (False, "the host has its order of this rollout already")


# ── each gate alone ───────────────────────────────────────────────────────────────────────────────


def test_asks_in_a_fixed_order_and_passes_when_every_gate_is_open() -> None:
    verdicts = judge(open_to(), ROLLOUT, WHO)

    assert tuple(verdict.gate for verdict in verdicts) == NAMES
    assert all(verdict.passed and verdict.reason for verdict in verdicts)
    assert names(open_to()) == [WHO]  # the budget has one slot left
    assert set(SHUT) == set(NAMES)


@pytest.mark.parametrize("gate", NAMES)
def test_each_gate_alone_holds_a_host_back_and_reports_why(gate: str) -> None:
    close, reason, evidence = SHUT[gate]
    state = close(open_to())

    found = [
        replace(verdict, until=None) for verdict in judge(state, ROLLOUT, WHO) if not verdict.passed
    ]

    assert found == [GateVerdict(gate=gate, passed=False, reason=reason, evidence=evidence)]
    assert WHO not in names(state)
    assert explain(state, ROLLOUT, WHO).answer == f"{gate}: {reason}"


@pytest.mark.parametrize("gate", NAMES)
def test_counts_a_host_against_the_first_closed_gate(gate: str) -> None:
    """All gates from this one on are closed: the pass names this one, `explain` names all."""
    state = open_to()
    for later in NAMES[NAMES.index(gate) :]:
        state = SHUT[later][0](state)

    assert shut(state) == list(NAMES[NAMES.index(gate) :])
    (held,) = [item for item in survey(state, ROLLOUT).held if item.host_id == WHO]
    assert held.gate == gate


@pytest.mark.parametrize("gate", NAMES)
def test_explains_a_rollout_by_how_many_hosts_each_gate_holds(gate: str) -> None:
    state = SHUT[gate][0](open_to())

    found = explain(state, ROLLOUT)

    told = {verdict.gate: verdict for verdict in found.verdicts}
    assert tuple(told) == NAMES
    assert not told[gate].passed
    assert told[gate].hosts >= 1
    assert told[gate].evidence == SHUT[gate][2]
    assert found.waiting == (0 if gate == "dispatchable" else 2), "no host waits for one that ended"
    assert found.ready == len(names(state))


# ── what opens the gates ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", list(RolloutState))
def test_gives_orders_only_in_states_that_are_under_way(state: RolloutState) -> None:
    found = shut(with_tally(open_to(), state=state))

    assert found == ([] if state in DISPATCHABLE else ["dispatchable"])


@pytest.mark.parametrize(
    ("changes", "stops"),
    [
        ({"channels": ("stable",)}, True),
        ({"channels": ("other",)}, False),
        ({"until": T0 + SECOND}, True),
        ({"until": T0}, False),
    ],
)
def test_freezes_the_channels_it_names_until_its_time(changes: dict[str, Any], stops: bool) -> None:
    assert shut(frozen(open_to(), **changes)) == (["freeze"] if stops else [])


@pytest.mark.parametrize(
    ("newest", "stops"),
    [
        (None, False),
        (RolloutState.OPENING, True),
        (RolloutState.CONVERGING, True),
        (RolloutState.REVERTED, True),
        (RolloutState.FAILED, True),
        (RolloutState.TERMINAL, False),
        (RolloutState.SUPERSEDED, False),
        (RolloutState.PRUNED, False),
    ],
)
@pytest.mark.req("RO-5", engines=None, reason="a pure function")
def test_waits_for_the_newest_rollout_of_a_channel_that_comes_first(
    newest: RolloutState | None, stops: bool
) -> None:
    assert shut(with_base(open_to(), newest)) == (["channel-edges"] if stops else [])


def test_waits_for_a_channel_that_does_not_exist() -> None:
    missing = PrecedingChannel(None, None, None, None, "")

    assert shut(with_rollout(open_to(), edges={"base": missing})) == ["channel-edges"]


@pytest.mark.parametrize(
    ("before", "stops"),
    [
        (None, True),
        (standing("web-00", HostState.PENDING), True),
        (standing("web-00", HostState.ACTIVATING), True),
        (standing("web-00", HostState.DEFERRED), False),
        (standing("web-00", HostState.CONVERGED), False),
        (standing("web-00", HostState.FAILED), True),
        (standing("web-00", HostState.REVERTED), True),
        (standing("web-00", HostState.FAILED, left="waived"), False),
        (standing("web-00", HostState.PENDING, left="skipped", attempt=0), False),
    ],
)
def test_waits_for_an_earlier_host_until_it_is_done_or_skipped(
    before: HostStanding | None, stops: bool
) -> None:
    state = with_standings(open_to(), *(() if before is None else (before,)))

    assert shut(state) == (["host-edge"] if stops else [])


@pytest.mark.parametrize(
    ("failures", "left", "stops"),
    [
        ([failing("web-00", 0)], None, True),
        ([failing("web-00", 0)], "waived", False),
        ([failing("web-02", 1)], None, False),
    ],
)
def test_considers_probes_of_earlier_waves_whose_hosts_still_count(
    failures: list[Versioned[ProbeFailure]], left: str | None, stops: bool
) -> None:
    state = with_standings(open_to(), standing("web-00", HostState.CONVERGED, left=left))

    found = shut(with_rollout(state, failures=tuple(failures)))

    assert found == (["probe-failures"] if stops else [])


@pytest.mark.parametrize(
    ("found", "stops"),
    [
        (pin(60 * SECOND), False),
        (pin(61 * SECOND), True),
        (pin(release="web.1"), True),
        (None, True),
    ],
)
def test_requires_a_pin_of_this_release_with_fresh_evidence(
    found: Versioned[Actual] | None, stops: bool
) -> None:
    assert shut(with_rollout(open_to(), pin=found)) == (["freshness"] if stops else [])


@pytest.mark.parametrize("status", ["revoked", "retired"])
def test_sends_nothing_to_a_host_that_is_not_enrolled(status: str) -> None:
    state = with_host(open_to(), status=status)

    assert shut(state) == ["host-silent"]
    assert explain(state, ROLLOUT, WHO).answer == f"host-silent: the host is {status}"


def test_sends_nothing_to_an_unknown_host() -> None:
    assert shut(altered(open_to(), hosts={})) == ["host-silent"]


# ── waves and attempts ────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RO-12", engines=None, reason="a pure function; the journey runs on engines")
def test_sends_a_wave_only_when_the_cursor_has_reached_it() -> None:
    where, hosts = channel(WaveSpec(count=2), WaveSpec()), fleet(4)
    through = [standing(name, HostState.CONVERGED) for name in ("web-00", "web-01")]

    assert names(fleet_state(where, hosts)) == ["web-00", "web-01"]
    assert names(fleet_state(where, hosts, (), through)) == []
    passed = fleet_state(where, hosts, (), through, {"current_wave": 1})
    assert names(passed) == ["web-02", "web-03"]


@pytest.mark.req("RO-12", engines=None, reason="a pure function of rows")
@pytest.mark.parametrize(
    ("state", "waits"),
    [
        (HostState.DEFERRED, False),
        (HostState.SOAKING, True),
        (HostState.FAILED, True),
        (HostState.REVERTED, True),
        (HostState.PENDING, True),
    ],
)
def test_waits_again_for_an_earlier_wave_that_is_no_longer_done(
    state: HostState, waits: bool
) -> None:
    where = channel(WaveSpec(count=2), WaveSpec(count=1), WaveSpec())
    found = fleet_state(where, fleet(4), (), (), {"current_wave": 2})
    first, *others = found.rollouts[ROLLOUT].tally.row.waves
    first = replace(first, states={HostState.CONVERGED: 1, state: 1})
    found = with_tally(found, waves=(first, *others))

    blocked = [verdict for verdict in judge(found, ROLLOUT, "web-03") if not verdict.passed]

    assert [verdict.reason for verdict in blocked] == ["wave 3 waits for wave 1"] * waits
    assert shut(found, "web-01") == []


def test_distinguishes_a_host_in_no_wave_from_one_that_must_wait() -> None:
    state = fleet_state(channel(WaveSpec(count=1)), fleet(2))

    assert shut(state, "web-01") == [UNSTAGED]
    assert explain(state, ROLLOUT, "web-01").wave is None
    assert explain(state, ROLLOUT).unstaged == 1
    assert names(state) == ["web-00"]


@pytest.mark.parametrize(
    ("known", "attempt", "ordered"),
    [
        (standing("web-00", HostState.PENDING, busy=True), 1, None),
        (standing("web-00", HostState.PENDING, busy=True), 2, None),
        (standing("web-00", HostState.PENDING, cancelled_at=T0), 1, 2),
        (standing("web-00", HostState.PENDING, cancelled_at=T0), 2, 2),
        (standing("web-00", HostState.SOAKING, busy=True), 2, None),
        (standing("web-00", HostState.CONVERGED), 2, None),
        (standing("web-00", HostState.DEFERRED), 2, None),
        (standing("web-00", HostState.FAILED), 1, None),
        (standing("web-00", HostState.FAILED), 2, 2),
        (standing("web-00", HostState.REVERTED), 2, 2),
        (standing("web-00", HostState.FAILED, attempt=2), 2, None),
        (standing("web-00", HostState.FAILED, left="waived"), 2, None),
        (standing("web-00", HostState.FAILED, busy=True), 2, None),
    ],
)
def test_orders_a_host_once_per_attempt(
    known: HostStanding, attempt: int, ordered: int | None
) -> None:
    state = fleet_state(channel(), fleet(1), (), (known,), {"attempt": attempt})

    orders = survey(state, ROLLOUT).orders

    assert [order.attempt for order in orders] == ([] if ordered is None else [ordered])
    if ordered is None:
        said = known.left or describe_host_state(known.state)
        assert said in explain(state, ROLLOUT, "web-00").answer


def test_an_order_contains_all_that_its_reservation_needs() -> None:
    budget = Budget(budget_id="all", selector="*", max_in_flight_pct=50)
    state = fleet_state(channel(WaveSpec(soak_seconds=9)), fleet(2), (budget,))

    (order,) = survey(state, ROLLOUT).orders

    assert (order.rollout_id, order.host_id, order.wave) == (ROLLOUT, "web-00", 0)
    assert (order.channel, order.target_closure) == ("stable", "sha256:new")
    assert order.policy == HostPolicy(soak_seconds=9)
    assert order.budgets == (BudgetSlot("all", 1),)
    assert (order.attempt, order.late) == (1, False)


def test_hands_out_no_more_than_requested_and_the_rest_next_time() -> None:
    state = fleet_state(channel(), fleet(5))

    first = survey(state, ROLLOUT, orders_max=2)

    assert [order.host_id for order in first.orders] == ["web-00", "web-01"]
    assert (first.waiting, first.held) == (5, ())


def test_remembers_between_passes_of_one_tick_what_it_handed_out() -> None:
    budget = Budget(budget_id="all", selector="*", max_in_flight=3)
    state = fleet_state(channel(), fleet(5), (budget,))

    first = survey(state, ROLLOUT, orders_max=2)
    second = survey(state, ROLLOUT, first.given)

    assert first.given == HandedOut({"all": 2}, frozenset({"web-00", "web-01"}))
    assert [order.host_id for order in second.orders] == ["web-02"]
    assert [(item.gate, item.hosts) for item in second.held] == [
        ("disruption-budget", 2),
        ("host-busy", 2),
    ]


def test_considers_only_rollouts_that_were_loaded() -> None:
    for ask in (
        lambda: survey(open_to(), "stable@web.9"),
        lambda: judge(open_to(), "stable@web.9", WHO),
        lambda: explain(open_to(), "stable@web.9", WHO),
        lambda: next_skips(open_to(), "stable@web.9"),
    ):
        with pytest.raises(NotFound):
            ask()


def test_reads_its_view_of_a_host_from_the_stored_bytes_of_larger_rows() -> None:
    record = HostRecord(
        rollout_id=ROLLOUT,
        host_id=WHO,
        channel="stable",
        state=HostState.PENDING,
        target_closure="sha256:new",
        wave=3,
        policy=HostPolicy(),
        dispatched_at=T0,
        attempt=2,
        left="skipped",
        busy=True,
        cancelled_at=T0,
    )
    known = replace(host(WHO, "revoked"), silent_since=T0)

    assert codec.decode(codec.encode(record), HostStanding) == HostStanding(
        host_id=WHO,
        state=HostState.PENDING,
        wave=3,
        attempt=2,
        left="skipped",
        busy=True,
        cancelled_at=T0,
        dispatched_at=T0,
    )
    assert codec.decode(codec.encode(known), HostPresence) == HostPresence(WHO, "revoked", T0)
    assert set(HostStanding.__struct_fields__) <= set(HostRecord.__struct_fields__)
    assert set(HostPresence.__struct_fields__) <= set(Host.__struct_fields__)


def test_explains_rollouts_with_and_without_waiting_hosts() -> None:
    state = fleet_state(channel(), fleet(2))
    done = with_standings(state, *(standing(f"web-0{n}", HostState.CONVERGED) for n in (0, 1)))

    assert explain(state, ROLLOUT).answer == "2 of 2 hosts get their order with the next pass"
    alone = fleet_state(channel(), fleet(1))
    assert explain(alone, ROLLOUT).answer == "1 of 1 host gets its order with the next pass"
    assert explain(done, ROLLOUT).answer.startswith("Every host is done")
    assert "its order goes out" in explain(state, ROLLOUT, "web-00").answer
    assert [gate.name for gate in GATES] == list(NAMES)


def test_explains_that_a_host_lost_the_release_on_which_it_converged() -> None:
    lost = with_standings(finished(), standing("web-00", HostState.CONVERGED, regressed_at=T0))

    found = explain(lost, ROLLOUT, "web-00")

    assert found.answer == "the host converged, but does not run web.2 any more"
    assert [(wait.code, wait.since) for wait in found.waits] == [("regressed", T0)]
    assert [remedy.command for remedy in found.waits[0].remedies] == [
        "tidegate channel promote stable web.2"
    ]


# ── late hosts ────────────────────────────────────────────────────────────────────────────────────


def finished(**changes: Any) -> FleetState:
    state = fleet_state(
        channel(WaveSpec(count=2)),
        fleet(3),
        (),
        (
            standing("web-00", HostState.CONVERGED),
            standing("web-01", HostState.PENDING, left="skipped", attempt=0),
        ),
        {"state": RolloutState.TERMINAL, "terminal_at": T0, **changes},
    )
    state = altered(state, hosts={**state.hosts, "new": Versioned(HostPresence("new"), 31)})
    return with_channel(state, terminal_rollout_id=ROLLOUT, ladder=(rung(ROLLOUT),))


def rung(rollout_id: str, left_at: datetime | None = None) -> Rung:
    return Rung(
        release_id=rollout_id.partition("@")[2],
        digest=f"sha256:{rollout_id}",
        rollout_id=rollout_id,
        succeeded_at=T0,
        left_at=left_at,
    )


def joined(state: FleetState, *budgets: Budget) -> FleetState:
    everybody = [*fleet(3), host("new"), host("gone", "retired")]
    sight = state.rollouts[ROLLOUT]
    found = latecomers(sight, state.channels["stable"].row, everybody, budgets)
    return with_rollout(state, latecomers=found)


def test_finds_late_and_skipped_hosts_but_not_those_in_no_wave() -> None:
    budget = Budget(budget_id="b", selector="host=new", max_in_flight=1)
    state = joined(finished(), budget, replace(budget, budget_id="gone", removed=True))

    assert state.rollouts[ROLLOUT].latecomers == (
        Latecomer("new", (BudgetSlot("b", 1),)),
        Latecomer("web-01"),
    )


def test_sends_late_hosts_the_finished_release_apart_from_the_plan() -> None:
    orders = survey(joined(finished()), ROLLOUT).orders

    assert [(order.host_id, order.late, order.wave, order.attempt) for order in orders] == [
        ("new", True, 0, 1),
        ("web-01", True, 0, 1),
    ]


@pytest.mark.parametrize(
    "known",
    [
        standing("web-01", HostState.FAILED, left="skipped"),
        standing("web-01", HostState.PENDING, left="waived"),
        standing("web-01", HostState.PENDING, left="skipped", late=True, busy=True),
    ],
    ids=["a failure that was allowed for", "waived", "late already"],
)
def test_does_not_retry_failed_waived_or_already_late_hosts_by_itself(
    known: HostStanding,
) -> None:
    state = with_standings(finished(), standing("web-00", HostState.CONVERGED), known)

    assert [item.host_id for item in joined(state).rollouts[ROLLOUT].latecomers] == ["new"]


@pytest.mark.parametrize(
    "state",
    [
        joined(finished(state=RolloutState.ACTIVE, terminal_at=None)),
        joined(finished(state=RolloutState.PRUNED)),
        with_channel(joined(finished()), ladder=(rung("stable@web.3"),)),
        with_channel(joined(finished()), ladder=(rung(ROLLOUT, left_at=T0),)),
        with_channel(joined(finished()), ladder=(), terminal_rollout_id=None),
        joined(finished(outcome=Outcome.FAILED)),
        joined(finished(outcome=Outcome.SUCCEEDED, start_at=T0 + timedelta(hours=1))),
        frozen(joined(finished())),
        quarantined(joined(finished())),
    ],
    ids=[
        "under way",
        "pruned",
        "another succeeded",
        "left",
        "none is done",
        "failed",
        "over before its start",
        "frozen",
        "quarantined",
    ],
)
def test_sends_late_hosts_no_other_release(state: FleetState) -> None:
    assert [order for order in survey(state, ROLLOUT).orders if order.late] == []


@pytest.mark.req("OP-9", engines=None, reason="a pure function")
def test_sends_a_release_that_no_host_ran_to_one_late_host_at_a_time() -> None:
    state = with_channel(
        joined(finished(outcome=Outcome.EMPTY)), ladder=(), newest_rollout_id=ROLLOUT
    )

    def sent(**late: int) -> list[str]:
        counts = {HostState(name): count for name, count in late.items()}
        return [order.host_id for order in survey(with_tally(state, late=counts), ROLLOUT).orders]

    assert sent() == ["new"]
    for name in ("Pending", "Activating", "Soaking", "Deferred"):
        assert sent(**{name: 1}) == [], "the first one has not proved it yet"
    assert sent(Converged=1) == ["new", "web-01"]
    assert sent(Failed=1) == []


# ── hosts that are not waited for ─────────────────────────────────────────────────────────────────

GRACE = 60


def silent_state(known: HostStanding | None = None, **changes: Any) -> FleetState:
    state = fleet_state(
        channel(
            WaveSpec(count=1, converged_min=0),
            WaveSpec(converged_min=0),
            offline_grace_seconds=GRACE,
        ),
        fleet(2),
        (),
        () if known is None else (known,),
    )
    quiet = HostPresence("web-00", **({"silent_since": T0 - GRACE * SECOND} | changes))
    return altered(state, hosts={**state.hosts, "web-00": Versioned(quiet, 30)})


def skipped(state: FleetState) -> list[tuple[str, HostState | None]]:
    return [(skip.host_id, skip.state) for skip in next_skips(state, ROLLOUT)]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (silent_state(), [("web-00", None)]),
        (silent_state(silent_since=T0 - (GRACE - 1) * SECOND), []),
        (silent_state(silent_since=None), []),
        (silent_state(silent_since=None, status="retired"), [("web-00", None)]),
        (
            silent_state(standing("web-00", HostState.PENDING, busy=True)),
            [("web-00", HostState.PENDING)],
        ),
        (silent_state(standing("web-00", HostState.PENDING, left="skipped")), []),
        (silent_state(standing("web-00", HostState.ACTIVATING)), []),
        (silent_state(standing("web-00", HostState.FAILED)), []),
        (
            with_tally(silent_state(standing("web-00", HostState.FAILED)), attempt=2),
            [("web-00", HostState.FAILED)],
        ),
        (
            with_tally(silent_state(standing("web-00", HostState.REVERTED)), attempt=2),
            [("web-00", HostState.REVERTED)],
        ),
        (silent_state(standing("web-00", HostState.DEFERRED)), []),
        (
            silent_state(standing("web-00", HostState.DEFERRED), status="retired"),
            [("web-00", HostState.DEFERRED)],
        ),
        (with_tally(silent_state(), halted_at=T0), []),
        (with_tally(silent_state(), state=RolloutState.SUPERSEDED), []),
    ],
)
def test_stops_waiting_for_silent_or_removed_hosts(
    state: FleetState, expected: list[tuple[str, HostState | None]]
) -> None:
    assert skipped(state) == expected


def test_waits_for_silent_hosts_of_later_waves_and_where_no_grace_is_set() -> None:
    state = silent_state()
    later = altered(state, hosts={"web-00": state.hosts["web-01"], "web-01": state.hosts["web-00"]})
    graceless = fleet_state(channel(), [replace(host("web-00"), silent_since=T0 - SECOND)])

    assert skipped(later) == []
    assert skipped(with_tally(later, current_wave=1)) == [("web-01", None)]
    assert skipped(graceless) == []


# ── defects of an older system, which must not come back ──────────────────────────────────────────


@pytest.mark.parametrize(
    "changes",
    [
        {"state": RolloutState.FAILED},
        {"state": RolloutState.REVERTED},
        {"halted_at": T0, "halted_by": "web-00"},
    ],
    ids=["failed", "reverted", "halted"],
)
def test_d03_sends_nothing_more_once_a_host_failed(changes: dict[str, Any]) -> None:
    """D3: the planner ignores Failed and Reverted: it keeps dispatching."""
    state = fleet_state(channel(), fleet(3), (), (standing("web-00", HostState.FAILED),), changes)

    assert names(state) == []
    assert survey(state, ROLLOUT).waiting == 2


@pytest.mark.req("RO-10", engines=None, reason="the gate; rows are proved on engines")
def test_d04_cannot_be_called_without_the_quarantines() -> None:
    """D4: the quarantine set is never loaded, so that its gate is inert."""
    state = fleet_state(channel(), fleet(3))
    sight = state.rollouts[ROLLOUT]

    assert names(state) == ["web-00", "web-01", "web-02"]
    assert names(quarantined(state)) == []
    loaded = {name: getattr(sight, name) for name in sight.__slots__ if name != "quarantined"}
    with pytest.raises(TypeError, match="quarantined"):
        type(sight)(**loaded)


def test_d16_reports_what_a_gate_does_only_when_it_changes() -> None:
    """D16: gate decisions are logged every tick, so the log grows without bound."""
    state = fleet_state(channel(WaveSpec(count=2), WaveSpec()), fleet(5))
    stopped = frozen(state)

    first = gate_changes(None, survey(stopped, ROLLOUT), T0)
    known = RolloutGates(ROLLOUT, tuple(GateStatus(said.gate, said.reason, T0) for said in first))
    again = gate_changes(known, survey(stopped, ROLLOUT), T0)
    fewer = with_standings(stopped, standing("web-00", HostState.CONVERGED))
    still = gate_changes(known, survey(fewer, ROLLOUT), T0)
    thawed = gate_changes(known, survey(state, ROLLOUT), T0)

    assert [(said.gate, said.blocked) for said in first] == [("freeze", True)]
    assert first[0].reason == "web-00: freeze f1: holidays"
    assert again == still == ()
    assert [(said.gate, said.blocked) for said in thawed] == [
        ("freeze", False),
        ("wave-promotion", True),
    ]


def test_cuts_a_reason_to_the_limit_of_the_log() -> None:
    long = BlockedHosts(
        gate="channel-edges", host_id="h1", reason="probe http: " + "ü" * 2_000, hosts=1
    )
    found = Survey(rollout_id=ROLLOUT, held=(long,))

    (change,) = gate_changes(None, found, T0)

    assert len(change.reason.encode()) in (REASON_BYTES_MAX - 1, REASON_BYTES_MAX)
    assert change.reason.startswith("h1: probe http: ü")


# ── windows ───────────────────────────────────────────────────────────────────────────────────────


def test_reports_how_many_hosts_a_window_holds_and_when_it_opens() -> None:
    where = channel()
    berlin = [host("a", tz="Europe/Berlin"), host("b", tz="Europe/Berlin")]
    tokyo = [host("c", tz="Asia/Tokyo")]
    state = windowed(
        fleet_state(where, [*berlin, *tokyo]),
        hosts="*",
        zone="label:tz",
        start="2026-05-01T17:00",
        rule="FREQ=DAILY",
    )

    found = explain(state, ROLLOUT)

    assert names(state) == ["c"], "in Tokyo it is 17:00"
    (wait,) = [item for item in found.waits if item.code == "window"]
    assert (wait.hosts, wait.some) == (2, ("a", "b"))
    assert wait.sentence == (
        "Window nightly is closed for 2 of 3 hosts; it opens Mon 4 May 17:00 CEST (in 7 h) for 2 h"
    )
    assert wait.until == T0 + timedelta(hours=7)
    assert explain(state, ROLLOUT, "a").answer == (
        "window: Window nightly is closed; it opens Mon 4 May 17:00 CEST (in 7 h) for 2 h "
        "(Europe/Berlin, label tz)"
    )


def test_counts_hosts_that_may_not_use_their_order_outside_of_their_window() -> None:
    ordered = standing("web-01", HostState.PENDING, busy=True, dispatched_at=T0)
    state = windowed(fleet_state(channel(), fleet(3), standings=[ordered]))

    found = survey(state, ROLLOUT)

    assert [(item.gate, item.hosts, item.host_id) for item in found.held] == [
        ("window", 1, "web-01")
    ]
    assert list_outside_windows(state, ROLLOUT) == ["web-01"]
    assert "may not use it now" in explain(state, ROLLOUT, "web-01").answer


def test_a_host_that_is_already_switching_does_not_count_as_outside_its_window() -> None:
    going = [
        standing("web-00", HostState.ACTIVATING, busy=True, dispatched_at=T0),
        standing("web-01", HostState.SOAKING, busy=True, dispatched_at=T0),
    ]
    state = windowed(fleet_state(channel(), fleet(2), standings=going), hosts="*")

    assert list_outside_windows(state, ROLLOUT) == []
    assert survey(state, ROLLOUT).held == ()


def test_must_fit_requires_the_time_of_activation_and_soak() -> None:
    """The window is 07:00 to 09:00, and it is 08:00: 60 minutes are left."""
    nightly = {"hosts": "*", "start": "2026-05-01T07:00", "rule": "FREQ=DAILY"}

    def of(soak: int, **policy: Any) -> FleetState:
        where = channel(WaveSpec(soak_seconds=soak), activation_seconds=600, **policy)
        return windowed(fleet_state(where, fleet(1)), **nightly)

    assert names(of(3_000, must_fit=True)) == ["web-00"]
    assert names(of(3_060)) == ["web-00"], "it need not fit"
    late = of(3_060, must_fit=True)
    assert names(late) == []
    assert explain(late, ROLLOUT, "web-00").answer == (
        "window: Window nightly closes in 1 h, web-00 needs up to 1 h 1 min; "
        "the next opening that is long enough is Tue 5 May 07:00 UTC"
    )


def test_names_each_host_that_does_not_fit_into_its_window() -> None:
    where = channel(WaveSpec(soak_seconds=7_200), must_fit=True)
    nightly = {"hosts": "*", "start": "2026-05-01T07:00", "rule": "FREQ=DAILY"}
    state = windowed(fleet_state(where, fleet(2)), **nightly)

    said = [item.reason for item in list_blocked(state, ROLLOUT)]

    assert [f"web-0{number} needs up to 2 h 10 min" in said[number] for number in (0, 1)] == [
        True,
        True,
    ]
