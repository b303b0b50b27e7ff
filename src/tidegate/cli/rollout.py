"""Rollouts: planned, simulated, opened, watched, steered and explained."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import chain
from typing import Any

import click

from tidegate.cli import (
    channel_policy,
    completion,
    context as cli_context,
    exit_codes,
    gates,
    hints,
    live_view,
    output,
    paths,
    rollout_events,
    symbols,
    times,
    waiting,
)
from tidegate.cli.channel import request_promotion

ROLLOUTS = completion.names("/v1/rollouts", "rollout_id")
STATES = {  # as people call them → as the API does
    "opening": "Opening",
    "active": "Active",
    "converging": "Converging",
    "ended": "Terminal",
    "rolled-back": "Reverted",
    "failed": "Failed",
    "replaced": "Superseded",
    "pruned": "Pruned",
}
STOPPED = "stopped"  # both that a failure stopped: Reverted and Failed
HOST_STATES = {
    "pending": "Pending",
    "activating": "Activating",
    "deferred": "Deferred",
    "soaking": "Soaking",
    "converged": "Converged",
    "failed": "Failed",
    "rolled-back": "Reverted",
}


def took(item: output.Item) -> str:
    """How long it took, once it ended."""
    if not item.get("outcome_at"):
        return "–"
    spent = times.parsed(item["outcome_at"]) - times.parsed(item["opened_at"])
    return symbols.duration(spent.total_seconds())


COLUMNS = (
    output.column("ROLLOUT", "rollout_id"),
    output.Column("OUTCOME", waiting.outcome_cell),
    output.Column("HOSTS", lambda item: f"{item.get('converged', 0)}/{item.get('hosts', 0)}"),
    output.person_column("BY", "opened_by", name="opened_by_name"),
    output.time_column("OPENED", "opened_at"),
    output.Column("TOOK", took),
    output.column("WHY", "opened_reason"),
)
HOSTS = (
    output.column("HOST", "host_id"),
    output.state_column("STATE", "state"),
    output.Column("WAVE", lambda item: output.text(item["wave"] + 1 if "wave" in item else None)),
    output.column("ATTEMPT", "attempt"),
    output.column("FAILURE", "failure"),
    output.column("SKIPPED", "left"),
    output.time_column("DUE", "due_at"),
)


def id_of(context: cli_context.CommandContext, name: str) -> str:
    """A rollout by its id, or the newest one of a channel. Raises: Stop."""
    if "@" in name:
        return name
    newest = context.get(paths.at("channels", name)).get("newest_rollout_id")
    if newest is None:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.NOT_FOUND,
            f"channel {name} has no rollout yet",
            f"tidegate rollout plan {name} RELEASE",
        )
    return str(newest)


@click.group(cls=cli_context.NounGroup)
def rollout() -> None:
    """Rollouts. Where ROLLOUT is asked for, a channel's name means its newest one."""


@rollout.command("plan")
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
    """Which maintenance window the wave waits for, if it does."""
    if start.get("sentence"):
        when = f"{start['at']}" if start.get("at") else "never, as windows are now"
        output.say(f"  at the earliest: {when}. {start['sentence']}")


def _host(host: Any) -> str:
    return str(host.get("host_id")) if isinstance(host, dict) else str(host)


@rollout.command("simulate")
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
    """Play the rollout of RELEASE on CHANNEL with simulated hosts; changes nothing.

    Unless you say otherwise, nothing fails and it starts now. Switches take as long as in the last
    rollouts. Maintenance windows and freezes with an end hold hosts.
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
    """When hosts get no order, and what holds them."""
    by = f"window {stretch['window_id']}" if stretch.get("window_id") else stretch["by"]
    span = f"{symbols.duration(stretch['begins'])} to {symbols.duration(stretch['ends'])}"
    hosts = output.counted(stretch["hosts"], "host")
    return f"held by the {by}: {hosts}, {span} after the opening"


@rollout.command("open", hidden=True)
@click.argument("channel", shell_complete=channel_policy.CHANNELS)
@click.argument("release")
@cli_context.reason(required=False)
@cli_context.version_option
@waiting.wait_option
@cli_context.break_glass_option
@cli_context.with_context
def open_one(
    context: cli_context.CommandContext,
    channel: str,
    release: str,
    reason: str | None,
    version: int | None,
    wait: waiting.WaitOption,
) -> None:
    """Open a rollout of RELEASE on CHANNEL: the same as channel promote."""
    request_promotion(
        context, channel, {"release_id": release, "reason": reason or ""}, version, wait
    )


@rollout.command("list")
@click.option(
    "--channel", shell_complete=channel_policy.CHANNELS, help="Only those of this channel."
)
@click.option(
    "--state",
    type=cli_context.WordChoice((*STATES, STOPPED)),
    help="Only those in this state; stopped: those that wait for a decision after a failure.",
)
@click.option(
    "--outcome",
    "outcomes",
    metavar="OUTCOME,…",
    help=f"Only those that ended so: {', '.join(waiting.OUTCOMES)}.",
)
@click.option("--since", metavar="TIME", help="Only those opened since: 30d, 12h, a date or time.")
@click.option("--had-failures", is_flag=True, help="Only those in which a host failed.")
@cli_context.watch_option
@cli_context.with_context
def list_all(
    context: cli_context.CommandContext,
    channel: str | None,
    state: str | None,
    outcomes: str | None,
    since: str | None,
    had_failures: bool,
    watch: bool,
) -> None:
    """List rollouts, the newest first."""
    query = {
        "channel": channel,
        "outcome": None if outcomes is None else outcomes.replace("-", "_"),
        "since": None
        if since is None
        else times.as_api_time(times.parse_time(since, datetime.now(UTC))),
        "had_failures": "true" if had_failures else None,
    }
    wanted = ["Reverted", "Failed"] if state == STOPPED else [STATES.get(state or "")]

    def find() -> list[Any]:
        pages = [
            context.list_of_channel(paths.at("rollouts"), query | {"state": one}) for one in wanted
        ]
        if len(pages) == 1:
            return pages[0]
        return sorted(chain(*pages), key=lambda item: str(item["opened_at"]), reverse=True)

    filters = hints.type_again().removeprefix("tidegate rollout list").removesuffix(" --watch")
    context.shown(
        find,
        COLUMNS,
        watch=watch,
        empty=f"no rollout matches{filters}"
        if filters
        else "no rollout; try: tidegate channel promote CHANNEL RELEASE",
    )


@rollout.command("show")
@click.argument("rollout", shell_complete=ROLLOUTS)
@click.option("--hosts", is_flag=True, help="Its hosts, each with its state.")
@click.option(
    "--state", type=cli_context.WordChoice(HOST_STATES), help="With --hosts: only those so."
)
@cli_context.watch_option
@cli_context.with_context
def show(
    context: cli_context.CommandContext, rollout: str, hosts: bool, state: str | None, watch: bool
) -> None:
    """Show ROLLOUT with its waves, or with its hosts."""
    rollout_id = id_of(context, rollout)
    if hosts:
        path = paths.at("rollouts", rollout_id, "hosts")
        wanted = None if state is None else HOST_STATES[state]
        context.shown(
            lambda: list(context.client.items(path, {"state": wanted})),
            HOSTS,
            watch=watch,
            empty="no host has an order yet",
        )
    elif watch:
        live_view.follow(
            lambda: context.get(paths.at("rollouts", rollout_id)),
            waiting.rollout_frame,
            output=context.output,
        )
    else:
        found = context.get(paths.at("rollouts", rollout_id))
        if not context.is_for_people:
            context.card(found, [])
            return
        for line in waiting.rollout_frame(found):
            output.say(live_view.paint(line))


@rollout.command("watch")
@click.argument("rollout", shell_complete=ROLLOUTS)
@click.option("--timeout", type=click.IntRange(1), metavar="SECONDS", help="No longer than this.")
@cli_context.with_context
def watch(context: cli_context.CommandContext, rollout: str, timeout: int | None) -> None:
    """Watch the waves of ROLLOUT until it ends. The exit code is that of --wait."""
    rollout_id = id_of(context, rollout)
    if timeout is not None:
        waiting.wait_for_rollout(context, rollout_id, waiting.WaitOption(True, timeout))
        return
    found = live_view.follow(
        lambda: context.get(paths.at("rollouts", rollout_id)),
        waiting.rollout_frame,
        output=context.output,
        until=lambda found: found["state"] in waiting.ENDS,
    )
    waiting.exit_by_outcome(rollout_id, found)


def _steered(
    context: cli_context.CommandContext, rollout: str, verb: str, body: dict[str, Any], line: str
) -> None:
    rollout_id = id_of(context, rollout)
    answer = context.client.write("POST", paths.at("rollouts", rollout_id, verb), body)
    context.done(answer, f"{rollout_id} {line}")


@rollout.command("pause")
@cli_context.dry_run_option
@click.argument("rollout", shell_complete=ROLLOUTS)
@cli_context.reason(required=True)
@cli_context.with_context
def pause(context: cli_context.CommandContext, rollout: str, reason: str) -> None:
    """Pause the rollout: no order and no wave until it is resumed."""
    _steered(context, rollout, "pause", {"reason": reason}, "is paused")


@rollout.command("resume")
@cli_context.dry_run_option
@click.argument("rollout", shell_complete=ROLLOUTS)
@cli_context.reason(required=True)
@cli_context.with_context
def resume(context: cli_context.CommandContext, rollout: str, reason: str) -> None:
    """Resume a paused rollout. A halted one needs rollout clear."""
    _steered(context, rollout, "resume", {"reason": reason}, "is resumed")


@rollout.command("abort")
@cli_context.dry_run_option
@click.argument("rollout", shell_complete=ROLLOUTS)
@cli_context.reason(required=True)
@cli_context.with_context
def abort(context: cli_context.CommandContext, rollout: str, reason: str) -> None:
    """Abort the rollout: nothing more is dispatched. The channel keeps its release."""
    channel = rollout.partition("@")[0]
    line = (
        f"is aborted; next: tidegate channel rollback {channel} --dry-run, "
        f"or: tidegate channel promote {channel} RELEASE"
    )
    _steered(context, rollout, "abort", {"reason": reason}, line)


@rollout.command("retry")
@cli_context.dry_run_option
@click.argument("rollout", shell_complete=ROLLOUTS)
@click.argument("hosts", nargs=-1)
@cli_context.reason(required=True)
@waiting.wait_option
@cli_context.break_glass_option
@cli_context.with_context
def retry(
    context: cli_context.CommandContext,
    rollout: str,
    hosts: tuple[str, ...],
    reason: str,
    wait: waiting.WaitOption,
) -> None:
    """Try the hosts of a halted rollout again that failed or rolled back: all, or only HOSTS."""
    rollout_id = id_of(context, rollout)
    body: dict[str, Any] = {"reason": reason} | ({"hosts": list(hosts)} if hosts else {})
    answer = context.client.write("POST", paths.at("rollouts", rollout_id, "retry"), body)
    context.done(answer, f"{rollout_id} is tried again")
    if wait.is_asked:
        waiting.wait_for_rollout(context, rollout_id, wait)


@rollout.command("clear")
@cli_context.dry_run_option
@click.argument("rollout", shell_complete=ROLLOUTS)
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
    _steered(context, rollout, "clearance", body, f"is cleared: {mode}")


@rollout.command("skip")
@cli_context.dry_run_option
@click.argument("rollout", shell_complete=ROLLOUTS)
@click.argument("host")
@cli_context.reason(required=True)
@cli_context.with_context
def skip(context: cli_context.CommandContext, rollout: str, host: str, reason: str) -> None:
    """Continue without HOST. It gets the release later, when the rollout has succeeded."""
    body = {"host_id": host, "reason": reason}
    _steered(context, rollout, "skip", body, f"continues without {host}")


OVERRIDABLE = ("edges", "freeze", "hold", "window", "start-at", "freshness")


@rollout.command("override")
@cli_context.dry_run_option
@click.argument("rollout", shell_complete=ROLLOUTS)
@click.option("--gate", required=True, type=click.Choice(OVERRIDABLE), help="What it passes.")
@click.option("--until", metavar="TIME", help="Only until then: 2h, 18:00 or 2026-12-24T18:00:00Z.")
@cli_context.reason(required=True)
@cli_context.break_glass_option
@cli_context.with_context
def override(
    context: cli_context.CommandContext, rollout: str, gate: str, until: str | None, reason: str
) -> None:
    """Let ROLLOUT pass a gate, whatever it says. This needs the permission emergency."""
    body = {"gate": gate, "until": times.api_start(until), "reason": reason}
    _steered(context, rollout, "override", body, f"passes {gate}")


@rollout.command("continue")
@cli_context.dry_run_option
@click.argument("rollout", shell_complete=ROLLOUTS)
@cli_context.reason(required=False)
@cli_context.with_context
def continue_wave(context: cli_context.CommandContext, rollout: str, reason: str | None) -> None:
    """Let the next wave go, which waits for a person."""
    _steered(context, rollout, "continue", {"reason": reason or ""}, "continues")


@rollout.command("skip-wave")
@cli_context.dry_run_option
@click.argument("rollout", shell_complete=ROLLOUTS)
@click.argument("wave")
@cli_context.reason(required=True)
@cli_context.break_glass_option
@cli_context.with_context
def skip_wave(context: cli_context.CommandContext, rollout: str, wave: str, reason: str) -> None:
    """Continue without WAVE: its hosts that have no order get none of this rollout.

    WAVE is its name, or its number from 1. You need the permission emergency.
    """
    body = {"wave": wave, "reason": reason}
    _steered(context, rollout, "skip-wave", body, f"continues without wave {wave}")


@rollout.command("promote-all")
@cli_context.dry_run_option
@click.argument("rollout", shell_complete=ROLLOUTS)
@cli_context.reason(required=True)
@cli_context.break_glass_option
@cli_context.with_context
def promote_all(context: cli_context.CommandContext, rollout: str, reason: str) -> None:
    """Let every wave go now: no delay, no manual wave, no wait for the waves before.

    Gates, budgets and soaks stay. You need the permission emergency.
    """
    _steered(context, rollout, "promote-all", {"reason": reason}, "sends orders to every wave")


@rollout.command("explain")
@click.argument("rollout", shell_complete=ROLLOUTS)
@click.option("--host", help="Why this host waits.")
@cli_context.with_context
def explain(context: cli_context.CommandContext, rollout: str, host: str | None) -> None:
    """Explain why it waits: every gate, its verdict, and the fact or row that decides it."""
    rollout_id = id_of(context, rollout)
    found = context.get(paths.at("rollouts", rollout_id, "explain"), host_id=host)
    if not context.is_for_people:
        context.card(found, [])
        return
    for line in gates.explain_lines(found):
        output.say(live_view.paint(line))


@rollout.command("events")
@click.argument("rollout", shell_complete=ROLLOUTS)
@cli_context.with_context
def events(context: cli_context.CommandContext, rollout: str) -> None:
    """What happened to ROLLOUT and its hosts, in order."""
    path = paths.at("rollouts", id_of(context, rollout), "events")
    if not context.is_for_people:
        context.list(context.client.items(path), (), empty="")
        return
    items = list(context.client.items(path))
    context.list(items, rollout_events.columns(items), empty="nothing happened yet")
