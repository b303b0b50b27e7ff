"""The verbs of access have the same result through each door."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.served_fleet import ServedFleet
from tests.api.serving import serving
from tests.verbs.doors import (
    CALLER,
    LOGIN,
    PASSWORD,
    ApiCall,
    Door,
    Form,
    SharedServers,
    Verb,
    VerbCase,
    check,
    facts_after,
    send,
)
from tidegate.api.routes import ROUTES
from tidegate.control.operations.accounts import PersonNames
from tidegate.dashboard.routes import PAGES
from tidegate.domain.access import steps
from tidegate.domain.access.roles import Grant, Role

GRACE = "user_grace00000"
TOKEN = "token0of0grace"
FIRST_PASSWORD = "a long enough passphrase"
NEW_PASSWORD = "another long passphrase"
PAGE = "/settings"
ADMIN = (Role.SECURITY_ADMIN,)
VIEWER = (Role.VIEWER,)
WHY = "she left"


def know(fleet: ServedFleet) -> None:
    """Give Grace the viewer role and a token."""
    called = PersonNames("grace.hopper", "Grace Hopper")
    fleet.served.add_person(GRACE, called, FIRST_PASSWORD, Grant(Role.VIEWER))
    fleet.served.make_token(TOKEN, GRACE)


def disable(fleet: ServedFleet) -> None:
    know(fleet)
    assert fleet.served.admin.post(f"/v1/users/{GRACE}/disable", json={}).status_code == 200


def erase(fleet: ServedFleet) -> None:
    know(fleet)
    assert fleet.served.admin.post(f"/v1/users/{GRACE}/erase").status_code == 200


# ── users ─────────────────────────────────────────────────────────────────────────────────────────


def add(login: str, password: str = FIRST_PASSWORD) -> Verb:
    """A user without a password gets a code to choose one."""
    names = {"login": login, "name": "Grace Hopper"} | ({"password": password} if password else {})
    stdin = ("--password-stdin",) if password else ()
    return Verb(
        steps.ADD_USER,
        ApiCall("POST", "/v1/users", {**names, "roles": [{"role": "author"}]}),
        ("user", "create", login, "--name", "Grace Hopper", "--role", "author", *stdin),
        Form("/settings/users", {**names, "role": "author"}, PAGE),
        f"{password}\n",
    )


def give(role: str, *, take: bool = False, user_id: str = GRACE) -> Verb:
    name = "revoke" if take else "grant"
    fields = {"user_id": user_id, "role": role, "scope": "*", "take": str(take).lower()}
    return Verb(
        steps.REVOKE_ROLE if take else steps.GRANT_ROLE,
        ApiCall("POST", f"/v1/users/{user_id}/{name}", {"role": role, "scope": "*"}),
        ("user", "grant", user_id, role, *(("--take",) if take else ())),
        Form("/settings/grant", fields, PAGE),
    )


def shut_out(user_id: str = GRACE) -> Verb:
    return Verb(
        steps.DISABLE_USER,
        ApiCall("POST", f"/v1/users/{user_id}/disable", {"reason": WHY}),
        ("user", "disable", user_id, "--reason", WHY),
        Form("/settings/disable", {"user_id": user_id, "reason": WHY}, PAGE),
    )


ADD = add("grace.hopper")
GRANT = give("author")
TAKE = give("viewer", take=True)
DISABLE = shut_out()
DISABLE_WITHOUT_REASON = Verb(
    steps.DISABLE_USER,
    ApiCall("POST", f"/v1/users/{GRACE}/disable", {}),
    ("user", "disable", GRACE),
    Form("/settings/disable", {"user_id": GRACE, "reason": ""}, PAGE),
)
ENABLE = Verb(
    steps.ENABLE_USER,
    ApiCall("POST", f"/v1/users/{GRACE}/enable"),
    ("user", "enable", GRACE),
    Form("/settings/enable", {"user_id": GRACE}, PAGE),
)
ERASE = Verb(
    steps.ERASE_USER,
    ApiCall("POST", f"/v1/users/{GRACE}/erase"),
    ("user", "erase", GRACE, "--yes"),
    "the dashboard erases no users",
)
RESET_PASSWORD = Verb(
    steps.RESET_PASSWORD,
    ApiCall("POST", f"/v1/users/{GRACE}/reset-password"),
    ("user", "reset-password", GRACE),
    Form("/settings/reset-password", {"user_id": GRACE}, PAGE),
)


def redeem(code: str) -> Verb:
    fields = {"login": "grace.hopper", "code": code, "password": NEW_PASSWORD}
    words = ("user", "redeem", "grace.hopper", "--code", code, "--password-stdin")
    return Verb(
        steps.REDEEM_RESET,
        ApiCall("POST", "/v1/password-resets", fields),
        words,
        Form("/reset", fields, "/reset"),
        f"{NEW_PASSWORD}\n",
    )


# ── passwords, tokens, sessions ───────────────────────────────────────────────────────────────────


def change_password(password: str, current: str = PASSWORD) -> Verb:
    fields = {"password": password, "current": current}
    return Verb(
        steps.CHANGE_PASSWORD,
        ApiCall("PUT", f"/v1/users/{CALLER}/password", fields),
        ("user", "password", CALLER, "--password-stdin"),
        Form("/settings/password", fields, PAGE),
        f"{current}\n{password}\n",
    )


def sign_in(password: str) -> Verb:
    fields = {"login": LOGIN, "password": password}
    return Verb(
        steps.SIGN_IN,
        ApiCall("POST", "/v1/sessions", fields),
        ("login", "--login", LOGIN, "--password-stdin", "--no-keep"),
        Form("/signin", fields),
        f"{password}\n",
    )


CHANGE_PASSWORD = change_password(NEW_PASSWORD)
CREATE_TOKEN = Verb(
    steps.CREATE_TOKEN,
    ApiCall("POST", "/v1/tokens", {"days": 7}),
    ("token", "create", "--days", "7"),
    Form("/settings/tokens", {"days": "7"}, PAGE),
)
CREATE_NARROWED_TOKEN = Verb(
    steps.CREATE_TOKEN,
    ApiCall("POST", "/v1/tokens", {"days": 7, "roles": [{"role": "fleet-operator"}]}),
    ("token", "create", "--days", "7", "--role", "fleet-operator"),
    "the dashboard narrows no token",
)
REVOKE_TOKEN = Verb(
    steps.REVOKE_TOKEN,
    ApiCall("POST", f"/v1/tokens/{TOKEN}/revoke"),
    ("token", "delete", TOKEN),
    Form("/settings/revoke", {"token_id": TOKEN}, PAGE),
)
SIGN_OUT = Verb(
    steps.SIGN_OUT,
    ApiCall("DELETE", "/v1/sessions/current"),
    "the command line keeps no session: it revokes its token",
    Form("/signout"),
)
NARROWED = (Grant(Role.VIEWER),)
# The command line opens a session for a moment, and makes a token with it.
MAKES_TOKEN = frozenset({"TokenCreated"})
FAILS = frozenset({"SignInFailed"})

CASES = (
    VerbCase(ADD, "a new user", ADMIN),
    VerbCase(add("grace.hopper", ""), "without a password", ADMIN),
    VerbCase(ADD, "with a name that exists", ADMIN, know, "user_exists"),
    VerbCase(
        add("grace.hopper", "grace.hopper"), "with a weak password", ADMIN, code="weak_password"
    ),
    VerbCase(ADD, "as a viewer", VIEWER, code="missing_permission"),
    VerbCase(GRANT, "a new role", ADMIN, know),
    VerbCase(give("viewer"), "a role that she has", ADMIN, know, changes=False),
    VerbCase(GRANT, "an unknown user", ADMIN, code="user_not_found"),
    VerbCase(give("author", user_id=CALLER), "yourself", ADMIN, code="own_access"),
    VerbCase(GRANT, "as a viewer", VIEWER, know, "missing_permission"),
    VerbCase(TAKE, "a role that she has", ADMIN, know),
    VerbCase(give("author", take=True), "a role that she lacks", ADMIN, know, changes=False),
    VerbCase(TAKE, "of an erased user", ADMIN, erase, "user_erased"),
    VerbCase(TAKE, "as a viewer", VIEWER, know, "missing_permission"),
    VerbCase(DISABLE, "an enabled user", ADMIN, know),
    VerbCase(DISABLE_WITHOUT_REASON, "without a reason", ADMIN, know),
    VerbCase(shut_out(CALLER), "yourself", ADMIN, know, "own_access"),
    VerbCase(DISABLE, "as a viewer", VIEWER, know, "missing_permission"),
    VerbCase(ENABLE, "a disabled user", ADMIN, disable),
    VerbCase(ENABLE, "an erased user", ADMIN, erase, "user_erased"),
    VerbCase(ENABLE, "as a viewer", VIEWER, disable, "missing_permission"),
    VerbCase(ERASE, "a user", ADMIN, know),
    VerbCase(ERASE, "an unknown user", ADMIN, code="user_not_found"),
    VerbCase(ERASE, "as a viewer", VIEWER, know, "missing_permission"),
    VerbCase(RESET_PASSWORD, "of another user", ADMIN, know),
    VerbCase(RESET_PASSWORD, "of an erased user", ADMIN, erase, "user_erased"),
    VerbCase(RESET_PASSWORD, "as a viewer", VIEWER, know, "missing_permission"),
    VerbCase(redeem("0000-0000"), "with a wrong code", VIEWER, know, "wrong_reset_code"),
    VerbCase(CHANGE_PASSWORD, "your own", VIEWER, has_password=True, beside=MAKES_TOKEN),
    VerbCase(
        change_password(NEW_PASSWORD, "not the current one"),
        "without the current one",
        VIEWER,
        code="wrong_credentials",
        has_password=True,
        beside=FAILS,
    ),
    VerbCase(
        change_password(LOGIN), "to your name", VIEWER, code="weak_password", has_password=True
    ),
    VerbCase(CREATE_TOKEN, "as a viewer", VIEWER),
    VerbCase(CREATE_TOKEN, "with a narrowed token", tuple(Role), narrowed=NARROWED),
    VerbCase(CREATE_NARROWED_TOKEN, "with a wider token", tuple(Role)),
    VerbCase(
        CREATE_NARROWED_TOKEN,
        "with a token that lacks the role",
        tuple(Role),
        code="missing_permission",
        narrowed=NARROWED,
    ),
    VerbCase(REVOKE_TOKEN, "of another user", ADMIN, know),
    VerbCase(REVOKE_TOKEN, "of another user, as a viewer", VIEWER, know, "not_owner"),
    VerbCase(REVOKE_TOKEN, "an unknown one", ADMIN, code="token_not_found"),
    VerbCase(sign_in(PASSWORD), "", (), has_password=True, changes=False, beside=MAKES_TOKEN),
    VerbCase(
        sign_in("not the password"),
        "with a wrong password",
        (),
        code="wrong_credentials",
        has_password=True,
        beside=FAILS,
    ),
    VerbCase(SIGN_OUT, "of a session", (), has_password=True, changes=False),
)


@pytest.mark.req("OP-14", engines=None, reason="the doors are above the engine")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_does_the_same_through_each_door(
    case: VerbCase, tmp_path: Path, shared: SharedServers
) -> None:
    check(case, tmp_path, shared)


def set_up(code: str) -> Verb:
    fields = {"code": code, "login": LOGIN, "name": "The first", "password": PASSWORD}
    return Verb(
        steps.SET_UP,
        ApiCall("POST", "/v1/setup", {**fields, "alone": True}),
        (
            *("setup", "--code", code, "--login", LOGIN, "--name", "The first"),
            *("--password-stdin", "--alone", "--no-keep"),
        ),
        Form("/setup", {**fields, "alone": "true"}),
        f"{PASSWORD}\n",
    )


def test_sets_up_through_each_door(tmp_path: Path) -> None:
    """A wrong code is refused; the right one works with spaces around it, as it may be pasted."""
    results = {}
    for door in Door:
        routes = (*ROUTES, *PAGES)
        with serving(tmp_path / door, routes=routes, is_set_up=False) as served:
            code = served.installation.accounts.open_setup()
            client = served.client()
            wrong = send(set_up("0000"), door, served, client, None)
            nothing = facts_after(served, 0, CALLER)
            right = send(set_up(f" {code} "), door, served, client, None)
            results[door] = (wrong, nothing, right, facts_after(served, 0, CALLER))
            assert served.installation.health.differences() == []

    wrong, nothing, right, facts = results[Door.API]
    assert (wrong, nothing, right) == ("wrong_setup_code", (), "")
    assert facts
    assert {door: result for door, result in results.items() if result != results[Door.API]} == {}


@pytest.mark.parametrize("path", ["/v1/setup", "/setup"])
def test_refuses_setup_from_another_site(tmp_path: Path, path: str) -> None:
    with serving(tmp_path / "data", routes=(*ROUTES, *PAGES), is_set_up=False) as served:
        code = served.installation.accounts.open_setup() or ""
        client = served.client(None, origin="https://elsewhere.example")
        verb = set_up(code)
        assert isinstance(verb.form, Form)

        if path == "/setup":
            done = client.post(path, data=dict(verb.form.fields))
        else:
            done = client.post(path, json=verb.api.body)

        assert (done.status_code, "cross_site" in done.text) == (403, True), done.text
        assert not served.installation.accounts.is_set_up
