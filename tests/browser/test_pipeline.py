"""From dev to prod in the browser: every reason that closes an edge, rollbacks, two people."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.actions import Picture, confirm, sign_in
from tests.browser.conftest import SECONDS_MAX
from tests.browser.dashboard_fleet import PASSWORD, DashboardFleet
from tidegate.control.operations.accounts import PersonNames
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.principals import Principal
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.channels.facts import ChannelEdge, WaveSpec
from tidegate.domain.rollouts.states import Outcome

WAVES = (WaveSpec(name="canary", count=1), WaveSpec(name="rest"))
OPERATOR = Caller(principal=Principal("user_operator", "session", (Grant(Role.FLEET_OPERATOR),)))
PEOPLE = {
    "ann": (Role.RELEASE_MANAGER, Role.FLEET_OPERATOR, Role.APPROVER),
    "olga": (Role.ON_CALL, Role.RELEASE_MANAGER),
}


@pytest.fixture
def other(chromium: Browser) -> Iterator[Page]:
    """The browser of another person."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    found = context.new_page()
    found.set_default_timeout(SECONDS_MAX)
    yield found
    context.close()


def furnish(fleet: DashboardFleet, releases: int) -> None:
    """Create releases, dev with a host, prod with two hosts and an edge on dev; Ann, and Olga on
    call.
    """
    for number in range(1, releases + 1):
        fleet.publish(f"v{number}", {"run": f"exec web {number}\n"})
    fleet.channel("dev", sustained_failure_seconds=0)
    fleet.channel("prod", waves=WAVES, edges=(ChannelEdge("dev"),), sustained_failure_seconds=0)
    fleet.enroll("dev", "dev-1")
    fleet.enroll("prod", "prod-1", "prod-2")
    for number, (login, roles) in enumerate(PEOPLE.items()):
        names, grants = PersonNames(login, login.title()), tuple(map(Grant, roles))
        fleet.served.add_person(f"user_{number:020x}", names, PASSWORD, *grants)


def carry_out(fleet: DashboardFleet, rollout_id: str) -> None:
    """Let every host of the rollout get its order and converge."""
    for _ in WAVES:
        fleet.dispatch()
        for record in fleet.records(rollout_id):
            if record.converged_at is None:
                fleet.activate(rollout_id, record.host_id)
                fleet.converge(rollout_id, record.host_id)


def outcome(fleet: DashboardFleet, rollout_id: str) -> Outcome | None:
    return fleet.installation.fleet_reader.tally(rollout_id).row.outcome


def promote(page: Page, fleet: DashboardFleet, channel: str, release: str) -> str:
    """Promote with the form on the channel's page; return the rollout."""
    page.goto(f"{fleet.url}/channels/{channel}")
    page.locator("main button:text-is('Promote')").first.click()
    dialog = page.locator("dialog[open]")
    dialog.locator("[name=release]").select_option(release)
    dialog.locator("footer button.first").click()
    page.wait_for_load_state()
    return f"{channel}@{release}"


def expect_held(page: Page, fleet: DashboardFleet, rollout_id: str, *parts: str) -> None:
    """The page of the rollout says why it waits, and none of its hosts gets an order."""
    fleet.dispatch()
    assert fleet.records(rollout_id) == []
    page.goto(f"{fleet.url}/rollouts/{rollout_id}")
    for part in parts:
        expect(page.locator("#gates")).to_contain_text(part)


@pytest.mark.req("OP-2", engines=None, reason="pages over the same gates")
def test_explains_each_closed_edge_and_passes_an_overridden_one(
    fleet: DashboardFleet, page: Page, other: Page, picture: Picture
) -> None:
    furnish(fleet, 7)
    carry_out(fleet, fleet.promote("dev", "web.1"))
    sign_in(page, fleet, "ann", "/channels/prod")

    # The release failed on dev, and abandoning the rollout there does not open the edge.
    bad = fleet.promote("dev", "web.2")
    fleet.dispatch()
    fleet.activate(bad, "dev-1")
    fleet.fail(bad, "dev-1")
    held = promote(page, fleet, "prod", "web.2")
    expect_held(page, fleet, held, "web.2 stopped on dev", "dev-1")
    page.goto(f"{fleet.url}/rollouts/{bad}")
    confirm(page, "Abort", reason="a bad one")
    expect(page.locator(".toast")).to_be_visible()
    expect_held(page, fleet, held, "web.2 failed on dev", "dev-1")
    picture(page, "failed")
    page.goto(f"{fleet.url}/channels/prod")
    expect(page.locator("#edges li")).to_contain_text("web.2 failed on dev")
    expect(page.locator("#wanted")).to_contain_text("Evidence: operator command, complete")
    expect(page.locator("#wanted")).to_contain_text(", by you")

    # The rollout on dev is in progress, then aborted, or another one replaces it.
    going = fleet.promote("dev", "web.3")
    held = promote(page, fleet, "prod", "web.3")
    expect_held(page, fleet, held, "web.3 is still rolling out on dev")
    page.goto(f"{fleet.url}/rollouts/{going}")
    confirm(page, "Abort", reason="not now")
    expect(page.locator(".toast")).to_be_visible()
    expect_held(page, fleet, held, "web.3 was aborted on dev before it succeeded")
    fleet.promote("dev", "web.4")
    held = promote(page, fleet, "prod", "web.4")
    newer = promote(page, fleet, "dev", "web.5")
    expect_held(page, fleet, held, "web.4 was replaced by web.5 on dev before it succeeded")

    # The release succeeded on dev. Then dev is rolled back while prod is in the middle.
    carry_out(fleet, newer)
    middle = promote(page, fleet, "prod", "web.5")
    fleet.dispatch()
    (first,) = fleet.records(middle)
    fleet.activate(middle, first.host_id)
    page.goto(f"{fleet.url}/channels/dev")
    confirm(page, "Roll back to web.1", reason="memory leak")
    page.wait_for_load_state()
    fleet.converge(middle, first.host_id)
    fleet.dispatch()
    assert [record.host_id for record in fleet.records(middle)] == [first.host_id]
    page.goto(f"{fleet.url}/rollouts/{middle}")
    expect(page.locator("#gates")).to_contain_text("Ann rolled dev back from web.5")
    expect(page.locator("#gates")).to_contain_text("memory leak")
    picture(page, "rolled_back_there")

    # The release succeeded on dev. Then a late host failed with it.
    good = fleet.promote("dev", "web.6")
    carry_out(fleet, good)
    fleet.enroll("dev", "dev-2")
    fleet.dispatch()
    fleet.activate(good, "dev-2")
    fleet.fail(good, "dev-2")
    held = promote(page, fleet, "prod", "web.6")
    expect_held(page, fleet, held, "web.6 is quarantined on dev", "dev-2")

    # The release never ran on dev. Only a person on call can pass the edge, and gives a reason.
    held = promote(page, fleet, "prod", "web.7")
    expect_held(page, fleet, held, "web.7 was never rolled out on dev")
    barred = page.locator(".why-not", has_text=re.compile("^Override a gate"))
    expect(barred).to_contain_text("on-call")
    sign_in(other, fleet, "olga", f"/rollouts/{held}")
    confirm(other, "Override a gate", reason="hotfix for INC-7")
    expect(other.locator(".toast")).to_be_visible()
    carry_out(fleet, held)
    assert outcome(fleet, held) is Outcome.SUCCEEDED
    page.goto(f"{fleet.url}/channels/prod")
    expect(page.locator("main")).to_contain_text("hotfix for INC-7")
    expect(page.locator("main")).to_contain_text("Olga")
    picture(page, "overridden")
    assert fleet.installation.health.differences() == []


@pytest.mark.req("OP-3", engines=None, reason="pages over the same operations")
def test_a_rollback_waits_for_a_freeze_and_a_rollback_now_bypasses_it(
    fleet: DashboardFleet, page: Page, other: Page, picture: Picture
) -> None:
    furnish(fleet, 2)
    for release in ("web.1", "web.2"):
        carry_out(fleet, fleet.promote("dev", release))
    fleet.installation.freezes.start(OPERATOR, "holidays", channels=("dev",), freeze_id="xmas")
    sign_in(page, fleet, "ann", "/channels/dev")
    barred = page.locator(".why-not", has_text=re.compile("^Roll back now"))
    expect(barred).to_contain_text("on-call")

    confirm(page, "Roll back to web.1", reason="checkout is down")

    expect(page.locator("h1")).to_contain_text("dev@web.1~2")
    expect(page.locator("#gates")).to_contain_text("xmas")
    picture(page, "waits")
    fleet.dispatch()
    assert fleet.records("dev@web.1~2") == []
    sign_in(other, fleet, "olga", "/channels/dev")
    confirm(other, "Roll back now", reason="checkout is down")
    other.wait_for_load_state()
    expect(other.locator(".toast")).to_be_visible()
    carry_out(fleet, "dev@web.1~3")
    assert outcome(fleet, "dev@web.1~3") is Outcome.SUCCEEDED
    other.goto(f"{fleet.url}/rollouts/dev@web.1~3")
    expect(other.locator("h1 .chip").first).to_have_text("Succeeded")
    expect(other.locator("main")).to_contain_text("checkout is down")
    assert fleet.installation.health.differences() == []


@pytest.mark.req("OP-6", engines=None, reason="pages over the same operations")
def test_a_protected_channel_needs_two_people_and_break_glass_a_review(
    fleet: DashboardFleet, page: Page, other: Page, picture: Picture
) -> None:
    furnish(fleet, 2)
    sign_in(page, fleet, "ann", "/channels/dev")
    confirm(page, "Protect", reason="it is production")
    expect(page.locator(".toast")).to_be_visible()

    # One person asks, and cannot approve; another one sees the request and approves it.
    promote(page, fleet, "dev", "web.1")
    expect(page.locator("main")).to_contain_text("another person must approve")
    assert fleet.records("dev@web.1") == []
    page.goto(f"{fleet.url}/approvals")
    card = page.locator("article.request")
    expect(card).to_contain_text("web.1")
    own = card.locator(".why", has_text=re.compile("^Approve"))
    expect(own).to_contain_text("You made this request")
    picture(page, "asked")
    sign_in(other, fleet, "approver", "/approvals")
    expect(other.locator("article.request")).to_contain_text("Ann")
    confirm(other, "Approve")
    expect(other.locator(".toast")).to_be_visible()
    carry_out(fleet, "dev@web.1")
    assert outcome(fleet, "dev@web.1") is Outcome.SUCCEEDED

    # A person on call bypasses the approval, and another person reviews it.
    page.context.clear_cookies()
    sign_in(page, fleet, "olga", "/channels/dev")
    page.locator("main button:text-is('Promote')").first.click()
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text("dev is protected")
    dialog.locator("[name=release]").select_option("web.2")
    dialog.locator("[name=break_glass]").fill("checkout is down")
    dialog.locator("footer button.first").click()
    expect(page.locator(".toast")).to_be_visible()
    carry_out(fleet, "dev@web.2")
    assert outcome(fleet, "dev@web.2") is Outcome.SUCCEEDED
    other.goto(f"{fleet.url}/")
    expect(other.locator("main")).to_contain_text("Olga bypassed the approval")
    other.click("text=Review it")
    picture(other, "to_review")
    confirm(other, "Accept", reason="it was down")
    expect(other.locator(".toast")).to_be_visible()
    other.goto(f"{fleet.url}/")
    expect(other.locator("main")).not_to_contain_text("bypassed the approval")

    # The page of a request tells the person who asked, and nobody else, what one person can do.
    page.goto(f"{fleet.url}/channels/dev")
    confirm(page, "Roll back now", reason="checkout is down again")
    alone = page.locator("#alone li")
    expect(alone).to_have_count(2)
    expect(alone.nth(0)).to_contain_text("tidegate channel rollback dev --to web.1 --reason")
    expect(alone.nth(1)).to_contain_text("--break-glass")
    other.goto(page.url)
    expect(other.locator("h1")).to_be_visible()
    expect(other.locator("#alone")).to_have_count(0)
    assert fleet.installation.health.differences() == []
