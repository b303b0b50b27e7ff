"""The outbox: effects outside, and their attempts."""

from __future__ import annotations

import click

from tidegate.cli import completion, context as cli_context, output, paths

INTENTS = completion.names("/v1/outbox", "id", state="dead")
COLUMNS = (
    output.column("CHANNEL", "scope"),
    output.column("OPERATION", "operation"),
    output.column("RELEASE", "requestedState", "releaseId"),
    output.state_column("STATE", "state"),
    output.column("ATTEMPTS", "attempts"),
    output.time_column("NEXT", "nextAttemptAt"),
    output.column("LAST ERROR", "lastError"),
    output.column("INTENT", "id"),
)


@click.group(cls=cli_context.NounGroup)
def outbox() -> None:
    """The outbox: webhooks, programs and files that wait to be sent."""


@outbox.command("list")
@click.option("--channel", help="All of this channel.")
@click.option(
    "--state",
    type=click.Choice(("pending", "done", "dead", "superseded", "cancelled")),
    help="Only those; without --channel: pending.",
)
@cli_context.watch_option
@cli_context.with_context
def list_all(
    context: cli_context.CommandContext, channel: str | None, state: str | None, watch: bool
) -> None:
    """List intents with their attempts."""
    query = {"scope": channel, "state": state}
    context.print_items(
        lambda: list(context.client.items(paths.at("outbox"), query)),
        COLUMNS,
        watch=watch,
        empty=f"nothing is {state or 'pending'}",
    )


@outbox.command("show")
@click.argument("intent", shell_complete=INTENTS)
@cli_context.with_context
def show(context: cli_context.CommandContext, intent: str) -> None:
    """Show one intent with its attempts."""
    found = context.get(paths.at("outbox", intent))
    context.card(found, [(column.title.lower(), column.cell(found)) for column in COLUMNS])


@outbox.command("redrive")
@click.argument("intent", shell_complete=INTENTS)
@cli_context.reason(required=True)
@cli_context.with_context
def redrive(context: cli_context.CommandContext, intent: str, reason: str) -> None:
    """Retry a dead INTENT with the same idempotency key."""
    answer = context.client.write("POST", paths.at("outbox", intent, "redrive"), {"reason": reason})
    context.done(answer, f"{intent} is tried again; see: tidegate outbox list --watch")


@outbox.command("cancel")
@click.argument("intent", shell_complete=INTENTS)
@cli_context.reason(required=True)
@cli_context.with_context
def cancel(context: cli_context.CommandContext, intent: str, reason: str) -> None:
    """Cancel INTENT, with a reason."""
    answer = context.client.write("POST", paths.at("outbox", intent, "cancel"), {"reason": reason})
    context.done(answer, f"{intent} is given up")
