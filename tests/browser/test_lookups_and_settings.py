"""What people look up and set on the dashboard: events, the outbox, tokens, roles, refusals."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.actions import confirm, prepared, sign_in
from tests.browser.dashboard_fleet import PASSWORD, DashboardFleet


def test_filters_events_and_keeps_a_payload_open_while_new_ones_come(
    fleet: DashboardFleet, page: Page
) -> None:
    prepared(fleet)
    sign_in(page, fleet, "approver", "/events")
    expect(page.locator(".tide")).to_have_attribute("data-state", "live")

    page.select_option("[name=type]", "RevisionPublished")
    expect(page.locator(".events details")).to_have_count(1)
    expect(page.locator(".events .told")).to_contain_text("web revision 1 was published")
    page.click(".events summary")
    expect(page.locator("pre.json")).to_contain_text('"number": 1')
    expect(page.locator(".tide")).to_have_attribute("data-state", "live")
    fleet.publish("v9", {"run": "exec web --fast\n"})

    # No row moves while a person reads: new events are announced if they match the filter.
    expect(page.locator("#new-events")).to_have_text("1 new")
    expect(page.locator(".events details")).to_have_count(1)
    expect(page.locator("details[open] pre.json")).to_contain_text('"number": 1')
    page.click("#new-events a")
    expect(page.locator(".events details")).to_have_count(2)
    expect(page.locator("#new-events")).to_be_empty()


def test_jumps_to_a_time_and_back_to_the_newest(fleet: DashboardFleet, page: Page) -> None:
    prepared(fleet)
    sign_in(page, fleet, "approver", "/events")
    events = fleet.installation.log.feed(after=0, limit=100)
    drafted = next(event for event in events if event.type == "RevisionCreated")
    expect(page.locator(".rate")).to_be_visible()
    expect(page.locator("main h2").first).to_have_text("Events per minute")
    bars = page.locator(".rate a").evaluate_all("links => links.map(link => link.ariaLabel)")
    counts = [int(label.rpartition(": ")[2].split()[0]) for label in bars]
    assert sum(counts) == len(events), "over all minutes: a minute may end within the test"

    page.goto(f"{fleet.url}/events?at={drafted.position}")
    newest = page.locator(".events details").first
    expect(newest).to_contain_text("was drafted")
    expect(newest.locator(".position")).to_have_text(f"#{drafted.position}")
    expect(newest.locator("pre.json")).to_be_visible()
    expect(page.locator(".events")).not_to_contain_text("RevisionPublished")

    page.fill("[name=time]", "2026-01-01T00:00:00")
    page.click("button:has-text('Go')")
    expect(page.locator(".events")).to_contain_text("No event fits")
    page.click("text=Back to the newest")
    expect(page.locator(".events details").first).to_contain_text("was proposed")


def test_refuses_an_invalid_time_and_shows_a_valid_one(fleet: DashboardFleet, page: Page) -> None:
    sign_in(page, fleet, "approver", "/events?time=yesterday")

    expect(page.locator(".notice[role=alert]")).to_contain_text("2026-11-18T14:05")


def test_refuses_an_unknown_tag_on_the_page(fleet: DashboardFleet, page: Page) -> None:
    sign_in(page, fleet, "approver", "/events?tag=nonsense")

    expect(page.locator(".notice[role=alert]")).to_be_visible()


def test_shows_the_outbox(fleet: DashboardFleet, page: Page) -> None:
    fleet.publish("v1", {"run": "exec web\n"})
    fleet.channel("stable", operations=("announce",))
    fleet.promote("stable", "web.1")
    sign_in(page, fleet, "viewer")

    tile = page.locator(".tile", has_text="Outbox backlog")
    expect(tile.locator(".figure")).to_have_text("1")
    tile.click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("announce")
    expect(page.locator("tbody tr .chip")).to_have_text("Pending")


def test_shows_a_new_token_once_and_revokes_it(fleet: DashboardFleet, page: Page) -> None:
    sign_in(page, fleet, "approver", "/settings")

    confirm(page, "New token", days="7")
    secret = page.locator(".once code").inner_text()
    assert secret.startswith("tg_")
    client = fleet.served.client(secret)
    assert client.get("/v1/me").status_code == 200
    page.goto(f"{fleet.url}/settings")
    expect(page.locator("body")).not_to_contain_text(secret)
    confirm(page, "Revoke")

    expect(page.locator(".toast")).to_be_visible()
    assert client.get("/v1/me").status_code == 401


def test_adds_a_user_who_can_do_what_the_role_allows(fleet: DashboardFleet, page: Page) -> None:
    sign_in(page, fleet, "root", "/settings")

    confirm(page, "Add user", login="lise", name="Lise Meitner", password=PASSWORD)
    expect(page.locator("tr", has_text="Lise Meitner")).to_contain_text("viewer")
    page.click("aside >> text=Sign out")
    page.wait_for_url("**/signin")
    sign_in(page, fleet, "lise")
    page.goto(f"{fleet.url}/settings")

    expect(page.locator(".who")).to_contain_text("Lise Meitner")
    expect(page.locator(".why", has_text=re.compile("^Add user"))).to_contain_text("security-admin")
    expect(page.locator("body")).not_to_contain_text("The author")


def test_explains_refusals_and_missing_things_on_a_page(fleet: DashboardFleet, page: Page) -> None:
    sign_in(page, fleet, "viewer")

    missing = page.goto(f"{fleet.url}/rollouts/nowhere@web.1")
    assert missing is not None
    assert missing.status == 404
    expect(page.locator("main")).to_contain_text("nowhere@web.1")
    malformed = page.goto(f"{fleet.url}/events?at=yesterday")
    assert malformed is not None
    assert malformed.status == 400
    expect(page.locator("main")).to_contain_text("at")
