"""``tidegate serve`` and ``tidegate worker``."""

from __future__ import annotations

import click

from tidegate.cli.exit_codes import CommandExit, exit_code_of
from tidegate.commands import options, sockets

accept_clock = click.option(
    "--accept-clock",
    "accepts_clock",
    is_flag=True,
    help="Start although the clock is before the newest event, because it once ran ahead.",
)


@click.command()
@options.with_settings(*options.EVERY)
@accept_clock
@click.option(
    "--print-config", "prints", is_flag=True, help="Print a commented file of settings, and exit."
)
def serve(file: str | None, prints: bool, accepts_clock: bool, **flags: str | None) -> None:
    """Serve the API and the dashboard, and run the worker.

    The first start prints a one-time code, with which you create the first user. INT or TERM stops
    the server: it finishes open requests, and nothing acknowledged is lost.
    """
    if prints:
        click.echo(options.commented_default(), nl=False)
        return
    settings = options.settings_of(file, flags)
    from tidegate import main

    main.log_to_stderr()
    try:
        main.serve(settings, accepts_clock=accepts_clock)
    except sockets.AddressUnusable as error:
        message = f"{error.detail} [{error.code}]"
        raise CommandExit(exit_code_of(error), message, "tidegate serve --port …") from None


@click.command()
@options.with_settings(*options.LOG, "public_url", "worker_metrics_port", "archive")
@accept_clock
def worker(file: str | None, accepts_clock: bool, **flags: str | None) -> None:
    """Run the worker in addition to a server, or without one.

    It dispatches orders, runs timers, sends the outbox, publishes channel manifests, reconciles and
    archives. Any number of workers may run on one log.
    """
    settings = options.settings_of(file, flags)
    from tidegate import main

    main.log_to_stderr()
    main.work(settings, accepts_clock=accepts_clock)
