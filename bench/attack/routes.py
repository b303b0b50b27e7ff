"""A sample request for each route, about things that exist in a served fleet."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.api.sample_requests import sample_body, sample_form
from tests.api.served_fleet import CHANNEL, ROLLOUT
from tidegate.domain.access.roles import VERBS, Role
from tidegate.web.routing import AGENT, PUBLIC, SIGNED_IN, Requires, Route

SAMPLES = {
    "repository": "default",
    "name": "default.web.v1",
    "path": "web",
    "user_id": "user_nobody00",
    "token_id": "nobodystoken",
    "scope": CHANNEL,
    "release_id": "web.1",
    "intent_id": f"RELEASE%23{CHANNEL}%2FOUTBOX%23announce",
    "cache_key": "page",
    "channel": CHANNEL,
    "rollout_id": ROLLOUT,
    "host_id": "web-01",
    "index": "0",
}
# Bodies that are valid if the sender has the permission.
BODIES: dict[str, dict[str, Any]] = {
    "POST /v1/repositories": {"name": "stolen"},
    "PATCH /v1/repositories/{repository}": {"quorum": 1},
    "POST /v1/revisions": {
        "repository": "default",
        "packageName": "web",
        "workspaceName": "stolen",
    },
    "PUT /v1/revisions/{name}/resources": {"files": [{"path": "a", "text": "stolen"}]},
    "POST /v1/channels": {"channel": "stolen", "package": "default/web", "selector": "a=b"},
    "POST /v1/channels/{channel}/hold": {"reason": "stolen"},
    "POST /v1/channels/{channel}/unhold": {"reason": "stolen"},
    "POST /v1/channels/{channel}/promote": {"release_id": "web.2"},
    "POST /v1/channels/{channel}/rollback": {"reason": "stolen"},
    "POST /v1/rollouts/{rollout_id}/halt": {"reason": "stolen"},
    "POST /v1/rollouts/{rollout_id}/pause": {"reason": "stolen"},
    "POST /v1/rollouts/{rollout_id}/abort": {"reason": "stolen"},
    "POST /v1/freezes": {"reason": "stolen", "freeze_id": "stolen"},
    "POST /v1/hosts/enroll": {"host_id": "stolen"},
    "PUT /v1/hosts/{host_id}/labels": {"labels": {"app": "stolen"}},
    "POST /v1/users": {"login": "stolen", "name": "Stolen", "password": "long and stolen words"},
    "POST /v1/users/{user_id}/grant": {"role": "security-admin"},
    "PUT /v1/budgets/{budget_id}": {"selector": "app=web", "max_in_flight": 1},
}


def path_of(route: Route) -> str:
    path = route.path.replace("...}", "}")
    for name in route.parameters:
        path = path.replace(f"{{{name}}}", SAMPLES.get(name, "sample"))
    return path


def send(client: httpx2.Client, route: Route) -> int:
    """Send a sample request to the route; return the status."""
    headers = {"if-match": '"1"'} if route.is_write else {}
    if route.permission is AGENT:
        headers["tidegate-protocol"] = "2"
    if route.takes_body and route.content.value == "application/json":
        body = {**sample_body(route.types[2]), **BODIES.get(f"{route.method} {route.path}", {})}
        return client.request(route.method, path_of(route), headers=headers, json=body).status_code
    if route.takes_body:
        form = {**sample_form(route.types[2]), "reason": "stolen"}
        return client.request(route.method, path_of(route), headers=headers, data=form).status_code
    with client.stream(route.method, path_of(route), headers=headers) as answer:
        return answer.status_code


def is_allowed(route: Route, role: Role) -> bool:
    match route.permission:
        case Requires(verbs=verbs):
            return bool(VERBS[role] & set(verbs))
    return route.permission in (PUBLIC, SIGNED_IN)
