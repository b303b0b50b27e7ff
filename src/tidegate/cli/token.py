"""API tokens: one's own, for programs; shown once, never stored in clear."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli.access import DAYS_DEFAULT, DAYS_MAX, grant_of, roles
from tidegate.cli.completion import names
from tidegate.cli.context import CommandContext, NounGroup, with_context
from tidegate.cli.output import Column, StateCell, column, note, say, time_column
from tidegate.cli.paths import at


def token_state(item: Any) -> StateCell:
    if item["active"]:
        return StateCell("active")
    return StateCell("revoked" if item["revoked_at"] else "ended")


COLUMNS = (
    column("TOKEN", "token_id"),
    Column("STATE", token_state),
    Column("MAY", lambda item: roles(item["grants"])),
    time_column("CREATED", "created_at"),
    time_column("EXPIRES", "expires_at"),
)


@click.group(cls=NounGroup)
def token() -> None:
    """API tokens of your own, for programs."""


@token.command("create")
@click.option(
    "--days",
    type=click.IntRange(1, DAYS_MAX),
    metavar="N",
    default=DAYS_DEFAULT,
    show_default=True,
    help="How long it is valid.",
)
@click.option(
    "--role",
    "granted",
    multiple=True,
    metavar="ROLE[@SCOPE]",
    help="Limit it to these roles. Default: everything that you may do.",
)
@with_context
def create(context: CommandContext, days: int, granted: tuple[str, ...]) -> None:
    """Create a token and print it. It is shown only once."""
    body = {"days": days, "roles": [grant_of(words) for words in granted] or None}
    made = context.client.write("POST", at("tokens"), body).json()
    if context.is_for_people:
        note(f"token {made['token_id']}, shown this once; it ends at {made['expires_at']}")
        say(made["token"])
    else:
        context.done(made, "")


@token.command("list")
@with_context
def list_all(context: CommandContext) -> None:
    """List your own tokens, without their secrets."""
    context.list(
        context.client.items(at("tokens")), COLUMNS, empty="no token; try: tidegate token create"
    )


@token.command("show")
@click.argument("token_id", shell_complete=names("/v1/tokens", "token_id"))
@with_context
def show(context: CommandContext, token_id: str) -> None:
    """Show one token."""
    context.one_of(context.client.items(at("tokens")), "token_id", token_id, COLUMNS, "token")


@token.command("delete")
@click.argument("token_id", shell_complete=names("/v1/tokens", "token_id"))
@with_context
def revoke(context: CommandContext, token_id: str) -> None:
    """Revoke a token: your own or, as an administrator, another user's."""
    answer = context.client.write("POST", at("tokens", token_id, "revoke"))
    context.done(answer, f"token {token_id} is revoked")
