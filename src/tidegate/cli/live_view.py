"""Live views: redrawn in place on a terminal; elsewhere a plain line for each change."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from tidegate.cli import exit_codes, output as cli_output, symbols

Span = tuple[str, str]  # text, colour
Line = list[Span]
T = TypeVar("T")

INTERVAL_SECONDS = 0.5
AWAY_SECONDS_MAX = 120.0  # long enough for a restart of the server
BAR_CELLS = 30
ORDER: Final = (  # of the segments of a bar, from done to waiting
    *("Converged", "Deferred", "Soaking", "Activating", "Pending"),
    *("Failed", "Reverted", "Left", "Waiting"),
)


# ── lines ─────────────────────────────────────────────────────────────────────────────────────────


def plain(line: Line) -> str:
    return "".join(words for words, _ in line).rstrip()


def paint(line: Line) -> str:
    """Format a line, with colours on a terminal."""
    return "".join(cli_output.coloured(words, colour) for words, colour in line).rstrip()


def span(cell: cli_output.Cell) -> Span:
    return (
        (cell.text, symbols.glyph(cell.word)[1])
        if isinstance(cell, cli_output.StateCell)
        else (cell, "default")
    )


def table_lines(titles: Sequence[str], rows: Sequence[Sequence[cli_output.Cell]]) -> list[Line]:
    """Format a table as lines, with columns two spaces apart."""
    spans = [[(title, "default") for title in titles], *([span(c) for c in row] for row in rows)]
    widths = [max(len(words) for words, _ in column) for column in zip(*spans, strict=True)]
    return [
        [
            (words.ljust(width) + "  ", colour)
            for (words, colour), width in zip(row, widths, strict=True)
        ]
        for row in spans
    ]


def list_lines(
    columns: Sequence[cli_output.Column], items: Sequence[cli_output.Item]
) -> list[Line]:
    """Format items as a table."""
    rows = [[column.cell(item) for column in columns] for item in items]
    return table_lines([column.title for column in columns], rows)


def card_lines(fields: Sequence[tuple[str, cli_output.Cell]]) -> list[Line]:
    """Format one object: a line for each field that has a value."""
    shown = [(name, cell) for name, cell in fields if cell != cli_output.NOTHING]
    width = max((len(name) for name, _ in shown), default=0)
    return [[(f"{name:<{width}}  ", "default"), span(cell)] for name, cell in shown]


def wave_counts(wave: Any) -> list[tuple[str, int]]:
    """Count the hosts of a wave by state, in the order of a bar."""
    states: dict[str, int] = dict(cli_output.dig(wave, "states") or {})
    states["Left"] = cli_output.dig(wave, "left") or 0
    hosts = cli_output.dig(wave, "hosts") or 0
    states["Waiting"] = max(0, hosts - sum(states.values()))
    return [(state, states.get(state, 0)) for state in ORDER]


def wave_line(number: int, wave: Any, current: int, width: int) -> Line:
    """The line of a wave: its name, a bar of its hosts by state, and the counts in words."""
    counts = wave_counts(wave)
    name = symbols.clean(cli_output.dig(wave, "name") or f"wave-{number + 1}")
    line: Line = [("▸ " if number == current else "  ", "default"), (name.ljust(width), "default")]
    line.append((" ", "default"))
    cells = symbols.segments(counts, BAR_CELLS)
    line += [(symbols.TONES[state] * count, symbols.glyph(state)[1]) for state, count in cells]
    line.append((" " * (BAR_CELLS - sum(count for _, count in cells)), "default"))
    settled = sum(count for state, count in counts if state in ("Converged", "Deferred"))
    line.append((f" {settled}/{cli_output.dig(wave, 'hosts') or 0}", "default"))
    for state, count in counts:
        if count:
            line += [
                ("  ", "default"),
                (
                    f"{symbols.glyph(state)[0]} {count} {symbols.state_word(state)}",
                    symbols.glyph(state)[1],
                ),
            ]
    return line


# ── frames ────────────────────────────────────────────────────────────────────────────────────────


class Screen:
    """Prints frames. On a terminal each replaces the previous one; elsewhere only new lines are
    printed.
    """

    def __init__(self) -> None:
        self._on_terminal = cli_output.is_terminal()
        self._rows = 0
        self._seen: list[str] = []

    def show(self, frame: Sequence[Line]) -> None:
        if self._on_terminal:
            self._redraw(frame)
            return
        texts = [plain(line) for line in frame]
        for words in texts:
            if words and words not in self._seen:
                cli_output.say(words)
        self._seen = texts
        sys.stdout.flush()

    def _redraw(self, frame: Sequence[Line]) -> None:
        from shutil import get_terminal_size

        columns, rows = get_terminal_size()
        shown = list(frame)[: max(1, rows - 1)]
        parts = [f"\x1b[{self._rows}F" if self._rows else ""]
        parts += [_fitted(line, columns - 1) + "\x1b[K\n" for line in shown]
        parts.append("\x1b[J")
        click.echo("".join(parts), nl=False)
        sys.stdout.flush()
        self._rows = len(shown)


def _fitted(line: Line, columns: int) -> str:
    parts = []
    left = columns
    for words, colour in line:
        if left <= 0:
            break
        parts.append(cli_output.coloured(words[:left], colour))
        left -= len(words)
    return "".join(parts)


def retry_while_away(ask: Callable[[], T]) -> T:
    """Call ``ask``, and retry while the server is unreachable. Raises: CommandExit."""
    deadline = time.monotonic() + AWAY_SECONDS_MAX
    is_reported = False
    while True:
        try:
            return ask()
        except exit_codes.CommandExit as stop:
            if stop.code is not exit_codes.ExitCode.UNAVAILABLE or time.monotonic() >= deadline:
                raise
            if not is_reported:
                cli_output.note(f"{stop.detail}; waiting for it")
                is_reported = True
            time.sleep(INTERVAL_SECONDS)


def follow(
    ask: Callable[[], T],
    frame: Callable[[T], Sequence[Line]],
    *,
    output: str = "table",
    until: Callable[[T], bool] = lambda found: False,
    seconds: float | None = None,
) -> T:
    """Poll ``ask`` and show each change until ``until`` is true. Return the last result.

    Programs get a line of JSON for each change instead of a frame. If the server becomes
    unreachable for a while, polling continues.

    Raises:
        TimeoutError: it took longer than this many seconds.
        CommandExit: the server refused, or stayed unreachable.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    screen = Screen()
    shown: Any = None
    found = ask()  # the first call is not retried, because the address may be wrong
    while True:
        if output == "table":
            screen.show(frame(found))
        elif _content(found) != _content(shown):
            for item in found if isinstance(found, list) else [found]:
                if not isinstance(shown, list) or item not in shown:
                    cli_output.say(cli_output.line_of(item))
            sys.stdout.flush()
        shown = found
        if until(found):
            return found
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError
        time.sleep(INTERVAL_SECONDS)
        found = retry_while_away(ask)


def _content(found: Any) -> Any:
    """The answer without the time at which it was given."""
    if not isinstance(found, dict):
        return found
    return {name: value for name, value in found.items() if name != "at"}


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; elsewhere nothing."""
    if not (sys.stderr.isatty() and total):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=total)
        yield lambda done: bars.update(task, completed=done)
