"""``tidegate simulate``: forecast a rollout on a channel with simulated hosts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tidegate.cli.context import LocalCommand, output_format
from tidegate.cli.output import NOTHING, aligned, json_of, line_of
from tidegate.commands.options import LOG, settings_of, with_settings
from tidegate.config import Settings

if TYPE_CHECKING:
    from tidegate.control.queries import forecasts
    from tidegate.domain.channels.rows import Channel
    from tidegate.domain.planner import Plan

RUNS: Final = 10
RUNS_MAX: Final = 50
ENDS: Final = {"Terminal": "succeeds", "Reverted": "is rolled back", "Failed": "fails"}
SHARES: Final = {
    "activation_fails": ("Hosts whose activation fails.", 0.0),
    "probe_fails": ("Hosts whose probes fail for good.", 0.0),
    "probe_flaps": ("Hosts whose probes fail, then pass in time.", 0.0),
    "rollback_fails": ("Failed hosts that cannot roll back.", 0.0),
    "dies": ("Hosts that go silent during an order.", 0.0),
    "offline": ("Hosts that are off from the beginning.", 0.0),
    "lost": ("Messages that get lost.", 0.0),
}


def _with_shares(command: Any) -> Any:
    for name, (what, default_share) in reversed(SHARES.items()):
        command = click.option(
            f"--{name.replace('_', '-')}",
            name,
            type=click.FloatRange(0.0, 1.0),
            default=default_share,
            show_default=True,
            metavar="SHARE",
            help=what,
        )(command)
    return command


@click.command(cls=LocalCommand)
@click.argument("channel")
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="The seed of the first run.",
)
@click.option(
    "--runs",
    type=click.IntRange(1, RUNS_MAX),
    default=RUNS,
    show_default=True,
    help="How many runs, each with the next seed.",
)
@click.option("--fail", "failing", multiple=True, metavar="HOST", help="A host whose probes fail.")
@click.option("--from-history", is_flag=True, help="Hosts fail as often as in the last rollouts.")
@click.option(
    "--start-at",
    metavar="TIME",
    help="Send no order before this time: 2026-12-24T02:00:00+01:00, or in 3h.",
)
@_with_shares
@with_settings(*LOG)
def simulate(
    channel: str,
    seed: int,
    runs: int,
    failing: tuple[str, ...],
    from_history: bool,
    start_at: str | None,
    file: str | None,
    **flags: Any,
) -> None:
    """Forecast when each wave of a rollout on CHANNEL would end, and what would stop it.

    The plan uses the installation's fleet as it is now; only the hosts are simulated. Nothing is
    written. Equal seeds give equal forecasts. By default nothing fails.
    """
    shares = {name: flags.pop(name) for name in SHARES}
    settings, how = settings_of(file, flags), output_format()
    if from_history and any(shares.values()):
        raise click.UsageError("give either --from-history or shares of your own")
    import msgspec
    from msgspec.structs import replace

    from tidegate.cli.times import parse_start
    from tidegate.control.queries.forecasts import Odds

    row, plan, conditions, history = load_plan(settings, channel)
    if start_at is not None:
        conditions = replace(conditions, start_at=parse_start(start_at, conditions.at))
    seeds = range(seed, seed + runs)
    odds = replace(history.odds if from_history else Odds(**shares), failing=failing)
    found = _run_forecast(row, plan, odds, seeds, conditions, quiet=how != "table")
    if how != "table":
        written = msgspec.to_builtins(found)
        click.echo(json_of(written) if how == "json" else line_of(written))
        return
    for line in describe_forecast(found):
        click.echo(line)


def load_plan(
    settings: Settings, channel: str
) -> tuple[Channel, Plan, forecasts.ForecastConditions, forecasts.RolloutHistory]:
    """Load the channel, its plan, what holds its hosts now, and its last rollouts.

    Raises:
        NotFound, MalformedPolicy, InvalidSelector.
    """
    from msgspec.structs import replace

    from tidegate.clock import system_clock
    from tidegate.commands.startup import FOLDS
    from tidegate.control.fleet.reader import FleetReader
    from tidegate.control.queries.forecasts import read_conditions, read_history
    from tidegate.control.queries.reads import Reads
    from tidegate.domain.channels.refusals import ChannelNotFound
    from tidegate.domain.channels.rows import Channel, channel_key
    from tidegate.domain.planner import plan
    from tidegate.engines import connect
    from tidegate.errors import NotFound
    from tidegate.simulate.control_plane import MemoryBlobs

    if not settings.store and not Path(settings.data).is_dir():
        raise NotFound(f"there is no log in {settings.data}")
    store = connect(settings.store_url, FOLDS.schema)
    try:
        fleet_reader = FleetReader(store, MemoryBlobs())
        found = fleet_reader.row(channel_key(channel), Channel)
        if found is None:
            raise ChannelNotFound(channel)
        budgets = [seen.row for seen in fleet_reader.budgets() if not seen.row.removed]
        history = read_history(Reads(store), channel)
        conditions = replace(
            read_conditions(fleet_reader, found.row, system_clock()), activation=history.activation
        )
        return found.row, plan(found.row, fleet_reader.hosts(), budgets), conditions, history
    finally:
        store.close()


def _run_forecast(
    row: Channel,
    plan: Plan,
    odds: forecasts.Odds,
    seeds: range,
    conditions: forecasts.ForecastConditions,
    *,
    quiet: bool,
) -> forecasts.Forecast:
    from tidegate.simulate.forecast import forecast

    if quiet:
        return forecast(row, plan, odds, seeds, conditions)
    with click.progressbar(length=len(seeds), label=f"playing {plan.channel}") as bar:
        return forecast(row, plan, odds, seeds, conditions, lambda done: bar.update(1))


def describe_forecast(found: forecasts.Forecast) -> list[str]:
    """Render a forecast for people: a summary, the waves, the outcomes."""
    lines = [f"{found.channel}: {found.hosts} hosts, {found.runs} runs from seed {found.seed}"]
    if found.stands_for > 1:
        lines.append(f"one simulated host represents {found.stands_for}")
    if found.waits_seconds:
        waits = format_duration(found.waits_seconds)
        lines.append(f"the first host starts {waits} after the opening")
    lines += [describe_stretch(stretch) for stretch in found.held]
    titles = ["WAVE", "HOSTS", "ENDED", "P50", "P90", "AT WORST", "FAILED", "AT WORST"]
    rows = [
        [
            f"{number + 1} {wave.name}",
            str(wave.hosts),
            f"{wave.ended} of {found.runs}",
            *_times(wave.seconds),
            str(wave.failed.median),
            str(wave.failed.worst),
        ]
        for number, wave in enumerate(found.waves)
    ]
    lines += aligned([titles, *rows]) if rows else ["no host is in a wave"]
    lines += [
        f"{ENDS.get(state, 'does not end')}: {count} of {found.runs} runs"
        for state, count in found.ends.items()
    ]
    lines += [f"stopped {stop.runs} times: {stop.what}" for stop in found.stops]
    return lines


def describe_stretch(stretch: forecasts.HeldStretch) -> str:
    """When hosts get no order, and what holds them."""
    by = f"window {stretch.window_id}" if stretch.window_id else stretch.by
    begins, ends = format_duration(stretch.begins), format_duration(stretch.ends)
    hosts = f"{stretch.hosts} host{'' if stretch.hosts == 1 else 's'}"
    return f"held by the {by}: {hosts}, {begins} to {ends} after the opening"


def _times(spread: forecasts.Spread | None) -> list[str]:
    if spread is None:
        return [NOTHING, NOTHING, NOTHING]
    return [format_duration(item) for item in (spread.median, spread.p90, spread.worst)]


def format_duration(seconds: int) -> str:
    """Format seconds as hours and minutes, or minutes and seconds."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
