"""States as people read them: a glyph, a colour and always the word; and texts made harmless."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

# word → glyph, colour. Words of different nouns never mean different things here.
STATES: Final = {
    # revisions
    "Draft": ("○", "cyan"),
    "Proposed": ("◐", "yellow"),
    "Published": ("●", "green"),
    "DeletionProposed": ("◌", "red"),
    # rollouts
    "Opening": ("○", "cyan"),
    "Active": ("▶", "blue"),
    "Converging": ("◐", "blue"),
    "Terminal": ("✔", "green"),
    "Reverted": ("↩", "magenta"),
    "Failed": ("✘", "red"),
    "Superseded": ("»", "bright_black"),
    "Pruned": ("·", "bright_black"),
    # how a rollout ended
    "succeeded": ("✔", "green"),
    "empty": ("○", "bright_black"),
    "failed": ("✘", "red"),
    "rolled_back": ("↩", "magenta"),
    "aborted": ("■", "bright_black"),
    "replaced": ("»", "bright_black"),
    # hosts in a rollout
    "Waiting": ("·", "bright_black"),  # planned, without an order yet
    "Pending": ("○", "cyan"),
    "Activating": ("◔", "blue"),
    "Deferred": ("◷", "yellow"),
    "Soaking": ("◑", "blue"),
    "Converged": ("●", "green"),
    "Left": ("–", "bright_black"),
    # hosts
    "enrolled": ("●", "green"),
    "silent": ("◌", "yellow"),
    "revoked": ("✘", "red"),
    "retired": ("–", "bright_black"),
    # outbox
    "pending": ("○", "cyan"),
    "done": ("✔", "green"),
    "dead": ("✘", "red"),
    "superseded": ("»", "bright_black"),
    # gates
    "open": ("✔", "green"),
    "blocked": ("✘", "red"),
    # channels, users, tokens
    "held": ("■", "yellow"),
    "active": ("●", "green"),
    "enabled": ("●", "green"),
    "disabled": ("–", "bright_black"),
    "erased": ("✘", "bright_black"),
    "expired": ("–", "bright_black"),
    # a registered release
    "retired_scope": ("–", "bright_black"),
}
# state → what people read, where that is another word. The same words are on the dashboard.
WORDS: Final = {
    "Terminal": "Ended",
    "Reverted": "Rolled back",
    "Superseded": "Replaced",
    "superseded": "replaced",
    "Left": "Skipped",
    "DeletionProposed": "Deletion proposed",
}
UNKNOWN: Final = ("?", "default")
TONES: Final = {  # segments of a bar, so that waves read without colour too
    "Converged": "█",
    "Deferred": "▓",
    "Soaking": "▓",
    "Activating": "▒",
    "Pending": "░",
    "Failed": "✘",
    "Reverted": "↩",
    "Left": "–",
    "Waiting": "·",
}
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?(Z|\+00:00)")


def clean(text: object) -> str:
    """A text on one line that cannot steer a terminal: control characters are spelt out."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", str(text))


def glyph(word: str) -> tuple[str, str]:
    """Glyph and colour of a state."""
    return STATES.get(word, UNKNOWN)


def state_word(state: str) -> str:
    """A state as people call it."""
    return WORDS.get(state, state)


def moment(text: object) -> str:
    """A time of the API, to the second."""
    found = _TIME.fullmatch(str(text))
    return clean(text) if found is None else f"{found[1]} {found[2]}Z"


def duration(seconds: float) -> str:
    """A time span as people say it: its two greatest units."""
    left = max(0, round(seconds))
    for unit, length, below, smaller in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60)):
        if left >= length:
            more = left % length // smaller
            return f"{left // length} {unit} {more} {below}" if more else f"{left // length} {unit}"
    return f"{left // 60} min" if left >= 60 else f"{left} s"


def size(count: int) -> str:
    """Bytes as people say them."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def segments(counts: Sequence[tuple[str, int]], width: int) -> list[tuple[str, int]]:
    """How many cells of a bar each state gets: together the width, and whoever counts is seen.

    The remainder goes to the largest fractions; a state with one host keeps a cell while there are
    cells.
    """
    total = sum(count for _, count in counts)
    if total == 0:
        return []
    shares = [(state, count, count * width / total) for state, count in counts if count]
    cells = {state: max(1, int(share)) for state, _, share in shares}
    by_fraction = sorted(shares, key=lambda item: item[2] - int(item[2]), reverse=True)
    for state, _, _ in by_fraction:
        if sum(cells.values()) < width:
            cells[state] += 1
    for _ in range(len(shares) * width):
        if sum(cells.values()) <= width:
            break
        widest = max(cells, key=lambda state: cells[state])
        cells[widest] -= 1
    return [(state, cells[state]) for state, _, _ in shares if cells[state]]
