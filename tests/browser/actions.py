"""What a person does in the browser: sign in, confirm, follow a prepared rollout."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
from playwright.sync_api import Page

from tests.browser.dashboard_fleet import PASSWORD, DashboardFleet
from tidegate.domain.channels.facts import WaveSpec

FILES = {"service.toml": '[server]\nlisten = "127.0.0.1:8080"\nworkers = 4\n', "run": "exec web\n"}


def cookies(fleet: DashboardFleet, login: str) -> httpx2.Client:
    """A client with the session of this user."""
    client = fleet.served.client()
    form = {"login": login, "password": PASSWORD, "next": "/"}
    assert client.post("/signin", data=form).status_code == 303
    return client


WAVES = (WaveSpec(name="canary", count=2), WaveSpec(name="rest"))


def prepared(fleet: DashboardFleet) -> str:
    """Publish a revision, create a channel with six hosts, and propose a revision with a changed
    line.
    """
    fleet.publish("v1", FILES)
    fleet.channel("stable", waves=WAVES, sustained_failure_seconds=0)
    fleet.enroll("stable", *(f"web-{number:02}" for number in range(6)))
    changed = FILES["service.toml"].replace("workers = 4", "workers = 8")
    name = fleet.draft("v2", {**FILES, "service.toml": changed})
    fleet.propose(name)
    return name


def confirm(page: Page, verb: str, **fields: str) -> None:
    """Use a verb of the page: open its dialog, fill it in, send it."""
    button = page.locator(f"main button:text-is('{verb}')").first
    if button.locator("xpath=ancestor::details[@data-menu and not(@open)]").count():
        page.click("#more-verbs > summary")
    button.click()
    dialog = page.locator("dialog[open]")
    for name, text in fields.items():
        dialog.locator(f"[name={name}]:not([type=hidden])").fill(text)
    dialog.locator("footer button.first").click()


Picture = Callable[[Page, str], None]


def sign_in(page: Page, fleet: DashboardFleet, login: str, path: str = "/") -> None:
    """Open a page without a session, and sign in first."""
    page.goto(fleet.url + path)
    page.fill("[name=login]", login)
    page.fill("[name=password]", PASSWORD)
    page.click("button.first")
    page.wait_for_selector("h1")
