"""Move the pin of a channel: promote a release, or roll back to one."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli import (
    channel_policy,
    context as cli_context,
    exit_codes,
    hints,
    output,
    paths,
    times,
    waiting,
)


@click.command("promote", cls=cli_context.VerbCommand)
@cli_context.dry_run_option
@click.argument("channel", shell_complete=channel_policy.CHANNELS)
@click.argument("release")
@click.option("--refresh", is_flag=True, help="Only renew the evidence of the pinned release.")
@click.option(
    "--override",
    multiple=True,
    type=click.Choice(("edges", "freeze", "hold", "window", "start-at", "freshness")),
    help="A gate that the rollout passes. It needs the permission emergency and a reason.",
)
@cli_context.start_option
@cli_context.reason(required=False)
@cli_context.break_glass_option
@cli_context.version_option
@waiting.wait_option
@cli_context.with_context
def promote(
    context: cli_context.CommandContext,
    channel: str,
    release: str,
    refresh: bool,
    override: tuple[str, ...],
    start_at: str | None,
    reason: str | None,
    version: int | None,
    wait: waiting.WaitOption,
) -> None:
    """Set CHANNEL to RELEASE (such as web.3) and roll it out."""
    if override and not (reason or "").strip():
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.USAGE,
            "an override needs a reason for the log",
            hints.type_again("--reason …"),
        )
    body: dict[str, Any] = {"release_id": release, "reason": reason or ""}
    if refresh:
        body |= {"refresh": True}
    if override:
        body |= {"override": list(override)}
    if start_at is not None:
        body |= {"start_at": times.api_start(start_at)}
    request_promotion(context, channel, body, version, wait)


@click.command("rollback", cls=cli_context.VerbCommand)
@click.argument("channel", shell_complete=channel_policy.CHANNELS)
@click.option("--to", metavar="RELEASE", help="A release that succeeded on CHANNEL before.")
@click.option(
    "--dry-run", is_flag=True, is_eager=True, help="Only show what it would go back to, and why."
)
@click.option(
    "--now",
    is_flag=True,
    help="All hosts at once, in spite of freezes, holds and windows. It needs emergency.",
)
@click.option("--ignore-budgets", is_flag=True, help="With --now: pass disruption budgets, too.")
@click.option("--lift-quarantine", is_flag=True, help="With --to: lift its quarantine as well.")
@cli_context.reason(required=True, unless="dry_run")
@cli_context.break_glass_option
@cli_context.version_option
@waiting.wait_option
@cli_context.with_context
def rollback(
    context: cli_context.CommandContext,
    channel: str,
    to: str | None,
    dry_run: bool,
    now: bool,
    ignore_budgets: bool,
    lift_quarantine: bool,
    reason: str | None,
    version: int | None,
    wait: waiting.WaitOption,
) -> None:
    """Go back to the newest release that succeeded on CHANNEL and was not rolled back from."""
    if dry_run:
        show_ladder(context, channel, to, now=now)
        return
    body: dict[str, Any] = {"reason": reason}
    if to is not None:
        body |= {"to": to}
    flags = {"now": now, "ignore_budgets": ignore_budgets, "lift_quarantine": lift_quarantine}
    body |= {name: True for name, is_set in flags.items() if is_set}
    request_promotion(context, channel, body, version, wait, verb="rollback")


LADDER = (
    output.column("RELEASE", "release_id"),
    output.time_column("SUCCEEDED", "succeeded_at"),
    output.column("HOSTS", "hosts"),
    output.Column("ROLLBACK", lambda item: output.text(item.get("skipped") or "takes it")),
)


def show_ladder(
    context: cli_context.CommandContext, channel: str, to: str | None, *, now: bool
) -> None:
    """Show the release that a rollback would choose, and why it skips newer ones.

    Raises:
        CommandExit: there is no release to go back to.
    """
    found = context.get(paths.at("channels", channel, "ladder"), to=to, now="true" if now else None)
    if not context.is_for_people:
        context.done(found, "")
    else:
        rungs = [
            rung | {"skipped": rung["skipped"] or _later(rung, found)} for rung in found["rungs"]
        ]
        context.list(rungs, LADDER, empty="no release has succeeded there")
    if found["choice"] is None:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.REFUSED, found["refusal"], f"tidegate channel show {channel}"
        )
    command = hints.type_again().replace(" --dry-run", "")
    output.note(f"{command} would go to {found['choice']}; nothing was changed")
    for warning in found.get("warnings") or []:
        output.note(f"warning: {warning}")


def _later(rung: output.Item, found: output.Item) -> str:
    return "" if rung["release_id"] == found["choice"] else "could be named with --to"


def request_promotion(
    context: cli_context.CommandContext,
    channel: str,
    body: dict[str, Any],
    version: int | None,
    wait: waiting.WaitOption,
    *,
    verb: str = "promote",
) -> None:
    """Move a channel's pin; with ``--wait``, wait until its rollout ends. Raises: CommandExit."""
    etag = context.etag_of(paths.at("channels", channel), version)
    answer = context.client.write(
        "POST", paths.at("channels", channel, verb), body, etag=etag
    ).json()
    rollout_id = str(answer["rollout_id"])
    if not wait.is_asked or context.is_for_people:
        release = rollout_id.partition("@")[2].partition("~")[0]
        what = "has new evidence" if body.get("refresh") else f"rollout {rollout_id} is open"
        if body.get("start_at"):
            what += f" and starts at {output.when(body['start_at'])}"
        context.done(answer, f"{release} is authoritative on {channel}; {what}")
        context.warn(answer)
    if wait.is_asked:
        waiting.wait_for_rollout(context, rollout_id, wait)


VERBS = (promote, rollback)
