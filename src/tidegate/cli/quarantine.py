"""Quarantine: artifacts that made hosts roll back, and are not dispatched again."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli import channel_policy, context as cli_context, exit_codes, output, paths

COLUMNS = (
    output.column("CHANNEL", "channel"),
    output.column("RELEASE", "release_id"),
    output.time_column("SINCE", "quarantined_at"),
    output.column("ROLLOUT", "rollout_id"),
    output.column("HOST", "host_id"),
    output.column("WHY", "reason"),
)


@click.group(cls=cli_context.NounGroup)
def quarantine() -> None:
    """Artifacts that made hosts roll back, and are not dispatched again."""


@quarantine.command("list")
@click.option(
    "--channel", shell_complete=channel_policy.CHANNELS, help="Only those of this channel."
)
@cli_context.watch_option
@cli_context.with_context
def list_all(context: cli_context.CommandContext, channel: str | None, watch: bool) -> None:
    """List what is quarantined, on which channel, and why."""
    context.print_items(
        lambda: list(context.client.items(paths.at("quarantine"), {"channel": channel})),
        COLUMNS,
        watch=watch,
        empty="nothing is quarantined",
    )


@quarantine.command("show")
@click.argument("channel", shell_complete=channel_policy.CHANNELS)
@click.argument("release", metavar="RELEASE")
@cli_context.watch_option
@cli_context.with_context
def show(context: cli_context.CommandContext, channel: str, release: str, watch: bool) -> None:
    """Show why RELEASE (or an artifact's digest) is quarantined on CHANNEL."""
    context.print_object(lambda: _find(context, channel, release), _fields, watch=watch)


def _find(context: cli_context.CommandContext, channel: str, release: str) -> output.Item:
    items = context.client.items(paths.at("quarantine"), {"channel": channel})
    for item in items:
        if release in (item["release_id"], item["closure_hash"]):
            return item
    raise exit_codes.CommandExit(
        exit_codes.ExitCode.NOT_FOUND,
        f"{release} is not quarantined on {channel}",
        f"tidegate quarantine list --channel {channel}",
    )


def _fields(found: Any) -> list[tuple[str, output.Cell]]:
    return [
        ("release", output.text(found["release_id"])),
        ("channel", output.text(found["channel"])),
        ("since", output.when(found["quarantined_at"])),
        ("why", output.text(found["reason"])),
        ("shown by", output.text(f"{found['host_id']} in {found['rollout_id']}")),
        ("artifact", output.text(found["closure_hash"])),
        (
            "next",
            output.text(
                f"tidegate quarantine lift {found['channel']} {found['release_id']} --reason …"
            ),
        ),
    ]


@quarantine.command("lift")
@cli_context.dry_run_option
@click.argument("channel", shell_complete=channel_policy.CHANNELS)
@click.argument("artifact", metavar="RELEASE")
@cli_context.reason(required=True)
@cli_context.break_glass_option
@cli_context.with_context
def lift(context: cli_context.CommandContext, channel: str, artifact: str, reason: str) -> None:
    """Let RELEASE (or an artifact's digest) be dispatched on CHANNEL again."""
    body = {"channel": channel, "closure_hash": artifact, "reason": reason}
    answer = context.client.write("POST", paths.at("quarantine", "lift"), body)
    context.done(answer, f"{artifact} may be dispatched on {channel} again")
