"""Publications: published documents and their generations."""

from __future__ import annotations

import click

from tidegate.cli import context as cli_context, output, paths

COLUMNS = (
    output.column("GENERATION", "version_id"),
    output.time_column("MADE", "generated_at"),
    output.Column("CURRENT", lambda item: "yes" if item["current"] else "–"),
    output.column("ETAG", "etag"),
)


@click.group(cls=cli_context.NounGroup)
def publication() -> None:
    """Published documents. KEY is the cache key, such as the name of a channel."""


@publication.command("list")
@click.argument("key")
@cli_context.with_context
def generations(context: cli_context.CommandContext, key: str) -> None:
    """List the stored generations of KEY, the newest first."""
    found = context.client.items(paths.at("publications", key, "generations"))
    context.list(found, COLUMNS, empty=f"{key} keeps no generations")


@publication.command("rollback")
@click.argument("key")
@click.argument("generation")
@cli_context.with_context
def roll_back(context: cli_context.CommandContext, key: str, generation: str) -> None:
    """Roll KEY back to GENERATION."""
    body = {"version_id": generation}
    answer = context.client.write("POST", paths.at("publications", key, "roll-back"), body)
    context.done(answer, f"{key} is what it was as {generation}")


@publication.command("collect")
@cli_context.with_context
def collect(context: cli_context.CommandContext) -> None:
    """Remove expired generations now. A worker does so once an hour."""
    answer = context.client.write("POST", paths.at("publication-collections"))
    gone = answer.json()
    counts = ", ".join(
        f"{gone[what]} {what}" for what in ("publications", "generations", "requests")
    )
    context.done(answer, f"{counts} are gone")
