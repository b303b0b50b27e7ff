"""Maintenance windows: times in which orders may go out, and times in which they may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tidegate.cli import (
    channel_policy,
    completion,
    context as cli_context,
    exit_codes,
    output,
    paths,
    times,
)

F = TypeVar("F", bound=Callable[..., Any])
WINDOWS = completion.names("/v1/windows", "window_id")


def format_now(item: output.Item) -> str:
    """Format what the window does now; hosts with zones of their own may differ."""
    lasts = item.get("lasts_now")
    if lasts is None:
        return "by host"
    if item["kind"] == "deny":
        return "denies" if lasts else output.NOTHING
    return "open" if lasts else "closed"


COLUMNS = (
    output.column("WINDOW", "window_id"),
    output.column("KIND", "kind"),
    output.Column("NOW", format_now),
    output.Column("CHANNELS", lambda item: output.text(item.get("channels") or "all")),
    output.column("HOSTS", "hosts"),
    output.column("START", "start"),
    output.Column("FOR", lambda item: output.text(duration_text(item["duration_seconds"]))),
    output.Column("RULE", lambda item: output.text(item.get("rule") or "once")),
    output.column("ZONE", "zone"),
    output.column("WHY", "reason"),
)
OCCURRENCES = (
    output.column("STARTS", "starts"),
    output.column("ENDS", "ends"),
    output.time_column("STARTS (UTC)", "starts_at"),
    output.time_column("ENDS (UTC)", "ends_at"),
    output.column("ZONE", "zone"),
)


@click.group(cls=cli_context.NounGroup)
def window() -> None:
    """Times in which orders may go out, or may not."""


def duration_text(seconds: int) -> str:
    """2 h 30 min."""
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts)


def read_duration(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Parse 2h, 90min or 3600 to seconds."""
    if value is None:
        return None
    try:
        return int(value) if value.isdigit() else int(times.parse_span(value).total_seconds())
    except exit_codes.CommandExit:
        parts = f"{value!r} is not a duration; write 2h, 90min or 5400"
        raise click.BadParameter(parts) from None


def members(verb: F) -> F:
    """The options of a window, for create and edit."""
    for option in reversed(
        (
            click.option("--start", metavar="TIME", help="Local start: 2026-11-17T02:00."),
            click.option(
                "--for",
                "duration_seconds",
                callback=read_duration,
                metavar="TIME",
                help="How long an occurrence lasts: 2h, 90min, 5400.",
            ),
            click.option("--rule", help="When it repeats: FREQ=WEEKLY;BYDAY=TU. Empty: once."),
            click.option("--zone", help="A time zone: Europe/Berlin; or a label: label:tz."),
            click.option("--zone-default", help="For hosts without a valid label."),
            click.option(
                "--channel",
                "channels",
                multiple=True,
                shell_complete=channel_policy.CHANNELS,
                help="Else: all.",
            ),
            click.option("--repository", "repositories", multiple=True, help="Else: all."),
            click.option("--hosts", metavar="SELECTOR", help="Which hosts. Else: all."),
            click.option(
                "--except",
                "except_dates",
                multiple=True,
                metavar="DATE",
                help="A local date on which it does not start: 2026-12-24.",
            ),
        )
    ):
        verb = option(verb)
    return verb


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The request fields of the options that were given."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in options.items()
        if value not in (None, ())
    }


@window.command("create")
@cli_context.dry_run_option
@click.argument("window_id", metavar="WINDOW")
@click.option(
    "--kind",
    type=click.Choice(("allow", "deny")),
    default="allow",
    show_default=True,
    help="Orders only then, or none then.",
)
@members
@click.option(
    "--check", is_flag=True, is_eager=True, help="Print the next five occurrences; write nothing."
)
@cli_context.reason(required=True, unless="check")
@cli_context.break_glass_option
@cli_context.with_context
def create(
    context: cli_context.CommandContext,
    /,
    window_id: str,
    check: bool,
    reason: str | None,
    **options: Any,
) -> None:
    """Create WINDOW: orders go out only then, or not then."""
    body = {"window_id": window_id, **given(options)}
    if check:
        found = context.client.write("POST", paths.at("windows", "check"), body).json()
        _print_occurrences(context, found)
        return
    body["reason"] = reason
    answer = context.client.write("POST", paths.at("windows"), body)
    context.done(answer, f"window {window_id} is set; see: tidegate window next {window_id}")


@window.command("edit")
@cli_context.dry_run_option
@click.argument("window_id", metavar="WINDOW", shell_complete=WINDOWS)
@click.option(
    "--kind", type=click.Choice(("allow", "deny")), help="Orders only then, or none then."
)
@members
@click.option("--all-channels", is_flag=True, help="Cover all channels.")
@cli_context.reason(required=True)
@cli_context.break_glass_option
@cli_context.version_option
@cli_context.with_context
def edit(
    context: cli_context.CommandContext,
    /,
    window_id: str,
    all_channels: bool,
    reason: str,
    version: int | None,
    **options: Any,
) -> None:
    """Change WINDOW. Settings that you do not name stay."""
    path = paths.at("windows", window_id)
    body = {**given(options), "reason": reason}
    if all_channels:
        body["channels"] = []
    answer = context.client.write("PATCH", path, body, etag=context.etag_of(path, version))
    context.done(answer, f"window {window_id} is changed")


@window.command("delete")
@cli_context.dry_run_option
@click.argument("window_id", metavar="WINDOW", shell_complete=WINDOWS)
@cli_context.reason(required=True)
@cli_context.break_glass_option
@cli_context.version_option
@cli_context.with_context
def delete(
    context: cli_context.CommandContext, window_id: str, reason: str, version: int | None
) -> None:
    """Delete WINDOW."""
    etag = None if version is None else f'"{version}"'
    path = paths.at("windows", window_id, "delete")
    answer = context.client.write("POST", path, {"reason": reason}, etag=etag)
    context.done(answer, f"window {window_id} is deleted")


@window.command("list")
@cli_context.watch_option
@cli_context.with_context
def list_all(context: cli_context.CommandContext, watch: bool) -> None:
    """List all maintenance windows."""
    context.print_items(
        lambda: list(context.client.items(paths.at("windows"))),
        COLUMNS,
        watch=watch,
        empty="no window",
    )


@window.command("show")
@click.argument("window_id", metavar="WINDOW", shell_complete=WINDOWS)
@cli_context.watch_option
@cli_context.with_context
def show(context: cli_context.CommandContext, window_id: str, watch: bool) -> None:
    """Show one maintenance window."""
    context.print_object(lambda: context.get(paths.at("windows", window_id)), _fields, watch=watch)


@window.command("next")
@click.argument("window_id", metavar="WINDOW", shell_complete=WINDOWS)
@click.option("--host", "host_id", help="In the time zone of this host.")
@click.option("-n", "count", type=click.IntRange(1, 100), default=5, help="How many. Default: 5.")
@cli_context.with_context
def show_next(
    context: cli_context.CommandContext, window_id: str, host_id: str | None, count: int
) -> None:
    """Show the next times of WINDOW, in local time and in UTC."""
    path = paths.at("windows", window_id, "next")
    _print_occurrences(context, context.get(path, host_id=host_id, count=count))


def _print_occurrences(context: cli_context.CommandContext, found: Any) -> None:
    context.list(found["occurrences"], OCCURRENCES, empty="it does not occur within 400 days")


def _fields(found: Any) -> list[tuple[str, output.Cell]]:
    more = [
        output.Column("REPOSITORIES", lambda item: output.text(item.get("repositories") or "all")),
        output.column("ZONE WITHOUT LABEL", "zone_default"),
        output.column("EXCEPT", "except_dates"),
        output.person_column("BY", "operator", name="operator_name"),
        output.time_column("SET", "set_at"),
    ]
    return [(item.title.lower(), item.cell(found)) for item in (*COLUMNS, *more)]
