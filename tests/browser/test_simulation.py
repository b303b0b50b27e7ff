"""Simulations: runs appear one by one on the page, and nothing is changed."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from statistics import median_low

import pytest
from playwright.sync_api import Page, expect

from tests.browser.accessibility import grave_issues
from tests.browser.actions import Picture, cookies, sign_in
from tests.browser.dashboard_fleet import DashboardFleet
from tidegate.control.queries.forecasts import AT_ONCE, Forecast
from tidegate.dashboard.simulation import LUCK, RUNS, ForecastQuery, Simulations, part_of
from tidegate.domain.channels.facts import WaveSpec
from tidegate.domain.channels.rows import Channel, channel_key

HOSTS = tuple(f"web-{number:02}" for number in range(6))


def planned(fleet: DashboardFleet) -> None:
    fleet.publish("v1", {"run": "exec web\n"})
    waves = (WaveSpec(name="canary", count=2, soak_seconds=300), WaveSpec(name="rest"))
    fleet.channel("stable", waves=waves)
    fleet.enroll("stable", *HOSTS)


def test_shows_run_after_run_until_all_are_done(
    fleet: DashboardFleet, page: Page, picture: Picture
) -> None:
    planned(fleet)
    sign_in(page, fleet, "viewer", "/plan?channel=stable")
    head = fleet.installation.log.head()
    page.select_option("[name=luck]", "none")
    page.fill("[name=failing]", HOSTS[3])

    page.click("button:has-text('Simulate')")
    page.wait_for_selector(f"#forecast[data-runs='{RUNS}']", timeout=60_000)

    expect(page.locator("#forecast")).to_contain_text(f"{RUNS} of {RUNS} runs")
    expect(page.locator(".lane .track")).to_have_count(2)
    expect(page.locator(".outcomes")).to_contain_text("Stops, and hosts roll back")
    expect(page.locator(".forecast .gates")).to_contain_text("a host failed: probes")
    marks = page.locator(".lane >> nth=2").locator(".mark")
    expect(marks).to_have_count(RUNS)  # every run stops in the second wave
    assert page.locator("#forecast").get_attribute("hx-get") is None
    assert fleet.installation.log.head() == head
    picture(page, "forecast")


def test_adds_one_run_at_a_time_with_the_same_result_as_all_at_once(fleet: DashboardFleet) -> None:
    planned(fleet)
    here = fleet.installation
    plays = Simulations(here.reads, here.fleet_reader, here.promotions, here.forecast)
    channel = fleet.installation.reads.find(channel_key("stable"), Channel)
    assert channel is not None
    played: list[tuple[Forecast, ...]] = [
        plays.play(ForecastQuery(channel="stable", luck="bad", seed=5, runs=n)) for n in (1, 2, 3)
    ]
    plan = fleet.installation.promotions.plan("stable").plan

    whole = fleet.installation.forecast(channel.row, plan, LUCK["bad"][1], range(5, 8), AT_ONCE)

    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(played))
    part = part_of(played[-1], "")
    assert {item.runs for item in part.ends} == set(whole.ends.values())
    assert dict(part.stops) == {stop.what: stop.runs for stop in whole.stops}
    for lane, wave in zip(part.lanes, whole.waves, strict=True):
        assert lane.ended == wave.ended
        ends = [run.waves[lane.number].seconds for run in played[-1]]
        found = [end.median for end in ends if end is not None]
        assert (wave.seconds.median if wave.seconds else None) == (
            median_low(found) if found else None
        )
    reaches = [lane.x + lane.width + lane.worst for lane in part.lanes]
    assert all(0 <= reach <= 100.01 for reach in reaches)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("channel=nowhere", "nowhere"),
        ("channel=stable&failing=db-1", "db-1 is in no wave"),
        ("channel=stable&start_at=2020-01-01T00:00", "ago; leave it out to start now"),
        ("channel=stable&start_at=soon", "write a time such as"),
    ],
)
def test_explains_on_the_page_why_nothing_can_be_simulated(
    fleet: DashboardFleet, asked: str, said: str
) -> None:
    planned(fleet)

    found = cookies(fleet, "viewer").get(f"/plan/forecast?{asked}")

    assert found.status_code == 200
    assert said in found.text
    assert "hx-get" not in found.text


@pytest.mark.parametrize("asked", ["runs=0", f"runs={RUNS + 1}", "luck=good", "seed=-1", "odds=1"])
def test_refuses_values_that_the_form_does_not_offer(fleet: DashboardFleet, asked: str) -> None:
    found = cookies(fleet, "viewer").get(f"/plan/forecast?channel=stable&{asked}")

    assert found.status_code == 400
    assert f"{asked.partition('=')[0]}: " in found.text


def test_uses_the_rates_of_the_last_rollouts_and_shows_the_wait_for_the_start(
    populated: DashboardFleet, page: Page, picture: Picture
) -> None:
    sign_in(page, populated, "viewer", "/plan?channel=stable")
    expect(page.locator("form.card")).to_contain_text("50 % failed their probes")
    tomorrow = populated.installation.clock() + timedelta(days=1)

    page.select_option("[name=luck]", label="As in its last rollouts")
    page.fill("[name=start_at]", f"{tomorrow:%Y-%m-%dT%H:%M}")
    page.click("button:has-text('Simulate')")
    page.wait_for_selector(f"#forecast[data-runs='{RUNS}']", timeout=60_000)

    held = page.locator(".lane.held")
    expect(held).to_have_count(1)
    expect(held).to_contain_text("Start")
    expect(held).to_contain_text("holds 5 hosts")
    expect(page.locator(".forecast .gates")).to_contain_text("a host failed: probes")
    expect(page.locator("[name=luck]")).to_have_value("history")
    assert grave_issues(page) == []
    picture(page, "history")


def test_a_channel_without_rollouts_offers_no_rates_of_its_own(fleet: DashboardFleet) -> None:
    planned(fleet)

    found = cookies(fleet, "viewer").get("/plan?channel=stable&luck=history")

    assert "As in its last rollouts" not in found.text
    assert "no rates of its own" in found.text
