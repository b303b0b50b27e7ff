"""A user chooses a password with a one-time code, as a new user and after a reset."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import httpx2
import pytest

from tests.agent.single_host import T0
from tests.api.accounts import LOGIN, PASSWORD, person, signed_in
from tests.api.serving import Served, serving
from tidegate.api.routes import ROUTES
from tidegate.clock import ManualClock
from tidegate.dashboard.routes import PAGES

NEW = "only the user knows this"


def add_person(served: Served) -> str:
    added = served.admin.post("/v1/users", json=person())
    assert added.status_code == 201, added.text
    found: str = added.json()["user_id"]
    return found


def reset(served: Served, user_id: str) -> dict[str, str]:
    answer = served.admin.post(f"/v1/users/{user_id}/reset-password")
    assert answer.status_code == 200, answer.text
    found: dict[str, str] = answer.json()
    return found


def redeem(served: Served, code: str, password: str = NEW, login: str = LOGIN) -> httpx2.Response:
    body = {"login": login, "code": code, "password": password}
    return served.client().post("/v1/password-resets", json=body)


def sign_in(served: Served, password: str) -> int:
    body = {"login": LOGIN, "password": password}
    return served.client().post("/v1/sessions", json=body).status_code


def test_the_user_chooses_the_new_password_with_the_code(served: Served) -> None:
    user_id = add_person(served)
    browser = signed_in(served)

    made = reset(served, user_id)

    assert browser.get("/v1/me").status_code == 401, "sessions end at once"
    assert sign_in(served, PASSWORD) == 403, "so does the password"
    assert redeem(served, made["code"]).status_code == 200
    assert sign_in(served, NEW) == 201
    assert served.installation.health.differences() == []


def test_a_new_user_chooses_the_first_password_with_a_code(served: Served) -> None:
    """An administrator who adds a user never learns the password."""
    body = {"login": LOGIN, "name": "Rosalind", "roles": [{"role": "approver"}]}
    key = {"idempotency-key": "add-1"}

    added = served.admin.post("/v1/users", json=body, headers=key)
    again = served.admin.post("/v1/users", json=body, headers=key)

    made = added.json()
    assert (added.status_code, again.status_code) == (201, 201), added.text
    assert made["link"].startswith(f"/reset?login={LOGIN}&code=")
    assert again.json()["user_id"] == made["user_id"]
    assert again.json()["code"] is None, "it is shown once"
    assert sign_in(served, "") == 403
    assert sign_in(served, made["code"]) == 403
    shown = served.admin.get(f"/v1/users/{made['user_id']}").json()
    assert "code" not in shown
    assert redeem(served, made["code"], "short").json()["code"] == "weak_password"
    assert redeem(served, made["code"]).status_code == 200
    assert redeem(served, made["code"], PASSWORD).json()["code"] == "wrong_reset_code"
    assert sign_in(served, NEW) == 201
    assert served.installation.accounts.check_sign_in(LOGIN, NEW).user_id == made["user_id"]
    assert served.installation.health.differences() == []


def test_the_code_of_a_new_user_expires_after_a_day(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    with serving(tmp_path / "data", clock=clock) as served:
        made = served.admin.post("/v1/users", json={"login": LOGIN, "name": "Rosalind"}).json()
        assert made["code_expires_at"] == "2026-04-25T20:00:00Z"
        clock.advance(timedelta(days=1, seconds=1))
        late = redeem(served, made["code"])
        fresh = reset(served, made["user_id"])

        assert late.json()["code"] == "wrong_reset_code"
        assert redeem(served, fresh["code"]).status_code == 200


def test_the_dashboard_shows_a_link_for_a_new_user(tmp_path: Path) -> None:
    with serving(tmp_path / "data", routes=(*ROUTES, *PAGES)) as served:
        roles = [{"role": "security-admin"}]
        served.admin.post("/v1/users", json=person(login="admin", roles=roles))
        admin = signed_in(served, "admin")
        form = {"login": LOGIN, "name": "Rosalind", "csrf_token": admin.headers["x-csrf-token"]}

        shown = admin.post("/settings/users", data={**form, "password": ""})
        link = shown.text.partition("/reset?")[2].partition("<")[0].replace("&amp;", "&")
        taken = admin.post("/settings/users", data={**form, "password": ""})

        assert shown.status_code == 200
        assert taken.status_code == 409, "the name is taken"
        assert redeem(served, httpx2.QueryParams(link)["code"]).status_code == 200
        assert sign_in(served, NEW) == 201


def test_a_code_works_once(served: Served) -> None:
    made = reset(served, add_person(served))
    assert redeem(served, made["code"]).status_code == 200

    again = redeem(served, made["code"], "another good password")

    assert (again.status_code, again.json()["code"]) == (403, "wrong_reset_code")
    assert sign_in(served, NEW) == 201


def test_a_second_reset_ends_the_first_code(served: Served) -> None:
    user_id = add_person(served)
    first, second = reset(served, user_id), reset(served, user_id)

    assert redeem(served, first["code"]).json()["code"] == "wrong_reset_code"
    assert redeem(served, second["code"]).status_code == 200


def test_a_code_expires_after_a_day(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    with serving(tmp_path / "data", clock=clock) as served:
        made = reset(served, add_person(served))
        clock.advance(timedelta(hours=24, seconds=1))

        assert redeem(served, made["code"]).json()["code"] == "wrong_reset_code"


@pytest.mark.parametrize("login", [LOGIN, "nobody"])
def test_a_wrong_code_and_an_unknown_name_get_the_same_response(served: Served, login: str) -> None:
    reset(served, add_person(served))

    answer = redeem(served, "0000-0000-0000-0000-0000", login=login)

    assert (answer.status_code, answer.json()["code"]) == (403, "wrong_reset_code")
    assert answer.json()["detail"] == (
        "The name or the code is wrong, or the code was used or is older than 24 hours."
    )


def test_guesses_of_codes_are_limited(tmp_path: Path) -> None:
    with serving(tmp_path / "data", sign_ins_per_minute=3) as served:
        reset(served, add_person(served))

        found = [redeem(served, "0000-0000-0000-0000-0000").status_code for _ in range(5)]

    assert found == [403, 403, 403, 429, 429]


def test_a_weak_password_does_not_use_the_code_up(served: Served) -> None:
    made = reset(served, add_person(served))

    assert redeem(served, made["code"], LOGIN).json()["code"] == "weak_password"
    assert redeem(served, made["code"]).status_code == 200


def test_users_cannot_set_the_password_of_another_user(served: Served) -> None:
    user_id = add_person(served)

    answer = served.admin.put(f"/v1/users/{user_id}/password", json={"password": NEW})

    assert (answer.status_code, answer.json()["code"]) == (403, "not_owner")
    assert answer.json()["detail"] == (
        "Only the user knows and changes their password. To reset it, an administrator runs:"
        " tidegate user reset-password USER"
    )
    assert sign_in(served, PASSWORD) == 201


def test_the_code_is_stored_nowhere(served: Served) -> None:
    made = reset(served, add_person(served))

    data = Path(served.installation.settings.data)
    assert not [
        path.name
        for path in data.rglob("*")
        if path.is_file() and made["code"].encode() in path.read_bytes()
    ]


def test_the_dashboard_shows_a_link_and_accepts_the_new_password(tmp_path: Path) -> None:
    with serving(tmp_path / "data", routes=(*ROUTES, *PAGES)) as served:
        roles = [{"role": "security-admin"}]
        served.admin.post("/v1/users", json=person(login="admin", roles=roles))
        user_id = add_person(served)
        admin = signed_in(served, "admin")
        csrf = admin.headers["x-csrf-token"]

        form = {"user_id": user_id, "csrf_token": csrf}
        shown = admin.post("/settings/reset-password", data=form)
        link = shown.text.partition("/reset?")[2].partition("<")[0].replace("&amp;", "&")
        browser = served.client()
        page = browser.get(f"/reset?{link}")
        code = httpx2.QueryParams(link)["code"]
        sent = {"login": LOGIN, "code": code, "password": NEW}
        wrong = browser.post("/reset", data={**sent, "code": "no"})
        done = browser.post("/reset", data=sent)

        assert shown.status_code == 200
        assert code in page.text
        assert wrong.status_code == 403
        assert (done.status_code, done.headers["location"]) == (303, "/signin")
        assert sign_in(served, NEW) == 201
