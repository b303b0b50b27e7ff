"""Rollouts: planned, simulated, opened, watched, steered and explained."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli.channel import CHANNELS, promoted
from tidegate.cli.completion import names
from tidegate.cli.desk import Desk, Noun, at_desk, reason, versioned, watched
from tidegate.cli.exits import Exit, Stop
from tidegate.cli.frames import follow, painted, span
from tidegate.cli.gates import explained
from tidegate.cli.output import (
    Column,
    Item,
    State,
    column,
    counted,
    dig,
    person,
    say,
    stated,
    text,
    timed,
)
from tidegate.cli.paths import at
from tidegate.cli.waiting import ENDS, OUTCOMES, Waiting, awaited, ended, rollout_frame, waiting

ROLLOUTS = names("/v1/rollouts", "rollout_id")
STATES = (
    *("Opening", "Active", "Converging", "Terminal", "Reverted", "Failed", "Superseded", "Pruned"),
)
COLUMNS = (
    column("ROLLOUT", "rollout_id"),
    stated("STATE", "state"),
    Column("OUTCOME", lambda item: OUTCOMES.get(str(item.get("outcome")), "–")),
    column("WAVE", "current_wave"),
    timed("OPENED", "opened_at"),
    column("SUPERSEDED BY", "superseded_by"),
)
HOSTS = (
    column("HOST", "host_id"),
    stated("STATE", "state"),
    column("WAVE", "wave"),
    column("ATTEMPT", "attempt"),
    column("FAILURE", "failure"),
    column("LEFT", "left"),
    timed("DUE", "due_at"),
)
EVENTS = (
    column("POSITION", "position"),
    timed("TIME", "time"),
    Column("WHAT", lambda item: str(item["type"]).removeprefix("tidegate.")),
    Column("HOST", lambda item: text(dig(item, "data", "host_id"))),
    Column("SAYS", lambda item: said(item)),
    person("BY", "actor"),
)
SILENT = frozenset({"rollout_id", "host_id", "at", "channel", "target_closure", "policy", "waves"})


def said(item: Item) -> str:
    """The members of an event that tell something beside who and when."""
    told = dig(item, "data") or {}
    return text({name: value for name, value in told.items() if name not in SILENT})


def id_of(desk: Desk, name: str) -> str:
    """A rollout by its id, or the newest one of a channel. Raises: Stop."""
    if "@" in name:
        return name
    newest = desk.get(at("channels", name)).get("newest_rollout_id")
    if newest is None:
        raise Stop(
            Exit.NOT_FOUND,
            f"channel {name} has no rollout yet",
            f"tidegate rollout plan {name} RELEASE",
        )
    return str(newest)


@click.group(cls=Noun)
def rollout() -> None:
    """Rollouts. Where ROLLOUT is asked for, a channel's name means its newest one."""


@rollout.command("plan")
@click.argument("channel", shell_complete=CHANNELS)
@click.argument("release")
@at_desk
def plan(desk: Desk, channel: str, release: str) -> None:
    """Which host would get RELEASE on CHANNEL in which wave; changes nothing."""
    body = {"channel": channel, "release_id": release}
    planned(desk, desk.client.write("POST", at("rollouts", "plan"), body).json())


def planned(desk: Desk, found: Any) -> None:
    if not desk.is_for_people:
        desk.card(found, [])
        return
    waves = found.get("waves") or []
    if not waves:
        say("no host would get it: no enrolled host is taken by a wave of the channel")
    for number, wave in enumerate(waves):
        hosts = wave.get("hosts") or []
        soak = wave.get("soak_seconds") or 0
        say(
            f"wave {number}  {text(wave.get('name'))}  {counted(len(hosts), 'host')}, soak {soak} s"
        )
        say(f"  {text([_host(host) for host in hosts[:20]])}{' …' if len(hosts) > 20 else ''}")
    unstaged = found.get("unstaged") or []
    if unstaged:
        say(f"in no wave: {text([_host(host) for host in unstaged[:20]])}")


def _host(host: Any) -> str:
    return str(host.get("host_id")) if isinstance(host, dict) else str(host)


@rollout.command("simulate")
@click.argument("channel", shell_complete=CHANNELS)
@click.argument("release")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed, the same run.")
@click.option("--fail", "failing", multiple=True, metavar="HOST", help="A host whose probes fail.")
@at_desk
def simulate(desk: Desk, channel: str, release: str, seed: int, failing: tuple[str, ...]) -> None:
    """Play the rollout of RELEASE on CHANNEL with simulated hosts; changes nothing."""
    body = {"channel": channel, "release_id": release, "seed": seed, "failing": list(failing)}
    found = desk.client.write("POST", at("rollouts", "simulate"), body).json()
    if not desk.is_for_people:
        desk.card(found, [])
        return
    for moment in found.get("timeline") or []:
        say(f"{moment.get('seconds', 0):>7} s  {text(moment.get('what'))}")
    end = painted([span(State(str(found.get("state"))))])
    say(f"ends {end} after {found.get('seconds', 0)} s")


@rollout.command("open")
@click.argument("channel", shell_complete=CHANNELS)
@click.argument("release")
@reason(required=False)
@versioned
@waiting
@at_desk
def open_one(
    desk: Desk, channel: str, release: str, reason: str | None, version: int | None, wait: Waiting
) -> None:
    """Open a rollout of RELEASE on CHANNEL: the same as channel promote."""
    promoted(desk, channel, {"release_id": release, "reason": reason or ""}, version, wait)


@rollout.command("get")
@click.argument("rollout", required=False, shell_complete=ROLLOUTS)
@click.option("--channel", shell_complete=CHANNELS, help="Only those of this channel.")
@click.option("--state", type=click.Choice(STATES), help="Only those in this state.")
@click.option("--hosts", is_flag=True, help="Its hosts, each with its state.")
@watched
@at_desk
def get(
    desk: Desk,
    rollout: str | None,
    channel: str | None,
    state: str | None,
    hosts: bool,
    watch: bool,
) -> None:
    """One rollout with its waves, or all of them."""
    if rollout is None:
        query = {"channel": channel, "state": state}
        desk.shown(
            lambda: list(desk.client.items(at("rollouts"), query)),
            COLUMNS,
            watch=watch,
            empty="no rollout; try: tidegate channel promote CHANNEL RELEASE",
        )
        return
    rollout_id = id_of(desk, rollout)
    if hosts:
        path = at("rollouts", rollout_id, "hosts")
        desk.shown(
            lambda: list(desk.client.items(path, {"state": state})),
            HOSTS,
            watch=watch,
            empty="no host has an order yet",
        )
    elif watch:
        follow(lambda: desk.get(at("rollouts", rollout_id)), rollout_frame, output=desk.output)
    else:
        found = desk.get(at("rollouts", rollout_id))
        if not desk.is_for_people:
            desk.card(found, [])
            return
        for line in rollout_frame(found):
            say(painted(line))


@rollout.command("watch")
@click.argument("rollout", shell_complete=ROLLOUTS)
@click.option("--timeout", type=click.IntRange(1), metavar="SECONDS", help="No longer than this.")
@at_desk
def watch(desk: Desk, rollout: str, timeout: int | None) -> None:
    """Watch the waves of ROLLOUT until it ended; the exit code tells how, as with --wait."""
    rollout_id = id_of(desk, rollout)
    if timeout is not None:
        awaited(desk, rollout_id, Waiting(True, timeout))
        return
    found = follow(
        lambda: desk.get(at("rollouts", rollout_id)),
        rollout_frame,
        output=desk.output,
        until=lambda found: found["state"] in ENDS,
    )
    ended(rollout_id, found)


def _steered(desk: Desk, rollout: str, verb: str, body: dict[str, Any], line: str) -> None:
    rollout_id = id_of(desk, rollout)
    answer = desk.client.write("POST", at("rollouts", rollout_id, verb), body)
    desk.done(answer, f"{rollout_id} {line}")


@rollout.command("pause")
@click.argument("rollout", shell_complete=ROLLOUTS)
@reason(required=True)
@at_desk
def pause(desk: Desk, rollout: str, reason: str) -> None:
    """No order and no wave until it is resumed."""
    _steered(desk, rollout, "pause", {"reason": reason}, "is paused")


@rollout.command("resume")
@click.argument("rollout", shell_complete=ROLLOUTS)
@reason(required=True)
@at_desk
def resume(desk: Desk, rollout: str, reason: str) -> None:
    """Let a paused rollout go on (a halted one is cleared instead)."""
    _steered(desk, rollout, "resume", {"reason": reason}, "goes on")


@rollout.command("abort")
@click.argument("rollout", shell_complete=ROLLOUTS)
@reason(required=True)
@at_desk
def abort(desk: Desk, rollout: str, reason: str) -> None:
    """End it where it stands: nothing more is dispatched, the channel keeps its pin."""
    channel = rollout.partition("@")[0]
    line = f"is aborted; next: tidegate channel promote {channel} RELEASE"
    _steered(desk, rollout, "abort", {"reason": reason}, line)


@rollout.command("retry")
@click.argument("rollout", shell_complete=ROLLOUTS)
@reason(required=True)
@waiting
@at_desk
def retry(desk: Desk, rollout: str, reason: str, wait: Waiting) -> None:
    """Try the failed and reverted hosts of a halted rollout again."""
    rollout_id = id_of(desk, rollout)
    answer = desk.client.write("POST", at("rollouts", rollout_id, "retry"), {"reason": reason})
    desk.done(answer, f"{rollout_id} is tried again")
    if wait.is_asked:
        awaited(desk, rollout_id, wait)


@rollout.command("clear")
@click.argument("rollout", shell_complete=ROLLOUTS)
@click.option(
    "--mode",
    type=click.Choice(("resume", "waive", "abandon")),
    required=True,
    help="Try its hosts again, let the named hosts leave the count, or give it up.",
)
@click.option("--host", "hosts", multiple=True, help="A host that is waived; may stand again.")
@reason(required=True)
@at_desk
def clear(desk: Desk, rollout: str, mode: str, hosts: tuple[str, ...], reason: str) -> None:
    """Decide about a halted rollout, as an operator who looked."""
    body = {"mode": mode, "reason": reason, "hosts": list(hosts)}
    _steered(desk, rollout, "clearance", body, f"is cleared: {mode}")


@rollout.command("explain")
@click.argument("rollout", shell_complete=ROLLOUTS)
@click.option("--host", help="Why this host waits.")
@at_desk
def explain(desk: Desk, rollout: str, host: str | None) -> None:
    """Why it waits: every gate, what it says, and the fact or row that decides it."""
    rollout_id = id_of(desk, rollout)
    found = desk.get(at("rollouts", rollout_id, "explain"), host_id=host)
    if not desk.is_for_people:
        desk.card(found, [])
        return
    for line in explained(found):
        say(painted(line))


@rollout.command("events")
@click.argument("rollout", shell_complete=ROLLOUTS)
@at_desk
def events(desk: Desk, rollout: str) -> None:
    """What happened to ROLLOUT and its hosts, in order."""
    path = at("rollouts", id_of(desk, rollout), "events")
    desk.list(desk.client.items(path), EVENTS, empty="nothing happened yet")
