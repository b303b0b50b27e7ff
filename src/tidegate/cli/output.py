"""The output of commands: a table for people, JSON for programs, JSON lines for pipes.

On a terminal rich draws the table. Elsewhere it has plain columns that are never truncated. Names
are never broken, so that they can be copied.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from tidegate.cli.symbols import clean, glyph, moment, state_word

NOTHING: Final = "–"
MEMBERS_CHARS_MAX: Final = 160
GAP: Final = 2  # blanks between columns
TIME_CHARS: Final = len("2026-05-01 06:00:00Z")
KEPT: Final = frozenset(  # members that are never cut
    (
        "outcome",
        "reason",
        "host_id",
        "wave",
        "state",
        "to",
        "rollout_id",
        "release_id",
        "target_ref",
    )
)

Item = Mapping[str, Any]


class StateCell(NamedTuple):
    """A cell with a state: shown as symbol, colour and word, or as a text given instead."""

    word: str
    label: str = ""

    @property
    def text(self) -> str:
        return f"{glyph(self.word)[0]} {clean(self.label or state_word(self.word))}"


Cell = str | StateCell


class Column(NamedTuple):
    """A column: its title and the function that makes its cells."""

    title: str
    cell: Callable[[Item], Cell]
    is_person: bool = False  # a user id, for which a name may be shown


def column(title: str, *path: str) -> Column:
    """A column with the value at this path of each item."""
    return Column(title, lambda item: text(dig(item, *path)))


def person_column(title: str, *path: str, name: str = "") -> Column:
    """A column with a person: the name in the field ``name``, or else the id."""
    return Column(
        title, lambda item: text((name and dig(item, name)) or dig(item, *path)), is_person=True
    )


def time_column(title: str, *path: str) -> Column:
    return Column(title, lambda item: when(dig(item, *path)))


def state_column(title: str, *path: str) -> Column:
    def cell(item: Item) -> Cell:
        state = dig(item, *path)
        return StateCell(str(state)) if state else NOTHING

    return Column(title, cell)


def dig(item: Any, *path: str) -> Any:
    """The value at this path; None if the path does not exist."""
    for name in path:
        item = item.get(name) if isinstance(item, Mapping) else None
    return item


def text(value: Any) -> str:
    """Format a value of the API as a cell."""
    if value is None or value == "" or value == [] or value == {}:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{clean(name)}={_member(value[name])}" for name in sorted(value))
    if isinstance(value, list | tuple):
        return ", ".join(text(item) for item in value)
    return clean(value)


def _member(value: Any) -> str:
    return clean(value if isinstance(value, str) else line_of(value))


def fact_members(value: Mapping[str, Any]) -> str:
    """Format the members of a fact in one line. Long ones are cut at a word, except ``KEPT``."""
    left = MEMBERS_CHARS_MAX
    plain = {name: item for name, item in value.items() if not isinstance(item, dict | list)}
    shown: dict[str, str] = {}
    for name in sorted(plain, key=lambda name: (name not in KEPT, name)):
        words = text({name: plain[name]})
        if name not in KEPT and len(words) > left:
            words = words[: max(left, 0)].rpartition(" ")[0]
            words = f"{words}…" if words else ""
        if words:
            shown[name] = words
            left -= len(words) + len(", ")
    members = [shown[name] for name in sorted(shown)]
    return ", ".join(members if len(shown) == len(plain) else [*members, "…"])


def counted(number: int, noun: str) -> str:
    """Format a number with its noun, whose plural ends in s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def when(value: Any) -> str:
    return NOTHING if value is None else moment(value)


# ── targets ───────────────────────────────────────────────────────────────────────────────────────


def is_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def is_coloured() -> bool:
    return is_terminal() and not os.environ.get("NO_COLOR")


def say(line: str) -> None:
    """Print a line to stdout."""
    click.echo(line)


def note(line: str) -> None:
    """Print a line to stderr, so that it never gets into a pipe."""
    click.echo(line, err=True)


def note_progress(line: str) -> None:
    """Say what a long command does, if a person watches: a scheduled job stays silent."""
    if sys.stderr.isatty():
        note(line)


def coloured(words: str, colour: str) -> str:
    return click.style(words, fg=colour) if is_coloured() and colour != "default" else words


# ── shapes ────────────────────────────────────────────────────────────────────────────────────────


def print_list(
    output: str, items: Iterable[Item], columns: Sequence[Column], *, empty: str = "nothing"
) -> None:
    """Print items in the requested format. If there are none, print ``empty`` to stderr."""
    if output == "jsonl":
        for item in items:
            say(line_of(item))
        return
    found = list(items)
    if output == "json":
        say(json_of(found))
    elif not found:
        note(empty)
    else:
        rows = [[column.cell(item) for column in columns] for item in found]
        _table([column.title for column in columns], rows)


def print_card(output: str, document: Any, fields: Sequence[tuple[str, Cell]]) -> None:
    """Print one object, a line per field. Fields without a value are omitted."""
    if output == "json":
        say(json_of(document))
    elif output == "jsonl":
        say(line_of(document))
    else:
        from tidegate.cli.live_view import card_lines, paint

        for line in card_lines(fields):
            say(paint(line))


def print_done(output: str, document: Any, line: str) -> None:
    """Print a completed change: one line for people, the server's response for programs."""
    if output == "json":
        say(json_of(document))
    elif output == "jsonl":
        say(line_of(document))
    else:
        say(f"{coloured('✔', 'green')} {line}")


def json_of(value: Any) -> str:
    import json

    return json.dumps(value, indent=2, ensure_ascii=False)


def line_of(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _table(titles: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    if is_terminal():
        from shutil import get_terminal_size

        _drawn(titles, rows, get_terminal_size().columns)
        return
    texts = [[_text(cell) for cell in row] for row in rows]
    for line in aligned([list(titles), *texts]):
        say(line)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns, two spaces apart, without trailing blanks."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _drawn(titles: Sequence[str], rows: Sequence[Sequence[Cell]], width: int) -> None:
    """Draw a table. If it is too wide, times of today lose their date, then texts wrap at blanks.
    If that is not enough, the terminal wraps the lines.
    """
    if _widths(titles, rows, width, str) is None:
        rows = [[_without_today(cell) for cell in row] for row in rows]
    widths = _widths(titles, rows, width, _longest_word)
    if widths is None:
        from tidegate.cli.live_view import paint, table_lines

        for line in table_lines(titles, rows):
            say(paint(line))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title, columns in zip(titles, widths, strict=True):
        table.add_column(title, width=columns)
    for row in rows:
        table.add_row(
            *(
                Text(cell.text, style=glyph(cell.word)[1])
                if isinstance(cell, StateCell)
                else Text(cell)
                for cell in row
            )
        )
    Console(highlight=False).print(table)


def _widths(
    titles: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    width: int,
    least: Callable[[str], str],
) -> list[int] | None:
    """The widths of the columns of a table of this width: the widest are narrowed first, and none
    below this part of its cells. None: they do not fit.
    """
    columns = [[_text(cell) for cell in column] for column in zip(titles, *rows, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    smallest = [max(len(least(cell)) for cell in column) for column in columns]
    free = width - GAP * (len(columns) - 1)
    if sum(smallest) > free:
        return None
    for _ in range(sum(widths) - free):
        wide = (number for number, found in enumerate(widths) if found > smallest[number])
        widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _text(cell: Cell) -> str:
    return cell.text if isinstance(cell, StateCell) else cell


def _longest_word(text: str) -> str:
    return max(text.split(), key=len, default="")


def _without_today(cell: Cell) -> Cell:
    from datetime import UTC, datetime

    today = f"{datetime.now(UTC):%Y-%m-%d} "
    return cell.removeprefix(today) if isinstance(cell, str) and len(cell) == TIME_CHARS else cell
