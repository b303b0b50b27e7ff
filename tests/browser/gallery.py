"""Take screenshots of every screen from sample views, light and dark, wide and narrow.

`python -m tests.browser.gallery` takes all of them, with names only these. A name is a key of
`SCREENS` in samples.py. The screenshots are written to `.tools/screenshots/gallery`, for people to
look at; no test compares them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, Route, sync_playwright

from tests.browser import chromium, samples
from tests.servers.npm import TOOLS
from tidegate.dashboard.html import fingerprint, render, render_part, static_files
from tidegate.web.responses import CSP

OUT = TOOLS / "screenshots" / "gallery"
WIDTHS = {"wide": 1440, "narrow": 390}
HEIGHT = 900


@contextmanager
def launched() -> Iterator[Browser]:
    """A headless Chromium."""
    found = chromium.browser()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found.program, env={**found.environment}, args=list(chromium.ARGUMENTS)
        )
        yield browser
        browser.close()


def answer(route: Route) -> None:
    """Respond with a static file, a grid of sample bytes, or a screen by its name."""
    path = urlsplit(route.request.url).path
    start = f"/static/{fingerprint()}/"
    if path.startswith(start):
        media, content = static_files()[path.removeprefix(start)]
        route.fulfill(body=content, content_type=media)
    elif path.endswith("/grid"):
        counts = (248, 3, 7, 9, 33)
        order = (4, 3, 2, 1, 0)
        content = b"".join(bytes([code]) * counts[code] for code in order)
        route.fulfill(body=content, content_type="application/octet-stream")
    elif path == "/plan/forecast":
        content = render_part("simulation.html", samples.FORECAST)
        route.fulfill(body=content, content_type="text/html; charset=utf-8")
    elif path[1:] in samples.SCREENS:
        template, _, view = samples.SCREENS[path[1:]]
        page = render(template, samples.frame(path[1:]), view)
        headers = {"content-security-policy": CSP.decode()}
        route.fulfill(body=page, content_type="text/html; charset=utf-8", headers=headers)
    else:
        route.fulfill(status=404, body="")


# No server answers a sample, so its header would say that it is not live.
LIVE = """
() => {
  document.querySelector("#tide")?.setAttribute("data-state", "live");
  document.querySelector("#tide .word")?.replaceChildren("Live");
}
"""


def draw(page: Page, name: str, width: str, scheme: str) -> Path:
    page.set_viewport_size({"width": WIDTHS[width], "height": HEIGHT})
    page.goto(f"http://tidegate.test/{name}")
    page.evaluate(LIVE)
    height = page.evaluate("document.documentElement.scrollHeight")  # so that bars are at the ends
    page.set_viewport_size({"width": WIDTHS[width], "height": max(HEIGHT, height)})
    page.wait_for_timeout(300)
    path = OUT / f"{name}-{width}-{scheme}.png"
    page.screenshot(path=path, full_page=True)
    return path


def main(names: list[str]) -> None:
    unknown = sorted(set(names) - set(samples.SCREENS))
    if unknown:
        sys.exit(
            f"no sample is called {', '.join(unknown)}; there are: {', '.join(samples.SCREENS)}"
        )
    OUT.mkdir(parents=True, exist_ok=True)
    with launched() as browser:
        for width, pixels in WIDTHS.items():
            for scheme in ("light", "dark"):
                context = browser.new_context(
                    viewport={"width": pixels, "height": HEIGHT},
                    color_scheme=scheme,
                )
                page = context.new_page()
                page.on("console", lambda message: print(message.type, message.text))
                page.on("pageerror", lambda error: print("error", error))
                page.route("**/*", answer)
                for name in names or samples.SCREENS:
                    print(draw(page, name, width, scheme))
                context.close()


if __name__ == "__main__":
    main(sys.argv[1:])
