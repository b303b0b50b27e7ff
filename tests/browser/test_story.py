"""A release as a person sees it on the dashboard: reviewed, promoted, cleared."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.actions import Picture, confirm, prepared, sign_in
from tests.browser.dashboard_fleet import DashboardFleet
from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts.states import RolloutState


def advance(fleet: DashboardFleet, rollout_id: str) -> None:
    """Every host that has an order runs the target and converges."""
    fleet.dispatch()
    pending = fleet.records(rollout_id, HostState.PENDING)
    for record in pending:
        fleet.activate(rollout_id, record.host_id)
    for record in pending:
        fleet.converge(rollout_id, record.host_id)


def test_reads_the_diff_approves_promotes_and_watches_the_waves(
    fleet: DashboardFleet, page: Page, picture: Picture
) -> None:
    name = prepared(fleet)
    sign_in(page, fleet, "approver")
    expect(page.locator(".tile", has_text="Waiting for approval").locator(".figure")).to_have_text(
        "1"
    )
    picture(page, "overview")

    page.click(".tile:has-text('Waiting for approval')")
    page.click("text=Review")
    expect(page.locator("tr.del")).to_have_text(re.compile("workers = 4"))
    expect(page.locator("tr.add")).to_have_text(re.compile("workers = 8"))
    picture(page, "diff")
    confirm(page, "Approve", reason="eight workers are fine")
    expect(page.locator("h1 .chip")).to_have_text("Published")
    expect(page.locator(".timeline")).to_contain_text("eight workers are fine")

    page.goto(f"{fleet.url}/channels/stable")
    confirm(page, "Promote")
    expect(page.locator(".toast")).to_have_text(re.compile("rollout is open"))
    picture(page, "channel")
    page.click("text=stable@web.2")
    expect(page.locator("h1")).to_contain_text("stable@web.2")
    expect(page.locator(".tide")).to_have_attribute("data-state", "live")
    loads = page.evaluate("performance.getEntriesByType('navigation').length")

    advance(fleet, "stable@web.2")
    expect(page.locator(".wave").nth(0)).to_contain_text("done")
    expect(page.locator(".wave.current")).to_contain_text("2 · rest")
    converged = page.locator(".legend button", has_text="Converged").locator(".number")
    expect(converged).to_have_text("2")
    picture(page, "wave")
    advance(fleet, "stable@web.2")
    expect(page.locator("h1 .chip").first).to_have_text("Succeeded")
    expect(converged).to_have_text("6")
    assert page.evaluate("performance.getEntriesByType('navigation').length") == loads
    picture(page, "through")
    assert name == "default.web.v2"


def test_draws_wave_cards_and_squares_from_the_same_bytes(
    fleet: DashboardFleet, page: Page
) -> None:
    prepared(fleet)
    rollout_id = fleet.promote("stable", "web.1")
    fleet.dispatch()
    sign_in(page, fleet, "approver", f"/rollouts/{rollout_id}")
    page.wait_for_selector("[data-loaded]")
    expect(page.locator(".tide")).to_have_attribute("data-state", "live")
    card = page.locator(".wave").first
    expect(card.locator(".number").first).to_have_text("0/2")

    # The page cannot be redrawn: every change of a card now comes from the stream of the grid.
    page.route(f"**/rollouts/{rollout_id}", lambda route: route.abort())
    first, second = (record.host_id for record in fleet.records(rollout_id))
    fleet.activate(rollout_id, first)
    fleet.converge(rollout_id, first)
    fleet.activate(rollout_id, second)
    expect(card.locator(".number").first).to_have_text("1/2")
    expect(card.locator("svg.bar")).to_have_attribute("aria-label", "1 of 2 done")
    widths = card.locator("svg.bar rect").evaluate_all("all => all.map(it => it.classList[0])")
    assert widths == ["t-good", "t-soak"]
    expect(page.locator("[data-hosts-done]")).to_have_text("1")

    # A redraw updates the words, and changes nothing that was drawn from the bytes.
    page.unroute(f"**/rollouts/{rollout_id}")
    fleet.converge(rollout_id, second)
    expect(card.locator(".status")).to_contain_text("done")
    expect(card.locator(".number").first).to_have_text("2/2")


def test_halts_on_a_failing_host_and_continues_when_cleared(
    fleet: DashboardFleet, page: Page, picture: Picture
) -> None:
    prepared(fleet)
    rollout_id = fleet.promote("stable", "web.1")
    fleet.dispatch()
    sign_in(page, fleet, "approver", f"/rollouts/{rollout_id}")
    expect(page.locator(".why-not", has_text=re.compile("^Clear"))).to_contain_text(
        "It is rolling out. Only a rollout that stopped is cleared."
    )
    # The page is live before the fleet moves; otherwise it would only show the stored state.
    expect(page.locator(".tide")).to_have_attribute("data-state", "live")

    first, second = (record.host_id for record in fleet.records(rollout_id))
    fleet.activate(rollout_id, first)
    fleet.converge(rollout_id, first)
    fleet.activate(rollout_id, second)
    fleet.fail(rollout_id, second)
    expect(page.locator("h1 .chip")).to_have_text([f"Stopped: {second} rolled back"])
    expect(page.locator(".verdict")).to_contain_text(f"Stopped: {second} rolled back")
    expect(page.locator("#below")).to_contain_text("answered 500")
    reverted = page.locator(".legend button", has_text="Rolled back").locator(".number")
    expect(reverted).to_have_text("1")
    picture(page, "halted")
    confirm(page, "Clear", reason="the receiver was down")
    expect(page.locator(".toast")).to_have_text("The rollout was cleared.")
    expect(page.locator("h1 .chip")).to_have_text(["Rolling out"])
    expect(page.locator(".timeline")).to_contain_text("the receiver was down")
    advance(fleet, rollout_id)
    advance(fleet, rollout_id)
    expect(page.locator("h1 .chip").first).to_have_text("Succeeded")
    picture(page, "cleared")
    assert fleet.installation.fleet_reader.tally(rollout_id).row.state is RolloutState.TERMINAL
    assert fleet.installation.health.differences() == []


def test_a_halted_rollout_offers_the_rollback_first_and_names_releases(
    fleet: DashboardFleet, page: Page, picture: Picture
) -> None:
    prepared(fleet)
    fleet.publish("v3", {"run": "exec web --broken\n"})
    first = fleet.promote("stable", "web.1")
    advance(fleet, first)
    advance(fleet, first)
    bad = fleet.promote("stable", "web.2")
    fleet.dispatch()
    hosts = [record.host_id for record in fleet.records(bad)]
    (before, *_) = fleet.records(first)
    for host in hosts:
        fleet.activate(bad, host, runs=before.target_closure)
    fleet.fail(bad, hosts[0], back_to=before.target_closure)
    fleet.converge(bad, hosts[1])

    sign_in(page, fleet, "approver", f"/rollouts/{bad}")

    expect(page.locator("h1 .chip")).to_have_text([f"Stopped: {hosts[0]} rolled back"])
    buttons = page.locator(".page-head .actions > button")
    expect(buttons).to_have_text(["Roll back to web.1", "Retry", "Clear", "Abort"])
    expect(page.locator("#below")).to_contain_text("runs web.1 again")
    picture(page, "stopped")
    page.click("main button:text-is('Abort')")
    expect(page.locator("dialog[open]")).to_contain_text("Hosts that are switching finish")
    page.click("dialog[open] [data-closes]")
    page.goto(fleet.url)
    failed = page.locator(".card", has_text="Failed and silent hosts")
    expect(failed).to_contain_text("runs web.1 again")
    expect(failed.locator(".count")).to_have_text("1")

    page.goto(f"{fleet.url}/rollouts/{bad}")
    confirm(page, "Roll back to web.1", reason="it answers 500")
    expect(page.locator(".toast")).to_contain_text("goes back")
    page.goto(f"{fleet.url}/channels/stable")
    expect(page.locator("td.state")).to_have_text(["Rolled back", "Promoted", "Promoted"])
    page.goto(f"{fleet.url}/rollouts/{bad}")
    expect(page.locator(".why-not", has_text=re.compile("^Roll back"))).to_contain_text(
        "stable has a newer rollout: stable@web.1~2."
    )


def test_pauses_and_resumes_with_a_recorded_reason(fleet: DashboardFleet, page: Page) -> None:
    prepared(fleet)
    rollout_id = fleet.promote("stable", "web.1")
    sign_in(page, fleet, "approver", f"/rollouts/{rollout_id}")

    confirm(page, "Pause", reason="lunch")
    expect(page.locator("h1")).to_contain_text("Paused")
    expect(page.locator(".why-not", has_text=re.compile("^Pause"))).to_contain_text(
        "paused already"
    )
    confirm(page, "Resume", reason="back from lunch")
    expect(page.locator("h1")).not_to_contain_text("Paused")
    expect(page.locator(".timeline")).to_contain_text("back from lunch")


def test_shows_a_refusal_on_the_page_if_another_person_was_faster(
    fleet: DashboardFleet, page: Page
) -> None:
    name = prepared(fleet)
    sign_in(page, fleet, "approver", f"/revisions/{name}")
    page.click("main button:text-is('Reject')")  # the page does not update while a dialog is open
    fleet.withdraw(name)

    dialog = page.locator("dialog[open]")
    dialog.locator("[name=reason]").fill("too many workers")
    dialog.locator("footer button.first").click()

    expect(page.locator(".notice[role=alert]")).to_be_visible()
    expect(page.locator("h1 .chip")).to_have_text("Draft")
    page.reload()  # shows the page, and does not send the form again
    expect(page.locator(".notice[role=alert]")).to_have_count(0)
    expect(page.locator(".tide")).to_have_attribute("data-state", "live")
    assert page.url == f"{fleet.url}/revisions/{name}"


def test_asks_to_sign_in_again_after_the_session_ended(fleet: DashboardFleet, page: Page) -> None:
    prepared(fleet)
    rollout_id = fleet.promote("stable", "web.1")
    sign_in(page, fleet, "approver", f"/rollouts/{rollout_id}")
    expect(page.locator(".tide")).to_have_attribute("data-state", "live")
    cookies = {item["name"]: item["value"] for item in page.context.cookies()}
    assert fleet.sign_out(cookies) == 303

    fleet.dispatch()

    expect(page.locator("h1")).to_have_text("Sign in")
    expect(page.locator("[name=next]")).to_have_value(f"/rollouts/{rollout_id}")


def test_signs_out_and_needs_to_sign_in_again(fleet: DashboardFleet, page: Page) -> None:
    sign_in(page, fleet, "viewer", "/hosts")
    assert page.url == f"{fleet.url}/hosts"

    page.click("text=Sign out")
    expect(page.locator("h1")).to_have_text("Sign in")
    answer = page.goto(f"{fleet.url}/hosts")

    assert answer is not None
    assert answer.status == 401
    expect(page.locator("[name=login]")).to_be_visible()
