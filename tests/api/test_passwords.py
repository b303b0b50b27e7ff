"""Which passwords are allowed, how they are stored, and that every route refuses the same ones."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.api.accounts import LOGIN, PASSWORD, person, signed_in
from tests.api.serving import Served
from tidegate.control.operations import passwords
from tidegate.control.operations.accounts import PersonNames
from tidegate.control.operations.passwords import WeakPassword, check_password
from tidegate.domain.access.erasable_rows import CREDENTIALS, Credential
from tidegate.domain.access.roles import Role
from tidegate.kernel.model import Key

WEAK = [
    "",
    "elevenchars",
    "123456789qwerty",
    "123456789QWERTY",
    "sonyericsson",
    "aaaaaaaaaaaaaaaa",
    "121212121212",
    "x" * 257,
]


@pytest.mark.parametrize("password", WEAK)
def test_refuses_short_common_and_monotonous_passwords(password: str) -> None:
    with pytest.raises(WeakPassword):
        check_password(password, "ada")


@pytest.mark.parametrize("password", ["correct horse battery", "Tr0ub4dor&3-x", "x" * 7 + "ädcbe"])
def test_accepts_other_passwords(password: str) -> None:
    check_password(password, "ada")


def test_refuses_the_name_as_a_password() -> None:
    with pytest.raises(WeakPassword, match="sign-in name"):
        check_password("Rosalind.Franklin", "rosalind.franklin")


@pytest.mark.parametrize("password", WEAK[:-1])
def test_every_route_refuses_a_weak_password_with_the_same_code(
    shared: Served, password: str
) -> None:
    added = shared.admin.post("/v1/users", json=person(login="weak", password=password))
    kept = shared.admin.post("/v1/users", json=person(login=f"kept-{hash(password)}")).json()
    made = shared.admin.post(f"/v1/users/{kept['user_id']}/reset-password").json()
    sent = {"login": made["login"], "code": made["code"], "password": password}
    changed = shared.client().post("/v1/password-resets", json=sent)

    assert [(item.status_code, item.json()["code"]) for item in (added, changed)] == [
        (400, "weak_password")
    ] * 2


@pytest.mark.parametrize("scope", ["channel:Web", "channel:", "nonsense", "repository:-x", ""])
def test_every_route_refuses_a_malformed_scope_with_the_same_code(
    shared: Served, scope: str
) -> None:
    role = {"role": "viewer", "scope": scope}
    added = shared.admin.post("/v1/users", json=person(login="scoped", roles=[role]))
    granted = shared.admin.post(f"/v1/users/{shared.user()}/grant", json=role)
    narrowed = shared.as_role(Role.VIEWER).post("/v1/tokens", json={"days": 1, "roles": [role]})

    assert [(item.status_code, item.json()["code"]) for item in (added, granted, narrowed)] == [
        (400, "invalid_scope")
    ] * 3


def kept(served: Served, user_id: str) -> str:
    found = served.installation.reads.find(Key(CREDENTIALS.name, user_id), Credential)
    assert found is not None
    return found.row.scrypt


def test_a_server_hashes_with_the_full_cost() -> None:
    """Tests use a cheaper hash to be quick, so a separate process checks the cost on a server."""
    program = "from tidegate.control.operations.passwords import *; print(stretch_password('x'))"
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout

    assert printed.startswith("131072$8$1$")


def test_rehashes_a_password_with_an_outdated_cost(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "SCRYPT_N", 2**9)
    served.add_person("user_aaaaaaaaaa", PersonNames(LOGIN, "Rosalind"), PASSWORD)
    monkeypatch.undo()
    assert kept(served, "user_aaaaaaaaaa").startswith("512$")
    with pytest.raises(AssertionError):
        signed_in(served, password="wrong horse battery")
    assert kept(served, "user_aaaaaaaaaa").startswith("512$"), "the password was wrong"

    client = signed_in(served)

    assert kept(served, "user_aaaaaaaaaa").startswith(f"{passwords.SCRYPT_N}$")
    assert client.get("/v1/me").status_code == 200, "the session is good"
    assert signed_in(served).get("/v1/me").status_code == 200, "so is the password"
    assert served.installation.health.differences() == []
