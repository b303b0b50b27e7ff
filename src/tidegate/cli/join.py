"""Join tokens: each enrolls many new hosts, with labels, a limit and an expiry."""

from __future__ import annotations

import click

from tidegate.cli import completion, context as cli_context, host, output, paths, times

JOINS = completion.names("/v1/join-tokens", "join_id")
COLUMNS = (
    output.column("JOIN", "join_id"),
    output.column("LABELS", "labels"),
    output.Column("HOSTS", lambda item: output.text(f"{item.get('enrolled', 0)}/{item['limit']}")),
    output.time_column("CREATED", "created_at"),
    output.time_column("UNTIL", "until"),
    output.person_column("BY", "operator", name="operator_name"),
)


@click.group(cls=cli_context.NounGroup)
def join() -> None:
    """Tokens that enroll many new hosts."""


@join.command("create")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Repeatable.")
@click.option("--limit", type=click.IntRange(1), required=True, help="How many hosts it enrolls.")
@click.option(
    "--until",
    metavar="TIME",
    required=True,
    help="When it ends: 2h, 18:00 (UTC) or 2026-12-24T18:00:00Z.",
)
@cli_context.with_context
def create(
    context: cli_context.CommandContext, labels: tuple[str, ...], limit: int, until: str
) -> None:
    """Create a join token and print it. It is shown only once."""
    body = {"labels": host.labels_of(labels), "limit": limit, "until": times.api_start(until)}
    made = context.client.write("POST", paths.at("join-tokens"), body).json()
    host.show_token(context, made, f"it is {made['join_id']}; on each host")


@join.command("list")
@cli_context.with_context
def list_all(context: cli_context.CommandContext) -> None:
    """List the join tokens, without their secrets."""
    context.list(
        context.client.items(paths.at("join-tokens")),
        COLUMNS,
        empty="no join token; try: tidegate join create --limit N --until TIME",
    )


@join.command("show")
@click.argument("join_id", metavar="JOIN", shell_complete=JOINS)
@cli_context.with_context
def show(context: cli_context.CommandContext, join_id: str) -> None:
    """Show JOIN, and how many hosts it enrolled."""
    found = context.get(paths.at("join-tokens", join_id))
    context.card(
        found,
        [
            ("join", output.text(found["join_id"])),
            ("labels", output.text(found.get("labels"))),
            ("enrolled", output.text(f"{found.get('enrolled', 0)} of {found['limit']}")),
            ("created by", output.text(found.get("operator_name") or found["operator"])),
            ("created", output.when(found.get("created_at"))),
            ("until", output.when(found.get("until"))),
        ],
    )


@join.command("delete")
@click.argument("join_id", metavar="JOIN", shell_complete=JOINS)
@cli_context.with_context
def delete(context: cli_context.CommandContext, join_id: str) -> None:
    """Delete JOIN. The hosts that it enrolled stay."""
    answer = context.client.write("POST", paths.at("join-tokens", join_id, "delete"))
    context.done(answer, f"join token {join_id} is deleted")
