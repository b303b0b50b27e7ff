"""Publications: bodies that are swapped whole, and the generations behind them."""

from __future__ import annotations

import click

from tidegate.cli.context import CommandContext, NounGroup, with_context
from tidegate.cli.output import Column, column, time_column
from tidegate.cli.paths import at

COLUMNS = (
    column("GENERATION", "version_id"),
    time_column("MADE", "generated_at"),
    Column("CURRENT", lambda item: "yes" if item["current"] else "–"),
    column("ETAG", "etag"),
)


@click.group(cls=NounGroup)
def publication() -> None:
    """Published documents. KEY is the cache key, such as the name of a channel."""


@publication.command("list")
@click.argument("key")
@with_context
def generations(context: CommandContext, key: str) -> None:
    """The generations of KEY that are kept, the newest first."""
    found = context.client.items(at("publications", key, "generations"))
    context.list(found, COLUMNS, empty=f"{key} keeps no generations")


@publication.command("rollback")
@click.argument("key")
@click.argument("generation")
@with_context
def roll_back(context: CommandContext, key: str, generation: str) -> None:
    """Roll KEY back to GENERATION."""
    body = {"version_id": generation}
    answer = context.client.write("POST", at("publications", key, "roll-back"), body)
    context.done(answer, f"{key} is what it was as {generation}")


@publication.command("collect")
@with_context
def collect(context: CommandContext) -> None:
    """Remove expired generations now. A worker does so once an hour."""
    answer = context.client.write("POST", at("publication-collections"))
    gone = answer.json()
    counts = ", ".join(
        f"{gone[what]} {what}" for what in ("publications", "generations", "requests")
    )
    context.done(answer, f"{counts} are gone")
