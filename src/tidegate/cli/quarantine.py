"""Quarantine: artifacts that made hosts roll back, and are not dispatched again."""

from __future__ import annotations

import click

from tidegate.cli.channel import CHANNELS
from tidegate.cli.desk import Desk, Noun, at_desk, reason, watched
from tidegate.cli.output import column, timed
from tidegate.cli.paths import at

COLUMNS = (
    column("CHANNEL", "channel"),
    column("ARTIFACT", "closure_hash"),
    timed("SINCE", "quarantined_at"),
    column("ROLLOUT", "rollout_id"),
    column("HOST", "host_id"),
    column("WHY", "reason"),
)


@click.group(cls=Noun)
def quarantine() -> None:
    """Artifacts that made hosts roll back, and are not dispatched again."""


@quarantine.command("list")
@click.option("--channel", shell_complete=CHANNELS, help="Only those of this channel.")
@watched
@at_desk
def list_all(desk: Desk, channel: str | None, watch: bool) -> None:
    """What is quarantined, on which channel, and why."""
    desk.shown(
        lambda: list(desk.client.items(at("quarantine"), {"channel": channel})),
        COLUMNS,
        watch=watch,
        empty="nothing is quarantined",
    )


@quarantine.command("lift")
@click.argument("channel", shell_complete=CHANNELS)
@click.argument("artifact", metavar="ARTIFACT")
@reason(required=True)
@at_desk
def lift(desk: Desk, channel: str, artifact: str, reason: str) -> None:
    """Let ARTIFACT (its digest) be dispatched on CHANNEL again."""
    body = {"channel": channel, "closure_hash": artifact, "reason": reason}
    answer = desk.client.write("POST", at("quarantine", "lift"), body)
    desk.done(answer, f"{artifact} may be dispatched on {channel} again")
