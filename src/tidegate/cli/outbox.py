"""The outbox: what is owed to the world, and what became of it."""

from __future__ import annotations

import click

from tidegate.cli.completion import names
from tidegate.cli.context import CommandContext, NounGroup, reason, watch_option, with_context
from tidegate.cli.output import column, state_column, time_column
from tidegate.cli.paths import at

INTENTS = names("/v1/outbox", "id", state="dead")
COLUMNS = (
    column("CHANNEL", "scope"),
    column("OPERATION", "operation"),
    column("RELEASE", "requestedState", "releaseId"),
    state_column("STATE", "state"),
    column("ATTEMPTS", "attempts"),
    time_column("NEXT", "nextAttemptAt"),
    column("LAST ERROR", "lastError"),
    column("INTENT", "id"),
)


@click.group(cls=NounGroup)
def outbox() -> None:
    """The outbox: webhooks, programs and files that wait to be sent."""


@outbox.command("list")
@click.option("--channel", help="All of this channel.")
@click.option(
    "--state",
    type=click.Choice(("pending", "done", "dead", "superseded", "cancelled")),
    help="Only those; without --channel: pending.",
)
@watch_option
@with_context
def list_all(context: CommandContext, channel: str | None, state: str | None, watch: bool) -> None:
    """Intents with their attempts."""
    query = {"scope": channel, "state": state}
    context.shown(
        lambda: list(context.client.items(at("outbox"), query)),
        COLUMNS,
        watch=watch,
        empty=f"nothing is {state or 'pending'}",
    )


@outbox.command("show")
@click.argument("intent", shell_complete=INTENTS)
@with_context
def show(context: CommandContext, intent: str) -> None:
    """Show one intent with its attempts."""
    found = context.get(at("outbox", intent))
    context.card(found, [(column.title.lower(), column.cell(found)) for column in COLUMNS])


@outbox.command("redrive")
@click.argument("intent", shell_complete=INTENTS)
@reason(required=True)
@with_context
def redrive(context: CommandContext, intent: str, reason: str) -> None:
    """Try a dead INTENT again, under the same idempotency key."""
    answer = context.client.write("POST", at("outbox", intent, "redrive"), {"reason": reason})
    context.done(answer, f"{intent} is tried again; see: tidegate outbox list --watch")


@outbox.command("cancel")
@click.argument("intent", shell_complete=INTENTS)
@reason(required=True)
@with_context
def cancel(context: CommandContext, intent: str, reason: str) -> None:
    """Cancel INTENT, with a reason."""
    answer = context.client.write("POST", at("outbox", intent, "cancel"), {"reason": reason})
    context.done(answer, f"{intent} is given up")
