"""Every route against every kind of client: what no role allows is refused on every scope."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from tests.api.sample_requests import PATHS
from tests.api.served_fleet import CHANNEL, ServedFleet, serve_fleet
from tests.api.serving import Served
from tidegate.api.routes import ROUTES
from tidegate.dashboard.routes import PAGES
from tidegate.domain.access.roles import VERBS, Grant, Role, Verb
from tidegate.errors import InvalidDefinition
from tidegate.web.routing import AGENT, PUBLIC, SIGNED_IN, Requires, Route, requires_somewhere

ELSEWHERE = ("repository:elsewhere", "channel:elsewhere")


def sent(client: httpx2.Client, route: Route) -> httpx2.Response:
    """Send a request of the route's form about things that do not exist."""
    path = route.path.replace("...}", "}")
    for name in route.parameters:
        path = path.replace(f"{{{name}}}", PATHS.get(name, "sample"))
    headers = {"if-match": '"1"'} if route.is_write else {}
    if route.permission is AGENT:
        headers["tidegate-protocol"] = "2"  # else the form is refused first
    content = None
    if route.takes_body:
        headers["content-type"] = route.content.value
        content = b"{}"
    return client.request(route.method, path, headers=headers, content=content)


def code(answer: httpx2.Response) -> str | None:
    """The code of a problem; None for pages."""
    is_problem = answer.headers.get("content-type") == "application/problem+json"
    return answer.json()["code"] if is_problem else None


def allowed(route: Route, role: Role) -> bool:
    match route.permission:
        case Requires(verbs=verbs):
            return bool(VERBS[role] & set(verbs))
    return route.permission in (PUBLIC, SIGNED_IN)


@pytest.mark.parametrize("role", Role)
def test_a_role_may_do_what_its_verbs_cover_and_nothing_else(shared: Served, role: Role) -> None:
    client = shared.as_role(role)

    refused = {route.name: sent(client, route).status_code in (401, 403) for route in ROUTES}

    unexpected = [
        route.name for route in ROUTES if not allowed(route, role) and not refused[route.name]
    ]
    assert unexpected == []


@pytest.mark.parametrize("role", Role)
def test_a_role_reaches_every_route_that_it_covers(shared: Served, role: Role) -> None:
    """No route needs more than it declares: with the role it succeeds or fails for its input."""
    client = shared.as_role(role)

    codes = {
        route.name: code(sent(client, route))
        for route in ROUTES
        if allowed(route, role) and isinstance(route.permission, Requires)
        if route.takes_body
    }

    assert [name for name, code in codes.items() if code == "missing_permission"] == []


@pytest.mark.parametrize(
    "credential",
    ["none", "unknown", "malformed", "revoked", "disabled", "basic", "query"],
)
def test_refuses_clients_without_a_valid_credential(shared: Served, credential: str) -> None:
    client = shared.client()
    query = ""
    match credential:
        case "unknown":
            client.headers["authorization"] = "Bearer tg_unknown0_" + "a" * 43
        case "malformed":
            client.headers["authorization"] = "Bearer ÿ"
        case "revoked":
            client = shared.everything()
            token_id = client.get("/v1/tokens").json()["items"][0]["token_id"]
            assert client.post(f"/v1/tokens/{token_id}/revoke").status_code == 200
        case "disabled":
            client = shared.everything()
            user_id = client.get("/v1/me").json()["user_id"]
            assert shared.admin.post(f"/v1/users/{user_id}/disable").status_code == 200
        case "basic":
            client.headers["authorization"] = "Basic YTpi"
        case "query":
            query = "?token=" + shared.token(shared.user(Grant(Role.VIEWER)))

    answers = {
        route.name: sent(client, route)
        for route in ROUTES
        if route.permission not in (PUBLIC, AGENT)
    }
    if query:
        answers = {"query": client.get(f"/v1/me{query}")}

    assert {name for name, answer in answers.items() if answer.status_code != 401} == set()
    assert {code(answer) for answer in answers.values()} <= {"unauthenticated", None}


@pytest.mark.parametrize("scope", ELSEWHERE)
def test_a_scoped_role_works_only_on_its_scope(shared: Served, scope: str) -> None:
    """With every role on another scope, routes about one thing are refused and lists are empty."""
    client = shared.as_role(*(Grant(role, scope) for role in Role))

    for route in ROUTES:
        if not isinstance(route.permission, Requires) or route.is_page:
            continue
        answer = sent(client, route)
        if route.permission.scope is not None or route.is_write or route.parameters:
            assert answer.status_code in (400, 403, 404), route.name
        else:
            said = answer.json()
            assert said.get("items", said.get("channels")) == [], route.name


def test_cannot_register_a_route_without_a_permission() -> None:
    with pytest.raises(InvalidDefinition, match="declares no permission"):
        Route("GET", "/v1/anything", ROUTES[0].handler, None)  # type: ignore[arg-type]


def test_a_token_may_do_no_more_than_its_owner_may_now(shared: Served) -> None:
    user_id = shared.user(Grant(Role.VIEWER), Grant(Role.SECURITY_ADMIN))
    wide = shared.client(shared.token(user_id, (Grant(Role.AUTHOR), Grant(Role.SECURITY_ADMIN))))
    narrow = shared.client(shared.token(user_id, (Grant(Role.VIEWER),)))
    draft = {"repository": "default", "packageName": "p", "workspaceName": "v1"}

    assert wide.post("/v1/revisions", json=draft).status_code == 403
    assert narrow.get("/v1/users").status_code == 403
    assert wide.get("/v1/users").status_code == 200
    taken = shared.admin.post(f"/v1/users/{user_id}/revoke", json={"role": "security-admin"})
    assert taken.status_code == 200
    assert wide.get("/v1/users").status_code == 403


def test_a_narrowed_token_makes_no_wider_one(shared: Served) -> None:
    user_id = shared.user(Grant(Role.VIEWER), Grant(Role.AUDITOR))
    narrow = shared.client(shared.token(user_id, (Grant(Role.VIEWER),)))

    made = narrow.post("/v1/tokens", json={"roles": [{"role": "auditor"}]})

    password = narrow.put(f"/v1/users/{user_id}/password", json={"password": "long enough"})
    as_wide = narrow.post("/v1/tokens", json={})

    assert (made.status_code, password.status_code) == (403, 403)
    assert as_wide.status_code == 201
    other = shared.client(as_wide.json()["token"])
    assert other.get("/v1/views/verify").status_code == 403


# ── pages ─────────────────────────────────────────────────────────────────────────────────────────

FORM = {
    "reason": "why",
    "remark": "why",
    "version": "1",
    "digest": "sha256:" + "0" * 64,
    "release": "web.1",
    "release_id": "web.1",
    "mode": "resume",
    "hosts": "web-01",
    "closure_hash": "sha256:" + "0" * 64,
    "scope": CHANNEL,
    "intent_id": "announce",
    "user_id": "user_nobody00",
    "role": "viewer",
    "token_id": "nobodystoken",
    "days": "7",
    "login": "somebody",
    "name": "Somebody",
    "password": "a long enough passphrase",
}
QUERY = {"/plan/forecast": f"?channel={CHANNEL}"}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFleet]:
    """A server with data on every page: a rollout in progress and an unsent intent."""
    with serve_fleet(tmp_path_factory.mktemp("house") / "data", (*ROUTES, *PAGES)) as fleet:
        fleet.sail()
        yield fleet


# Fields that mean something else in these forms.
FORMS: dict[str, dict[str, str]] = {
    "/approvals/approve": {"hosts": "2"},
    "/approvals/run": {"hosts": "2"},
}


def visited(client: httpx2.Client, route: Route) -> tuple[int, str]:
    """Load a page, or send its form with all fields; return the status and text."""
    path = route.path.replace("...}", "}")
    for name in route.parameters:
        path = path.replace(f"{{{name}}}", PATHS.get(name, "sample"))
    path += QUERY.get(route.path, "")
    if route.is_write:
        fields = set(route.types[2].__struct_fields__)
        typed = FORM | FORMS.get(route.path, {})
        answer = client.post(path, data={k: v for k, v in typed.items() if k in fields})
        return answer.status_code, answer.text
    with client.stream("GET", path) as answer:
        streams = answer.headers.get("content-type", "").startswith("text/event-stream")
        return answer.status_code, "" if streams else answer.read().decode(errors="replace")


@pytest.mark.parametrize("role", Role)
def test_shows_a_role_its_pages_and_accepts_only_its_forms(fleet: ServedFleet, role: Role) -> None:
    client = fleet.served.as_role(role)
    head = fleet.installation.log.head()
    forbidden = [route for route in PAGES if not allowed(route, role)]

    found = {route.name: visited(client, route)[0] for route in forbidden}

    assert {name: status for name, status in found.items() if status not in (400, 403)} == {}
    shown = [name for name, status in found.items() if status == 403]
    assert len(shown) >= len(forbidden) * 2 // 3  # most are refused for their sender
    assert fleet.installation.log.head() == head


def test_shows_anonymous_visitors_only_the_sign_in_page(fleet: ServedFleet) -> None:
    client = fleet.served.client()

    found = {
        route.name: visited(client, route) for route in PAGES if route.permission is not PUBLIC
    }

    assert {name for name, (status, _) in found.items() if status != 401} == set()
    assert not any("web-01" in text.replace("/hosts/web-01", "") for _, text in found.values())


@pytest.mark.parametrize("scope", ELSEWHERE)
def test_shows_nothing_of_other_scopes_on_any_page(fleet: ServedFleet, scope: str) -> None:
    everyone = fleet.served.as_role(*Role)
    client = fleet.served.as_role(*(Grant(role, scope) for role in Role))
    head = fleet.installation.log.head()
    lists = [route for route in PAGES if route.permission == requires_somewhere(Verb.READ)]

    told: set[str] = set()
    for route in PAGES:
        if not isinstance(route.permission, Requires):
            continue
        name = route.name
        status, text = visited(client, route)
        if route.permission.scope is not None:
            assert status in (400, 403, 404), name
        elif CHANNEL in text or "web-01" in text:
            told.add(name)

    assert told == set()
    seen = [route.name for route in lists if CHANNEL in visited(everyone, route)[1]]
    assert len(seen) >= 4  # a user with permission sees it there
    assert fleet.installation.log.head() == head
