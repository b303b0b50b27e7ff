"""Forms as people use them: join tokens, deletions, and the warning of a protected channel."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.accessibility import grave_issues
from tests.browser.actions import Picture, confirm, sign_in
from tests.browser.dashboard_fleet import DashboardFleet
from tidegate.control.queries.reads import Reads
from tidegate.domain.channels.facts import ChannelEdge, EdgeRequires
from tidegate.domain.channels.refusals import ChannelNotFound
from tidegate.domain.channels.rows import CHANNELS, Channel, channel_key
from tidegate.domain.fleet.joins import JOIN_TOKENS
from tidegate.domain.packages.rows import Repository, repository_key


def names(reads: Reads) -> set[str]:
    return {item.row.channel for item in reads.range(CHANNELS, limit=10)}


def test_shows_a_join_token_once_and_revokes_it(
    fleet: DashboardFleet, page: Page, picture: Picture
) -> None:
    sign_in(page, fleet, "approver", "/hosts")
    page.click("text=Join tokens")
    expect(page.locator("main")).to_contain_text("No join token")
    page.click("text=New join token")

    page.fill("[name=labels]", "env")
    page.click("button:has-text('Create')")
    expect(page.locator("#fault-labels")).to_contain_text("write key=value")
    page.fill("[name=labels]", "env=prod, app=web")
    page.click("button:has-text('Create')")

    expect(page.locator(".notice")).to_contain_text("shown only once")
    token = page.locator(".once code").first.inner_text()
    (made,) = fleet.installation.reads.range(JOIN_TOKENS, limit=2)
    assert made.row.labels == {"env": "prod", "app": "web"}
    assert made.row.join_id in token
    assert grave_issues(page) == []
    picture(page, "made")
    page.goto(f"{fleet.url}/joins")
    expect(page.locator("main")).to_contain_text("0 of 10")
    assert token not in page.content()

    confirm(page, "Revoke")

    expect(page.locator("main")).to_contain_text("No join token")
    assert fleet.installation.reads.range(JOIN_TOKENS, limit=2) == []


def test_creates_and_edits_a_repository(
    fleet: DashboardFleet, page: Page, picture: Picture
) -> None:
    sign_in(page, fleet, "root", "/settings")
    page.click("text=New repository")
    page.fill("[name=repository]", "default")
    page.fill("[name=approvals]", "2")
    page.check("text=Hosts are deployed from it")
    assert grave_issues(page) == []
    page.click("button:has-text('Create')")
    expect(page.locator("#fault-repository")).to_contain_text("Repository default exists.")
    expect(page.locator("[name=approvals]")).to_have_value("2")
    picture(page, "refused")
    page.fill("[name=repository]", "edge")
    page.click("button:has-text('Create')")

    card = page.locator(".card", has=page.locator("h2", has_text="Repositories"))
    line = card.locator("li", has_text="edge")
    expect(line).to_contain_text("2 approvals by other people · hosts are deployed from it")
    line.get_by_text("Edit").click()
    expect(page.locator("h1")).to_have_text("Edit edge")
    expect(page.locator("[value=deployment]")).to_be_checked()
    page.fill("[name=approvals]", "0")
    page.uncheck("text=Hosts are deployed from it")
    page.click("button:has-text('Save')")

    expect(line).to_contain_text("the author can publish alone · proposals are protected")
    found = fleet.installation.reads.find(repository_key("edge"), Repository)
    assert found is not None
    assert (found.row.quorum, found.row.deployment) == (0, False)


def test_deletes_an_unused_channel_and_explains_why_another_stays(
    fleet: DashboardFleet, page: Page
) -> None:
    fleet.publish("v1", {"run": "exec web\n"})
    fleet.channel("early")
    fleet.channel("stable", edges=(ChannelEdge("early"),))
    sign_in(page, fleet, "approver", "/channels/early")

    confirm(page, "Delete", reason="nobody uses it")
    expect(page.locator("[role=alert]")).to_contain_text("stable")
    page.goto(f"{fleet.url}/channels/stable")
    confirm(page, "Delete", reason="nobody uses it")

    # The page removes `done` from its address after it has shown the message.
    expect(page).to_have_url(re.compile(r"/channels(\?.*)?$"))
    assert names(fleet.installation.reads) == {"early"}


@pytest.mark.parametrize(
    ("address", "verb", "says"),
    [
        ("/channels/early", "Hold", "You can end your own hold alone"),
        ("/channels/early", "Delete", "This makes a request, which another person must approve"),
        ("/maintenance", "Delete", "This makes a request, which another person must approve"),
    ],
)
def test_the_form_of_a_verb_warns_that_the_channel_is_protected(
    populated: DashboardFleet, page: Page, address: str, verb: str, says: str
) -> None:
    sign_in(page, populated, "approver", address)

    button = page.locator(f"main button:text-is('{verb}')").first
    if button.locator("xpath=ancestor::details[@data-menu and not(@open)]").count():
        page.click("#more-verbs > summary")
    button.click()

    expect(page.locator("dialog[open] .asks")).to_contain_text("early is protected")
    expect(page.locator("dialog[open] .asks")).to_contain_text(says)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("/new/freeze", "You can end your own freeze alone"),
        ("/windows/nightly/edit", "more time or more room makes a request"),
        ("/budgets/web-hosts/edit", "more time or more room makes a request"),
    ],
)
def test_the_page_of_a_form_warns_that_a_channel_is_protected(
    populated: DashboardFleet, page: Page, address: str, says: str
) -> None:
    sign_in(page, populated, "approver", address)

    expect(page.locator("form .asks")).to_contain_text(says)


def test_a_channel_shows_its_next_automatic_step_and_what_stops_it(
    fleet: DashboardFleet, page: Page
) -> None:
    fleet.publish("v1", {"run": "exec web\n"})
    fleet.channel("early")
    edge = ChannelEdge("early", EdgeRequires.SUCCEEDED)
    fleet.channel("stable", edges=(edge,), auto_promote=True, auto_rollback=True)
    sign_in(page, fleet, "viewer", "/channels/stable")

    box = page.locator("#automation")
    expect(box).to_contain_text("Promotes by itself")
    expect(box).to_contain_text("Rolls back by itself")
    told = fleet.installation.automation.show(
        fleet.installation.reads.demand(
            channel_key("stable"), Channel, ChannelNotFound("stable")
        ).row
    )
    for item in told:
        assert item.release_id is None
        expect(box).to_contain_text(item.sentence)
