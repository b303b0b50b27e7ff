"""Every page of the dashboard, in every state and for every role, works and has no dead links.

The walk covers an empty installation and one that has an example of everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx2
import pytest

from tests.api.page_walk import Form, Page, walk
from tests.api.populated_installation import PEOPLE, PopulatedInstallation
from tests.api.served_fleet import T0, serve_fleet
from tests.api.serving import serving
from tidegate.api.routes import ROUTES
from tidegate.clock import ManualClock
from tidegate.control.operations import passwords
from tidegate.dashboard import gate_panel, layout
from tidegate.dashboard.pages import revisions
from tidegate.dashboard.routes import PAGES

ALL_ROUTES = (*ROUTES, *PAGES)
EVERYWHERE = ("viewer", "operator", "administrator")
# Addresses that only a long list or a person who types leads to.
TYPED = (
    *("/find?q=web", "/find?q=soak-1", "/find?q=%2312", "/find?q=zzz", "/find?q=few%40web.1"),
    *("/hosts?limit=2", "/hosts?selector=app%3Dfew&limit=2", "/hosts?filter=other&limit=3"),
    *(
        "/releases?tab=all&limit=2",
        "/releases?tab=other&limit=2",
        "/releases?limit=2",
        "/outbox?tab=other",
    ),
    *("/rollouts/soaking@web.1/held", "/rollouts/through@web.1/held", "/rollouts?done=paused"),
    *("/events?type=RolloutOpened", "/events?at=0", "/events?at=3&type=RolloutOpened"),
    *("/plan?luck=bad&channel=few&simulate=true", "/plan?channel=zzz", "/plan?release=zzz"),
    *("/rollouts/few@web.1/gates", "/rollouts/few@web.1/grid/0"),
)


@pytest.fixture(scope="module")
def populated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PopulatedInstallation]:
    with (
        patch.object(passwords, "SCRYPT_N", 2),  # cheap hashes: nobody guesses these passwords
        serve_fleet(tmp_path_factory.mktemp("harbour") / "data", ALL_ROUTES) as fleet,
    ):
        populated = PopulatedInstallation(fleet.served)
        populated.fill()
        yield populated


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits so low that lists are cut and paged, and parts of pages load separately."""
    monkeypatch.setattr(gate_panel, "AT_ONCE_MAX", 3)
    monkeypatch.setattr(layout, "ROWS", 2)
    monkeypatch.setattr(revisions, "FILES_MAX", 1)
    monkeypatch.setattr(revisions, "REFERENCES_MAX", 1)


@pytest.mark.parametrize("login", ["operator", "administrator"])
def test_every_link_leads_to_a_page_that_works(
    populated: PopulatedInstallation, login: str
) -> None:
    seen = walk(populated.browser(login), "/", *TYPED)

    assert seen.faults == []
    assert seen.refused(403) == []
    assert everything(populated) <= seen.statuses.keys()


@pytest.mark.usefixtures("crowded")
def test_links_a_viewer_to_the_rest_of_a_partial_page(populated: PopulatedInstallation) -> None:
    seen = walk(populated.browser("viewer"), "/", *TYPED)

    assert seen.faults == []
    assert seen.refused(403) == []
    assert everything(populated) <= seen.statuses.keys()
    assert any("/held?gate=" in address and "next=" in address for address in seen.statuses)
    assert any(address.startswith("/rollouts?next=") for address in seen.statuses)
    assert "/rollouts/few@web.1/gates" in seen.statuses
    assert {*seen.forms} == OWN, "it may only read"


OWN = {"/signout", "/settings/tokens", "/settings/revoke", "/settings/password"}


def everything(populated: PopulatedInstallation) -> set[str]:
    """The addresses of all objects that have a page."""

    def items(noun: str) -> list[dict[str, Any]]:
        found = populated.viewer.get(f"/v1/{noun}", params={"limit": 500}).json()["items"]
        assert found
        return list(found)

    return {
        *(f"/rollouts/{item['rollout_id']}" for item in items("rollouts")),
        *(f"/revisions/{item['metadata']['name']}" for item in items("revisions")),
        *(f"/hosts/{item['host_id']}" for item in items("hosts")),
        *(f"/channels/{item['channel']}" for item in items("channels")),
    }


@pytest.mark.parametrize("login", ["neighbour", "nobody"])
def test_refuses_pages_that_a_user_may_not_see(
    populated: PopulatedInstallation, login: str
) -> None:
    client = populated.browser(login)

    seen = walk(client, "/", *TYPED, wrong=(404,))

    assert seen.faults == []
    assert "/hosts" in seen.refused(403)
    assert seen.statuses["/settings"] == 200
    assert (seen.statuses["/"] == 200) is (login == "neighbour")


@pytest.mark.parametrize("login", EVERYWHERE)
def test_every_page_of_an_empty_installation_works(tmp_path: Path, login: str) -> None:
    with (
        patch.object(passwords, "SCRYPT_N", 2),
        serving(tmp_path / "data", routes=ALL_ROUTES, clock=ManualClock(T0)) as served,
    ):
        empty = PopulatedInstallation(served)
        empty.user(login, *PEOPLE[login])

        seen = walk(empty.browser(login), "/")

    assert seen.faults == []
    assert {*seen.statuses.values()} <= {200, 303}
    assert {"/", "/rollouts", "/channels", "/plan", "/outbox"} <= seen.statuses.keys()


# ── wrong input ───────────────────────────────────────────────────────────────────────────────────

FORMS = (
    *("/approvals", "/channels/guarded", "/new/channel", "/channels/through/edit"),
    *("/maintenance", "/new/window", "/windows/nightly/edit", "/new/freeze"),
    *("/new/budget", "/budgets/few/edit"),
    *("/notifications", "/new/subscription", "/subscriptions/ops/edit"),
    *("/joins", "/new/join", "/new/repository", "/repositories/strict/edit"),
    *("/settings", "/outbox", "/hosts/h-plain", "/channels/through", "/channels/held"),
    *(
        "/channels/back",
        "/channels/returning",
        "/rollouts/soaking@web.1",
        "/rollouts/waiting@web.1",
        "/rollouts/paused@web.1",
        "/rollouts/back@web.1",
    ),
    *("/revisions/default.web.kinds", "/revisions/default.web.asked"),
)
WITHDRAW = "/revisions/default.web.asked/withdraw"  # only its author has the button
FREE = {  # any text is valid
    *("reason", "display_name", "hosts", "selector", "break_glass"),
    *("idempotency_key", "csrf_token", "secret", "to", "repository"),
}
NONSENSE = ("zzz <&>'\"", "\0\x1f", "-1", "9" * 40, "ö" * 5_000)
HARMLESS = {
    "/settings/tokens",  # without fields, it makes a token with the default lifetime
    "/rollouts/waiting@web.1/continue",  # it needs no reason
}

ACCEPTED = """\
These forms were accepted with values that make no sense. Refuse such values in the form's struct.
If any text will do for a field, name the field in FREE; if the form may be empty, in HARMLESS."""


def forms(client: httpx2.Client) -> list[Form]:
    """One form for each action of the dashboard."""
    found: dict[str, Form] = {}
    for address in FORMS:
        for form in Page(client.get(address).text).forms:
            if form.method == "post" and form.action != "/signout":
                found[f"{form.action.split('/')[1]} {form.action.rpartition('/')[2]}"] = form
    csrf = next(iter(found.values())).values["csrf_token"]
    return [*found.values(), Form(WITHDRAW, "post", {"version": "1", "csrf_token": csrf})]


def wrong(form: Form) -> Iterator[dict[str, str]]:
    """Invalid values for a form."""
    csrf = {"csrf_token": form.values["csrf_token"]}
    if form.action not in HARMLESS:
        yield csrf
    typed = form.values.keys() - FREE
    for text in NONSENSE if typed else NONSENSE[-1:]:
        yield dict.fromkeys(form.values, text) | csrf
        for name in typed:
            yield form.values | {name: text}
    yield form.values | {"unknown": "x"}


def says_why(answer: httpx2.Response) -> bool:
    """Whether the response is a page that refuses the form and says why."""
    return (
        400 <= answer.status_code < 500
        and answer.headers["content-type"] == "text/html; charset=utf-8"
        and ('role="alert"' in answer.text or '<p class="small"><code>' in answer.text)
    )


def test_every_verb_of_the_dashboard_has_a_form(populated: PopulatedInstallation) -> None:
    sent = {form.action.rpartition("/")[2] for form in forms(populated.browser("administrator"))}

    verbs = {route.path.rpartition("/")[2] for route in PAGES if route.method == "POST"}
    missing = verbs - sent - {"signin", "setup", "signout", "reset", "enable"}
    assert not missing, "add a page of populated_installation.py that shows the form to FORMS"


def test_a_page_shows_what_is_wrong_with_a_form(populated: PopulatedInstallation) -> None:
    client = populated.browser("administrator")
    before = populated.installation.log.head()

    answers = [
        (form.action, values, client.post(form.action, data=values))
        for form in forms(client)
        for values in wrong(form)
    ]

    unsaid = [f"{action} {values}" for action, values, answer in answers if not says_why(answer)]
    assert not unsaid, "\n".join((ACCEPTED, *unsaid))
    written = populated.installation.log.feed(after=before, limit=10)
    assert {event.type for event in written} <= {"SignInFailed"}, "a wrong current password"


@pytest.mark.parametrize(
    ("content", "media"),
    [
        (b"", "application/x-www-form-urlencoded"),
        (b"reason=x", "application/x-www-form-urlencoded"),
        (b"\xff%zz=%ff&&=&a", "application/x-www-form-urlencoded"),
        (b"reason=" + b"x" * 3_000_000, "application/x-www-form-urlencoded"),
        (b'{"reason": "x"}', "application/json"),
        (b"reason=x", "text/plain"),
    ],
)
def test_refuses_bodies_that_no_form_sends(
    populated: PopulatedInstallation, content: bytes, media: str
) -> None:
    client = populated.browser("administrator")
    before = populated.installation.log.head()

    for form in forms(client):
        answer = client.post(form.action, content=content, headers={"content-type": media})
        assert says_why(answer), f"{form.action}: {answer.status_code} {answer.text[-300:]}"

    assert populated.installation.log.head() == before


@pytest.mark.parametrize("is_set_up", [True, False])
def test_refuses_nonsense_at_sign_in_and_setup(tmp_path: Path, is_set_up: bool) -> None:
    with serving(tmp_path / "data", routes=ALL_ROUTES, is_set_up=is_set_up) as served:
        client = served.client(None, accept="text/html")
        for action, names in (
            ("/signin", ("login", "password", "next")),
            ("/setup", ("code", "login", "name", "password", "alone")),
            ("/reset", ("code", "login", "password")),
        ):
            for text in (None, "", *NONSENSE):
                values = {} if text is None else dict.fromkeys(names, text)
                answer = client.post(action, data=values)
                assert says_why(answer), f"{action} {values}: {answer.status_code}"
        shown = client.get("/rollouts/anything", follow_redirects=True)
        first = client.get("/setup")

    assert (first.status_code == 200) is not is_set_up
    door = (401, 'action="/signin"') if is_set_up else (200, 'action="/setup"')
    assert (shown.status_code, door[1] in shown.text) == (door[0], True)


def test_a_page_shows_what_is_wrong_with_an_address(populated: PopulatedInstallation) -> None:
    """Covers every name, number and filter in an address."""
    client = populated.browser("administrator")
    texts = ("zzz", "%00", "-1", "%ff", "9" * 40, "%C3%B6%3C%26%3E", "a" * 900, "a@b~c", "..")
    queries = [
        *("next", "at", "type", "tag", "tab", "filter", "selector", "limit", "channel", "luck"),
        *("failing", "seed", "simulate", "q", "gate", "done", "min_position", "runs", "about"),
    ]
    paths = [route.path for route in PAGES if route.method == "GET" and route.path != "/live"]

    for path in paths:
        for text in texts:
            address = re.sub(r"\{[^}]+\}", text, path)
            asked = [f"{path}?{name}={text}" for name in queries] if text in texts[:4] else []
            for found in [address] if "{" in path else asked:
                answer = client.get(found)
                assert answer.status_code < 500, f"{found}: {answer.text[-300:]}"
                assert answer.status_code in (200, 303) or says_why(answer), found
