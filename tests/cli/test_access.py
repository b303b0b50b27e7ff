"""Access with the command line: first start, sign-in, users, tokens, repositories."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest

from tests.api.serving import Served, serving
from tests.cli.conftest import Seat
from tests.cli.shell import Shell
from tidegate.domain.access.roles import Role

PASSWORD = "correct horse battery\n"


def kept(shell: Shell) -> Path:
    return shell.home / "config" / "tidegate" / "client.json"


def test_sets_up_signs_in_and_signs_out(tmp_path: Path) -> None:
    with serving(tmp_path / "data", is_set_up=False) as served:
        code = served.installation.accounts.open_setup() or ""
        ada = Shell(tmp_path / "ada")
        flags = ("--url", served.url, "--login", "ada", "--name", "Ada", "--password-stdin")

        wrong = ada.run("setup", *flags, "--code", "0000", "--alone", stdin=PASSWORD)
        done = ada.run("setup", *flags, "--code", code, "--alone", stdin=PASSWORD)
        me = ada.run("whoami", "-o", "json").json()
        again = ada.run("setup", *flags, "--code", code, "--alone", stdin=PASSWORD)
        out = ada.run("logout")
        nobody = ada.run("whoami", "--url", served.url)

    assert (wrong.code, "wrong_setup_code" in wrong.err) == (5, True)
    assert (done.code, "signed in as ada" in done.out) == (0, True)
    assert me["login"] == "ada"
    assert (again.code, "try: tidegate login" in again.err) == (3, True)
    assert (out.code, kept(ada).exists()) == (0, False)
    assert (nobody.code, "try: tidegate login" in nobody.err) == (5, True)


def test_reports_that_a_server_is_not_set_up(tmp_path: Path) -> None:
    with serving(tmp_path / "data", is_set_up=False) as served:
        ada = Shell(tmp_path / "ada", served.url)
        asked = ada.run("status")
        signed_in = ada.run("login", "--login", "ada", "--password-stdin", stdin=PASSWORD)
        old = ada.run("channel", "list", TIDEGATE_TOKEN="tgt_of_another_server")

    for said in (asked, signed_in, old):
        assert said.code == 5, said.err
        assert said.err == "✘ Nobody has set this server up yet.\n  try: tidegate setup\n"


def test_a_new_person_chooses_the_first_password(tmp_path: Path, served: Served) -> None:
    admin = Shell(tmp_path / "admin", served.url, served.token("user_admin0000"))
    grace = Shell(tmp_path / "grace", served.url)
    flags = ("--name", "Grace", "--role", "viewer")

    made = admin.run("user", "create", "grace", *flags)
    words = (
        r"give grace this command: tidegate user redeem grace --code (\S+) "
        rf"or this link: {served.url}/reset\?login=grace&code=\S+"
    )
    code = re.search(words, made.out)
    assert code, made.out + made.err
    done = grace.run(
        *("user", "redeem", "grace", "--code", code[1], "--password-stdin"), stdin=PASSWORD
    )
    signed_in = grace.run("login", "--login", "grace", "--password-stdin", stdin=PASSWORD)

    assert done.code == 0, done.err
    assert signed_in.code == 0, signed_in.err


def test_stores_a_token_that_only_its_owner_can_read(tmp_path: Path, served: Served) -> None:
    admin = Shell(tmp_path / "admin", served.url, served.token("user_admin0000"))
    grace = Shell(tmp_path / "grace")
    admin.run(
        *("user", "create", "grace", "--name", "Grace", "--password-stdin", "--role", "viewer"),
        stdin=PASSWORD,
    )

    refused = grace.run(
        "login", "--url", served.url, "--login", "grace", "--password-stdin", stdin="not hers\n"
    )
    done = grace.run(
        "login", "--url", served.url, "--login", "grace", "--password-stdin", stdin=PASSWORD
    )

    assert (refused.code, "wrong_credentials" in refused.err) == (5, True)
    assert done.code == 0, done.err
    assert stat.S_IMODE(kept(grace).stat().st_mode) == 0o600
    assert json.loads(kept(grace).read_text())["token"].startswith("tg_")
    assert "viewer" in grace.run("whoami").out


def test_changes_the_own_password_and_stores_a_new_token(tmp_path: Path, served: Served) -> None:
    admin = Shell(tmp_path / "admin", served.url, served.token("user_admin0000"))
    flags = ("--name", "Grace", "--password-stdin", "--role", "viewer")
    admin.run("user", "create", "grace", *flags, stdin=PASSWORD)
    grace, elsewhere = Shell(tmp_path / "grace"), Shell(tmp_path / "elsewhere")
    sign_in = ("login", "--url", served.url, "--login", "grace", "--password-stdin")
    for shell in (grace, elsewhere):
        assert shell.run(*sign_in, stdin=PASSWORD).code == 0
    password = ("user", "password", "grace", "--password-stdin")

    wrong = grace.run(*password, stdin="not hers\nanother good one\n")
    done = grace.run(*password, stdin=f"{PASSWORD.strip()}\nanother good one\n")

    assert (wrong.code, "wrong_credentials" in wrong.err) == (5, True)
    assert done.code == 0, done.err
    assert (grace.run("whoami").code, elsewhere.run("whoami").code) == (0, 5)
    assert grace.run(*sign_in, stdin="another good one\n").code == 0
    states = [item["active"] for item in grace.run("token", "list", "-o", "json").json()]
    assert sorted(states) == [False, False, True, True]


def test_a_reset_prints_a_link_for_the_user_who_chooses_the_password(
    tmp_path: Path, served: Served
) -> None:
    admin = Shell(tmp_path / "admin", served.url, served.token("user_admin0000"))
    flags = ("--name", "Grace", "--password-stdin", "--role", "viewer")
    admin.run("user", "create", "grace", *flags, stdin=PASSWORD)
    grace = Shell(tmp_path / "grace")

    refused = admin.run("user", "password", "grace", "--password-stdin", stdin="a good one\n")
    done = admin.run("user", "reset-password", "grace")
    code = done.out.partition("--code ")[2].partition(" ")[0]
    redeem = ("user", "redeem", "grace", "--url", served.url, "--code", code, "--password-stdin")
    redeemed = grace.run(*redeem, stdin="only grace knows it\n")
    sign_in = ("login", "--url", served.url, "--login", "grace", "--password-stdin")

    assert (refused.code, "tidegate user reset-password grace" in refused.err) == (5, True)
    assert f"{served.url}/reset?login=grace&code={code}" in done.out
    assert redeemed.code == 0, redeemed.err
    assert grace.run(*sign_in, stdin=PASSWORD).code == 5
    assert grace.run(*sign_in, stdin="only grace knows it\n").code == 0


def test_sends_a_stored_token_only_to_its_server(tmp_path: Path, served: Served) -> None:
    shell = Shell(tmp_path / "home")
    token = served.token("user_admin0000")
    shell.run("login", "--url", served.url, "--token", token)

    elsewhere = served.url.replace("127.0.0.1", "localhost")

    assert shell.run("whoami").code == 0
    assert shell.run("whoami", "--url", elsewhere).code == 5


def test_a_flag_overrides_the_environment_which_overrides_the_file(
    tmp_path: Path, served: Served
) -> None:
    shell = Shell(tmp_path / "home")
    viewer = served.token(served.user())
    admin = served.token("user_admin0000")
    shell.run("login", "--url", served.url, "--token", viewer)

    by_file = shell.run("whoami", "-o", "json").json()
    by_environ = shell.run("whoami", "-o", "json", TIDEGATE_TOKEN=admin).json()
    by_flag = shell.run("--token", viewer, "whoami", "-o", "json", TIDEGATE_TOKEN=admin).json()

    assert by_environ["user_id"] == "user_admin0000"
    assert by_file["user_id"] == by_flag["user_id"] != "user_admin0000"


def test_administers_users(tmp_path: Path, served: Served) -> None:
    admin = Shell(tmp_path / "admin", served.url, served.token("user_admin0000"))

    added = admin.run(
        *("user", "create", "bob", "--name", "Bob", "--role", "author", "--password-stdin"),
        *("-o", "json"),
        stdin=PASSWORD,
    ).json()
    granted = admin.run("user", "grant", "bob", "approver@repository:default", "-o", "json").json()
    taken = admin.run("user", "grant", "bob", "author", "--take")
    disabled = admin.run("user", "disable", "bob", "--reason", "left")
    listed = admin.run("user", "list")
    unsure = admin.run("user", "erase", "bob")
    erased = admin.run("user", "erase", "bob", "--yes", "-o", "json").json()
    gone = admin.run("user", "disable", "bob")

    assert added["login"] == "bob"
    assert {"role": "approver", "scope": "repository:default"} in granted["grants"]
    assert "bob may now: approver on repository:default" in taken.out
    assert disabled.code == 0
    assert "– disabled" in listed.out
    assert (unsure.code, "--yes" in unsure.err) == (2, True)
    assert (erased["login"], erased["erased"]) == (None, True)
    assert (gone.code, "try: tidegate user list" in gone.err) == (4, True)


def test_shows_a_token_once_and_revokes_it(seat: Seat) -> None:
    shell = seat()

    made = shell.run("token", "create", "--days", "2", "--role", "viewer")
    listed = shell.run("token", "list", "-o", "jsonl").lines()
    narrow = shell.run("repo", "create", "mine", TIDEGATE_TOKEN=made.out.strip())
    token_id = made.out.split("_")[1]
    revoked = shell.run("token", "delete", token_id)
    after = shell.run("whoami", TIDEGATE_TOKEN=made.out.strip())

    assert made.out.startswith("tg_")
    assert token_id in {item["token_id"] for item in listed}
    assert narrow.code == 5
    assert revoked.code == 0
    assert after.code == 5


def test_creates_and_changes_repositories(seat: Seat) -> None:
    admin = seat()

    made = admin.run("repo", "create", "blueprints", "--approvals", "2", "-o", "json").json()
    stale = admin.run("repo", "edit", "blueprints", "--approvals", "1", "--version", "1")
    changed = admin.run("repo", "edit", "blueprints", "--approvals", "1", "-o", "json").json()
    again = admin.run("repo", "create", "blueprints")
    listed = admin.run("repo", "list")

    assert made["quorum"] == 2
    assert (stale.code, "try: tidegate repo list" in stale.err) == (3, True)
    assert changed["quorum"] == 1
    assert again.code == 3
    assert "blueprints" in listed.out


@pytest.mark.parametrize("role", [Role.VIEWER, Role.AUTHOR, Role.AUDITOR])
def test_names_who_can_grant_a_missing_permission(seat: Seat, role: Role) -> None:
    shell = seat(role)

    refused = shell.run("repo", "create", "mine")

    assert refused.code == 5
    grant = "A security-admin can grant it to you: tidegate user grant LOGIN security-admin"
    assert grant in refused.err
