"""A user whose password another person has reset cannot approve for a day."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import httpx2

from tests.agent.single_host import T0
from tests.api.accounts import LOGIN, PASSWORD, person, signed_in
from tests.api.people import People
from tests.api.serving import Served, serving
from tidegate.clock import ManualClock

RESET = "chosen with the code of the reset"
OWN = "only the approver knows it"


def approve(people: People, who: httpx2.Client) -> httpx2.Response:
    digest = people.document()["status"]["content"]["digest"]
    return people.step(who, "approve", digest=digest)


def proposed(served: Served) -> tuple[People, str]:
    """A proposal, and an approver with a password."""
    people = People(served)
    people.draft()
    assert people.step(people.author, "propose").status_code == 200
    roles = [{"role": "approver"}, {"role": "viewer"}]
    added = served.admin.post("/v1/users", json=person(roles=roles))
    assert added.status_code == 201, added.text
    return people, added.json()["user_id"]


def reset(served: Served, user_id: str) -> None:
    """Let the administrator reset the password, and the holder of the code choose another one."""
    made = served.admin.post(f"/v1/users/{user_id}/reset-password")
    assert made.status_code == 200, made.text
    body = {"login": LOGIN, "code": made.json()["code"], "password": RESET}
    answer = served.client().post("/v1/password-resets", json=body)
    assert answer.status_code == 200, answer.text


def test_an_administrator_approves_nothing_by_resetting_a_password(served: Served) -> None:
    people, user_id = proposed(served)
    reset(served, user_id)
    who = signed_in(served, password=RESET)

    answer = approve(people, who)

    assert (answer.status_code, answer.json()["code"]) == (422, "approvals_barred")
    assert people.document()["spec"]["lifecycle"] == "Proposed"
    assert people.step(who, "reject", reason="not good").status_code == 200, "stopping is allowed"
    assert served.installation.health.differences() == []


def test_changing_the_password_again_does_not_lift_it(served: Served) -> None:
    people, user_id = proposed(served)
    reset(served, user_id)
    changed = signed_in(served, password=RESET).put(
        f"/v1/users/{user_id}/password", json={"password": OWN, "current": RESET}
    )
    assert changed.status_code == 200, changed.text

    answer = approve(people, signed_in(served, password=OWN))

    assert answer.json()["code"] == "approvals_barred"


def test_a_token_of_the_user_is_barred_too(served: Served) -> None:
    people, user_id = proposed(served)
    reset(served, user_id)
    made = signed_in(served, password=RESET).post("/v1/tokens", json={"days": 1})
    assert made.status_code == 201, made.text

    answer = approve(people, served.client(made.json()["token"]))

    assert answer.json()["code"] == "approvals_barred"


def test_the_bar_ends_after_a_day(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    with serving(tmp_path / "data", clock=clock) as served:
        people, user_id = proposed(served)
        reset(served, user_id)
        clock.advance(timedelta(hours=24, seconds=1))

        answer = approve(people, signed_in(served, password=RESET))

        assert answer.status_code == 200, answer.text


def test_changing_the_own_password_bars_nothing(served: Served) -> None:
    people, user_id = proposed(served)
    changed = signed_in(served).put(
        f"/v1/users/{user_id}/password", json={"password": OWN, "current": PASSWORD}
    )
    assert changed.status_code == 200, changed.text

    assert approve(people, signed_in(served, LOGIN, OWN)).status_code == 200
