"""API tokens for programs. A token is shown once and never stored in plain text."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli import access, completion, context as cli_context, output, paths


def token_state(item: Any) -> output.StateCell:
    if item["active"]:
        return output.StateCell("active")
    return output.StateCell("revoked" if item["revoked_at"] else "ended")


COLUMNS = (
    output.column("TOKEN", "token_id"),
    output.Column("STATE", token_state),
    output.Column("MAY", lambda item: access.roles(item["grants"])),
    output.time_column("CREATED", "created_at"),
    output.time_column("EXPIRES", "expires_at"),
)


@click.group(cls=cli_context.NounGroup)
def token() -> None:
    """API tokens of your own, for programs."""


@token.command("create")
@click.option(
    "--days",
    type=click.IntRange(1, access.DAYS_MAX),
    metavar="N",
    default=access.DAYS_DEFAULT,
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
@cli_context.with_context
def create(context: cli_context.CommandContext, days: int, granted: tuple[str, ...]) -> None:
    """Create a token and print it. It is shown only once."""
    body = {"days": days, "roles": [access.grant_of(words) for words in granted] or None}
    made = context.client.write("POST", paths.at("tokens"), body).json()
    if context.is_for_people:
        output.note(f"token {made['token_id']}, shown this once; it ends at {made['expires_at']}")
        output.say(made["token"])
    else:
        context.done(made, "")


@token.command("list")
@cli_context.with_context
def list_all(context: cli_context.CommandContext) -> None:
    """List your own tokens, without their secrets."""
    context.list(
        context.client.items(paths.at("tokens")),
        COLUMNS,
        empty="no token; try: tidegate token create",
    )


@token.command("show")
@click.argument("token_id", shell_complete=completion.names("/v1/tokens", "token_id"))
@cli_context.with_context
def show(context: cli_context.CommandContext, token_id: str) -> None:
    """Show one token."""
    context.one_of(context.client.items(paths.at("tokens")), "token_id", token_id, COLUMNS, "token")


@token.command("delete")
@click.argument("token_id", shell_complete=completion.names("/v1/tokens", "token_id"))
@cli_context.with_context
def revoke(context: cli_context.CommandContext, token_id: str) -> None:
    """Revoke a token: your own or, as an administrator, another user's."""
    answer = context.client.write("POST", paths.at("tokens", token_id, "revoke"))
    context.done(answer, f"token {token_id} is revoked")
