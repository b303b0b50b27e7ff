"""How the dashboard behaves under the hand: focus, refused forms, addresses, *Back*, search."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.actions import confirm, cookies, prepared, sign_in
from tests.browser.dashboard_fleet import PASSWORD, PEOPLE, DashboardFleet
from tests.browser.furnished import furnish
from tests.browser.gallery import answer
from tidegate.domain.requests.rows import REQUESTS


def test_a_closed_dialog_gives_the_focus_back_to_the_menu_that_opened_it(
    fleet: DashboardFleet, page: Page
) -> None:
    prepared(fleet)
    sign_in(page, fleet, "approver", "/channels/stable")
    page.click("#more-verbs > summary")
    page.click(".menu button:text-is('Hold')")
    expect(page.locator("dialog[open]")).to_be_visible()

    page.keyboard.press("Escape")

    expect(page.locator("dialog[open]")).to_have_count(0)
    expect(page.locator("#more-verbs > summary")).to_be_focused()


def test_a_refused_form_keeps_what_was_typed_except_the_password(
    fleet: DashboardFleet, page: Page
) -> None:
    sign_in(page, fleet, "root", "/settings")

    confirm(page, "Add user", login="author", name="Emmy Noether", password=PASSWORD)
    expect(page.locator(".notice[role=alert]")).to_contain_text("The sign-in name is taken")
    page.click("main button:text-is('Add user')")

    dialog = page.locator("dialog[open]")
    expect(dialog.locator("[name=login]")).to_have_value("author")
    expect(dialog.locator("[name=name]")).to_have_value("Emmy Noether")
    expect(dialog.locator("[name=password]")).to_have_value("")


def test_the_address_after_an_action_is_that_of_the_page(fleet: DashboardFleet, page: Page) -> None:
    prepared(fleet)
    sign_in(page, fleet, "approver", "/channels/stable")

    confirm(page, "Hold", reason="audit")
    expect(page.locator(".toast")).to_have_text("The channel is held.")

    assert page.evaluate("location.href") == f"{fleet.url}/channels/stable"


def test_a_form_can_be_sent_again_after_back(fleet: DashboardFleet, page: Page) -> None:
    sign_in(page, fleet, "approver", "/hosts")
    button = page.locator(".toolbar button")
    page.evaluate("addEventListener('submit', event => event.preventDefault())")
    button.click()
    expect(button).to_be_disabled()

    page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")

    expect(button).to_be_enabled()


def test_a_held_channel_names_who_holds_it(fleet: DashboardFleet, page: Page) -> None:
    prepared(fleet)
    sign_in(page, fleet, "approver", "/channels/stable")
    confirm(page, "Hold", reason="audit of the year")

    holds = page.locator(".card", has_text="What holds it back")
    expect(holds).to_contain_text("you: audit of the year")
    seen = cookies(fleet, "viewer").get("/channels/stable").text
    assert f"{PEOPLE['approver'][1]}: audit of the year" in seen


def test_finds_releases_by_their_names_and_requests_by_their_ids(fleet: DashboardFleet) -> None:
    furnish(fleet)
    found = fleet.installation.reads.newest(REQUESTS, "by_making", limit=1)
    request_id = found[0].row.request_id
    client = cookies(fleet, "approver")

    release = client.get("/find", params={"q": "web.1"})
    request = client.get("/find", params={"q": request_id[:6]})
    several = client.get("/find", params={"q": "web"})

    assert release.headers["location"] == "/revisions/default.web.v1"
    assert request.headers["location"] == f"/approvals/{request_id}"
    assert ">web.1</a>" in several.text


def test_a_wrong_password_is_explained_in_one_sentence_and_the_name_stays(
    fleet: DashboardFleet, page: Page
) -> None:
    page.goto(f"{fleet.url}/hosts")
    expect(page.locator("[name=login]")).to_be_focused()
    page.fill("[name=login]", "viewer")
    page.fill("[name=password]", "not the passphrase")
    page.click("button.first")

    alert = page.locator(".notice[role=alert]")
    expect(alert).to_have_text("The sign-in name or the password is wrongwrong_credentials")
    expect(page.locator("[name=login]")).to_have_value("viewer")
    expect(page.locator("[name=password]")).to_be_focused()


def test_a_host_says_first_what_it_runs_and_why_it_has_no_order(
    fleet: DashboardFleet, page: Page
) -> None:
    prepared(fleet)
    fleet.enroll("nowhere", "lonely")
    sign_in(page, fleet, "approver", "/hosts/web-05")
    expect(page.locator("#host-waits")).to_contain_text("Nothing is rolling out on stable.")
    rollout_id = fleet.promote("stable", "web.1")
    fleet.dispatch()
    first = fleet.records(rollout_id)[0].host_id

    # The host of a later wave has no record in the rollout, and the page knows why.
    page.reload()
    expect(page.locator(".page-head")).to_contain_text("has not reported, wants web.1")
    expect(page.locator("#host-waits .verdict")).to_contain_text("waits for wave canary")
    page.goto(f"{fleet.url}/hosts/{first}")
    expect(page.locator("#host-waits .verdict")).to_contain_text("The host had its order")
    page.goto(f"{fleet.url}/hosts/lonely")
    expect(page.locator("#host-waits")).to_contain_text("no channel's selector matches its labels")


def test_an_ended_rollout_expects_nothing_of_its_later_waves(
    fleet: DashboardFleet, page: Page
) -> None:
    prepared(fleet)
    rollout_id = fleet.promote("stable", "web.1")
    fleet.dispatch()
    sign_in(page, fleet, "approver", f"/rollouts/{rollout_id}")
    confirm(page, "Abort", reason="not today")

    expect(page.locator("#gates")).to_contain_text("0 of 6 hosts were done after")
    expect(page.locator(".wave .status")).to_have_text(["2 not done", "not started"])
    expect(page.locator(".wave[aria-current]")).to_have_count(0)
    page.goto(fleet.url)
    expect(page.locator(".day")).to_contain_text("1 aborted")


def test_a_phone_shows_why_a_request_cannot_be_approved_without_a_touch(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.route("**/*", answer)

    page.goto("http://tidegate.test/approvals")

    reason = page.locator(".request .why .reason")
    expect(reason).to_be_visible()
    expect(reason).to_contain_text("You made this request")


def test_counts_agree_with_their_nouns(fleet: DashboardFleet) -> None:
    fleet.publish("v1", {"run": "exec web\n"})
    fleet.channel("single")
    fleet.enroll("single", "web-00")
    rollout_id = fleet.promote("single", "web.1")
    client = cookies(fleet, "viewer")

    plan = client.get("/plan", params={"channel": "single", "release": "web.1"}).text
    rollout = client.get(f"/rollouts/{rollout_id}").text

    assert ">1 host<" in plan
    assert "of 1 host done" in rollout
    assert "1 hosts" not in plan


def test_an_empty_list_says_whether_a_filter_hides_what_exists(fleet: DashboardFleet) -> None:
    client = cookies(fleet, "viewer")
    assert "No host yet" in client.get("/hosts").text
    assert "No channel to plan for" in client.get("/plan").text
    prepared(fleet)

    assert "No host matches" in client.get("/hosts", params={"selector": "env=none"}).text
    assert "No host matches" in client.get("/hosts", params={"filter": "revoked"}).text
    assert "No deletion waits" in client.get("/releases", params={"tab": "deletions"}).text
    assert "Everything was delivered" in client.get("/outbox").text


def test_events_say_who_got_which_role_and_what_was_requested(fleet: DashboardFleet) -> None:
    fleet.publish("v1", {"run": "exec web\n"})
    fleet.channel("stable", operations=("announce",))
    fleet.promote("stable", "web.1")
    client = cookies(fleet, "root")

    roles = client.get("/events", params={"type": "RoleGranted"}).text
    added = client.get("/events", params={"type": "UserAdded"}).text
    intents = client.get("/events", params={"type": "IntentRequested"}).text

    assert "Role viewer was granted to The viewer" in roles
    assert "User The viewer was added" in added
    assert "announce of web.1 on stable was requested" in intents
