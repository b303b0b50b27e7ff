"""Passwords, sessions, API tokens and open streams end when they should."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.accounts import LOGIN, PASSWORD, person, signed_in
from tests.api.serving import Served, serving
from tidegate.api.routes import ROUTES
from tidegate.clock import ManualClock
from tidegate.control.operations.accounts import caller_of
from tidegate.control.operations.api_tokens import TOKEN_PREFIX
from tidegate.dashboard.routes import PAGES
from tidegate.domain.access.erasable_rows import CREDENTIALS, TOKEN_SECRETS
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.access.slices import TOKEN_ANCESTORS_MAX, TOKENS_MAX
from tidegate.errors import LimitExceeded

T0 = datetime(2026, 1, 27, 10, 0, tzinfo=UTC)
OTHER_PASSWORD = "another good one"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server with its dashboard."""
    with serving(tmp_path / "data", routes=(*ROUTES, *PAGES)) as server:
        yield server


@pytest.fixture
def user_id(served: Served) -> str:
    """A viewer who signs in as LOGIN with PASSWORD."""
    answer = served.admin.post("/v1/users", json=person(roles=[{"role": "viewer"}]))
    return str(answer.json()["user_id"])


def status(client: httpx2.Client) -> int:
    return client.get("/v1/me").status_code


def change(client: httpx2.Client, user_id: str, **body: Any) -> httpx2.Response:
    return client.put(f"/v1/users/{user_id}/password", json={"password": OTHER_PASSWORD, **body})


def reset(served: Served, user_id: str, password: str = OTHER_PASSWORD) -> httpx2.Response:
    """Let the administrator reset a password, and the user choose another one."""
    made = served.admin.post(f"/v1/users/{user_id}/reset-password")
    assert made.status_code == 200, made.text
    body = {"login": LOGIN, "code": made.json()["code"], "password": password}
    return served.client().post("/v1/password-resets", json=body)


def make_token(served: Served, client: httpx2.Client, **body: Any) -> tuple[str, httpx2.Client]:
    """Make a token as this client; return its id, and a client that uses it."""
    made = client.post("/v1/tokens", json=body)
    assert made.status_code == 201, made.text
    return made.json()["token_id"], served.client(made.json()["token"])


# ── passwords ─────────────────────────────────────────────────────────────────────────────────────


def test_ends_every_session_and_token_when_an_administrator_resets_a_password(
    served: Served, user_id: str
) -> None:
    browser, token = signed_in(served), served.client(served.token(user_id))

    assert reset(served, user_id).status_code == 200

    assert (status(browser), status(token)) == (401, 401)
    refused = served.client().post("/v1/sessions", json={"login": LOGIN, "password": PASSWORD})
    assert refused.json()["code"] == "wrong_credentials"
    assert status(signed_in(served, password=OTHER_PASSWORD)) == 200
    assert status(served.client(served.token(user_id))) == 200


def test_a_user_who_changes_the_password_continues_in_a_new_session(
    served: Served, user_id: str
) -> None:
    browser, elsewhere = signed_in(served), signed_in(served)
    stolen = served.client(cookie=_cookie(browser))
    token = served.client(served.token(user_id))

    changed = change(browser, user_id, current=PASSWORD)

    assert changed.status_code == 200
    assert (status(elsewhere), status(token), status(stolen)) == (401, 401, 401)
    assert status(browser) == 200  # the response set the cookie of a new session
    browser.headers["x-csrf-token"] = changed.json()["csrf_token"]
    assert browser.post("/v1/tokens", json={}).status_code == 201


def _cookie(browser: httpx2.Client) -> str:
    return "; ".join(f"{name}={value}" for name, value in browser.cookies.items())


def test_changing_a_password_requires_the_current_one(served: Served, user_id: str) -> None:
    browser = signed_in(served)

    missing = change(browser, user_id)
    wrong = change(browser, user_id, current="not the current one")

    assert {(item.status_code, item.json()["code"]) for item in (missing, wrong)} == {
        (403, "wrong_credentials")
    }
    assert status(browser) == 200
    signed_in(served)


def test_changing_a_password_requires_a_session(served: Served, user_id: str) -> None:
    token = served.client(served.token(user_id))

    refused = change(token, user_id, current=PASSWORD)

    assert (refused.status_code, refused.json()["code"]) == (403, "session_required")
    signed_in(served)


def test_counts_wrong_current_passwords_like_wrong_sign_ins(tmp_path: Path) -> None:
    with serving(tmp_path / "data", sign_ins_per_minute=4) as served:
        answer = served.admin.post("/v1/users", json=person(roles=[{"role": "viewer"}]))
        user_id, browser = answer.json()["user_id"], signed_in(served)

        answers = [change(browser, user_id, current="wrong") for _ in range(20)]

        assert answers[-1].json()["code"] == "rate_limited"


def test_stores_one_password_of_a_user_and_none_of_an_erased_one(
    served: Served, user_id: str
) -> None:
    for number in range(3):
        assert reset(served, user_id, f"good password {number}").status_code == 200
    assert len(_passwords(served, user_id)) == 1

    served.admin.post(f"/v1/users/{user_id}/erase")

    assert _passwords(served, user_id) == []


def _passwords(served: Served, user_id: str) -> list[Any]:
    return served.installation.reads.range(CREDENTIALS, index="by_user", of=(user_id,), limit=100)


def test_one_of_several_passwords_chosen_at_once_with_a_code_is_stored(
    served: Served, user_id: str
) -> None:
    for number in range(5):
        made = served.admin.post(f"/v1/users/{user_id}/reset-password").json()
        passwords = [f"password {number} of {client}" for client in range(4)]
        bodies = [
            {"login": LOGIN, "code": made["code"], "password": password} for password in passwords
        ]
        with ThreadPoolExecutor(len(passwords)) as pool:
            send = partial(served.client().post, "/v1/password-resets")
            answers = [found.result() for found in [pool.submit(send, json=b) for b in bodies]]
        assert sorted(item.status_code for item in answers) == [200, 403, 403, 403]

        opened = [
            served.client().post("/v1/sessions", json={"login": LOGIN, "password": text})
            for text in passwords
        ]
        assert sorted(item.status_code for item in opened) == [201, 403, 403, 403]
        assert len(_passwords(served, user_id)) == 1


def test_refuses_a_body_if_its_session_ended_while_it_was_sent(
    served: Served, user_id: str
) -> None:
    browser = signed_in(served)
    host, port = served.url.removeprefix("http://").split(":")
    head = (
        f"POST /v1/tokens HTTP/1.1\r\nhost: {host}\r\ncookie: {_cookie(browser)}\r\n"
        f"x-csrf-token: {browser.headers['x-csrf-token']}\r\n"
        "content-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=60) as held:
        held.sendall(head.encode())
        _, request = (
            served.installation.log.head(),
            status(browser),
        )  # the head was read before this
        reset(served, user_id)
        held.sendall(b"{}")
        answer = b"".join(iter(lambda: held.recv(65_536), b""))

    assert request == 200
    assert b"credentials_ended" in answer or b"unauthenticated" in answer
    assert b"tg_" not in answer


# ── disabled and enabled ──────────────────────────────────────────────────────────────────────────


def test_does_not_revive_sessions_and_tokens_of_a_user_who_is_enabled_again(
    served: Served, user_id: str
) -> None:
    browser, token = signed_in(served), served.client(served.token(user_id))

    served.admin.post(f"/v1/users/{user_id}/disable", json={})
    served.admin.post(f"/v1/users/{user_id}/enable")

    assert (status(browser), status(token)) == (401, 401)
    assert status(signed_in(served)) == 200
    shown = served.admin.get(f"/v1/users/{user_id}").json()
    assert (shown["enabled"], shown["tokens"]) == (True, 0)


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────


def test_a_token_ends_with_the_token_that_made_it(served: Served, user_id: str) -> None:
    browser = signed_in(served)
    parent_id, parent = make_token(served, browser)
    child_id, child = make_token(served, parent)
    _, grandchild = make_token(served, child)
    _, sibling = make_token(served, browser)
    assert {status(item) for item in (parent, child, grandchild, sibling)} == {200}

    assert browser.post(f"/v1/tokens/{parent_id}/revoke").status_code == 200

    assert [status(item) for item in (parent, child, grandchild, sibling)] == [401, 401, 401, 200]
    shown = {item["token_id"]: item for item in browser.get("/v1/tokens").json()["items"]}
    assert (shown[child_id]["parent_id"], shown[child_id]["active"]) == (parent_id, False)
    assert shown[child_id]["revoked_at"] is None


def test_no_token_outlives_the_token_that_made_it(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    with serving(tmp_path / "data", clock=clock) as served:
        owner = served.as_role(Role.VIEWER)
        _, parent = make_token(served, owner, days=2)
        _, child = make_token(served, parent, days=30)

        clock.advance(timedelta(days=2))

        assert status(child) == 401


def test_limits_how_often_a_token_makes_a_token(served: Served) -> None:
    client = served.as_role(Role.VIEWER)
    for _ in range(TOKEN_ANCESTORS_MAX):
        _, client = make_token(served, client)

    refused = client.post("/v1/tokens", json={})

    assert refused.json()["code"] == "limit_exceeded"


def test_a_narrowed_token_of_an_administrator_revokes_no_token_of_others(served: Served) -> None:
    victim, target = served.user(Grant(Role.VIEWER)), ""
    token = served.token(victim)
    target = token.removeprefix(f"{TOKEN_PREFIX}_").partition("_")[0]
    admin = served.user(Grant(Role.SECURITY_ADMIN), Grant(Role.VIEWER))
    narrow = served.client(served.token(admin, (Grant(Role.VIEWER),)))
    wide = served.client(served.token(admin, (Grant(Role.SECURITY_ADMIN),)))

    refused = narrow.post(f"/v1/tokens/{target}/revoke")

    assert (refused.status_code, refused.json()["code"]) == (403, "not_owner")
    assert status(served.client(token)) == 200
    assert wide.post(f"/v1/tokens/{target}/revoke").status_code == 200
    assert status(served.client(token)) == 401


def test_a_narrowed_token_revokes_itself_and_its_own_tokens_only(
    served: Served,
) -> None:
    owner = served.as_role(Role.VIEWER, Role.AUDITOR)
    roles = [{"role": "viewer"}]
    narrow_id, narrow = make_token(served, owner, roles=roles)
    child_id, child = make_token(served, narrow)
    other_id, other = make_token(served, owner, roles=roles)

    refused = narrow.post(f"/v1/tokens/{other_id}/revoke")

    assert (refused.status_code, refused.json()["code"]) == (403, "not_owner")
    assert narrow.post(f"/v1/tokens/{child_id}/revoke").status_code == 200
    assert narrow.post(f"/v1/tokens/{narrow_id}/revoke").status_code == 200
    assert [status(item) for item in (child, narrow, other)] == [401, 401, 200]


# ── streams ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/v1/events", "/live"])
def test_ends_an_open_stream_with_the_credentials_that_opened_it(
    served: Served, user_id: str, path: str
) -> None:
    browser = signed_in(served)
    with browser.stream("GET", path, headers={"accept": "text/event-stream"}) as stream:
        assert stream.status_code == 200
        lines = stream.iter_lines()
        next(lines)

        reset(served, user_id)

        for _ in lines:  # the stream ends; otherwise the read times out
            pass
    assert status(browser) == 401


# ── the dashboard ─────────────────────────────────────────────────────────────────────────────────


def test_changes_the_own_password_on_the_settings_page(served: Served, user_id: str) -> None:
    browser, elsewhere = signed_in(served), signed_in(served)
    csrf = browser.headers.pop("x-csrf-token")
    form = {"current": PASSWORD, "password": OTHER_PASSWORD, "csrf_token": csrf}

    wrong = browser.post("/settings/password", data={**form, "current": "wrong"})
    done = browser.post("/settings/password", data=form)

    assert "The current password is wrong" in wrong.text
    assert done.status_code == 303
    page = browser.get(done.headers["location"])
    assert "Your password was changed" in page.text
    assert status(elsewhere) == 401


def test_a_token_that_is_refused_leaves_nothing(served: Served, user_id: str) -> None:
    """The hash is stored before the fact; a refusal removes it."""

    def kept() -> int:
        return len(served.installation.reads.range(TOKEN_SECRETS, limit=500))

    access, caller = served.installation.access, caller_of(user_id)
    for _ in range(TOKENS_MAX):
        access.create_token(caller, 1)
    before = kept()

    with pytest.raises(LimitExceeded):
        access.create_token(caller, 1)

    assert kept() == before
