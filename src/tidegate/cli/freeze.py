"""Freezes: times in which nothing is dispatched."""

from __future__ import annotations

import click

from tidegate.cli import channel_policy, completion, context as cli_context, output, paths, times

COLUMNS = (
    output.column("FREEZE", "freeze_id"),
    output.Column("CHANNELS", lambda item: output.text(item.get("channels") or "all")),
    output.time_column("SINCE", "started_at"),
    output.time_column("UNTIL", "until"),
    output.person_column("BY", "operator", name="operator_name"),
    output.column("WHY", "reason"),
)


@click.group(cls=cli_context.NounGroup)
def freeze() -> None:
    """Times in which nothing is dispatched."""


@freeze.command("create")
@cli_context.dry_run_option
@click.option(
    "--channel",
    "channels",
    multiple=True,
    shell_complete=channel_policy.CHANNELS,
    help="Else: all.",
)
@click.option(
    "--until",
    metavar="TIME",
    help="When it ends by itself: 2h, 18:00 (UTC) or 2026-12-24T18:00:00Z.",
)
@cli_context.reason(required=True)
@cli_context.with_context
def start(
    context: cli_context.CommandContext, channels: tuple[str, ...], until: str | None, reason: str
) -> None:
    """Start a freeze: nothing is dispatched."""
    body = {"channels": list(channels), "until": times.api_start(until), "reason": reason}
    answer = context.client.write("POST", paths.at("freezes"), body)
    freeze_id = answer.json()["freeze_id"]
    end = f" until {output.when(body['until'])}" if body["until"] else ""
    context.done(answer, f"frozen{end}; end it with: tidegate freeze delete {freeze_id} --reason …")


@freeze.command("delete")
@cli_context.dry_run_option
@click.argument("freeze_id", shell_complete=completion.names("/v1/freezes", "freeze_id"))
@cli_context.reason(required=True)
@cli_context.break_glass_option
@cli_context.with_context
def end(context: cli_context.CommandContext, freeze_id: str, reason: str) -> None:
    """End a freeze before its time."""
    answer = context.client.write("POST", paths.at("freezes", freeze_id, "end"), {"reason": reason})
    context.done(answer, f"freeze {freeze_id} is over")


@freeze.command("list")
@cli_context.watch_option
@cli_context.with_context
def list_all(context: cli_context.CommandContext, watch: bool) -> None:
    """List the freezes that are in force."""
    context.print_items(
        lambda: list(context.client.items(paths.at("freezes"))),
        COLUMNS,
        watch=watch,
        empty="no freeze",
    )


@freeze.command("show")
@click.argument("freeze_id", shell_complete=completion.names("/v1/freezes", "freeze_id"))
@cli_context.with_context
def show(context: cli_context.CommandContext, freeze_id: str) -> None:
    """Show one freeze."""
    context.one_of(
        context.client.items(paths.at("freezes")), "freeze_id", freeze_id, COLUMNS, "freeze"
    )
