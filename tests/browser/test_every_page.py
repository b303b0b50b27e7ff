"""Every page of the dashboard on a phone and for every visitor: width, tap targets, axe-core."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, ViewportSize

from tests.browser import samples
from tests.browser.accessibility import grave_issues
from tests.browser.actions import sign_in
from tests.browser.addresses import ADDRESSES, MISSING, OUTSIDE, PARTS
from tests.browser.dashboard_fleet import DashboardFleet
from tests.browser.gallery import answer
from tidegate.dashboard.layout import HTML
from tidegate.dashboard.routes import PAGES

PHONE: ViewportSize = {"width": 390, "height": 844}
DESKTOP: ViewportSize = {"width": 1440, "height": 900}
SIGNED_IN = tuple(address for group in ADDRESSES.values() for address in group)
NOT_SIGNED_IN = tuple(address for group in OUTSIDE.values() for address in group)

# Boxes that scroll sideways. Code keeps its lines, so a diff and a payload may be wider.
SIDEWAYS = """
() => [...document.querySelectorAll("body *")]
  .filter(it => it.checkVisibility() && it.scrollWidth > it.clientWidth + 1 && it.clientWidth > 0)
  .filter(it => ["auto", "scroll"].includes(getComputedStyle(it).overflowX))
  .filter(it => !it.matches(".diff, pre, textarea, select, input"))
  .map(it => `${it.tagName}.${it.className} ${it.scrollWidth} > ${it.clientWidth}`)
"""
# Tap targets lower than 44 pixels. A link within a sentence is as high as its line; a
# checkbox is tapped by its label.
SMALL = """
() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary")]
  .filter(it => it.type !== "hidden" && it.checkVisibility({visibilityProperty: true}))
  .filter(it => !it.closest("dialog:not([open])"))
  .map(it => [it, ["checkbox", "radio"].includes(it.type) ? it.closest("label") ?? it : it])
  .filter(([it, box]) => box.getBoundingClientRect().bottom > 0)
  .filter(([it, box]) => Math.ceil(box.getBoundingClientRect().height) < 44)
  .filter(([it]) => !(it.tagName === "A" && getComputedStyle(it).display === "inline" &&
    [...it.parentElement.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())))
  .map(([it, box]) => `${it.outerHTML.slice(0, 120)} ${box.getBoundingClientRect().height}`)
"""


def test_every_page_has_an_address() -> None:
    shown = {route.path for route in PAGES if route.method == "GET" and route.produces == HTML}

    assert shown == {*ADDRESSES, *OUTSIDE} | PARTS


@pytest.fixture(scope="module")
def phone(chromium: Browser, populated: DashboardFleet) -> Iterator[Page]:
    """A phone with a signed-in user."""
    context = chromium.new_context(viewport=PHONE, color_scheme="dark", has_touch=True)
    page = context.new_page()
    sign_in(page, populated, "approver")
    yield page
    context.close()


@pytest.fixture(scope="module")
def desktop(chromium: Browser, populated: DashboardFleet) -> Iterator[Page]:
    context = chromium.new_context(viewport=DESKTOP, color_scheme="light")
    page = context.new_page()
    sign_in(page, populated, "approver")
    yield page
    context.close()


@pytest.mark.parametrize("address", [*SIGNED_IN, *MISSING])
def test_fits_a_phone_with_large_tap_targets(
    populated: DashboardFleet, phone: Page, address: str
) -> None:
    phone.goto(populated.url + address)
    phone.wait_for_selector("main")

    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert phone.evaluate(SIDEWAYS) == []
    assert phone.evaluate(SMALL) == []
    assert phone.locator(".tabbar").is_visible()
    assert not phone.locator(".rail").is_visible()
    assert grave_issues(phone) == []


@pytest.mark.parametrize("address", [*SIGNED_IN, *MISSING])
def test_axe_finds_nothing_serious_on_a_wide_screen(
    populated: DashboardFleet, desktop: Page, address: str
) -> None:
    desktop.goto(populated.url + address)
    desktop.wait_for_selector("main")

    assert grave_issues(desktop) == []


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desk"])
@pytest.mark.parametrize("address", NOT_SIGNED_IN)
def test_pages_without_a_session_pass_the_same_checks(
    populated: DashboardFleet, chromium: Browser, address: str, size: ViewportSize
) -> None:
    page = chromium.new_page(viewport=size)
    page.goto(populated.url + address)

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert size == DESKTOP or page.evaluate(SMALL) == []
    assert grave_issues(page) == []
    page.close()


OTHER_SCHEMES: dict[str, tuple[ViewportSize, Literal["light", "dark"]]] = {
    "phone": (PHONE, "light"),
    "desk": (DESKTOP, "dark"),
}


@pytest.fixture(scope="module")
def other_schemes(chromium: Browser) -> Iterator[dict[str, Page]]:
    """A page for each size, in the color scheme that the tests above do not use."""
    pages = {}
    for name, (size, scheme) in OTHER_SCHEMES.items():
        page = pages[name] = chromium.new_page(viewport=size, color_scheme=scheme)
        page.route("**/*", answer)
    yield pages
    for page in pages.values():
        page.close()


@pytest.mark.parametrize("name", samples.SCREENS)
def test_sample_views_pass_the_checks_in_the_other_scheme(
    other_schemes: dict[str, Page], name: str
) -> None:
    """More states than the furnished installation has, and each color scheme at the other width."""
    for size, page in other_schemes.items():
        page.goto(f"http://tidegate.test/{name}")
        page.wait_for_selector("main")

        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), size
        assert size == "desk" or page.evaluate(SIDEWAYS) == []
        assert size == "desk" or page.evaluate(SMALL) == []
        assert grave_issues(page) == [], size


@pytest.mark.parametrize("width", [320, 768, 941, 1181])
def test_sample_views_fit_small_phones_tablets_and_half_a_screen(
    chromium: Browser, width: int
) -> None:
    """The widths at which a layout begins or ends, and the narrowest phone."""
    page = chromium.new_page(viewport={"width": width, "height": 900})
    page.route("**/*", answer)
    wide = []
    for name in samples.SCREENS:
        page.goto(f"http://tidegate.test/{name}")
        page.wait_for_selector("main")
        if not page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
            wide.append(name)
    page.close()

    assert wide == []


def test_the_menu_more_links_to_every_screen_missing_from_the_bar(
    populated: DashboardFleet, phone: Page
) -> None:
    phone.goto(populated.url)
    listed = phone.locator(".rail a[data-key]").evaluate_all("all => all.map(it => it.href)")
    bar = phone.locator(".tabbar > ul > li > a")
    assert bar.count() == 4

    phone.tap(".tabbar summary")
    sheet = phone.locator(".sheet a")
    reached = [*bar.evaluate_all("all => all.map(it => it.href)")]
    reached += sheet.evaluate_all("all => all.map(it => it.href)")
    assert sorted(reached) == sorted(listed)
    assert phone.evaluate(SMALL) == []
    phone.tap(".sheet a:has-text('Hosts')")
    phone.wait_for_url("**/hosts")
    assert phone.locator("h1").inner_text() == "Hosts"
