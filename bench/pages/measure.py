"""A server of its own, Chromium as its client, and the times that the browser records.

A visit is *first* if neither the server nor the browser has loaded anything yet, *fresh* if only
the browser has not (each visit has a profile of its own), and *again* if both have.
"""

from __future__ import annotations

from statistics import median

from msgspec import Struct
from playwright.sync_api import Browser, BrowserContext

from bench.http.prepared_data import PreparedData
from bench.http.server import serving
from tests.browser.gallery import launched

TIMEOUT_MILLISECONDS = 60_000
REPAINT = "() => { hostGrid.repaint(); return hostGrid.painted; }"
STEP = """() => {
  const began = performance.now();
  for (let n = 0; n < 1000; n++) {
    hostGrid.bytes[n * 7 % hostGrid.count] ^= 1;
    hostGrid.cell(n * 7 % hostGrid.count);
  }
  hostGrid.flushNow();
  hostGrid.counts();
  return performance.now() - began;
}"""
LOADED = "() => performance.getEntriesByType('navigation')[0].loadEventEnd"
DRAWN = "() => performance.getEntriesByName('grid')[0].startTime"


class Visit(Struct, frozen=True):
    """Milliseconds from the address to the finished page."""

    first: float
    fresh: float
    again: float


class Painted(Struct, frozen=True):
    """Milliseconds of work in the page."""

    whole: float  # all squares
    some: float  # a thousand of them


def visits(prepared: PreparedData, rounds: int) -> tuple[Visit, Visit, Painted]:
    """Visit the overview and the rollout's page with its grid, and repaint the grid."""
    with launched() as browser:
        with serving(prepared.data) as server:
            overview = _visit(browser, prepared, f"http://127.0.0.1:{server.port}/", LOADED, rounds)
        with serving(prepared.data) as server:
            url = f"http://127.0.0.1:{server.port}/rollouts/{prepared.rollout_id}"
            rollout = _visit(browser, prepared, url, DRAWN, rounds)
            painted = _painted(browser, prepared, url, rounds)
    return overview, rollout, painted


def _context(browser: Browser, prepared: PreparedData) -> BrowserContext:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(TIMEOUT_MILLISECONDS)
    context.set_extra_http_headers({"authorization": f"Bearer {prepared.token}"})
    return context


def _visit(browser: Browser, prepared: PreparedData, url: str, shown: str, rounds: int) -> Visit:
    fresh: list[float] = []
    again: list[float] = []
    for _ in range(rounds + 1):
        context = _context(browser, prepared)
        page = context.new_page()
        for found in (fresh, again):
            page.goto(url)
            if shown is DRAWN:
                page.wait_for_selector("[data-loaded]")
            found.append(float(page.evaluate(shown)))
        context.close()
    return Visit(fresh[0], median(fresh[1:]), median(again[1:]))


def _painted(browser: Browser, prepared: PreparedData, url: str, rounds: int) -> Painted:
    context = _context(browser, prepared)
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("[data-loaded]")
    whole = [float(page.evaluate(REPAINT)) for _ in range(rounds)]
    some = [float(page.evaluate(STEP)) for _ in range(rounds)]
    context.close()
    return Painted(median(whole), median(some))
