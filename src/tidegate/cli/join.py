"""Join tokens: each enrolls many new hosts, with labels, a limit and an end."""

from __future__ import annotations

import click

from tidegate.cli.completion import names
from tidegate.cli.context import CommandContext, NounGroup, with_context
from tidegate.cli.host import labels_of, show_token
from tidegate.cli.output import Column, column, person_column, text, time_column, when
from tidegate.cli.paths import at
from tidegate.cli.times import api_start

JOINS = names("/v1/join-tokens", "join_id")
COLUMNS = (
    column("JOIN", "join_id"),
    column("LABELS", "labels"),
    Column("HOSTS", lambda item: text(f"{item.get('enrolled', 0)}/{item['limit']}")),
    time_column("CREATED", "created_at"),
    time_column("UNTIL", "until"),
    person_column("BY", "operator"),
)


@click.group(cls=NounGroup)
def join() -> None:
    """Tokens that enroll many new hosts."""


@join.command("create")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Repeatable.")
@click.option("--limit", type=click.IntRange(1), required=True, help="How many hosts it enrolls.")
@click.option(
    "--until",
    metavar="TIME",
    required=True,
    help="When it ends: 2h, 18:00 or 2026-12-24T18:00:00Z.",
)
@with_context
def create(context: CommandContext, labels: tuple[str, ...], limit: int, until: str) -> None:
    """Create a join token and print it. It is shown only once."""
    body = {"labels": labels_of(labels), "limit": limit, "until": api_start(until)}
    made = context.client.write("POST", at("join-tokens"), body).json()
    show_token(context, made, f"it is {made['join_id']}; on each host")


@join.command("list")
@with_context
def list_all(context: CommandContext) -> None:
    """List the join tokens, without their secrets."""
    context.list(
        context.client.items(at("join-tokens")),
        COLUMNS,
        empty="no join token; try: tidegate join create --limit N --until TIME",
    )


@join.command("show")
@click.argument("join_id", metavar="JOIN", shell_complete=JOINS)
@with_context
def show(context: CommandContext, join_id: str) -> None:
    """Show JOIN, and how many hosts it enrolled."""
    found = context.get(at("join-tokens", join_id))
    context.card(
        found,
        [
            ("join", text(found["join_id"])),
            ("labels", text(found.get("labels"))),
            ("enrolled", text(f"{found.get('enrolled', 0)} of {found['limit']}")),
            ("created", when(found.get("created_at"))),
            ("until", when(found.get("until"))),
        ],
    )


@join.command("delete")
@click.argument("join_id", metavar="JOIN", shell_complete=JOINS)
@with_context
def delete(context: CommandContext, join_id: str) -> None:
    """Delete JOIN. The hosts that it enrolled stay."""
    answer = context.client.write("POST", at("join-tokens", join_id, "delete"))
    context.done(answer, f"join token {join_id} is deleted")
