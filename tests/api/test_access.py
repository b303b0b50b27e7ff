"""Access: first start, sign-in, sessions, CSRF, API tokens, roles, and erasing a person."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.api.accounts import LOGIN, NAME, PASSWORD, person, signed_in
from tests.api.serving import ADMIN, Served, secret_of, serving
from tidegate.clock import ManualClock
from tidegate.control.operations import api_tokens, passwords
from tidegate.control.operations.ids import make_id
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.principals import Principal
from tidegate.domain.access.refusals import TokenExists
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.access.steps import CREATE_TOKEN
from tidegate.kernel.model import Meta

T0 = datetime(2026, 1, 27, 10, 0, tzinfo=UTC)


# ── first start ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("alone", "quorum", "roles"), [(True, 0, len(Role)), (False, 1, 2)])
def test_creates_the_first_user_with_the_printed_code(
    tmp_path: Path, alone: bool, quorum: int, roles: int
) -> None:
    with serving(tmp_path / "data", is_set_up=False) as served:
        code = served.installation.accounts.open_setup()
        client = served.client()
        assert client.get("/v1/setup").json() == {"set_up": False, "alone": None}

        wrong = client.post("/v1/setup", json=person(code="0000-0000-0000-0000", alone=alone))
        made = client.post("/v1/setup", json=person(code=code, alone=alone))
        again = client.post("/v1/setup", json=person(code=code, alone=alone, login="other"))

        assert (wrong.status_code, wrong.json()["code"]) == (403, "wrong_setup_code")
        assert made.status_code == 201
        assert (again.status_code, again.json()["code"]) == (403, "wrong_setup_code")
        assert client.get("/v1/setup").json() == {"set_up": True, "alone": alone}
        first = signed_in(served)
        assert len(first.get("/v1/me").json()["grants"]) == roles
        assert first.get("/v1/repositories/default").json()["quorum"] == quorum
        assert not (tmp_path / "data" / "setup-code").exists()
        assert served.installation.accounts.open_setup() is None


def test_a_setup_code_expires(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    with serving(tmp_path / "data", is_set_up=False, clock=clock) as served:
        code = served.installation.accounts.open_setup()
        assert oct((tmp_path / "data" / "setup-code").stat().st_mode)[-3:] == "600"
        clock.advance(timedelta(minutes=16))

        late = served.client().post("/v1/setup", json=person(code=code, alone=True))

        assert (late.status_code, late.json()["code"]) == (403, "wrong_setup_code")


# ── sessions ──────────────────────────────────────────────────────────────────────────────────────


def test_sets_a_session_cookie_that_scripts_cannot_read(served: Served) -> None:
    served.admin.post("/v1/users", json=person())

    answer = served.client().post("/v1/sessions", json={"login": LOGIN, "password": PASSWORD})

    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("tidegate_session=")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert answer.json()["csrf_token"] not in cookie


def test_marks_the_cookie_secure_if_browsers_use_https(tmp_path: Path) -> None:
    with serving(tmp_path / "data", public_url="https://gate.example") as served:
        served.admin.post("/v1/users", json=person())

        answer = served.client().post("/v1/sessions", json={"login": LOGIN, "password": PASSWORD})

        assert answer.headers["set-cookie"].startswith("__Host-tidegate=")
        assert answer.headers["set-cookie"].endswith("; Secure")


def test_answers_alike_for_a_wrong_name_and_a_wrong_password(served: Served) -> None:
    served.admin.post("/v1/users", json=person())
    client = served.client()

    name = client.post("/v1/sessions", json={"login": "nobody", "password": PASSWORD})
    password = client.post("/v1/sessions", json={"login": LOGIN, "password": "wrong"})

    assert (name.status_code, password.status_code) == (403, 403)
    assert name.json()["code"] == password.json()["code"] == "wrong_credentials"
    assert name.json()["detail"] == password.json()["detail"]


def test_refuses_a_write_of_a_session_without_its_csrf_token(served: Served) -> None:
    roles = [{"role": "security-admin"}]
    served.admin.post("/v1/users", json=person(roles=roles))
    client = signed_in(served)
    token = client.headers.pop("x-csrf-token")
    body = {"name": "made"}

    refused = [
        client.post("/v1/repositories", json=body, headers=headers)
        for headers in (
            {},
            {"x-csrf-token": "0" * 64},
            {"x-csrf-token": token, "origin": "https://evil.example"},
            {"x-csrf-token": token, "sec-fetch-site": "cross-site"},
        )
    ]
    headers = {"x-csrf-token": token, "origin": served.url, "sec-fetch-site": "same-origin"}
    made = client.post("/v1/repositories", json=body, headers=headers)

    assert [(item.status_code, item.json()["code"]) for item in refused] == [
        (403, "cross_site")
    ] * 4
    assert made.status_code == 201
    assert client.get("/v1/repositories/made").status_code == 200


def test_ends_a_session_by_sign_out_idleness_and_age(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    with serving(tmp_path / "data", clock=clock) as served:
        served.admin.post("/v1/users", json=person(roles=[{"role": "viewer"}]))
        out, idle, old = (signed_in(served) for _ in range(3))

        cookie = out.cookies["tidegate_session"]
        assert out.delete("/v1/sessions/current").status_code == 204
        out.cookies.set("tidegate_session", cookie)
        assert out.get("/v1/me").status_code == 401

        clock.advance(timedelta(minutes=29))
        assert idle.get("/v1/me").status_code == 200
        clock.advance(timedelta(minutes=29))
        assert idle.get("/v1/me").status_code == 200, "it was used since"
        clock.advance(timedelta(minutes=31))
        assert idle.get("/v1/me").status_code == 401

        old = signed_in(served)
        seen = []
        for _ in range(26):
            clock.advance(timedelta(minutes=28))
            seen.append(old.get("/v1/me").status_code)
        assert seen == [200] * 25 + [401], "twelve hours have passed"


def test_records_failed_sign_ins_as_one_event_a_minute(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    with serving(tmp_path / "data", clock=clock) as served:
        user_id = served.admin.post("/v1/users", json=person()).json()["user_id"]
        client = served.client()

        def fail(times: int) -> None:
            for _ in range(times):
                client.post("/v1/sessions", json={"login": LOGIN, "password": "wrong"})

        fail(3)
        clock.advance(timedelta(minutes=2))
        fail(1)

        params = {"type": "SignInFailed"}
        events = served.admin.get("/v1/events", params=params).json()["items"]
        assert [event["data"]["count"] for event in events] == [1, 3]
        assert {event["data"]["user_id"] for event in events} == {user_id}


def test_limits_failed_sign_ins(tmp_path: Path) -> None:
    with serving(tmp_path / "data", sign_ins_per_minute=3) as served:
        client = served.client()

        answers = [
            client.post("/v1/sessions", json={"login": "nobody", "password": "wrong"})
            for _ in range(5)
        ]

        assert [answer.status_code for answer in answers] == [403, 403, 403, 429, 429]
        assert answers[-1].json()["code"] == "rate_limited"
        assert int(answers[-1].headers["retry-after"]) >= 1


def test_limits_the_rate_of_writes(tmp_path: Path) -> None:
    with serving(tmp_path / "data", writes_per_second=2) as served:
        viewer, other = served.as_role(Role.VIEWER), served.as_role(Role.VIEWER)

        answers = [viewer.post("/v1/tokens", json={}).status_code for _ in range(20)]

        assert 429 in answers
        assert viewer.get("/v1/me").status_code == 200, "reads have a separate limit"
        assert other.post("/v1/tokens", json={}).status_code == 201, "so has every user"


# ── users, roles ──────────────────────────────────────────────────────────────────────────────────


def test_adds_a_user_once_under_one_key(served: Served) -> None:
    admin = served.admin
    headers = {"idempotency-key": "add"}

    first = admin.post("/v1/users", json=person(), headers=headers)
    again = admin.post("/v1/users", json=person(), headers=headers)
    other = admin.post("/v1/users", json=person(login="other"), headers=headers)
    taken = admin.post("/v1/users", json=person(login=LOGIN.upper()))

    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")
    assert (taken.status_code, taken.json()["code"]) == (409, "user_exists")


def test_users_cannot_change_their_own_access(served: Served) -> None:
    admin = served.admin

    answers = [
        admin.post(f"/v1/users/{ADMIN}/{verb}", json=body)
        for verb, body in (
            ("grant", {"role": "author"}),
            ("revoke", {"role": "security-admin"}),
            ("disable", {}),
        )
    ]
    answers.append(admin.post(f"/v1/users/{ADMIN}/erase"))

    assert [(item.status_code, item.json()["code"]) for item in answers] == [
        (403, "own_access")
    ] * 4


def test_grants_and_withdraws_roles_on_scopes(served: Served) -> None:
    admin = served.admin
    user_id = served.user()
    client = served.client(served.token(user_id))
    role = {"role": "viewer", "scope": "repository:default"}
    assert client.get("/v1/repositories/default").status_code == 403

    granted = admin.post(f"/v1/users/{user_id}/grant", json=role)
    assert granted.json()["grants"] == [role]
    assert client.get("/v1/repositories/default").status_code == 200
    taken = admin.post(f"/v1/users/{user_id}/revoke", json=role)
    assert taken.json()["grants"] == []
    assert client.get("/v1/repositories/default").status_code == 403
    bad = admin.post(f"/v1/users/{user_id}/grant", json={"role": "viewer", "scope": "host:a"})
    assert bad.status_code == 400


def test_locks_a_disabled_user_out_at_once(served: Served) -> None:
    admin = served.admin
    user_id = admin.post("/v1/users", json=person(roles=[{"role": "viewer"}])).json()["user_id"]
    browser = signed_in(served)
    token = served.client(served.token(user_id))

    admin.post(f"/v1/users/{user_id}/disable", json={"reason": "left"})

    assert browser.get("/v1/me").status_code == 401
    assert token.get("/v1/me").status_code == 401
    refused = served.client().post("/v1/sessions", json={"login": LOGIN, "password": PASSWORD})
    assert refused.json()["code"] == "wrong_credentials"
    admin.post(f"/v1/users/{user_id}/enable")
    assert signed_in(served).get("/v1/me").status_code == 200


def test_users_change_their_own_password_only(served: Served) -> None:
    admin = served.admin
    user_id = admin.post("/v1/users", json=person()).json()["user_id"]
    browser = signed_in(served)
    other = served.as_role(Role.AUTHOR)
    body = {"password": "another good one", "current": PASSWORD}

    assert other.put(f"/v1/users/{user_id}/password", json=body).status_code == 403
    short = {**body, "password": LOGIN}
    weak = browser.put(f"/v1/users/{user_id}/password", json=short)
    assert browser.put(f"/v1/users/{user_id}/password", json=body).status_code == 200
    assert (weak.status_code, weak.json()["code"]) == (400, "weak_password")
    signed_in(served, password="another good one")
    old = served.client().post("/v1/sessions", json={"login": LOGIN, "password": PASSWORD})
    assert old.status_code == 403


# ── API tokens ────────────────────────────────────────────────────────────────────────────────────


def test_shows_a_token_once_and_lets_it_expire(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    with serving(tmp_path / "data", clock=clock) as served:
        user_id = served.user(Grant(Role.VIEWER))
        client = served.client(served.token(user_id))
        made = client.post("/v1/tokens", json={"days": 2}).json()
        other = served.client(made["token"])
        assert other.get("/v1/me").json()["user_id"] == user_id

        listed = client.get("/v1/tokens").text
        assert made["token_id"] in listed
        assert secret_of(made["token"]) not in listed

        clock.advance(timedelta(days=2))
        assert other.get("/v1/me").status_code == 401


def test_a_repeat_does_not_return_the_secret_again(served: Served) -> None:
    client = served.as_role(Role.VIEWER)
    headers = {"idempotency-key": "one"}

    made = client.post("/v1/tokens", json={}, headers=headers)
    again = client.post("/v1/tokens", json={}, headers=headers)

    assert (again.status_code, again.json()["code"]) == (409, "token_exists")
    assert served.client(made.json()["token"]).get("/v1/me").status_code == 200


def test_creates_a_token_after_a_first_request_that_failed_halfway(served: Served) -> None:
    """The token's hash had been stored and could not be removed: the disk was full."""
    user_id = served.user(Grant(Role.VIEWER))
    client = served.client(served.token(user_id))
    principal = Principal(user_id, "token", (Grant(Role.VIEWER),))
    token_id = make_id(Caller(principal=principal, key="one"), CREATE_TOKEN, "token")
    half_made = served.installation.accounts.tokens.keep_token(token_id, Meta(actor=user_id))

    made = client.post("/v1/tokens", json={}, headers={"idempotency-key": "one"})

    assert made.status_code == 201, made.text
    assert made.json()["token_id"] == token_id
    assert served.client(made.json()["token"]).get("/v1/me").status_code == 200
    assert served.client(half_made).get("/v1/me").status_code == 401
    with pytest.raises(TokenExists):
        served.installation.accounts.tokens.keep_token(token_id, Meta(actor=user_id))
    assert served.client(made.json()["token"]).get("/v1/me").status_code == 200


def test_shows_no_token_that_another_copy_of_the_request_replaced(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_id = served.user(Grant(Role.VIEWER))
    client = served.client(served.token(user_id))
    keep = served.installation.accounts.tokens.keep_token

    def keep_and_race(token_id: str, meta: Meta) -> str:
        token = keep(token_id, meta)
        keep(token_id, meta)  # the other copy, before this one creates the token
        return token

    monkeypatch.setattr(
        api_tokens.ApiTokens, "keep_token", lambda self, *said: keep_and_race(*said)
    )
    made = client.post("/v1/tokens", json={}, headers={"idempotency-key": "one"})

    assert (made.status_code, made.json()["code"]) == (409, "token_exists")


def test_only_the_owner_and_administrators_revoke_a_token(served: Served) -> None:
    owner, other = served.as_role(Role.VIEWER), served.as_role(Role.RELEASE_MANAGER)
    token_id = owner.get("/v1/tokens").json()["items"][0]["token_id"]

    refused = other.post(f"/v1/tokens/{token_id}/revoke")
    revoked = served.admin.post(f"/v1/tokens/{token_id}/revoke")

    assert (refused.status_code, refused.json()["code"]) == (403, "not_owner")
    assert revoked.status_code == 200
    assert owner.get("/v1/me").status_code == 401


# ── secrets and names ─────────────────────────────────────────────────────────────────────────────


def test_erasing_a_person_leaves_no_byte_of_their_names(served: Served) -> None:
    admin = served.admin
    roles = [{"role": "viewer"}, {"role": "author"}]
    user_id = admin.post("/v1/users", json=person(roles=roles)).json()["user_id"]
    browser = signed_in(served)
    draft = {"repository": "default", "packageName": "web", "workspaceName": "v1"}
    assert browser.post("/v1/revisions", json=draft).status_code == 201
    assert admin.get(f"/v1/users/{user_id}").json()["name"] == NAME

    erased = admin.post(f"/v1/users/{user_id}/erase")

    assert (erased.json()["name"], erased.json()["erased"]) == (None, True)
    assert browser.get("/v1/me").status_code == 401
    pages = admin.get("/v1/users").text + admin.get("/v1/events", params={"limit": 500}).text
    files = Path(served.installation.settings.data).rglob("*")
    stored = b"".join(path.read_bytes() for path in files if path.is_file())
    for text in (NAME, LOGIN, "Rosalind", "zweistein"):
        assert text not in pages
        assert text.encode() not in stored
    assert user_id in pages, "the history still says who it was"
    assert served.installation.health.differences() == []
    again = admin.post("/v1/users", json=person())
    assert again.status_code == 201, "the sign-in name is free"


def test_stores_no_issued_secret(served: Served) -> None:
    admin = served.admin
    admin.post("/v1/users", json=person(roles=[{"role": "viewer"}]))
    browser = signed_in(served)
    token = browser.post("/v1/tokens", json={}).json()["token"]
    secrets = [PASSWORD, token, secret_of(token), browser.cookies["tidegate_session"]]

    files = Path(served.installation.settings.data).rglob("*")
    stored = b"".join(path.read_bytes() for path in files if path.is_file())

    assert [secret for secret in secrets if secret.encode() in stored] == []


def test_verifies_a_password_with_the_costs_of_its_hash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = passwords.stretch_password(PASSWORD)
    monkeypatch.setattr(passwords, "SCRYPT_N", passwords.SCRYPT_N // 2)

    assert passwords.is_password(PASSWORD, kept)
    assert not passwords.is_password("correct horse", kept)
    assert passwords.is_password("other", passwords.stretch_password("other"))
