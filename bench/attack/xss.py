"""Scripts in everything that people and hosts may write, on every page, in a real browser.

The browser runs without the Content-Security-Policy that would stop a script anyway: a page must
not hold one in the first place. Elements that only an attack makes are looked for, too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Dialog, Page
from playwright.sync_api import TimeoutError as PageTimeout

from bench.attack.hostile_values import SCRIPTS
from bench.trials import Findings, Trial
from tests.browser.actions import WAVES, sign_in
from tests.browser.dashboard_fleet import PEOPLE, DashboardFleet, serve_dashboard
from tests.browser.gallery import launched
from tidegate.control.operations.accounts import PersonNames
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.hosts.states import HostState
from tidegate.errors import TidegateError

PAGE_MILLISECONDS = 30_000
PLANTED = "img[src=x], svg[onload], iframe[srcdoc], [onmouseover], [onerror], a[href^=javascript]"
META = "meta[http-equiv=refresh]"


def run(trial: Trial) -> Findings:
    findings = Findings()
    scripts = SCRIPTS[:2] if trial.mode == "smoke" else SCRIPTS
    with (
        tempfile.TemporaryDirectory(prefix="xss-") as home,
        serve_dashboard(Path(home) / "data") as fleet,
        launched() as browser,
    ):
        paths = list(_plant(fleet, scripts, findings))
        context = browser.new_context(bypass_csp=True)
        page = context.new_page()
        page.set_default_timeout(PAGE_MILLISECONDS)
        dialogs: list[str] = []

        def note(dialog: Dialog) -> None:
            dialogs.append(dialog.message)
            dialog.dismiss()

        page.on("dialog", note)
        sign_in(page, fleet, "approver")
        for path in paths:
            findings.counts["pages"] += 1
            findings.failures += [f"{path}: {wrong}" for wrong in _wrongs(page, fleet.url + path)]
        if dialogs:
            findings.failures.append(f"dialogs: {dialogs}")
        context.close()
    return findings


def _wrongs(page: Page, url: str) -> Iterator[str]:
    try:
        page.goto(url, wait_until="load")
    except PageTimeout:
        yield "does not load"
        return
    page.mouse.move(300, 300)
    if page.evaluate("window.__attacked || 0"):
        yield "a script ran"
    for element in page.query_selector_all(f"{PLANTED}, {META}"):
        yield f"an attack's element is there: {element.evaluate('e => e.outerHTML')[:200]}"


def _plant(fleet: DashboardFleet, scripts: tuple[str, ...], findings: Findings) -> Iterator[str]:
    """Write each script wherever something may be written; the pages that show it."""
    all_scripts = "\n".join(scripts)
    fleet.publish("v1", {"service.toml": "workers = 4\n", "run": "exec web\n"})
    fleet.channel("stable", waves=WAVES, sustained_failure_seconds=0)
    fleet.enroll("stable", *(f"web-{number:02}" for number in range(4)))
    rollout = fleet.promote("stable", "web.1")
    fleet.dispatch()
    first = fleet.records(rollout, HostState.PENDING)[0].host_id
    fleet.activate(rollout, first)
    fleet.fail(rollout, first, all_scripts[:200])
    for number, script in enumerate(scripts):
        _person(fleet, number, script, findings)
        name = fleet.draft(f"x{number}", {"a.html": f"{script}\n{all_scripts}", "b": script})
        _call(fleet, findings, "PATCH", f"/v1/revisions/{name}", {"annotations": {"note": script}})
        fleet.propose(name)
        _call(fleet, findings, "POST", f"/v1/revisions/{name}/reject", {"reason": script})
        _call(fleet, findings, "POST", "/v1/channels/stable/hold", {"reason": script})
        freeze = {"reason": script, "freeze_id": f"f{number}"}
        _call(fleet, findings, "POST", "/v1/freezes", freeze)
        _call(fleet, findings, "POST", f"/v1/rollouts/{rollout}/pause", {"reason": script})
        yield f"/revisions/{name}"
        yield f"/hosts?filter={quote(script)}"
        yield f"/{quote(script)}"
    yield from ("/", "/channels", "/channels/stable", "/releases", "/releases?tab=waiting")
    yield from ("/rollouts", f"/rollouts/{rollout}", "/hosts", f"/hosts/{first}", "/events")
    yield from ("/outbox", "/plan", "/settings", f"/signin?next={quote(scripts[0])}")


def _person(fleet: DashboardFleet, number: int, script: str, findings: Findings) -> None:
    try:
        called = PersonNames(f"person{number}", script)
        fleet.served.add_person(
            f"user_x{number:09}", called, "a long passphrase", Grant(Role.VIEWER)
        )
    except TidegateError:
        findings.counts["refused"] += 1
    else:
        findings.counts["written"] += 1


def _call(fleet: DashboardFleet, findings: Findings, method: str, path: str, body: object) -> None:
    """As somebody who may do everything; what the server refuses is not there to be shown."""
    client = fleet.served.client(fleet.served.token(PEOPLE["approver"][0]))
    seen = client.get(path.rpartition("/")[0] if method == "POST" else path).headers.get("etag")
    headers = {"if-match": seen} if seen else {}
    answer = client.request(method, path, json=body, headers=headers)
    findings.counts["written" if answer.status_code < 300 else "refused"] += 1
