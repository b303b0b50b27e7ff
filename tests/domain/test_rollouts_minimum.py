"""A wave goes only after hosts of the wave before it really converged, and who may be skipped."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.domain.gate_inputs import ROLLOUT, T0, channel, fleet_state, host
from tests.domain.memory_fleet import CHANNEL, MemoryFleet
from tidegate.domain.channels.facts import WaveSpec
from tidegate.domain.composition import FOLDS
from tidegate.domain.gates.dispatch_pass import next_skips
from tidegate.domain.rollouts.rows import ReleaseStanding, standing_key
from tidegate.domain.rollouts.states import Outcome, RolloutState
from tidegate.kernel.replay import differences

pure = {"engines": None, "reason": "pure steps on the oracle; engines have their own suite"}


@pytest.fixture
def fleet() -> Iterator[MemoryFleet]:
    """Whatever a test does, the log says afterwards what the rows say."""
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


def test_asks_for_as_many_hosts_as_the_wave_has_at_most(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 2, 1, converged_min=5)
    fleet.reach(rollout_id, "w0-0")
    assert fleet.tally(rollout_id).current_wave == 0
    fleet.reach(rollout_id, "w0-1")
    assert fleet.tally(rollout_id).current_wave == 1


def test_asks_for_nobody_where_the_policy_says_so(fleet: MemoryFleet) -> None:
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
    assert standing.word is None, "edges to this channel stay shut"


# ── the grace ─────────────────────────────────────────────────────────────────────────────────────

LONG_AGO = T0 - timedelta(hours=1)


def skipped(*unheard: str, converged_min: int = 1) -> list[str]:
    """Who is skipped in a wave of three hosts, of which these are silent for an hour."""
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
