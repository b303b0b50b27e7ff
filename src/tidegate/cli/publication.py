"""Publications: bodies that are swapped whole, and the generations behind them."""

from __future__ import annotations

import click

from tidegate.cli.desk import Desk, Noun, at_desk
from tidegate.cli.output import Column, column, timed
from tidegate.cli.paths import at

COLUMNS = (
    column("GENERATION", "version_id"),
    timed("MADE", "generated_at"),
    Column("CURRENT", lambda item: "yes" if item["current"] else "–"),
    column("ETAG", "etag"),
)


@click.group(cls=Noun)
def publication() -> None:
    """Bodies that are swapped whole. KEY is the cache key, such as the name of a channel."""


@publication.command("generations")
@click.argument("key")
@at_desk
def generations(desk: Desk, key: str) -> None:
    """The generations of KEY that are kept; at most the first five hundred."""
    found = desk.get(at("publications", key, "generations"))
    desk.list(found["items"], COLUMNS, empty=f"{key} keeps no generations")


@publication.command("roll-back")
@click.argument("key")
@click.argument("generation")
@at_desk
def roll_back(desk: Desk, key: str, generation: str) -> None:
    """Set KEY back to GENERATION."""
    body = {"version_id": generation}
    answer = desk.client.write("POST", at("publications", key, "roll-back"), body)
    desk.done(answer, f"{key} is what it was as {generation}")


@publication.command("collect")
@at_desk
def collect(desk: Desk) -> None:
    """Remove what is past its ttl now; a worker does so once an hour."""
    answer = desk.client.write("POST", at("publication-collections"))
    gone = answer.json()
    counts = ", ".join(
        f"{gone[what]} {what}" for what in ("publications", "generations", "requests")
    )
    desk.done(answer, f"{counts} are gone")
