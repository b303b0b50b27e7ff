"""Freezes: times in which nothing is dispatched."""

from __future__ import annotations

import click

from tidegate.cli.channel_policy import CHANNELS
from tidegate.cli.completion import names
from tidegate.cli.context import (
    CommandContext,
    NounGroup,
    break_glass_option,
    reason,
    watch_option,
    with_context,
)
from tidegate.cli.output import Column, column, person_column, text, time_column
from tidegate.cli.paths import at
from tidegate.cli.times import api_start

COLUMNS = (
    column("FREEZE", "freeze_id"),
    Column("CHANNELS", lambda item: text(item.get("channels") or "all")),
    time_column("SINCE", "started_at"),
    time_column("UNTIL", "until"),
    person_column("BY", "operator"),
    column("WHY", "reason"),
)


@click.group(cls=NounGroup)
def freeze() -> None:
    """Times in which nothing is dispatched."""


@freeze.command("create")
@click.option("--channel", "channels", multiple=True, shell_complete=CHANNELS, help="Else: all.")
@click.option(
    "--until", metavar="TIME", help="When it ends by itself: 2h, 18:00 or 2026-12-24T18:00:00Z."
)
@reason(required=True)
@with_context
def start(
    context: CommandContext, channels: tuple[str, ...], until: str | None, reason: str
) -> None:
    """Start a freeze: nothing is dispatched."""
    body = {"channels": list(channels), "until": api_start(until), "reason": reason}
    answer = context.client.write("POST", at("freezes"), body)
    freeze_id = answer.json()["freeze_id"]
    context.done(answer, f"frozen; end it with: tidegate freeze delete {freeze_id} --reason …")


@freeze.command("delete")
@click.argument("freeze_id", shell_complete=names("/v1/freezes", "freeze_id"))
@reason(required=True)
@break_glass_option
@with_context
def end(context: CommandContext, freeze_id: str, reason: str) -> None:
    """End a freeze before its time."""
    answer = context.client.write("POST", at("freezes", freeze_id, "end"), {"reason": reason})
    context.done(answer, f"freeze {freeze_id} is over")


@freeze.command("list")
@watch_option
@with_context
def list_all(context: CommandContext, watch: bool) -> None:
    """List the freezes that are in force."""
    context.shown(
        lambda: list(context.client.items(at("freezes"))), COLUMNS, watch=watch, empty="no freeze"
    )


@freeze.command("show")
@click.argument("freeze_id", shell_complete=names("/v1/freezes", "freeze_id"))
@with_context
def show(context: CommandContext, freeze_id: str) -> None:
    """Show one freeze."""
    context.one_of(context.client.items(at("freezes")), "freeze_id", freeze_id, COLUMNS, "freeze")
