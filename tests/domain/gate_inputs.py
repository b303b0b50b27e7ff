"""A small fleet for the tests of planner and gates: hosts, a channel, a rollout, and their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace as altered
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from tidegate.domain.channels.facts import ChannelPolicy, WaveSpec
from tidegate.domain.channels.rows import Channel
from tidegate.domain.fleet.rows import Budget, Host
from tidegate.domain.gates.inputs import (
    FleetState,
    GateInput,
    HostPresence,
    HostStanding,
    Versioned,
)
from tidegate.domain.hosts.states import HostState, OnFailure
from tidegate.domain.planner import Plan, index_by_host, opened_waves, plan
from tidegate.domain.rollouts.rows import RolloutTally, WaveTally
from tidegate.domain.rollouts.states import RolloutState

T0 = datetime(2026, 5, 4, 8, 0, tzinfo=UTC)
ROLLOUT = "stable@web.2"
KEY = "ab" * 32


def host(host_id: str, status: str = "enrolled", **labels: str) -> Host:
    return Host(host_id=host_id, enrolled_at=T0, public_key=KEY, labels=labels, status=status)


def fleet(count: int, **labels: str) -> list[Host]:
    """web-00, web-01 …"""
    return [host(f"web-{number:02}", **labels) for number in range(count)]


def channel(*waves: WaveSpec, selector: str = "*", name: str = "stable", **policy: Any) -> Channel:
    return Channel(
        channel=name,
        package="web",
        selector=selector,
        policy=ChannelPolicy(waves=waves, **policy),
        created_at=T0,
    )


def tally(frozen: Plan, current_wave: int = 0, **changes: Any) -> RolloutTally:
    """Build the rollout with its cursor at this wave; all earlier waves have converged."""
    opened = RolloutTally(
        rollout_id=ROLLOUT,
        channel=frozen.channel,
        target_ref="web.2",
        target_closure="sha256:new",
        on_failure=OnFailure.ROLLBACK,
        opened_at=T0,
        retention_seconds=60,
        plan_digest="sha256:plan",
        state=RolloutState.ACTIVE,
        waves=tuple(
            WaveTally(
                name=wave.name,
                hosts=wave.hosts,
                failures_max=wave.failures_max,
                converged_min=wave.converged_min,
                success_percent=wave.success_percent,
                delay_seconds=wave.delay_seconds,
                manual=wave.manual,
                states={HostState.CONVERGED: wave.hosts} if number < current_wave else {},
            )
            for number, wave in enumerate(opened_waves(frozen))
        ),
        current_wave=current_wave,
        edges=frozen.policy.edges,
    )
    return replace(opened, **changes)


def standing(host_id: str, state: HostState, **more: Any) -> HostStanding:
    return HostStanding(host_id=host_id, state=state, **more)


def fleet_state(
    where: Channel,
    hosts: Iterable[Host],
    budgets: Iterable[Budget] = (),
    standings: Iterable[HostStanding] = (),
    tally_changes: Mapping[str, Any] | None = None,
) -> FleetState:
    """Build a state in which nothing holds the rollout back. Versions: tally 10, channel 20, hosts
    30, budgets 40, records 50.
    """
    hosts, budgets = tuple(hosts), tuple(budgets)
    frozen = plan(where, hosts, budgets)
    sight = GateInput(
        tally=Versioned(tally(frozen, **(tally_changes or {})), 10),
        chart=index_by_host(frozen),
        standings={item.host_id: Versioned(item, 50) for item in standings},
        failures=(),
        quarantined=None,
        pin=None,
        edges={},
        latecomers=(),
        blocked_since={},
    )
    return FleetState(
        at=T0,
        rollouts={ROLLOUT: sight},
        channels={where.channel: Versioned(where, 20)},
        hosts={
            item.host_id: Versioned(
                HostPresence(item.host_id, item.status, item.silent_since, item.labels), 30
            )
            for item in hosts
        },
        orders={},
        budgets={item.budget_id: Versioned(item, 40) for item in budgets},
        freezes=(),
        windows=(),
        rebooted={},
        faults={},
    )


def with_rollout(state: FleetState, /, **changes: Any) -> FleetState:
    """Return the same state with something else about the rollout."""
    changed = altered(state.rollouts[ROLLOUT], **changes)
    return altered(state, rollouts={ROLLOUT: changed})


def with_tally(seen: FleetState, /, **changes: Any) -> FleetState:
    known = seen.rollouts[ROLLOUT].tally
    return with_rollout(seen, tally=Versioned(replace(known.row, **changes), known.version))
