"""Every route and page × every role × all scopes and the wrong scope: no unauthorised 2xx.

The bodies of the requests are valid, and name things that exist. There are three kinds of sender: a
role that does not cover the route, every role on another scope, and a client without a valid
credential (none, unknown, revoked, malformed). The log must not grow either.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import httpx2

from bench.attack.routes import is_allowed, send
from bench.trials import Findings, Trial
from tests.api.served_fleet import ServedFleet, serve_fleet
from tidegate.api.routes import ROUTES
from tidegate.dashboard.routes import PAGES
from tidegate.domain.access.roles import Grant, Role
from tidegate.web.routing import PUBLIC, Requires, Route

ELSEWHERE = ("repository:elsewhere", "channel:elsewhere")
REFUSED = (400, 401, 403, 404)


def run(trial: Trial) -> Findings:
    findings, random = Findings(), trial.random()
    routes = (*ROUTES, *PAGES)
    if trial.mode == "smoke":
        routes = tuple(random.sample(routes, 40))
    with (
        tempfile.TemporaryDirectory(prefix="permissions-") as home,
        serve_fleet(Path(home) / "data", (*ROUTES, *PAGES)) as fleet,
    ):
        fleet.sail()
        everybody = fleet.served.as_role(*Role)
        findings.counts["passed by everybody who may"] += sum(
            send(everybody, route) < 300 for route in ROUTES if route.method == "GET"
        )
        _try_roles(fleet, routes, findings)
        _try_scopes(fleet, routes, findings)
        _try_nobody(fleet, routes, findings)
    return findings


def _cell(
    client: httpx2.Client, route: Route, who: str, fleet: ServedFleet, findings: Findings
) -> None:
    before = fleet.installation.log.head()
    status = send(client, route)
    findings.counts["cells"] += 1
    if status not in REFUSED:
        findings.failures.append(f"{who} gets {status} from {route.name}")
    if fleet.installation.log.head() != before:
        findings.failures.append(f"{who} changes something by {route.name}")


def _try_roles(fleet: ServedFleet, routes: tuple[Route, ...], findings: Findings) -> None:
    for role in Role:
        client = fleet.served.as_role(role)
        for route in routes:
            if not is_allowed(route, role):
                _cell(client, route, role, fleet, findings)


def _try_scopes(fleet: ServedFleet, routes: tuple[Route, ...], findings: Findings) -> None:
    for scope in ELSEWHERE:
        client = fleet.served.as_role(*(Grant(role, scope) for role in Role))
        for route in routes:
            if isinstance(route.permission, Requires) and route.permission.scope is not None:
                _cell(client, route, f"everybody of {scope}", fleet, findings)


def _try_nobody(fleet: ServedFleet, routes: tuple[Route, ...], findings: Findings) -> None:
    served = fleet.served
    revoked = served.everything()
    token_id = revoked.get("/v1/tokens").json()["items"][0]["token_id"]
    child = served.client(revoked.post("/v1/tokens", json={}).json()["token"])
    assert child.get("/v1/me").status_code == 200
    assert revoked.post(f"/v1/tokens/{token_id}/revoke").status_code == 200
    disabled = served.everything()
    user_id = disabled.get("/v1/me").json()["user_id"]
    assert served.admin.post(f"/v1/users/{user_id}/disable").status_code == 200
    nobodies = {
        "nobody": served.client(),
        "an unknown token": served.client("tg_unknown0_" + "a" * 43),
        "a revoked token": revoked,
        "a token that a revoked one made": child,
        "a disabled person": disabled,
        "a wrong scheme": served.client(authorization="Basic YTpi"),
    }
    for who, client in nobodies.items():
        for route in routes:
            if route.permission is not PUBLIC:
                _cell(client, route, who, fleet, findings)
