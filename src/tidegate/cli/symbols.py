"""Format states, times and sizes for people, and make texts safe for a terminal.

A state is shown as a symbol, a colour and always the word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

# word → symbol, colour. A word means the same for all nouns.
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
# state → the word for people, if it differs. The dashboard uses the same words.
WORDS: Final = {
    "Terminal": "Ended",
    "Reverted": "Rolled back",
    "Superseded": "Replaced",
    "superseded": "replaced",
    "Left": "Skipped",
    "DeletionProposed": "Deletion proposed",
}
UNKNOWN: Final = ("?", "default")
TONES: Final = {  # segments of a bar, so that waves are readable without colours
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
    """Make a text safe for one line of a terminal: control characters are escaped."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", str(text))


def glyph(word: str) -> tuple[str, str]:
    """The symbol and the colour of a state."""
    return STATES.get(word, UNKNOWN)


def state_word(state: str) -> str:
    """The word for a state."""
    return WORDS.get(state, state)


def moment(text: object) -> str:
    """Format a time of the API, to the second."""
    found = _TIME.fullmatch(str(text))
    return clean(text) if found is None else f"{found[1]} {found[2]}Z"


def duration(seconds: float) -> str:
    """Format a duration in its two largest units."""
    left = max(0, round(seconds))
    for unit, length, below, smaller in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60)):
        if left >= length:
            more = left % length // smaller
            return f"{left // length} {unit} {more} {below}" if more else f"{left // length} {unit}"
    return f"{left // 60} min" if left >= 60 else f"{left} s"


def size(count: int) -> str:
    """Format a number of bytes."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def segments(counts: Sequence[tuple[str, int]], width: int) -> list[tuple[str, int]]:
    """Divide the cells of a bar among the states in proportion to their hosts.

    The remainder goes to the largest fractions. Every state with a host gets at least one cell as
    long as there are enough.
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
