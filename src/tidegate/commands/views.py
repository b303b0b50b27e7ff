"""``tidegate views verify`` and ``views rebuild``: derived rows against the log they come from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidegate.cli.exits import Exit, Stop
from tidegate.commands.options import settings_of, with_settings
from tidegate.config import Settings

if TYPE_CHECKING:
    from tidegate.kernel.store import Store

SHOWN_MAX = 20
TEXT_CHARS_MAX = 200


@click.group()
def views() -> None:
    """Derived rows: compare them with the log, or make them anew from it."""


@views.command()
@with_settings
def verify(file: str | None, **flags: str | None) -> None:
    """Replay the log and compare every derived row, byte for byte; a server may be running.

    The exit code is 0 if all rows are what the log says, else 1.
    """
    settings = settings_of(file, flags)
    from tidegate.commands.opening import FOLDS
    from tidegate.kernel.replay import differences

    with _store(settings) as store:
        found = differences(store, FOLDS)
    for item in found[:SHOWN_MAX]:
        click.echo(f"{item.key}: {item.what}")
        click.echo(f"  the log says  {item.expected[:TEXT_CHARS_MAX]}")
        click.echo(f"  there is      {item.found[:TEXT_CHARS_MAX]}")
    if found:
        raise Stop(
            Exit.REFUSED,
            f"{len(found)} rows or facts are not what the log says",
            "tidegate backup DIR",
            "tidegate views rebuild",
        )
    click.echo(f"all rows of {len(FOLDS.folds)} views are what the log says")


@views.command()
@with_settings
def rebuild(file: str | None, **flags: str | None) -> None:
    """Make every derived row anew from the log. No server and no worker may be running."""
    settings = settings_of(file, flags)
    from tidegate.commands.opening import FOLDS, alone
    from tidegate.kernel.replay import rebuild as make_anew

    with alone(Path(settings.data)), _store(settings) as store:
        count = make_anew(store, FOLDS, *FOLDS.folds)
    click.echo(f"{count} rows of {len(FOLDS.folds)} views were made anew")


@contextmanager
def _store(settings: Settings) -> Iterator[Store]:
    """The log alone: nothing is written by opening it. Raises: StoreRefused, Unavailable."""
    from tidegate.commands.opening import FOLDS
    from tidegate.engines import connect
    from tidegate.errors import NotFound

    if not settings.store and not Path(settings.data).is_dir():
        raise NotFound(f"there is no log in {settings.data}")
    store = connect(settings.store_url, FOLDS.schema)
    try:
        yield store
    finally:
        store.close()
