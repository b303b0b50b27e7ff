"""``tidegate doctor``, ``backup`` and ``restore``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tidegate import config, errors
from tidegate.cli.context import LocalCommand, output_format
from tidegate.cli.exit_codes import ExitCode
from tidegate.cli.output import json_of, line_of, note_progress
from tidegate.commands.options import LOG, settings_of, with_settings

if TYPE_CHECKING:
    from tidegate.control.doctor import DoctorFinding
    from tidegate.control.installation import Installation
    from tidegate.control.storage.backup import Restored

SYMBOLS: Final = {"well": "✔", "note": "•", "ill": "✘"}
SQLITE: Final = "sqlite:///"


@click.command(cls=LocalCommand)
@with_settings(*LOG)
@click.option("--views", is_flag=True, help="Also replay the log and compare every derived row.")
def doctor(file: str | None, views: bool, **flags: str | None) -> int:
    """Check an installation, and say what to do about each problem.

    It checks versions, durability, permissions, disk, clock, log, outbox and epoch. A server may be
    running. The exit code is 1 if there is a problem.
    """
    import msgspec

    settings = settings_of(file, flags)
    how = output_format()
    found = []
    for finding in _findings(settings, views):
        found.append(finding)
        if how == "table":
            _show(finding)
        elif how == "jsonl":
            click.echo(line_of(msgspec.to_builtins(finding)))
    if how == "json":
        click.echo(json_of(msgspec.to_builtins(found)))
    is_well = all(finding.verdict != "ill" for finding in found)
    return ExitCode.DONE if is_well else ExitCode.REFUSED


def _findings(settings: config.Settings, views: bool) -> Iterator[DoctorFinding]:
    from tidegate.control import doctor as health
    from tidegate.control.doctor import DoctorFinding, DoctorVerdict

    yield from _versions(settings)
    found = list(health.check_directory(settings))
    yield from found
    if any(finding.what == "data" and finding.verdict is DoctorVerdict.ILL for finding in found):
        return
    try:
        installation = _open(settings)
    except errors.TidegateError as error:
        advice = f"see docs/problems for {error.code}"
        yield DoctorFinding("store", DoctorVerdict.ILL, error.detail, advice)
        return
    try:
        yield from _durability(installation)
        yield from health.check_installation(installation)
        if views:
            yield health.check_views(installation)
    finally:
        installation.close()


def _versions(settings: config.Settings) -> Iterator[DoctorFinding]:
    from tidegate import __version__
    from tidegate.control.doctor import DoctorFinding, DoctorVerdict

    python = ".".join(map(str, sys.version_info[:3]))
    yield DoctorFinding("program", DoctorVerdict.WELL, f"tidegate {__version__}, Python {python}")
    if settings.store_url.startswith(SQLITE):
        from tidegate.engines.sqlite.connection import check_platform, version

        try:
            check_platform(str(_database(settings)))
        except errors.TidegateError as error:
            yield DoctorFinding(
                "sqlite", DoctorVerdict.ILL, error.detail, "install a newer apsw, on a local disk"
            )
        else:
            yield DoctorFinding(
                "sqlite", DoctorVerdict.WELL, f"SQLite {version()}, on a local file system"
            )


def _durability(installation: Installation) -> Iterator[DoctorFinding]:
    """The durability settings that the engine found when it was opened."""
    from tidegate.control.doctor import DoctorFinding, DoctorVerdict

    settings = getattr(installation.store, "durability", ())
    if not settings and installation.settings.store_url.startswith(SQLITE):
        yield DoctorFinding(
            "durability", DoctorVerdict.WELL, "WAL, synchronous=FULL: each commit is flushed"
        )
    for setting in settings:
        is_weak = setting.verdict != "durable"
        yield DoctorFinding(
            setting.name,
            DoctorVerdict.NOTE if is_weak else DoctorVerdict.WELL,
            f"{setting.value}: {setting.verdict}",
            "see docs/engines/postgres.md" if is_weak else "",
        )


def _show(finding: DoctorFinding) -> None:
    click.echo(f"{SYMBOLS[finding.verdict]} {finding.what}: {finding.detail}")
    if finding.advice:
        click.echo(f"    do: {finding.advice}")


# ── backups ───────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("place", metavar="DIR")
@click.option(
    "--previous",
    metavar="BACKUP",
    help="An earlier backup on the same disk: files that it has are linked, not copied.",
)
@with_settings(*LOG)
def backup(place: str, previous: str | None, file: str | None, **flags: str | None) -> None:
    """Take a backup into DIR, which is new or empty; a server may be running.

    It holds the database, all files of releases and the installation's secret: protect it like the
    data directory. With --previous, only new files take time and space. The backup is still
    complete: you may remove the earlier one. For PostgreSQL and DynamoDB use the database's own
    backups.
    """
    settings = settings_of(file, flags)
    database = _database(settings)
    if not database.exists():
        raise config.InvalidSetting(f"there is no log in {settings.data}", setting="data")
    from tidegate.control.storage.backup import back_up
    from tidegate.engines.sqlite.copying import copy
    from tidegate.engines.sqlite.store import SqliteStore

    installation = _open(settings)
    note_progress("copying the database and the files …")
    try:
        label = back_up(
            installation,
            lambda path: copy(database, path),
            lambda path: SqliteStore(str(path), installation.store.schema),
            Path(place).absolute(),
            None if previous is None else Path(previous).absolute(),
        )
    finally:
        installation.close()
    linked = f", {label.linked} of them linked from {previous}" if label.linked else ""
    click.echo(f"backed up to {place}: up to position {label.head}, {label.blobs} blobs{linked}")
    for digest in label.missing:
        click.echo(f"a file is missing that the database names: {digest}", err=True)


@click.command()
@click.argument("place", metavar="[DIR]", required=False)
@click.option(
    "--in-place", is_flag=True, help="Instead of DIR: the database was restored with its own tools."
)
@click.option(
    "--revoke-keys",
    is_flag=True,
    help="Also revoke the key of every agent; each host enrolls again with a new token.",
)
@with_settings(*LOG)
def restore(
    place: str | None, in_place: bool, revoke_keys: bool, file: str | None, **flags: str | None
) -> None:
    """Put the backup in DIR into a data directory that is new or empty.

    What was acknowledged after the backup is lost. A new epoch begins, by which agents and clients
    notice the restore. Sessions, API tokens and enrollment tokens end. Passwords and the keys of
    agents are those of the backup: a key that was revoked later works again, unless you use
    --revoke-keys.

    PostgreSQL and DynamoDB have backups of their own. After you restored one, and before you start
    a server, use --in-place: it begins the epoch and ends the same credentials.
    """
    if (place is None) != in_place:
        raise click.UsageError("name the directory of the backup, or use --in-place; not both")
    settings = settings_of(file, flags)
    if place is None:
        restored = _restore_in_place(settings, revoke_keys)
    else:
        restored = _restore_backup(settings, Path(place).absolute(), revoke_keys)
    epoch = restored.epoch
    at = f"{epoch.backed_up_at:%Y-%m-%d %H:%M:%S} UTC"
    click.echo(f"restored up to position {epoch.backup_head}, of {at}")
    click.echo(f"epoch {epoch.epoch} begins at position {restored.position}")
    click.echo(
        f"API tokens, sessions and enrollment tokens have ended: of {restored.users} users, "
        f"and {restored.enrollment_tokens} enrollment tokens"
    )
    if restored.revoked:
        hosts = "1 host is" if restored.revoked == 1 else f"{restored.revoked} hosts are"
        click.echo(f"{hosts} revoked; make a token for each: tidegate host enroll HOST")
    if restored.hosts:
        hosts = "1 host keeps" if restored.hosts == 1 else f"{restored.hosts} hosts keep"
        click.echo(
            f"{hosts} the key of the backup; if you revoked one after it was taken, revoke it "
            "again before agents reach the server: tidegate host revoke HOST --reason …"
        )
    click.echo("passwords and roles are those of the backup, too: look through tidegate user list")


def _restore_backup(settings: config.Settings, place: Path, revoke_keys: bool) -> Restored:
    from msgspec.structs import replace

    from tidegate.clock import system_clock
    from tidegate.control.storage import backup as storage_backup

    if _database(settings) != Path(settings.data).absolute() / "tidegate.db":
        raise config.InvalidSetting("a restore goes into the data directory; leave store empty")
    note_progress("checking and copying the files …")
    return storage_backup.restore(
        place,
        Path(settings.data).absolute(),
        lambda directory: _open(replace(settings, data=str(directory))),
        system_clock,
        revoke_keys=revoke_keys,
    )


def _restore_in_place(settings: config.Settings, revoke_keys: bool) -> Restored:
    from tidegate.commands.startup import open_store_alone
    from tidegate.control.storage.backup import begin_after_database
    from tidegate.engines.presence import present

    data = Path(settings.data)
    if not data.is_dir():
        raise errors.NotFound(f"there is no log in {settings.data}")
    with open_store_alone(data):
        with present(settings.store_url, alone=True):
            pass  # no other process has the log open
        return begin_after_database(_open(settings), revoke_keys=revoke_keys)


def _database(settings: config.Settings) -> Path:
    """The SQLite file of the log. Raises: InvalidSetting: the engine is another."""
    if not settings.store_url.startswith(SQLITE):
        raise config.InvalidSetting(
            "this is for SQLite; PostgreSQL (pg_dump, archiving) and DynamoDB (point-in-time "
            "recovery) have backups of their own; after restoring one: tidegate restore --in-place",
            setting="store",
        )
    return Path(settings.store_url.removeprefix(SQLITE)).absolute()


def _open(settings: config.Settings) -> Installation:
    from tidegate.commands.startup import open_installation

    return open_installation(settings)
