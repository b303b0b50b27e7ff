"""Scripts in everything that people and hosts may write, on every page, in a real browser.

The browser ignores the Content-Security-Policy, which would stop a script anyway: a page must not
contain one in the first place. The bench also looks for elements that only an attack creates.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Dialog, Page, TimeoutError as PageTimeout

from bench.attack.hostile_values import SCRIPTS
from bench.trials import Findings, Trial
from tests.browser.actions import sign_in
from tests.browser.addresses import ADDRESSES, OUTSIDE, PARTS
from tests.browser.dashboard_fleet import PEOPLE, DashboardFleet, serve_dashboard
from tests.browser.furnished import furnish
from tests.browser.gallery import launched
from tidegate.control.operations.accounts import PersonNames
from tidegate.dashboard.layout import HTML
from tidegate.dashboard.routes import PAGES
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.hosts.states import HostState
from tidegate.errors import TidegateError
from tidegate.web.routing import Route

PAGE_MILLISECONDS = 30_000
CHANNEL = "planted"
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
        findings.failures += [f"{path} is not visited" for path in list_unvisited()]
        paths = [*_plant(fleet, scripts, findings), *_list_pages(scripts)]
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


def list_unvisited(routes: Sequence[Route] = PAGES) -> Iterator[str]:
    """Pages of the route table that have no address here."""
    shown = {route.path for route in routes if route.method == "GET" and route.produces == HTML}
    yield from sorted(shown - {*ADDRESSES, *OUTSIDE, *PARTS})


def _list_pages(scripts: tuple[str, ...]) -> Iterator[str]:
    """Every page of the furnished installation, and pages that repeat a part of their address."""
    for group in (*ADDRESSES.values(), *OUTSIDE.values()):
        yield from group
    yield f"/signin?next={quote(scripts[0])}"
    for script in scripts:
        for path in ("/hosts?filter=", "/hosts?selector=", "/rollouts?q=", "/find?q=", "/"):
            yield path + quote(script)


def _plant(fleet: DashboardFleet, scripts: tuple[str, ...], findings: Findings) -> Iterator[str]:
    """Write each script wherever text may be written; return the new pages."""
    furnish(fleet)
    all_scripts = "\n".join(scripts)
    fleet.channel(CHANNEL, sustained_failure_seconds=0)
    fleet.enroll(CHANNEL, "planted-00")
    rollout = fleet.promote(CHANNEL, "web.1")
    fleet.dispatch()
    host = fleet.records(rollout, HostState.PENDING)[0].host_id
    fleet.activate(rollout, host)
    fleet.fail(rollout, host, all_scripts[:200])
    fleet.channel("going")
    fleet.enroll("going", "going-00")
    going = fleet.promote("going", "web.1")
    yield from (f"/rollouts/{rollout}", f"/rollouts/{going}", f"/hosts/{host}")
    yield f"/channels/{CHANNEL}"
    for number, script in enumerate(scripts):
        _person(fleet, number, script, findings)
        name = fleet.draft(f"x{number}", {"a.html": f"{script}\n{all_scripts}", "b": script})
        why = {"reason": script}
        annotations = {"annotations": {"note": script}}
        _call(fleet, findings, "PATCH", f"/v1/revisions/{name}", annotations)
        fleet.propose(name)
        _call(fleet, findings, "POST", f"/v1/revisions/{name}/reject", why)
        _call(fleet, findings, "POST", f"/v1/channels/{CHANNEL}/hold", why)
        _call(fleet, findings, "POST", "/v1/freezes", why | {"freeze_id": f"f{number}"})
        for verb in ("pause", "resume"):
            _call(fleet, findings, "POST", f"/v1/rollouts/{going}/{verb}", why)
        window: dict[str, object] = {
            "window_id": f"w{number}",
            "kind": "deny",
            "start": "2026-11-17T02:00",
        }
        window |= {"duration_seconds": 3_600, "channels": [CHANNEL]}
        _call(fleet, findings, "POST", "/v1/windows", why | window)
        yield f"/windows/w{number}/edit"
        # On a protected channel it becomes a request.
        policy = {"policy": {"retention_seconds": 1_000 + number}}
        request = _call(fleet, findings, "PATCH", "/v1/channels/early", why | policy)
        yield f"/approvals/{request['request_id']}"
        yield f"/revisions/{name}"


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


def _call(
    fleet: DashboardFleet, findings: Findings, method: str, path: str, body: object
) -> dict[str, Any]:
    """Send a request with all permissions; what the server refuses appears on no page."""
    client = fleet.served.client(fleet.served.token(PEOPLE["approver"][0]))
    seen = client.get(path.rpartition("/")[0] if method == "POST" else path).headers.get("etag")
    headers = {"if-match": seen} if seen else {}
    answer = client.request(method, path, json=body, headers=headers)
    findings.counts["written" if answer.status_code < 300 else "refused"] += 1
    if answer.status_code >= 300:
        findings.counts[f"refused: {answer.json()['code']}"] += 1
    found: dict[str, Any] = answer.json()
    return found
