"""People: added, granted roles, disabled, erased."""

from __future__ import annotations

import re
import sys
from typing import Any

import click

from tidegate.cli.access import change_own_password, grant_of, roles, secret_of
from tidegate.cli.completion import names
from tidegate.cli.desk import Desk, Noun, at_desk, reason
from tidegate.cli.exits import Exit, Stop
from tidegate.cli.output import Column, State, column, timed
from tidegate.cli.paths import at

ROLES = (
    *("viewer", "author", "approver", "release-manager", "fleet-operator", "auditor"),
    "security-admin",
)
USER_ID = re.compile(r"user_[a-z0-9]{8,40}")
LOGINS = names("/v1/users", "login")


def standing(item: Any) -> State:
    if item["erased"]:
        return State("erased")
    return State("enabled" if item["enabled"] else "disabled")


COLUMNS = (
    column("LOGIN", "login"),
    column("NAME", "name"),
    Column("STATE", standing),
    Column("MAY", lambda item: roles(item["grants"])),
    column("TOKENS", "tokens"),
    timed("ADDED", "added_at"),
    column("ID", "user_id"),
)


def id_of(desk: Desk, who: str) -> str:
    """A user by id or by sign-in name. Raises: Stop."""
    if USER_ID.fullmatch(who):
        return who
    for item in desk.client.items(at("users")):
        if (item["login"] or "").casefold() == who.casefold():
            return str(item["user_id"])
    raise Stop(Exit.NOT_FOUND, f"nobody signs in as {who!r}", "tidegate user list")


@click.group(cls=Noun)
def user() -> None:
    """People, and what they may."""


@user.command("add")
@click.argument("login")
@click.option("--name", required=True, help="The person's name, as others see it.")
@click.option(
    "--role",
    "granted",
    multiple=True,
    metavar="ROLE[@SCOPE]",
    help=f"What they may: {', '.join(ROLES)}; a scope is repository:NAME or channel:NAME.",
)
@click.option("--password-stdin", is_flag=True, help="Read the first password from standard input.")
@at_desk
def add(desk: Desk, login: str, name: str, granted: tuple[str, ...], password_stdin: bool) -> None:
    """Add a person who signs in as LOGIN."""
    password = secret_of(password_stdin, "Their first password", "--password-stdin", twice=True)
    body = {
        "login": login,
        "name": name,
        "password": password,
        "roles": [grant_of(words) for words in granted],
    }
    answer = desk.client.write("POST", at("users"), body)
    desk.done(answer, f"{login} is {answer.json()['user_id']} and may: {roles(body['roles'])}")


@user.command("grant")
@click.argument("user", shell_complete=LOGINS)
@click.argument("role", metavar="ROLE[@SCOPE]")
@click.option("--take", is_flag=True, help="Take the role away instead.")
@at_desk
def grant(desk: Desk, user: str, role: str, take: bool) -> None:
    """Give USER a role, everywhere or on a scope (repository:NAME, channel:NAME)."""
    verb = "revoke" if take else "grant"
    answer = desk.client.write("POST", at("users", id_of(desk, user), verb), grant_of(role))
    desk.done(answer, f"{user} may now: {roles(answer.json()['grants'])}")


@user.command("list")
@at_desk
def list_all(desk: Desk) -> None:
    """Everybody."""
    desk.list(desk.client.items(at("users")), COLUMNS, empty="nobody; try: tidegate setup")


@user.command("disable")
@click.argument("user", shell_complete=LOGINS)
@reason(required=False)
@at_desk
def disable(desk: Desk, user: str, reason: str | None) -> None:
    """Shut USER out until enabled again. All sessions and tokens end."""
    body = {"reason": reason or ""}
    answer = desk.client.write("POST", at("users", id_of(desk, user), "disable"), body)
    desk.done(answer, f"{user} is shut out")


@user.command("enable")
@click.argument("user", shell_complete=LOGINS)
@at_desk
def enable(desk: Desk, user: str) -> None:
    """Let USER sign in again. Tokens from before stay ended."""
    answer = desk.client.write("POST", at("users", id_of(desk, user), "enable"))
    desk.done(answer, f"{user} is let in again")


@user.command("password")
@click.argument("user", shell_complete=LOGINS)
@click.option("--password-stdin", is_flag=True, help="Read it from standard input.")
@at_desk
def password(desk: Desk, user: str, password_stdin: bool) -> None:
    """Change USER's password: your own, or, administering, another user's.

    Your own needs the current password too, on the first line of --password-stdin. All sessions
    and API tokens of the user end; after your own change a new token is kept.
    """
    me = desk.get(at("me"))
    if user in (me["user_id"], me["login"]):
        current = secret_of(password_stdin, "Current password", "--password-stdin")
        fresh = secret_of(password_stdin, "New password", "--password-stdin", twice=True)
        answer = change_own_password(desk, me, current, fresh)
        desk.done(answer, "your password is changed; your other sessions and tokens have ended")
        return
    fresh = secret_of(password_stdin, "New password", "--password-stdin", twice=True)
    path = at("users", id_of(desk, user), "password")
    answer = desk.client.write("PUT", path, {"password": fresh})
    desk.done(answer, f"{user} has a new password; their sessions and tokens have ended")


@user.command("erase")
@click.argument("user", shell_complete=LOGINS)
@click.option("--yes", is_flag=True, help="Do not ask.")
@at_desk
def erase(desk: Desk, user: str, yes: bool) -> None:
    """Erase USER: name, sign-in and credentials go for good; the id stays in the history."""
    if not yes:
        if not sys.stdin.isatty():
            raise Stop(
                Exit.USAGE,
                f"erasing {user} cannot be undone: say --yes",
                f"tidegate user erase {user} --yes",
            )
        click.confirm(f"Erase {user} for good?", abort=True, err=True)
    answer = desk.client.write("POST", at("users", id_of(desk, user), "erase"))
    desk.done(answer, f"{answer.json()['user_id']} has no name any more")
