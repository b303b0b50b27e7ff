"""Control an open rollout: pause, abort, retry, clear, skip, override."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli import context as cli_context, paths, rollout_names, times, waiting

OVERRIDABLE = ("edges", "freeze", "hold", "window", "start-at", "freshness")


def _send_command(
    context: cli_context.CommandContext, rollout: str, verb: str, body: dict[str, Any], line: str
) -> None:
    rollout_id = rollout_names.id_of(context, rollout)
    answer = context.client.write("POST", paths.at("rollouts", rollout_id, verb), body)
    context.done(answer, f"{rollout_id} {line}")


@click.command("pause", cls=cli_context.VerbCommand)
@cli_context.dry_run_option
@click.argument("rollout", shell_complete=rollout_names.ROLLOUTS)
@cli_context.reason(required=True)
@cli_context.with_context
def pause(context: cli_context.CommandContext, rollout: str, reason: str) -> None:
    """Pause the rollout: no order and no wave until it is resumed."""
    _send_command(context, rollout, "pause", {"reason": reason}, "is paused")


@click.command("resume", cls=cli_context.VerbCommand)
@cli_context.dry_run_option
@click.argument("rollout", shell_complete=rollout_names.ROLLOUTS)
@cli_context.reason(required=True)
@cli_context.with_context
def resume(context: cli_context.CommandContext, rollout: str, reason: str) -> None:
    """Resume a paused rollout. A halted one needs rollout clear."""
    _send_command(context, rollout, "resume", {"reason": reason}, "is resumed")


@click.command("abort", cls=cli_context.VerbCommand)
@cli_context.dry_run_option
@click.argument("rollout", shell_complete=rollout_names.ROLLOUTS)
@cli_context.reason(required=True)
@cli_context.with_context
def abort(context: cli_context.CommandContext, rollout: str, reason: str) -> None:
    """Abort the rollout: nothing more is dispatched. The channel keeps its release."""
    line = f"is aborted; next: tidegate rollout explain {rollout}"
    _send_command(context, rollout, "abort", {"reason": reason}, line)


@click.command("retry", cls=cli_context.VerbCommand)
@cli_context.dry_run_option
@click.argument("rollout", shell_complete=rollout_names.ROLLOUTS)
@click.argument("hosts", nargs=-1)
@cli_context.reason(required=True, unless="dry_run")
@waiting.wait_option
@cli_context.break_glass_option
@cli_context.with_context
def retry(
    context: cli_context.CommandContext,
    rollout: str,
    hosts: tuple[str, ...],
    reason: str | None,
    wait: waiting.WaitOption,
) -> None:
    """Retry the hosts of a halted rollout that failed or rolled back: all, or only HOSTS."""
    rollout_id = rollout_names.id_of(context, rollout)
    body: dict[str, Any] = {"reason": reason or "a dry run"} | (
        {"hosts": list(hosts)} if hosts else {}
    )
    answer = context.client.write("POST", paths.at("rollouts", rollout_id, "retry"), body)
    context.done(answer, f"{rollout_id} is tried again")
    if wait.is_asked:
        waiting.wait_for_rollout(context, rollout_id, wait)


@click.command("clear", cls=cli_context.VerbCommand)
@cli_context.dry_run_option
@click.argument("rollout", shell_complete=rollout_names.ROLLOUTS)
@click.option(
    "--mode",
    type=click.Choice(("resume", "waive", "abandon")),
    required=True,
    help="Retry its hosts, waive the named hosts, or give the rollout up.",
)
@click.option("--host", "hosts", multiple=True, help="A host to retry or waive. Repeatable.")
@cli_context.reason(required=True)
@cli_context.break_glass_option
@cli_context.with_context
def clear(
    context: cli_context.CommandContext,
    rollout: str,
    mode: str,
    hosts: tuple[str, ...],
    reason: str,
) -> None:
    """Clear a halted rollout after you looked at it."""
    body = {"mode": mode, "reason": reason, "hosts": list(hosts)}
    _send_command(context, rollout, "clearance", body, f"is cleared: {mode}")


@click.command("skip", cls=cli_context.VerbCommand)
@cli_context.dry_run_option
@click.argument("rollout", shell_complete=rollout_names.ROLLOUTS)
@click.argument("host")
@cli_context.reason(required=True)
@cli_context.with_context
def skip(context: cli_context.CommandContext, rollout: str, host: str, reason: str) -> None:
    """Continue without HOST. It gets the release later, when the rollout has succeeded."""
    body = {"host_id": host, "reason": reason}
    rollout_id = rollout_names.id_of(context, rollout)
    answer = context.client.write("POST", paths.at("rollouts", rollout_id, "skip"), body)
    context.done_or_not(answer, f"{rollout_id} continues without {host}")


@click.command("override", cls=cli_context.VerbCommand)
@cli_context.dry_run_option
@click.argument("rollout", shell_complete=rollout_names.ROLLOUTS)
@click.option("--gate", required=True, type=click.Choice(OVERRIDABLE), help="What it passes.")
@click.option(
    "--until", metavar="TIME", help="Only until then: 2h, 18:00 (UTC) or 2026-12-24T18:00:00Z."
)
@cli_context.reason(required=True)
@cli_context.break_glass_option
@cli_context.with_context
def override(
    context: cli_context.CommandContext, rollout: str, gate: str, until: str | None, reason: str
) -> None:
    """Let ROLLOUT pass a gate that is closed. This needs the permission emergency."""
    body = {"gate": gate, "until": times.api_start(until), "reason": reason}
    _send_command(context, rollout, "override", body, f"passes {gate}")


@click.command("continue", cls=cli_context.VerbCommand)
@cli_context.dry_run_option
@click.argument("rollout", shell_complete=rollout_names.ROLLOUTS)
@cli_context.reason(required=False)
@cli_context.with_context
def continue_wave(context: cli_context.CommandContext, rollout: str, reason: str | None) -> None:
    """Start the next wave, which waits for a person."""
    _send_command(context, rollout, "continue", {"reason": reason or ""}, "continues")


@click.command("skip-wave", cls=cli_context.VerbCommand)
@cli_context.dry_run_option
@click.argument("rollout", shell_complete=rollout_names.ROLLOUTS)
@click.argument("wave")
@cli_context.reason(required=True)
@cli_context.break_glass_option
@cli_context.with_context
def skip_wave(context: cli_context.CommandContext, rollout: str, wave: str, reason: str) -> None:
    """Continue without WAVE: its hosts that have no order get none of this rollout.

    WAVE is its name, or its number from 1. You need the permission emergency.
    """
    body = {"wave": wave, "reason": reason}
    _send_command(context, rollout, "skip-wave", body, f"continues without wave {wave}")


@click.command("promote-all", cls=cli_context.VerbCommand)
@cli_context.dry_run_option
@click.argument("rollout", shell_complete=rollout_names.ROLLOUTS)
@cli_context.reason(required=True)
@cli_context.break_glass_option
@cli_context.with_context
def promote_all(context: cli_context.CommandContext, rollout: str, reason: str) -> None:
    """Start every wave now: no delay, no manual wave, no wait for the waves before.

    Gates, budgets and soaks stay. You need the permission emergency.
    """
    _send_command(context, rollout, "promote-all", {"reason": reason}, "sends orders to every wave")


VERBS = (pause, resume, abort, retry, clear, skip, override, continue_wave, skip_wave, promote_all)
