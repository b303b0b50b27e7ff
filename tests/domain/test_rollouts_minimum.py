"""A wave starts only after hosts of the wave before it converged; and which hosts may be
skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.domain.gate_inputs import ROLLOUT, T0, channel, fleet_state, host
from tests.domain.memory_fleet import CHANNEL, MemoryFleet
from tests.domain.registry import digest_of
from tidegate.domain.channels.facts import WaveSpec
from tidegate.domain.channels.slices import LiftQuarantine, lift_quarantine
from tidegate.domain.composition import FOLDS
from tidegate.domain.gates.dispatch_pass import next_skips
from tidegate.domain.hosts.facts import HostSkipped
from tidegate.domain.hosts.refusals import HostUnderWay, LateHostFailed
from tidegate.domain.hosts.states import OnFailure
from tidegate.domain.rollouts.rows import ReleaseStanding, standing_key
from tidegate.domain.rollouts.states import Outcome, RolloutState
from tidegate.errors import IllegalTransition
from tidegate.kernel.replay import differences

pure = {"engines": None, "reason": "pure steps on the oracle; engines have their own suite"}


LIFT = {
    "channel": CHANNEL,
    "closure_hash": digest_of("web.1"),
    "operator": "user_1",
    "reason": "looked at it",
}


@pytest.fixture
def fleet() -> Iterator[MemoryFleet]:
    """A fleet whose log, at the end of the test, must give exactly its rows."""
    played = MemoryFleet()
    yield played
    assert differences(played.store, FOLDS) == []


@pytest.mark.req("RO-12", **pure)
def test_starts_no_wave_after_one_whose_only_host_was_skipped(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 1, 1)
    fleet.skip(rollout_id, "w0-0")

    assert (fleet.state(rollout_id), fleet.tally(rollout_id).current_wave) == ("Opening", 0)


def test_starts_no_wave_while_every_host_of_the_one_before_waits_for_its_reboot(
    fleet: MemoryFleet,
) -> None:
    rollout_id = fleet.promote("web.1", 2, 1)
    fleet.start(rollout_id, "w0-0", "w0-1")
    fleet.defer(rollout_id, "w0-0")
    fleet.defer(rollout_id, "w0-1")
    assert (fleet.state(rollout_id), fleet.tally(rollout_id).current_wave) == ("Active", 0)

    fleet.activate(rollout_id, "w0-0")
    fleet.declare(rollout_id, "w0-0")
    fleet.converge(rollout_id, "w0-0")
    assert fleet.tally(rollout_id).current_wave == 1


def test_requires_no_more_hosts_than_the_wave_has(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 2, 1, converged_min=5)
    fleet.reach(rollout_id, "w0-0")
    assert fleet.tally(rollout_id).current_wave == 0
    fleet.reach(rollout_id, "w0-1")
    assert fleet.tally(rollout_id).current_wave == 1


def test_requires_no_host_if_the_policy_allows_it(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 1, 1, converged_min=0)
    fleet.skip(rollout_id, "w0-0")
    assert fleet.tally(rollout_id).current_wave == 1


@pytest.mark.req("RO-12", **pure)
def test_ends_without_success_when_every_host_was_skipped(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 2)
    fleet.skip(rollout_id, "w0-0")
    fleet.skip(rollout_id, "w0-1")

    assert fleet.state(rollout_id) is RolloutState.TERMINAL
    assert fleet.tally(rollout_id).outcome is Outcome.EMPTY
    standing = fleet.row(standing_key(CHANNEL, "web.1"), ReleaseStanding)
    assert standing.word is None, "edges to this channel stay closed"


# ── the grace ─────────────────────────────────────────────────────────────────────────────────────

LONG_AGO = T0 - timedelta(hours=1)


def skipped(*unheard: str, converged_min: int = 1) -> list[str]:
    """Return the hosts skipped in a wave of three, of which these are silent for an hour."""
    wave = WaveSpec(name="canary", converged_min=converged_min)
    hosts = [
        replace(host(name), silent_since=LONG_AGO if name in unheard else None) for name in "abc"
    ]
    state = fleet_state(channel(wave, offline_grace_seconds=900), hosts)
    return [skip.host_id for skip in next_skips(state, ROLLOUT)]


@pytest.mark.req("RO-12", **pure)
def test_skips_no_silent_host_that_the_minimum_of_its_wave_needs() -> None:
    assert skipped("a") == ["a"]
    assert skipped("a", "b") == ["a", "b"]
    assert skipped("a", "b", "c") == []
    assert skipped("a", "b", converged_min=2) == []
    assert skipped("a", "b", "c", converged_min=0) == ["a", "b", "c"]


# ── a host that an operator skips ─────────────────────────────────────────────────────────────────


@pytest.mark.req("RO-12", **pure)
@pytest.mark.parametrize("where", ["no order", "pending", "deferred", "a later wave"])
def test_continues_without_a_host_that_an_operator_skips(fleet: MemoryFleet, where: str) -> None:
    rollout_id = fleet.promote("web.1", 2, 2)
    if where in ("pending", "deferred"):
        fleet.order(rollout_id, "w0-0")
    if where == "deferred":
        fleet.ack(rollout_id, "w0-0")
        fleet.defer(rollout_id, "w0-0")
    name = "w1-0" if where == "a later wave" else "w0-0"

    fleet.skip_by_hand(rollout_id, name)
    fleet.skip_by_hand(rollout_id, name)

    (skipped,) = fleet.events(HostSkipped)
    assert (skipped.host_id, skipped.operator) == (name, "user_1")
    fleet.reach(rollout_id, *sorted({"w0-0", "w0-1"} - {name}))
    fleet.reach(rollout_id, *sorted({"w1-0", "w1-1"} - {name}))
    assert fleet.state(rollout_id) is RolloutState.TERMINAL


def test_does_not_skip_a_host_that_is_running_its_order(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 3)
    fleet.start(rollout_id, "w0-0", "w0-1")
    with pytest.raises(HostUnderWay, match="w0-0 is switching; it finishes or fails by 2026"):
        fleet.skip_by_hand(rollout_id, "w0-0")
    fleet.activate(rollout_id, "w0-0")
    with pytest.raises(HostUnderWay, match="soaking"):
        fleet.skip_by_hand(rollout_id, "w0-0")
    fleet.fail(rollout_id, "w0-1")
    with pytest.raises(HostUnderWay, match="rolling back"):
        fleet.skip_by_hand(rollout_id, "w0-1")
    fleet.revert(rollout_id, "w0-1")
    with pytest.raises(IllegalTransition):
        fleet.skip_by_hand(rollout_id, "w0-1")
    fleet.skip_by_hand(rollout_id, "w0-2")


# ── late hosts ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", [{}, {"on_failure": OnFailure.HALT}], ids=["rollback", "halt"])
def test_orders_no_late_host_after_one_failed_until_it_is_skipped(policy: dict[str, Any]) -> None:
    fleet = MemoryFleet(**policy)
    rollout_id = fleet.promote("web.1", 1)
    fleet.reach(rollout_id, "w0-0")
    fleet.order(rollout_id, "w0-7", late=True)
    fleet.order(rollout_id, "w0-9", late=True)
    fleet.ack(rollout_id, "w0-7")
    fleet.fail(rollout_id, "w0-7")
    if not policy:
        fleet.revert(rollout_id, "w0-7")
        fleet.execute(lift_quarantine, LiftQuarantine(**LIFT))

    with pytest.raises(LateHostFailed):
        fleet.order(rollout_id, "w0-8", late=True)
    with pytest.raises(LateHostFailed):
        fleet.ack(rollout_id, "w0-9")
    fleet.skip_by_hand(rollout_id, "w0-7")

    fleet.order(rollout_id, "w0-8", late=True)
    fleet.ack(rollout_id, "w0-9")
    assert fleet.tally(rollout_id).degraded
    assert differences(fleet.store, FOLDS) == []
