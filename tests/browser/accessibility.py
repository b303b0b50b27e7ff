"""axe-core, from the npm registry, pinned by sha512: accessibility errors of a page."""

from __future__ import annotations

from functools import cache
from typing import Any

from playwright.sync_api import Page

from tests.servers.npm import Package, fetched

AXE = Package(
    "axe-core",
    "4.14.0",
    "9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ==",
)
GRAVE = ("serious", "critical")


@cache
def _source() -> str:
    return (fetched(AXE) / "package" / "axe.min.js").read_text()


def grave_issues(page: Page) -> list[str]:
    """The serious and critical issues of the page, one line for each element."""
    page.evaluate(_source())
    found: list[dict[str, Any]] = page.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations)"
    )
    return [
        f"{rule['id']} ({rule['impact']}): {node['html'][:160]} {node['failureSummary'][:200]}"
        for rule in found
        if rule["impact"] in GRAVE
        for node in rule["nodes"]
    ]
