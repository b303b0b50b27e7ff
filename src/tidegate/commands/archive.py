"""``tidegate archive verify`` and ``archive rebuild``: compare the archive with the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidegate import config, errors
from tidegate.cli.context import Group
from tidegate.cli.exit_codes import CommandExit, ExitCode
from tidegate.cli.output import note_progress
from tidegate.commands.options import LOG, settings_of, with_settings

if TYPE_CHECKING:
    from tidegate.control.storage.archive import Archive

SHOWN_MAX = 20


@click.group(cls=Group)
def archive() -> None:
    """The copy of the log in the directory of the setting archive."""


@archive.command()
@with_settings(*LOG, "archive")
def verify(file: str | None, **flags: str | None) -> None:
    """Compare the archived part of the log with the log, byte for byte.

    A server or worker may be running. The exit code is 0 if nothing differs, else 1.
    """
    with _archive(settings_of(file, flags)) as found:
        note_progress("comparing the archive with the log …")
        differences = found.verify()
        lag = found.lag()
    named = [
        f"{what}: {name}"
        for what in differences.__struct_fields__
        for name in getattr(differences, what)
    ]
    for line in islice(named, SHOWN_MAX):
        click.echo(line)
    if named:
        raise CommandExit(
            ExitCode.REFUSED,
            f"{len(named)} segments are not what the log says",
            "tidegate archive rebuild",
        )
    click.echo(f"the archive is what the log says, up to position {lag.position}")
    if lag.events:
        click.echo(f"{lag.events} events wait to be archived, the oldest for {lag.seconds:.0f} s")


@archive.command()
@with_settings(*LOG, "archive")
def rebuild(file: str | None, **flags: str | None) -> None:
    """Rewrite the archived part of the log, and remove files that do not belong to it.

    A server or worker may be running: the rewritten bytes are the same.
    """
    with _archive(settings_of(file, flags)) as found:
        note_progress("writing the archive again …")
        count = found.rebuild()
        position = found.lag().position
    click.echo(f"{count} segments were written again, up to position {position}")


@contextmanager
def _archive(settings: config.Settings) -> Iterator[Archive]:
    """Raises: InvalidSetting, NotFound, ArchiveForeign, Unavailable."""
    if not settings.archive:
        raise config.InvalidSetting(
            "no archive is set: say --archive DIR, as the server does", setting="archive"
        )
    if not Path(settings.archive).is_dir():
        raise errors.NotFound(f"there is no archive in {settings.archive}")
    from tidegate.clock import system_clock
    from tidegate.commands.startup import open_store
    from tidegate.control.installation import log_id
    from tidegate.control.storage.archive import Archive
    from tidegate.control.storage.archive.files import FileSegmentStore

    with open_store(settings) as store:
        place = FileSegmentStore(settings.archive)
        yield Archive(store, place, log_id=log_id(store, system_clock), clock=system_clock)
