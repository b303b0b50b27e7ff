"""The log of facts: follow, show, export and verify it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, TYPE_CHECKING, Any

import click

from tidegate.cli import context as cli_context, exit_codes, live_view, output, paths, symbols

if TYPE_CHECKING:
    from tidegate.cli.client import ServerResponse

WAIT_SECONDS = 25
COUNT_MAX = 10_000
PAGE = 500
SILENT = frozenset({"at", "by", "uid"})
GAUGE = "tidegate_log_position "


def filter_options(verb: Any) -> Any:
    """``--type`` and ``--tag``: filters for events."""
    typed = click.option(
        "--type", "types", multiple=True, help="Only of this type. Repeatable: any of them."
    )
    tagged = click.option(
        "--tag", "tags", multiple=True, help="Only with this tag. Repeatable: all of them."
    )
    return typed(tagged(verb))


def pages(
    context: cli_context.CommandContext,
    after: int,
    types: tuple[str, ...],
    tags: tuple[str, ...],
    *,
    wait: int = 0,
) -> Iterator[tuple[list[Any], int]]:
    """Yield events after a position, page by page without end, each page with its last position."""
    ask: Callable[[partial[ServerResponse]], ServerResponse] = (
        live_view.retry_while_away if wait else lambda read: read()
    )
    while True:
        asked = {"after": after, "type": list(types), "tag": list(tags), "limit": PAGE}
        if wait:
            asked["wait"] = wait
        page = ask(partial(context.client.get, paths.at("events"), asked)).json()
        before, after = after, int(page["position"])
        yield page["items"], after
        if not wait and not page["items"] and after == before:
            return


def head_of(context: cli_context.CommandContext) -> int:
    """The newest log position of the server."""
    counters = context.client.get("/metrics").body.decode(errors="replace").splitlines()
    found = [line.removeprefix(GAUGE) for line in counters if line.startswith(GAUGE)]
    return int(float(found[0])) if found else 0


def print_event(context: cli_context.CommandContext, event: Any) -> None:
    """Print an event as one line."""
    if not context.is_for_people:
        output.say(output.line_of(event))
        return
    facts = {name: value for name, value in event["data"].items() if name not in SILENT}
    words = output.fact_members(facts)
    name = str(event["type"]).removeprefix("tidegate.")
    actor = event.get("actor")
    by = f"  by {symbols.clean(context.people.name_of(actor))}" if actor else ""
    position = output.coloured(f"{event['position']:>8}", "bright_black")
    called = output.coloured(symbols.clean(name), "cyan")
    output.say(f"{position}  {symbols.moment(event['time'])}  {called}  {words}{by}")


@click.group(cls=cli_context.NounGroup)
def log() -> None:
    """The log of facts: everything that happened, in order."""


@log.command("tail")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(0, COUNT_MAX),
    metavar="N",
    default=20,
    show_default=True,
    help="How many of the last ones.",
)
@click.option("-f", "--follow", is_flag=True, help="Follow: print events as they happen.")
@click.option("--after", type=click.IntRange(0), metavar="POSITION", help="From here on instead.")
@filter_options
@cli_context.with_context
def tail(
    context: cli_context.CommandContext,
    count: int,
    follow: bool,
    after: int | None,
    types: tuple[str, ...],
    tags: tuple[str, ...],
) -> None:
    """Print the last events, or those after a position. With -f, follow the log."""
    reached = after
    if after is None:
        recent, reached = _recent(context, count, types, tags)
        for event in recent:
            print_event(context, event)
    elif not follow:
        for items, _ in pages(context, after, types, tags):
            for event in items:
                print_event(context, event)
    if not follow:
        return
    sys.stdout.flush()
    for items, _ in pages(context, reached or 0, types, tags, wait=WAIT_SECONDS):
        for event in items:
            print_event(context, event)
        sys.stdout.flush()


def _recent(
    context: cli_context.CommandContext, count: int, types: tuple[str, ...], tags: tuple[str, ...]
) -> tuple[list[Any], int]:
    """The last ``count`` matching events, and the position that they reach.

    It reads back in growing steps, because few events of a step may match the filter.
    """
    head = head_of(context)
    stretch = max(count, PAGE)
    while True:
        start = max(0, head - stretch)
        found = [event for items, _ in pages(context, start, types, tags) for event in items]
        if len(found) >= count or start == 0:
            reached = max([head, *(event["position"] for event in found)])
            return found[len(found) - min(count, len(found)) :], reached
        stretch *= 8


@log.command("show")
@click.argument("position", type=click.IntRange(1))
@cli_context.with_context
def show(context: cli_context.CommandContext, position: int) -> None:
    """Show the whole event at POSITION."""
    page = context.get(paths.at("events"), after=position - 1, limit=1)
    if not page["items"] or page["items"][0]["position"] != position:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.NOT_FOUND,
            f"there is no event that you may see at position {position}",
            "tidegate log tail",
        )
    event = page["items"][0]
    fields = [
        ("position", str(event["position"])),
        ("time", symbols.moment(event["time"])),
        ("type", output.text(str(event["type"]).removeprefix("tidegate."))),
        ("kind", output.text(event.get("kind"))),
        ("tags", output.text(event.get("tags"))),
        ("by", output.text(event.get("actor"))),
        *((symbols.clean(name), output.text(value)) for name, value in event["data"].items()),
    ]
    context.card(event, fields)


@log.command("export")
@click.argument("file", type=click.Path(), default="-")
@click.option("--after", type=click.IntRange(0), default=0, metavar="POSITION", help="From there.")
@filter_options
@cli_context.with_context
def export(
    context: cli_context.CommandContext,
    file: str,
    after: int,
    types: tuple[str, ...],
    tags: tuple[str, ...],
) -> None:
    """Write the log to FILE or standard output, one line of JSON per event.

    FILE appears when it is complete. Each line is a CloudEvents event.
    """
    if file == "-":
        for items, _ in pages(context, after, types, tags):
            for event in items:
                output.say(output.line_of(event))
        return
    from pathlib import Path

    place = Path(file)
    fresh = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        with fresh.open("w") as out:
            count, reached = _written(context, out, after, types, tags)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(place)
    except OSError as error:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.USAGE,
            f"{file} cannot be written: {error.strerror}",
            "tidegate log export --help",
        ) from None
    finally:
        fresh.unlink(missing_ok=True)
    document = {"file": file, "events": count, "position": reached}
    context.done(document, f"{count} events up to {reached} are in {file}")


def _written(
    context: cli_context.CommandContext,
    out: IO[str],
    after: int,
    types: tuple[str, ...],
    tags: tuple[str, ...],
) -> tuple[int, int]:
    count, reached = 0, after
    total = head_of(context) if sys.stderr.isatty() else 0
    with live_view.progress_bar("exporting", total) as progress:
        for items, position in pages(context, after, types, tags):
            reached = max(reached, position)
            for event in items:
                out.write(output.line_of(event) + "\n")
            count += len(items)
            progress(reached)
    return count, reached


@log.command("verify")
@cli_context.with_context
def verify(context: cli_context.CommandContext) -> None:
    """Replay the whole log and compare every derived row, byte for byte."""
    output.note_progress("replaying the log …")
    found = context.get(paths.at("views", "verify"))
    if found["verified"]:
        context.done(found, f"every row is what the log says, up to {found['position']}")
        return
    if not context.is_for_people:
        context.card(found, [])
    shown = [
        f"{item['row']}: {item['what']}, wanted {item['wanted'][:80]}, found {item['found'][:80]}"
        for item in found["differences"]
    ]
    raise exit_codes.CommandExit(
        exit_codes.ExitCode.REFUSED,
        f"{found['count']} rows are not what the log says",
        "tidegate views rebuild",
        more=tuple(shown),
    )
