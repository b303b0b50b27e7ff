"""The figures that a forecast takes from a channel's last rollouts, on every engine."""

from __future__ import annotations

import pytest

from tests.contract.in_process_fleet import CANARY, REST, InProcessFleet
from tidegate.control.queries.forecasts import Odds, read_conditions, read_history
from tidegate.control.queries.reads import Reads
from tidegate.domain.channels.slices import StartFreeze, start_freeze

pytestmark = pytest.mark.in_turn


def test_a_channel_without_rollouts_has_no_failures_and_no_times(fleet: InProcessFleet) -> None:
    fleet.create("edge", CANARY, REST)

    found = read_history(Reads(fleet.store), "edge")

    assert (found.rollouts, found.hosts, found.odds, found.activation) == (0, 0, Odds(), None)


def test_reports_how_often_hosts_failed_and_how_long_switches_took(fleet: InProcessFleet) -> None:
    fleet.create("edge", REST)
    fleet.enroll("e1", "e2", "e3", "e4", channel="edge")
    fleet.offer("web.1")
    rollout_id = fleet.promote("edge", "web.1")
    fleet.dispatch()
    fleet.ack("e1", "e2", "e3")
    fleet.wait(7)
    fleet.activate(rollout_id, "e1", "e2", "e3")
    fleet.fail(rollout_id, "e4")

    found = read_history(Reads(fleet.store), "edge")

    assert (found.rollouts, found.hosts) == (1, 4)
    assert found.odds == Odds(activation_fails=0.25)
    assert found.activation == (7.0, 7.0)


@pytest.mark.parametrize("covers", [True, False])
def test_a_freeze_counts_if_it_covers_the_channel(fleet: InProcessFleet, covers: bool) -> None:
    fleet.create("edge", REST)
    fleet.create("core", REST)
    until = fleet.clock().replace(hour=20)
    frozen = "edge" if covers else "core"
    fleet.execute(
        start_freeze,
        StartFreeze(
            freeze_id="f", operator="user_1", reason="snow", channels=(frozen,), until=until
        ),
    )
    reader = fleet.control_plane.fleet_reader

    found = read_conditions(reader, fleet.channel("edge"), fleet.clock())

    assert found.frozen_until == (until if covers else None)
