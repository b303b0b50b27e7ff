"""Set up an installation, sign in and out, and show who is signed in."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli import context as cli_context, exit_codes, output, paths

if TYPE_CHECKING:
    from tidegate.cli.client import ApiClient

LINE_CHARS_MAX = 4_096
DAYS_DEFAULT = 30
DAYS_MAX = 90


def ask(what: str, flag: str, *, secret: bool = False, twice: bool = False) -> str:
    """Prompt for a value that was not given.

    Raises:
        CommandExit: there is no terminal to prompt on.
    """
    if not sys.stdin.isatty():
        path = click.get_current_context().command_path
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.USAGE, f"{what} is missing: say {flag}", f"{path} --help"
        )
    return str(click.prompt(what, hide_input=secret, confirmation_prompt=twice, err=True))


def ask_secret(from_stdin: bool, what: str, flag: str, *, twice: bool = False) -> str:
    """Read a secret: the first line of standard input, or a hidden prompt. Raises: CommandExit."""
    if from_stdin:
        return sys.stdin.readline(LINE_CHARS_MAX).rstrip("\r\n")
    return ask(what, flag, secret=True, twice=twice)


@click.command(cls=cli_context.VerbCommand)
@click.option("--code", help="The one-time code that the server printed when it started.")
@click.option("--login", "login_name", help="The name you will sign in with.")
@click.option("--name", help="Your name, as others see it.")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.option(
    "--alone/--team",
    default=None,
    help="Whether one person works alone. In a team another person must approve.",
)
@click.option("--keep/--no-keep", default=True, help="Sign in at once and save a token.")
@cli_context.with_context
def setup(
    context: cli_context.CommandContext,
    code: str | None,
    login_name: str | None,
    name: str | None,
    password_stdin: bool,
    alone: bool | None,
    keep: bool,
) -> None:
    """Create the first user of a new installation, with its one-time code."""
    state = context.get(paths.at("setup"))
    if state["set_up"]:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.CONFLICT, "this installation is already set up", "tidegate login"
        )
    code = code or ask("Setup code", "--code")
    login_name = login_name or ask("Sign-in name", "--login")
    name = name or ask("Your name", "--name")
    if alone is None:
        if not sys.stdin.isatty():
            raise exit_codes.CommandExit(
                exit_codes.ExitCode.USAGE,
                "say --alone or --team: who approves?",
                "tidegate setup --help",
            )
        alone = click.confirm("Do you work alone (no other person approves)?", err=True)
    password = ask_secret(password_stdin, "Password", "--password-stdin", twice=True)
    body = {"code": code, "login": login_name, "name": name, "password": password, "alone": alone}
    answer = context.client.write("POST", paths.at("setup"), body)
    document = answer.json()
    line = f"{context.profile.url} is set up"
    if keep:
        _sign_in(context, login_name, password, DAYS_DEFAULT, keep=True)
        line += f"; you are signed in as {login_name}"
    context.done(document, line)


@click.command(cls=cli_context.VerbCommand)
@click.option("--login", "login_name", help="The name you sign in with.")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.option("--token-stdin", is_flag=True, help="Read an API token from standard input instead.")
@click.option(
    "--days",
    type=click.IntRange(1, DAYS_MAX),
    metavar="N",
    default=DAYS_DEFAULT,
    show_default=True,
    help="How long the token is valid.",
)
@click.option("--keep/--no-keep", default=True, help="Save the token, or print it.")
@cli_context.with_context
def login(
    context: cli_context.CommandContext,
    login_name: str | None,
    password_stdin: bool,
    token_stdin: bool,
    days: int,
    keep: bool,
) -> None:
    """Sign in and save an API token for later commands (mode 0600).

    With --token or --token-stdin, that token is checked and saved.
    """
    token = sys.stdin.readline(LINE_CHARS_MAX).strip() if token_stdin else context.token
    if token is None:
        login_name = login_name or ask("Sign-in name", "--login")
        password = ask_secret(password_stdin, "Password", "--password-stdin")
        token = _sign_in(context, login_name, password, days, keep=keep)
        me = _me(context, token)
    else:
        me = _me(context, token)
        if keep:
            _save_token(context, token)
    if keep:
        who = me["login"] or me["user_id"]
        context.done(me, f"signed in to {context.profile.url} as {who}")
    else:
        click.echo(token)


def _sign_in(
    context: cli_context.CommandContext, login_name: str, password: str, days: int, *, keep: bool
) -> str:
    """Get a token for these credentials, through a session that is closed afterwards."""
    anonymous = _client(context, None)
    session = _session(
        anonymous.write("POST", paths.at("sessions"), _credentials(login_name, password))
    )
    token = _token_of(anonymous, session, days)
    anonymous.close()
    if keep:
        _save_token(context, token)
    return token


def change_own_password(
    context: cli_context.CommandContext, me: Any, current: str, fresh: str
) -> Any:
    """Change the password of the signed-in user, and save a new token.

    The server accepts this only in a session, and ends all sessions and tokens of the user.
    """
    from tidegate.cli.profile import load

    anonymous = _client(context, None)
    session = _session(
        anonymous.write("POST", paths.at("sessions"), _credentials(me["login"], current))
    )
    body = {"password": fresh, "current": current}
    answer = anonymous.write(
        "PUT", paths.at("users", me["user_id"], "password"), body, headers=session
    )
    token = _token_of(anonymous, _session(answer), DAYS_DEFAULT)
    anonymous.close()
    kept = load()
    if kept is not None and kept.token is not None and kept.url == context.profile.url:
        _save_token(context, token)
    else:
        output.note("the token that you used has ended; make a new one: tidegate login")
    return {"position": answer.json()["position"]}


def _credentials(login_name: str, password: str) -> dict[str, str]:
    return {"login": login_name, "password": password}


def _session(opened: Any) -> dict[str, str]:
    """The headers that authenticate requests of a new session."""
    cookie = opened.headers.get("set-cookie", "").partition(";")[0]
    return {"Cookie": cookie, "X-CSRF-Token": opened.json()["csrf_token"]}


def _token_of(client: ApiClient, session: dict[str, str], days: int) -> str:
    """Create a token in a session and close the session."""
    made = client.write("POST", paths.at("tokens"), {"days": days}, headers=session).json()
    client.write("DELETE", paths.at("sessions", "current"), headers=session)
    return str(made["token"])


def _save_token(context: cli_context.CommandContext, token: str) -> None:
    from tidegate.cli.profile import Profile, keep

    path = keep(Profile(context.profile.url, token))
    output.note(f"the token is kept in {path}")


def _client(context: cli_context.CommandContext, token: str | None) -> ApiClient:
    from tidegate.cli.client import ApiClient
    from tidegate.cli.profile import Profile

    return ApiClient(Profile(context.profile.url, token))


def _me(context: cli_context.CommandContext, token: str) -> Any:
    client = _client(context, token)
    try:
        return client.get(paths.at("me")).json()
    finally:
        client.close()


@click.command(cls=cli_context.VerbCommand)
@cli_context.with_context
def logout(context: cli_context.CommandContext) -> None:
    """Revoke the saved token and delete it."""
    from tidegate.cli.client import ApiClient
    from tidegate.cli.profile import forget, load

    kept = load()
    if kept is None or kept.token is None:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.NOT_FOUND, "no user is signed in here", "tidegate login"
        )
    client = ApiClient(kept)
    token_id = kept.token.split("_")[1] if kept.token.count("_") >= 2 else ""
    try:
        client.write("POST", paths.at("tokens", token_id, "revoke"))
    except exit_codes.CommandExit as stop:
        if stop.code is exit_codes.ExitCode.UNAVAILABLE:
            raise
        # It has already ended: it expired, or another person revoked it.
    finally:
        client.close()
    forget()
    context.done({"url": kept.url}, f"signed out of {kept.url}")


@click.command(cls=cli_context.VerbCommand)
@cli_context.with_context
def whoami(context: cli_context.CommandContext) -> None:
    """Show who you are signed in as, and your permissions."""
    me = context.get(paths.at("me"))
    fields = [
        ("server", context.profile.url),
        ("user", output.text(me["user_id"])),
        ("login", output.text(me["login"])),
        ("name", output.text(me["name"])),
        ("by", output.text(me["method"])),
        ("may", roles(me["grants"])),
    ]
    context.card(me, fields)


def roles(grants: Any) -> str:
    """Format grants: each role, with its scope unless that is everywhere."""
    if grants is None:
        return "everything that its owner may"
    shown = [
        grant["role"] if grant["scope"] == "*" else f"{grant['role']} on {grant['scope']}"
        for grant in grants
    ]
    return output.text(shown)


def grant_of(words: str) -> dict[str, str]:
    """Parse ``role`` or ``role@scope`` into a grant of the API."""
    role, _, scope = words.partition("@")
    return {"role": role, "scope": scope or "*"}
