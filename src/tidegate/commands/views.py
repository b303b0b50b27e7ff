"""``tidegate views verify`` and ``views rebuild``: compare derived rows with the log."""

from __future__ import annotations

from pathlib import Path

import click

from tidegate.cli.context import Group
from tidegate.cli.exit_codes import CommandExit, ExitCode
from tidegate.cli.output import note_progress
from tidegate.commands.options import LOG, settings_of, with_settings

SHOWN_MAX = 20
TEXT_CHARS_MAX = 200


@click.group(cls=Group)
def views() -> None:
    """Derived rows: compare them with the log, or rebuild them."""


@views.command()
@with_settings(*LOG)
def verify(file: str | None, **flags: str | None) -> None:
    """Replay the log and compare every derived row, byte for byte; a server may be running.

    The exit code is 0 if all rows agree with the log, else 1.
    """
    settings = settings_of(file, flags)
    from tidegate.commands.startup import FOLDS, open_store
    from tidegate.kernel.replay import differences

    with open_store(settings) as store:
        note_progress("replaying the log …")
        found = differences(store, FOLDS)
    for item in found[:SHOWN_MAX]:
        click.echo(f"{item.key}: {item.what}")
        click.echo(f"  the log says  {item.expected[:TEXT_CHARS_MAX]}")
        click.echo(f"  there is      {item.found[:TEXT_CHARS_MAX]}")
    if found:
        raise CommandExit(
            ExitCode.REFUSED,
            f"{len(found)} rows or facts are not what the log says",
            "tidegate backup DIR",
            "tidegate views rebuild",
        )
    click.echo(f"all rows of {len(FOLDS.folds)} views are what the log says")


@views.command()
@with_settings(*LOG)
def rebuild(file: str | None, **flags: str | None) -> None:
    """Rebuild every derived row from the log. No server and no worker may be running.

    It is refused while one is running, and none can start meanwhile. On DynamoDB a killed process
    counts for 30 seconds. The rebuilt rows are compared with the log; the exit code is 1 if they
    differ.
    """
    settings = settings_of(file, flags)
    from tidegate.clock import system_clock
    from tidegate.commands.startup import FOLDS, open_store, open_store_alone
    from tidegate.engines.presence import present
    from tidegate.errors import NotFound
    from tidegate.kernel.replay import differences, rebuild_all

    data = Path(settings.data)
    if not settings.store and not data.is_dir():
        raise NotFound(f"there is no log in {settings.data}")
    with (
        open_store_alone(data),
        present(settings.store_url, alone=True),
        open_store(settings) as store,
    ):
        note_progress("replaying the log …")
        count = rebuild_all(store, FOLDS, system_clock())
        found = differences(store, FOLDS)
    if found:
        raise CommandExit(
            ExitCode.REFUSED,
            f"{found[0].key}: {found[0].what}; another process may have written "
            "meanwhile. Stop every server and worker, and try again",
            "tidegate views rebuild",
        )
    click.echo(f"{count} rows of {len(FOLDS.folds)} views were rebuilt")
