"""Quarantine: artifacts that made hosts roll back, and are not dispatched again."""

from __future__ import annotations

import click

from tidegate.cli.channel_policy import CHANNELS
from tidegate.cli.context import (
    CommandContext,
    NounGroup,
    break_glass_option,
    reason,
    watch_option,
    with_context,
)
from tidegate.cli.output import column, time_column
from tidegate.cli.paths import at

COLUMNS = (
    column("CHANNEL", "channel"),
    column("ARTIFACT", "closure_hash"),
    time_column("SINCE", "quarantined_at"),
    column("ROLLOUT", "rollout_id"),
    column("HOST", "host_id"),
    column("WHY", "reason"),
)


@click.group(cls=NounGroup)
def quarantine() -> None:
    """Artifacts that made hosts roll back, and are not dispatched again."""


@quarantine.command("list")
@click.option("--channel", shell_complete=CHANNELS, help="Only those of this channel.")
@watch_option
@with_context
def list_all(context: CommandContext, channel: str | None, watch: bool) -> None:
    """What is quarantined, on which channel, and why."""
    context.shown(
        lambda: list(context.client.items(at("quarantine"), {"channel": channel})),
        COLUMNS,
        watch=watch,
        empty="nothing is quarantined",
    )


@quarantine.command("lift")
@click.argument("channel", shell_complete=CHANNELS)
@click.argument("artifact", metavar="ARTIFACT")
@reason(required=True)
@break_glass_option
@with_context
def lift(context: CommandContext, channel: str, artifact: str, reason: str) -> None:
    """Let ARTIFACT (its digest) be dispatched on CHANNEL again."""
    body = {"channel": channel, "closure_hash": artifact, "reason": reason}
    answer = context.client.write("POST", at("quarantine", "lift"), body)
    context.done(answer, f"{artifact} may be dispatched on {channel} again")
