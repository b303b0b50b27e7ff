"""API tokens: one's own, for programs; shown once, never stored in clear."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli.access import DAYS_DEFAULT, DAYS_MAX, grant_of, roles
from tidegate.cli.completion import names
from tidegate.cli.desk import Desk, Noun, at_desk
from tidegate.cli.output import Column, State, column, note, say, timed
from tidegate.cli.paths import at


def standing(item: Any) -> State:
    if item["active"]:
        return State("active")
    return State("revoked" if item["revoked_at"] else "ended")


COLUMNS = (
    column("TOKEN", "token_id"),
    Column("STATE", standing),
    Column("MAY", lambda item: roles(item["grants"])),
    timed("CREATED", "created_at"),
    timed("EXPIRES", "expires_at"),
)


@click.group(cls=Noun)
def token() -> None:
    """API tokens of your own, for programs."""


@token.command("create")
@click.option(
    "--days",
    type=click.IntRange(1, DAYS_MAX),
    metavar="N",
    default=DAYS_DEFAULT,
    show_default=True,
    help="How long it is good.",
)
@click.option(
    "--role",
    "granted",
    multiple=True,
    metavar="ROLE[@SCOPE]",
    help="Narrow it to these roles; else it may whatever you may.",
)
@at_desk
def create(desk: Desk, days: int, granted: tuple[str, ...]) -> None:
    """Make a token and print it, this once."""
    body = {"days": days, "roles": [grant_of(words) for words in granted] or None}
    made = desk.client.write("POST", at("tokens"), body).json()
    if desk.is_for_people:
        note(f"token {made['token_id']}, shown this once; it ends at {made['expires_at']}")
        say(made["token"])
    else:
        desk.done(made, "")


@token.command("list")
@at_desk
def list_all(desk: Desk) -> None:
    """Your own tokens; their secrets are nowhere."""
    desk.list(
        desk.client.items(at("tokens")), COLUMNS, empty="no token; try: tidegate token create"
    )


@token.command("revoke")
@click.argument("token_id", shell_complete=names("/v1/tokens", "token_id"))
@at_desk
def revoke(desk: Desk, token_id: str) -> None:
    """Revoke a token: your own, or, administering, anybody's."""
    answer = desk.client.write("POST", at("tokens", token_id, "revoke"))
    desk.done(answer, f"token {token_id} opens nothing any more")
