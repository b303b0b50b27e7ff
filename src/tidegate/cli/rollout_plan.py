"""The plan and the simulation of a rollout before it is opened."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli import (
    channel_policy,
    context as cli_context,
    live_view,
    output,
    paths,
    symbols,
    times,
)


@click.command("plan", cls=cli_context.VerbCommand)
@click.argument("channel", shell_complete=channel_policy.CHANNELS)
@click.argument("release")
@cli_context.start_option
@cli_context.with_context
def plan(
    context: cli_context.CommandContext, channel: str, release: str, start_at: str | None
) -> None:
    """Show which hosts would get RELEASE on CHANNEL in which wave. Changes nothing."""
    body = {"channel": channel, "release_id": release}
    body |= {} if start_at is None else {"start_at": times.api_start(start_at) or ""}
    print_plan(context, context.client.write("POST", paths.at("rollouts", "plan"), body).json())


def print_plan(context: cli_context.CommandContext, found: Any) -> None:
    if not context.is_for_people:
        context.card(found, [])
        return
    waves = found.get("waves") or []
    if not waves:
        output.say("no host would get it: no enrolled host is taken by a wave of the channel")
    earliest = {item["wave"]: item for item in found.get("earliest") or []}
    for number, wave in enumerate(waves):
        hosts = wave.get("hosts") or []
        soak = wave.get("soak_seconds") or 0
        more = f", {wave['success_percent']} % must be done" if "success_percent" in wave else ""
        more += (
            f", {wave['delay_seconds']} s after the wave before" if "delay_seconds" in wave else ""
        )
        more += ", started by hand" if wave.get("manual") else ""
        output.say(
            f"wave {number + 1}  {output.text(wave.get('name'))}  "
            f"{output.counted(len(hosts), 'host')}, soak {soak} s{more}"
        )
        rest = " …" if len(hosts) > 20 else ""
        output.say(f"  {output.text([_host(host) for host in hosts[:20]])}{rest}")
        _say_windows(earliest.get(wave.get("name")) or {})
    for name in found.get("empty_waves") or []:
        output.say(f"warning: wave {name} takes no host now")
    if output.dig(found, "policy", "auto_rollback"):
        output.say("if hosts fail, the channel rolls back by itself (auto_rollback)")
    for held in found.get("holds") or []:
        output.say(f"warning: its orders would wait. {held}")
    unstaged = found.get("unstaged") or []
    if unstaged:
        output.say(f"in no wave: {output.text([_host(host) for host in unstaged[:20]])}")


def _say_windows(start: Any) -> None:
    """Print the maintenance window that the wave waits for, if there is one."""
    if start.get("sentence"):
        when = f"{start['at']}" if start.get("at") else "never, as windows are now"
        output.say(f"  at the earliest: {when}. {start['sentence']}")


def _host(host: Any) -> str:
    return str(host.get("host_id")) if isinstance(host, dict) else str(host)


@click.command("simulate", cls=cli_context.VerbCommand)
@click.argument("channel", shell_complete=channel_policy.CHANNELS)
@click.argument("release")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed, the same run.")
@click.option("--fail", "failing", multiple=True, metavar="HOST", help="A host whose probes fail.")
@click.option("--from-history", is_flag=True, help="Hosts fail as often as in the last rollouts.")
@cli_context.start_option
@cli_context.with_context
def simulate(
    context: cli_context.CommandContext,
    channel: str,
    release: str,
    seed: int,
    failing: tuple[str, ...],
    from_history: bool,
    start_at: str | None,
) -> None:
    """Simulate the rollout of RELEASE on CHANNEL. Changes nothing.

    By default nothing fails and it starts now. Switches take as long as in the last rollouts.
    Maintenance windows and freezes with an end hold hosts.
    """
    body: dict[str, Any] = {"channel": channel, "release_id": release, "seed": seed}
    body |= {"failing": list(failing)} | ({"from_history": True} if from_history else {})
    body |= {} if start_at is None else {"start_at": times.api_start(start_at)}
    found = context.client.write("POST", paths.at("rollouts", "simulate"), body).json()
    if not context.is_for_people:
        context.card(found, [])
        return
    for stretch in found.get("held") or []:
        output.say(describe_stretch(stretch))
    for moment in found.get("timeline") or []:
        output.say(f"{moment.get('seconds', 0):>7} s  {output.text(moment.get('what'))}")
    end = live_view.paint([live_view.span(output.StateCell(str(found.get("state"))))])
    output.say(f"ends {end} after {found.get('seconds', 0)} s")
    for held in found.get("holds") or []:
        output.say(f"warning: its orders would wait first. {held}")


def describe_stretch(stretch: output.Item) -> str:
    """Describe a period in which hosts get no order, and its cause."""
    by = f"window {stretch['window_id']}" if stretch.get("window_id") else stretch["by"]
    span = f"{symbols.duration(stretch['begins'])} to {symbols.duration(stretch['ends'])}"
    hosts = output.counted(stretch["hosts"], "host")
    return f"held by the {by}: {hosts}, {span} after the opening"


VERBS = (plan, simulate)
