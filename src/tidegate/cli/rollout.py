"""Rollouts: list, show, watch and explain them; the other verbs are in modules of their own."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import chain
from typing import Any

import click

from tidegate.cli import (
    channel_policy,
    channel_promotion,
    context as cli_context,
    exit_codes,
    gates,
    hints,
    live_view,
    output,
    paths,
    rollout_control,
    rollout_events,
    rollout_names,
    rollout_plan,
    symbols,
    times,
    waiting,
)

STATES = {  # the names for people → those of the API
    "opening": "Opening",
    "active": "Active",
    "converging": "Converging",
    "ended": "Terminal",
    "rolled-back": "Reverted",
    "failed": "Failed",
    "replaced": "Superseded",
    "pruned": "Pruned",
}
STOPPED = "stopped"
FAILING = ["Reverted", "Failed"]  # the states after a failure, in which a rollout is stopped
HOST_STATES = {
    "pending": "Pending",
    "activating": "Activating",
    "deferred": "Deferred",
    "soaking": "Soaking",
    "converged": "Converged",
    "failed": "Failed",
    "rolled-back": "Reverted",
}


def format_duration(item: output.Item) -> str:
    """Format how long the rollout took; a dash until it ends."""
    if not item.get("outcome_at"):
        return "–"
    spent = times.parse_api_time(item["outcome_at"]) - times.parse_api_time(item["opened_at"])
    return symbols.duration(spent.total_seconds())


COLUMNS = (
    output.column("ROLLOUT", "rollout_id"),
    output.Column("OUTCOME", waiting.outcome_cell),
    output.Column("HOSTS", lambda item: f"{item.get('converged', 0)}/{item.get('hosts', 0)}"),
    output.person_column("BY", "opened_by", name="opened_by_name"),
    output.time_column("OPENED", "opened_at"),
    output.Column("TOOK", format_duration),
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


@click.group(cls=cli_context.NounGroup)
def rollout() -> None:
    """Rollouts. Where ROLLOUT is asked for, a channel's name means its newest one."""


for verb in rollout_plan.VERBS:
    rollout.add_command(verb)


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
    channel_promotion.request_promotion(
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
    wanted = FAILING if state == STOPPED else [STATES.get(state or "")]

    def find() -> list[Any]:
        at = paths.at("rollouts")
        pages = [list(context.client.items(at, query | {"state": one})) for one in wanted]
        if len(pages) == 1:
            return pages[0]
        return sorted(chain(*pages), key=lambda item: str(item["opened_at"]), reverse=True)

    filters = hints.type_again().removeprefix("tidegate rollout list").removesuffix(" --watch")
    empty = (
        f"no rollout matches{filters}"
        if filters
        else "no rollout; try: tidegate channel promote CHANNEL RELEASE"
    )
    if context.is_for_people and not watch and "failed" in (outcomes or "").split(","):
        found = find()
        empty += "" if found else _note_stopped(context, channel)
        find = lambda: found  # noqa: E731
    context.print_items(find, COLUMNS, watch=watch, empty=empty)


def _note_stopped(context: cli_context.CommandContext, channel: str | None) -> str:
    """A line about rollouts that stopped after a failure: they have no outcome until a person
    decides.
    """
    query = {"channel": channel}
    pages = [context.client.items(paths.at("rollouts"), query | {"state": one}) for one in FAILING]
    count = len([*chain(*pages)])
    if not count:
        return ""
    what = (
        "1 rollout is stopped and has" if count == 1 else f"{count} rollouts are stopped and have"
    )
    where = "" if channel is None else f" --channel {channel}"
    return f"\n{what} not ended: tidegate rollout list --state stopped{where}"


@rollout.command("show")
@click.argument("rollout", shell_complete=rollout_names.ROLLOUTS)
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
    rollout_id = rollout_names.id_of(context, rollout)
    if hosts:
        path = paths.at("rollouts", rollout_id, "hosts")
        wanted = None if state is None else HOST_STATES[state]
        context.print_items(
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
@click.argument("rollout", shell_complete=rollout_names.ROLLOUTS)
@click.option("--timeout", type=click.IntRange(1), metavar="SECONDS", help="No longer than this.")
@cli_context.with_context
def watch(context: cli_context.CommandContext, rollout: str, timeout: int | None) -> None:
    """Watch the waves of ROLLOUT until it ends. The exit code is that of --wait."""
    rollout_id = rollout_names.id_of(context, rollout)
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


for verb in rollout_control.VERBS:
    rollout.add_command(verb)


@rollout.command("explain")
@click.argument("rollout", shell_complete=rollout_names.ROLLOUTS)
@click.option("--host", help="Why this host waits.")
@cli_context.with_context
def explain(context: cli_context.CommandContext, rollout: str, host: str | None) -> None:
    """Explain why it waits: every gate, its verdict, and the fact or row that decides it."""
    if not context.is_for_people:
        rollout_id = rollout_names.id_of(context, rollout)
        context.card(context.get(paths.at("rollouts", rollout_id, "explain"), host_id=host), [])
        return
    requests = [] if "@" in rollout else _list_waiting_requests(context, rollout)
    try:
        rollout_id = rollout_names.id_of(context, rollout)
    except exit_codes.CommandExit as none:
        if not requests or none.code is not exit_codes.ExitCode.NOT_FOUND:
            raise
        first = f"tidegate request show {requests[0]['request_id']}"
        waits = "; ".join(_describe_waiting(item) for item in requests)
        raise exit_codes.CommandExit(none.code, f"{none.detail}; {waits}", first) from None
    found = context.get(paths.at("rollouts", rollout_id, "explain"), host_id=host)
    for line in gates.explain_lines(found):
        output.say(live_view.paint(line))
    if any(wait.get("code") == "concluded" for wait in found.get("waits") or []):
        for item in requests:
            output.say(f"- {_describe_waiting(item)}")
            output.say(f"    next: tidegate request show {symbols.clean(item['request_id'])}")


def _list_waiting_requests(context: cli_context.CommandContext, channel: str) -> list[Any]:
    """List the requests for a rollout on the channel that wait for an approval."""
    found = context.client.items(paths.at("requests"), {"state": "waiting"})
    kinds = ("channel.promote", "channel.rollback")
    return [
        item for item in found if item["channel"] == channel and str(item["kind"]).startswith(kinds)
    ]


def _describe_waiting(item: Any) -> str:
    names = [one["name"] or one["user_id"] for one in item.get("approvers") or ()]
    who = f" of {' or '.join(names)}" if names else ""
    text = f"{item['request_id']} waits for the approval{who}: {item.get('what') or item['kind']}"
    return str(symbols.clean(text))


@rollout.command("events")
@click.argument("rollout", shell_complete=rollout_names.ROLLOUTS)
@cli_context.with_context
def events(context: cli_context.CommandContext, rollout: str) -> None:
    """List what happened to ROLLOUT and its hosts, in order."""
    path = paths.at("rollouts", rollout_names.id_of(context, rollout), "events")
    if not context.is_for_people:
        context.list(context.client.items(path), (), empty="")
        return
    items = list(context.client.items(path))
    context.list(items, rollout_events.columns(items), empty="nothing happened yet")
