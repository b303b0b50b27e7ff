"""Failed sign-ins are counted per name and address, so that nobody can lock out another user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.api.accounts import LOGIN, PASSWORD, person
from tests.api.serving import Served, serving

LIMIT = 3
ATTACKER, OWNER = "203.0.113.9", "198.51.100.7"


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[Served]:
    """A server behind a proxy on loopback, which passes the client's address on."""
    with serving(tmp_path / "data", sign_ins_per_minute=LIMIT, behind_proxy=True) as served:
        assert served.admin.post("/v1/users", json=person()).status_code == 201
        yield served


def sign_in(served: Served, address: str, login: str, password: str) -> httpx2.Response:
    return served.client().post(
        "/v1/sessions",
        json={"login": login, "password": password},
        headers={"x-forwarded-for": address},
    )


def test_guesses_from_one_address_do_not_lock_a_user_out_at_another(proxied: Served) -> None:
    guesses = [sign_in(proxied, ATTACKER, LOGIN, "wrong").status_code for _ in range(LIMIT + 2)]

    assert guesses == [403] * LIMIT + [429] * 2
    assert sign_in(proxied, OWNER, LOGIN, PASSWORD).status_code == 201


def test_guesses_for_one_name_do_not_lock_out_others_at_the_address(proxied: Served) -> None:
    for _ in range(LIMIT + 2):
        sign_in(proxied, ATTACKER, "somebody-else", "wrong")

    assert sign_in(proxied, ATTACKER, LOGIN, PASSWORD).status_code == 201


def test_the_case_of_a_name_does_not_matter(proxied: Served) -> None:
    names = [LOGIN, LOGIN.upper(), LOGIN.title(), LOGIN]

    answers = [sign_in(proxied, ATTACKER, name, "wrong").status_code for name in names]

    assert answers == [403] * LIMIT + [429]


def test_a_successful_sign_in_uses_up_no_attempt(proxied: Served) -> None:
    answers = {sign_in(proxied, OWNER, LOGIN, PASSWORD).status_code for _ in range(LIMIT * 3)}

    assert answers == {201}


def test_an_address_that_guesses_many_names_is_stopped(proxied: Served) -> None:
    answers = [
        sign_in(proxied, ATTACKER, f"name-{number}", "wrong").status_code
        for number in range(LIMIT * 10 + 2)
    ]

    assert answers == [403] * (LIMIT * 10) + [429] * 2


def test_a_client_cannot_choose_its_address_unless_it_is_a_trusted_proxy(tmp_path: Path) -> None:
    with serving(
        tmp_path / "data",
        sign_ins_per_minute=LIMIT,
        behind_proxy=True,
        trusted_proxies="192.0.2.0/24",
    ) as served:
        assert served.admin.post("/v1/users", json=person()).status_code == 201

        addresses = [f"203.0.113.{number}" for number in range(LIMIT + 1)]
        guesses = [sign_in(served, item, LOGIN, "wrong").status_code for item in addresses]

    assert guesses == [403] * LIMIT + [429]
