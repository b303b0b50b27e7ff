"""A forecast simulates the real plan: its waves, soaks, budgets, edges and tolerances decide."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from tidegate.control.queries.forecasts import ForecastConditions, Odds
from tidegate.domain.channels.facts import ChannelPolicy, HostEdge, WaveSpec
from tidegate.domain.channels.rows import Channel
from tidegate.domain.fleet.rows import Budget, Host
from tidegate.domain.hosts.states import OnFailure
from tidegate.domain.planner import Plan, plan
from tidegate.domain.windows.facts import WindowKind
from tidegate.domain.windows.rows import Window
from tidegate.errors import InvalidInput, LimitExceeded
from tidegate.simulate.forecast import SIMULATED_MAX, forecast
from tidegate.simulate.rates import Rates
from tidegate.simulate.scenario import Scenario, ScenarioChannel
from tidegate.simulate.world import World

T0 = datetime(2026, 3, 1, tzinfo=UTC)
WAVES = (WaveSpec(name="canary", count=2, soak_seconds=600), WaveSpec(name="rest"))
NOBODY_NEEDED = (WaveSpec(name="all", converged_min=0),)


def planned(hosts: int, *budgets: Budget, **policy: object) -> tuple[Channel, Plan]:
    rules = ChannelPolicy(**{"waves": WAVES, **policy})  # type: ignore[arg-type]
    channel = Channel(
        channel="web-stable", package="web", selector="*", policy=rules, created_at=T0
    )
    fleet = [
        Host(host_id=f"web-{number:04}", enrolled_at=T0, public_key="ab" * 32)
        for number in range(hosts)
    ]
    return channel, plan(channel, fleet, budgets)


def test_a_fleet_without_failures_ends_wave_by_wave_after_each_soak() -> None:
    found = forecast(*planned(8), Odds(), [1, 2, 3])

    assert found.ends == {"Terminal": 3}
    assert found.stops == ()
    canary, rest = found.waves
    assert (canary.hosts, rest.hosts) == (2, 6)
    assert canary.seconds is not None
    assert rest.seconds is not None
    assert 600 < canary.seconds.median <= canary.seconds.worst < rest.seconds.median
    assert (found.failed.median, found.failed.worst) == (0, 0)
    assert found.timeline[-1].what == "the rollout succeeded"
    assert found.timeline[-1].seconds == found.seconds


def test_the_same_seeds_give_the_same_forecast() -> None:
    odds = Odds(probe_fails=0.1, lost=0.1, offline=0.05)

    assert forecast(*planned(12), odds, [5, 6]) == forecast(*planned(12), odds, [5, 6])
    assert forecast(*planned(12), odds, [5]) != forecast(*planned(12), odds, [7])


def test_a_host_that_fails_stops_it_and_later_waves_never_start() -> None:
    found = forecast(*planned(8), Odds(failing=("web-0001",)), [1, 2])

    assert found.ends == {"Reverted": 2}
    assert [wave.ended for wave in found.waves] == [0, 0]
    assert found.waves[1].seconds is None
    assert [(stop.what, stop.runs) for stop in found.stops] == [("a host failed: probes", 2)]
    assert [moment.what for moment in found.timeline] == [
        "opened, 8 hosts simulated",
        "web-0001 failed",
        "halted: web-0001 failed",
        "web-0001 rolled back",
        "the rollout was rolled back",
    ]


def test_the_policy_on_failures_decides() -> None:
    tolerant = (WAVES[0], WaveSpec(name="rest", failures_max=1))
    failing = Odds(failing=("web-0005",))

    assert forecast(*planned(8, waves=tolerant), failing, [1]).state == "Terminal"
    assert forecast(*planned(8, on_failure=OnFailure.HALT), failing, [1]).state == "Failed"


def test_budgets_and_edges_of_the_plan_make_it_slower() -> None:
    free = forecast(*planned(12), Odds(), [1])
    narrow = forecast(
        *planned(12, Budget(budget_id="all", selector="*", max_in_flight=2)), Odds(), [1]
    )
    chained = forecast(
        *planned(12, host_edges=tuple(HostEdge("web-0002", f"web-{n:04}") for n in range(3, 12))),
        Odds(),
        [1],
    )

    assert narrow.seconds > free.seconds
    assert chained.seconds > free.seconds


def test_waits_for_a_silent_host_unless_the_policy_skips_it() -> None:
    off = Odds(offline=1.0)

    waiting = forecast(*planned(4), off, [1])
    given_up = forecast(*planned(4, offline_grace_seconds=300, waves=NOBODY_NEEDED), off, [1])

    assert waiting.state not in ("Terminal", "Reverted", "Failed")
    assert "waits for a host" in waiting.stops[0].what
    assert given_up.state == "Terminal"


def test_a_host_that_never_reported_is_silent_since_it_enrolled() -> None:
    policy = ChannelPolicy(offline_grace_seconds=300, ack_seconds=60, waves=NOBODY_NEEDED)
    lane = ScenarioChannel(channel="web-stable", selector="*", policy=policy)
    scenario = Scenario(seed=1, hosts=1, channels=(lane,), rates=Rates(off=1.0), restless=False)
    world = World(scenario)

    world.play(lambda: False)

    (host,) = world.control_plane.fleet_reader.hosts()
    assert host.silent_since == host.enrolled_at
    assert {"HostSilent", "HostSkipped", "RolloutTerminal"} <= world.watch.model.types


def test_a_few_hosts_represent_many() -> None:
    found = forecast(*planned(5 * SIMULATED_MAX), Odds(), [1])

    assert found.hosts == 5 * SIMULATED_MAX
    assert found.stands_for == 5
    # One of the two canaries, and every fifth of the other hosts.
    assert found.timeline[0].what == "opened, 201 hosts simulated"
    assert found.state == "Terminal"


def test_an_empty_plan_ends_at_once() -> None:
    found = forecast(*planned(0), Odds(), [1])

    assert (found.state, found.seconds, found.waves) == ("Terminal", 0, ())


@pytest.mark.parametrize(
    ("odds", "says"),
    [
        (Odds(lost=1.5), "lost is a share between 0 and 1, found 1.5"),
        (Odds(dies=-0.1), "dies is a share"),
        (Odds(probe_fails=float("nan")), "probe_fails is a share"),
        (Odds(failing=("db-1",)), "db-1 is in no wave of the plan"),
    ],
)
def test_refuses_invalid_probabilities(odds: Odds, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        forecast(*planned(4), odds, [1])


def test_refuses_no_seeds_and_too_many() -> None:
    with pytest.raises(InvalidInput):
        forecast(*planned(4), Odds(), [])
    with pytest.raises(LimitExceeded):
        forecast(*planned(4), Odds(), range(51))


# ── what delays hosts ─────────────────────────────────────────────────────────────────────────────

NOW = datetime(2026, 11, 18, 9, tzinfo=UTC)


def window(start: str, seconds: int, zone: str = "UTC") -> Window:
    return Window(
        window_id="nights",
        kind=WindowKind.ALLOW,
        start=start,
        duration_seconds=seconds,
        rule="FREQ=DAILY",
        zone=zone,
        reason="nobody works",
        operator="user_1",
        set_at=NOW,
    )


@pytest.mark.req("OP-15", engines=None, reason="the simulator plays in memory")
def test_hosts_wait_for_their_window_and_for_the_next_one_if_it_closes() -> None:
    free = forecast(*planned(8), Odds(), [1])
    night = ForecastConditions(at=NOW, windows=(window("2026-11-18T22:00", 7_200),))
    held = forecast(*planned(8), Odds(), [1], night)
    short = ForecastConditions(at=NOW, windows=(window("2026-11-18T22:00", 300),))
    twice = forecast(*planned(8), Odds(), [1], short)

    until = 13 * 3_600
    assert (free.waits_seconds, held.waits_seconds, twice.waits_seconds) == (0, until, until)
    assert held.state == twice.state == "Terminal"
    assert until < held.seconds < until + 7_200
    assert twice.seconds > until + 86_400, "the soak outlasts the window: the rest goes next night"
    first = held.waves[0].seconds
    assert first is not None
    assert until < first.median <= first.p90 <= first.worst


@pytest.mark.req("OP-15", engines=None, reason="the simulator plays in memory")
def test_each_host_waits_for_the_window_of_its_own_zone() -> None:
    channel, made = planned(8)
    labels = {host: {"tz": "Asia/Tokyo"} for wave in made.waves for host in wave.hosts}
    night = window("2026-11-18T22:00", 7_200, "label:tz")
    held = ForecastConditions(at=NOW, windows=(night,), labels=labels)

    found = forecast(channel, made, Odds(), [1], held)

    assert found.waits_seconds == 4 * 3_600  # 22:00 there is 13:00 UTC
    assert found.state == "Terminal"


def test_waits_for_the_end_of_a_freeze() -> None:
    frozen = ForecastConditions(at=NOW, frozen_until=NOW + timedelta(hours=2))

    found = forecast(*planned(8), Odds(), [1], frozen)

    assert (found.waits_seconds, found.state) == (7_200, "Terminal")


def test_a_freeze_that_ends_while_windows_are_closed_is_followed_by_the_next_window() -> None:
    night = window("2026-11-18T22:00", 7_200)
    held = ForecastConditions(at=NOW, windows=(night,), frozen_until=NOW + timedelta(hours=20))

    found = forecast(*planned(8), Odds(), [1], held)

    assert found.waits_seconds == (13 + 24) * 3_600


def test_sends_no_order_before_the_requested_start() -> None:
    late = ForecastConditions(at=NOW, start_at=NOW + timedelta(hours=2))
    past = ForecastConditions(at=NOW, start_at=NOW - timedelta(hours=2))

    found = forecast(*planned(8), Odds(), [1], late)

    assert (found.waits_seconds, found.state) == (7_200, "Terminal")
    assert [(item.by, item.begins, item.ends, item.hosts) for item in found.held] == [
        ("start", 0, 7_200, 8)
    ]
    with pytest.raises(InvalidInput, match="2 h ago"):
        forecast(*planned(8), Odds(), [1], past)


def test_reports_when_windows_are_closed_and_for_how_many_hosts() -> None:
    channel, made = planned(8)
    names = [host for wave in made.waves for host in wave.hosts]
    labels = {name: {"tz": "Asia/Tokyo"} if name == names[-1] else {} for name in names}
    night = replace(window("2026-11-18T22:00", 7_200, "label:tz"), zone_default="UTC")
    held = ForecastConditions(at=NOW, windows=(night,), labels=labels)

    found = forecast(channel, made, Odds(), [1], held)

    hour = 3_600
    assert [(item.window_id, item.begins, item.ends, item.hosts) for item in found.held] == [
        ("nights", 0, 4 * hour, 1),  # 22:00 there is 13:00 UTC
        ("nights", 0, 13 * hour, 7),
        ("nights", 6 * hour, 28 * hour, 1),
        ("nights", 15 * hour, found.seconds, 7),
    ]


def test_switches_take_as_long_as_in_earlier_rollouts() -> None:
    quick = forecast(*planned(8), Odds(), [1], ForecastConditions(activation=(0.5, 1.0)))
    slow = forecast(*planned(8), Odds(), [1], ForecastConditions(activation=(300.0, 320.0)))

    assert 600 < quick.seconds < 630  # the soak of the canary, and some seconds
    assert slow.seconds > 600 + 2 * 300
