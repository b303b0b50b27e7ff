"""One Chromium for the session, a served dashboard per test, and screenshots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.actions import Picture
from tests.browser.dashboard_fleet import DashboardFleet, serve_dashboard
from tests.browser.furnished import furnish
from tests.browser.gallery import launched
from tests.servers.npm import TOOLS

PICTURES = TOOLS / "screenshots"
SECONDS_MAX = 60_000  # milliseconds that a page may take to show something


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[DashboardFleet]:
    with serve_dashboard(tmp_path / "data") as found:
        yield found


@pytest.fixture(scope="package")
def populated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardFleet]:
    """One furnished installation for all tests that only read it."""
    with serve_dashboard(tmp_path_factory.mktemp("furnished") / "data") as found:
        furnish(found)
        yield found


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A new browser in which a script error or a violation of the content policy fails the test."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    found = context.new_page()
    found.set_default_timeout(SECONDS_MAX)
    faults: list[str] = []
    found.on("pageerror", lambda error: faults.append(str(error)))
    found.on("console", lambda said: faults.append(said.text) if "Policy" in said.text else None)
    yield found
    context.close()
    assert faults == []


@pytest.fixture
def picture(request: pytest.FixtureRequest) -> Picture:
    """Save a screenshot of a page as output of the test."""

    def take(page: Page, name: str) -> None:
        folder = PICTURES / request.node.name.split("[")[0].removeprefix("test_")
        folder.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=folder / f"{name}.png", full_page=True)

    return take
