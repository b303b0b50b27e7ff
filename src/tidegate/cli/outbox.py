"""The outbox: what is owed to the world, and what became of it."""

from __future__ import annotations

import click

from tidegate.cli.completion import names
from tidegate.cli.desk import Desk, Noun, at_desk, reason, watched
from tidegate.cli.output import column, stated, timed
from tidegate.cli.paths import at

INTENTS = names("/v1/outbox", "id", state="dead")
COLUMNS = (
    column("CHANNEL", "scope"),
    column("OPERATION", "operation"),
    column("RELEASE", "requestedState", "releaseId"),
    stated("STATE", "state"),
    column("ATTEMPTS", "attempts"),
    timed("NEXT", "nextAttemptAt"),
    column("LAST ERROR", "lastError"),
    column("INTENT", "id"),
)


@click.group(cls=Noun)
def outbox() -> None:
    """What is owed to the world: webhooks, programs, files."""


@outbox.command("list")
@click.option("--channel", help="All of this channel.")
@click.option(
    "--state",
    type=click.Choice(("pending", "done", "dead", "superseded", "cancelled")),
    help="Only those; without --channel: pending.",
)
@watched
@at_desk
def list_all(desk: Desk, channel: str | None, state: str | None, watch: bool) -> None:
    """Intents with their attempts."""
    query = {"scope": channel, "state": state}
    desk.shown(
        lambda: list(desk.client.items(at("outbox"), query)),
        COLUMNS,
        watch=watch,
        empty=f"nothing is {state or 'pending'}",
    )


@outbox.command("redrive")
@click.argument("intent", shell_complete=INTENTS)
@reason(required=True)
@at_desk
def redrive(desk: Desk, intent: str, reason: str) -> None:
    """Try a dead INTENT again, under the same idempotency key."""
    answer = desk.client.write("POST", at("outbox", intent, "redrive"), {"reason": reason})
    desk.done(answer, f"{intent} is tried again; see: tidegate outbox list --watch")


@outbox.command("cancel")
@click.argument("intent", shell_complete=INTENTS)
@reason(required=True)
@at_desk
def cancel(desk: Desk, intent: str, reason: str) -> None:
    """Give INTENT up, with a reason."""
    answer = desk.client.write("POST", at("outbox", intent, "cancel"), {"reason": reason})
    desk.done(answer, f"{intent} is given up")
