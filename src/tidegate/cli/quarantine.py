"""Quarantine: artifacts that made hosts roll back, and are not dispatched again."""

from __future__ import annotations

from typing import Any

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
from tidegate.cli.exit_codes import CommandExit, ExitCode
from tidegate.cli.output import Cell, Item, column, text, time_column, when
from tidegate.cli.paths import at

COLUMNS = (
    column("CHANNEL", "channel"),
    column("RELEASE", "release_id"),
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


@quarantine.command("show")
@click.argument("channel", shell_complete=CHANNELS)
@click.argument("release", metavar="RELEASE")
@watch_option
@with_context
def show(context: CommandContext, channel: str, release: str, watch: bool) -> None:
    """Show why RELEASE (or an artifact's digest) is quarantined on CHANNEL."""
    context.told(lambda: _find(context, channel, release), _fields, watch=watch)


def _find(context: CommandContext, channel: str, release: str) -> Item:
    items = context.client.items(at("quarantine"), {"channel": channel})
    for item in items:
        if release in (item["release_id"], item["closure_hash"]):
            return item
    raise CommandExit(
        ExitCode.NOT_FOUND,
        f"{release} is not quarantined on {channel}",
        f"tidegate quarantine list --channel {channel}",
    )


def _fields(found: Any) -> list[tuple[str, Cell]]:
    return [
        ("release", text(found["release_id"])),
        ("channel", text(found["channel"])),
        ("since", when(found["quarantined_at"])),
        ("why", text(found["reason"])),
        ("shown by", text(f"{found['host_id']} in {found['rollout_id']}")),
        ("artifact", text(found["closure_hash"])),
        (
            "next",
            text(f"tidegate quarantine lift {found['channel']} {found['release_id']} --reason …"),
        ),
    ]


@quarantine.command("lift")
@click.argument("channel", shell_complete=CHANNELS)
@click.argument("artifact", metavar="RELEASE")
@reason(required=True)
@break_glass_option
@with_context
def lift(context: CommandContext, channel: str, artifact: str, reason: str) -> None:
    """Let RELEASE (or an artifact's digest) be dispatched on CHANNEL again."""
    body = {"channel": channel, "closure_hash": artifact, "reason": reason}
    answer = context.client.write("POST", at("quarantine", "lift"), body)
    context.done(answer, f"{artifact} may be dispatched on {channel} again")
