"""Why a rollout waits: every gate, and which hosts it holds, also for a large rollout."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import Picture, cookies, sign_in
from tests.browser.dashboard_fleet import DashboardFleet
from tidegate.dashboard import gate_panel, layout
from tidegate.domain.channels.facts import WaveSpec
from tidegate.domain.gates.checks import GATES
from tidegate.domain.gates.dispatch_pass import list_blocked
from tidegate.domain.gates.explain import explain

HOSTS = tuple(f"web-{number:02}" for number in range(9))


def waiting(fleet: DashboardFleet) -> str:
    """Two hosts have their order, seven wait for it."""
    fleet.publish("v1", {"run": "exec web\n"})
    fleet.channel("stable", waves=(WaveSpec(name="canary", count=2), WaveSpec(name="rest")))
    fleet.enroll("stable", *HOSTS)
    rollout_id = fleet.promote("stable", "web.1")
    fleet.dispatch()
    return rollout_id


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rollout counts as large."""
    monkeypatch.setattr(gate_panel, "AT_ONCE_MAX", 0)


def test_lists_every_host_that_a_survey_counts(fleet: DashboardFleet) -> None:
    rollout_id = waiting(fleet)
    state = fleet.installation.fleet_reader.state([rollout_id], fleet.installation.clock())

    found = [*list_blocked(state, rollout_id)]

    counted = {item.gate: item.hosts for item in explain(state, rollout_id).verdicts if item.hosts}
    assert counted == {"wave-promotion": 7}
    assert [(item.gate, item.host_id) for item in found] == [
        ("wave-promotion", host) for host in HOSTS[2:]
    ]


@pytest.mark.parametrize("at_once", [0, 2_000])
def test_shows_all_gates_with_counts_and_some_of_the_hosts(
    fleet: DashboardFleet, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(gate_panel, "AT_ONCE_MAX", at_once)
    rollout_id = waiting(fleet)
    client = cookies(fleet, "viewer")

    text = client.get(f"/rollouts/{rollout_id}/gates").text

    assert all(gate.name in text for gate in GATES)
    assert "7 hosts" in text
    assert [host for host in HOSTS if f"/hosts/{host}" in text] == [*HOSTS[2:5]]
    assert "all 7" in text
    assert ("hx-get" in text) is (at_once == 0)


@pytest.mark.usefixtures("large")
def test_loads_the_gates_of_a_large_rollout_after_its_page(
    fleet: DashboardFleet, page: Page, picture: Picture
) -> None:
    rollout_id = waiting(fleet)

    sign_in(page, fleet, "viewer", f"/rollouts/{rollout_id}")

    expect(page.locator("#gates time[data-ago]")).to_be_visible()
    expect(page.locator("#gates .passes li")).to_have_count(len(GATES) - 1)
    page.reload()  # the result is part of the page now
    expect(page.locator("#gates .passes li")).to_have_count(len(GATES) - 1)
    page.click("#gates >> text=all 7")
    expect(page.locator("tbody tr")).to_have_count(7)
    picture(page, "held")


@pytest.mark.usefixtures("large")
def test_caches_the_gates_for_a_few_seconds_only(
    fleet: DashboardFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout_id = waiting(fleet)
    client = cookies(fleet, "viewer")
    path = f"/rollouts/{rollout_id}/held"
    assert client.get(path).text.count("wave-promotion</td>") == 7
    first = fleet.records(rollout_id)[0].host_id
    second = fleet.records(rollout_id)[1].host_id
    for host in (first, second):
        fleet.activate(rollout_id, host)
        fleet.converge(rollout_id, host)
    fleet.dispatch()

    assert client.get(path).text.count("wave-promotion</td>") == 7
    monkeypatch.setattr(gate_panel, "FRESH_SECONDS", 0)
    assert "No host waits here" in client.get(path).text


def test_pages_through_all_waiting_hosts(
    fleet: DashboardFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "ROWS", 3)
    rollout_id = waiting(fleet)
    client = cookies(fleet, "viewer")
    path, seen = f"/rollouts/{rollout_id}/held", list[str]()

    address = "?gate=wave-promotion"
    for _ in range(3):
        text = client.get(path + address).text
        seen += re.findall(r'<td class="mono"><a href="/hosts/([^"]+)"', text)
        found = re.search(r'href="(\?[^"]*next=[^"]+)"', text)
        address = found[1].replace("&amp;", "&") if found else ""

    assert seen == [*HOSTS[2:]]
    assert address == ""
    assert "No host waits here" in client.get(f"{path}?gate=freeze").text
