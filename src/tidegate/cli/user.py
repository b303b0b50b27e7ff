"""Users: add, grant roles, disable and erase them, and change passwords."""

from __future__ import annotations

import re
import sys
from typing import Any

import click

from tidegate.cli import access, completion, context as cli_context, exit_codes, output, paths

ROLES = (
    *("viewer", "author", "reporter", "approver", "release-manager", "fleet-operator", "on-call"),
    *("auditor", "security-admin"),
)
USER_ID = re.compile(r"user_[a-z0-9]{8,40}")
LOGINS = completion.names("/v1/users", "login")


def user_state(item: Any) -> output.StateCell:
    if item["erased"]:
        return output.StateCell("erased")
    return output.StateCell("enabled" if item["enabled"] else "disabled")


COLUMNS = (
    output.column("LOGIN", "login"),
    output.column("NAME", "name"),
    output.Column("STATE", user_state),
    output.Column("MAY", lambda item: access.roles(item["grants"])),
    output.column("TOKENS", "tokens"),
    output.time_column("ADDED", "added_at"),
)


def id_of(context: cli_context.CommandContext, who: str) -> str:
    """The id of a user, given the id or the sign-in name. Raises: CommandExit."""
    if USER_ID.fullmatch(who):
        return who
    for item in context.client.items(paths.at("users")):
        if (item["login"] or "").casefold() == who.casefold():
            return str(item["user_id"])
    raise exit_codes.CommandExit(
        exit_codes.ExitCode.NOT_FOUND, f"no user signs in as {who!r}", "tidegate user list"
    )


@click.group(cls=cli_context.NounGroup)
def user() -> None:
    """Users and their roles."""


@user.command("create")
@click.argument("login")
@click.option("--name", required=True, help="The person's name, as others see it.")
@click.option(
    "--role",
    "granted",
    multiple=True,
    metavar="ROLE[@SCOPE]",
    help=f"What they may: {', '.join(ROLES)}; a scope is repository:NAME or channel:NAME.",
)
@click.option(
    "--password-stdin",
    is_flag=True,
    help="Read a first password from standard input, for a program; a person chooses their own.",
)
@cli_context.with_context
def add(
    context: cli_context.CommandContext,
    login: str,
    name: str,
    granted: tuple[str, ...],
    password_stdin: bool,
) -> None:
    """Add a person who signs in as LOGIN, and print a one-time link for their first password.

    The link works once, for 24 hours. For another one see: tidegate user reset-password.
    """
    body: dict[str, Any] = {
        "login": login,
        "name": name,
        "roles": [access.grant_of(words) for words in granted],
    }
    if password_stdin:
        body["password"] = access.ask_secret(True, "Their first password", "--password-stdin")
    answer = context.client.write("POST", paths.at("users"), body)
    made = answer.json()
    may = f"may: {access.roles(body['roles'])}" if granted else "has no role yet"
    line = f"user {login} is added and {may}"
    context.done(answer, line if made["code"] is None else f"{line}; {_reset_words(context, made)}")
    context.warn_of_scopes(item["scope"] for item in body["roles"] if "scope" in item)


def _reset_words(context: cli_context.CommandContext, made: Any) -> str:
    """Describe how the user sets their new password."""
    link = made["link"] if made["link"].startswith("http") else context.profile.url + made["link"]
    command = f"tidegate user redeem {made['login']} --code {made['code']}"
    return f"give {made['login']} this command: {command} or this link: {link}"


@user.command("grant")
@click.argument("user", shell_complete=LOGINS)
@click.argument("role", metavar="ROLE[@SCOPE]")
@click.option("--take", is_flag=True, help="Revoke the role instead.")
@cli_context.with_context
def grant(context: cli_context.CommandContext, user: str, role: str, take: bool) -> None:
    """Give USER a role, everywhere or on a scope (repository:NAME, channel:NAME)."""
    verb = "revoke" if take else "grant"
    wanted = access.grant_of(role)
    answer = context.client.write("POST", paths.at("users", id_of(context, user), verb), wanted)
    context.done(answer, f"{user} may now: {access.roles(answer.json()['grants'])}")
    context.warn(answer)
    if not take:
        context.warn_of_scopes([str(wanted.get("scope", ""))])


@user.command("list")
@cli_context.with_context
def list_all(context: cli_context.CommandContext) -> None:
    """List all users."""
    context.list(
        sorted(context.client.items(paths.at("users")), key=lambda item: str(item["login"])),
        COLUMNS,
        empty="no user; try: tidegate setup",
    )


@user.command("show")
@click.argument("user", shell_complete=LOGINS)
@cli_context.with_context
def show(context: cli_context.CommandContext, user: str) -> None:
    """Show USER: what they may do, and how many tokens they have."""
    found = context.get(paths.at("users", id_of(context, user)))
    fields = [(column.title.lower(), column.cell(found)) for column in COLUMNS]
    context.card(found, [*fields, ("id", output.text(found["user_id"]))])


@user.command("disable")
@click.argument("user", shell_complete=LOGINS)
@cli_context.reason(required=False)
@cli_context.with_context
def disable(context: cli_context.CommandContext, user: str, reason: str | None) -> None:
    """Disable USER. All sessions and tokens end."""
    body = {"reason": reason or ""}
    answer = context.client.write("POST", paths.at("users", id_of(context, user), "disable"), body)
    context.done(answer, f"{user} is disabled; sessions and tokens have ended")
    context.warn(answer)


@user.command("enable")
@click.argument("user", shell_complete=LOGINS)
@cli_context.with_context
def enable(context: cli_context.CommandContext, user: str) -> None:
    """Let USER sign in again. Earlier tokens stay invalid."""
    answer = context.client.write("POST", paths.at("users", id_of(context, user), "enable"))
    context.done(answer, f"{user} is enabled again")


@user.command("password")
@click.argument("user", shell_complete=LOGINS)
@click.option("--password-stdin", is_flag=True, help="Read it from standard input.")
@cli_context.with_context
def password(context: cli_context.CommandContext, user: str, password_stdin: bool) -> None:
    """Change your own password, as USER. For another user see: tidegate user reset-password.

    It needs the current password too, on the first line of --password-stdin. All your sessions and
    API tokens end, and a new token is kept.
    """
    me = context.get(paths.at("me"))
    if user not in (me["user_id"], me["login"]):
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.PERMISSION,
            f"only {user} knows and changes their password",
            f"tidegate user reset-password {user}",
        )
    current = access.ask_secret(password_stdin, "Current password", "--password-stdin")
    fresh = access.ask_secret(password_stdin, "New password", "--password-stdin", twice=True)
    answer = access.change_own_password(context, me, current, fresh)
    context.done(answer, "your password is changed; your other sessions and tokens have ended")


@user.command("reset-password")
@click.argument("user", shell_complete=LOGINS)
@cli_context.with_context
def reset_password(context: cli_context.CommandContext, user: str) -> None:
    """Reset USER's password, and print a one-time link with which they choose a new one.

    All their sessions and API tokens end, and they cannot approve anything for a day. The link
    works once, for 24 hours.
    """
    answer = context.client.write("POST", paths.at("users", id_of(context, user), "reset-password"))
    context.done(answer, _reset_words(context, answer.json()))


@user.command("redeem")
@click.argument("login")
@click.option("--code", required=True, help="The one-time code that an administrator gave you.")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@cli_context.with_context
def redeem(
    context: cli_context.CommandContext, login: str, code: str, password_stdin: bool
) -> None:
    """Choose a password as LOGIN, with the one-time code of a new user or of a reset."""
    fresh = access.ask_secret(password_stdin, "New password", "--password-stdin", twice=True)
    body = {"login": login, "code": code, "password": fresh}
    answer = context.client.write("POST", paths.at("password-resets"), body)
    context.done(answer, "your password is set; sign in with: tidegate login")


@user.command("erase")
@click.argument("user", shell_complete=LOGINS)
@click.option("--yes", is_flag=True, help="Do not ask.")
@cli_context.with_context
def erase(context: cli_context.CommandContext, user: str, yes: bool) -> None:
    """Erase USER's name, sign-in and credentials permanently. The id stays in the history."""
    if not yes:
        if not sys.stdin.isatty():
            raise exit_codes.CommandExit(
                exit_codes.ExitCode.USAGE,
                f"erasing {user} cannot be undone: say --yes",
                f"tidegate user erase {user} --yes",
            )
        click.confirm(f"Erase {user} for good?", abort=True, err=True)
    answer = context.client.write("POST", paths.at("users", id_of(context, user), "erase"))
    context.done(answer, f"{answer.json()['user_id']} is erased")
    context.warn(answer)
