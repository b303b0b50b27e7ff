"""Cut the notifier's state to what one row may hold. Counts stay exact; names and texts go."""

from __future__ import annotations

from typing import Any, Final

from msgspec import structs

from tidegate.domain.notifications.bursts import KEPT_MAX, NAMED_MAX, BurstState
from tidegate.kernel import codec

REASON_CHARS_MAX: Final = 200
# What is tried in turn: silent hosts by name of each channel, and entries of the other kinds.
CUTS: Final = ((NAMED_MAX, KEPT_MAX), (200, KEPT_MAX), (50, 500), (10, 100), (0, 20))


def fit(state: BurstState, bytes_max: int) -> BurstState:
    """Return the state, or as much of it as fits; the last cut if nothing does."""
    if len(codec.encode(state)) <= bytes_max:
        return state
    found = state
    for names, kept in CUTS:
        found = _cut(state, names, kept)
        if len(codec.encode(found)) <= bytes_max:
            break
    return found


def _cut(state: BurstState, names: int, kept: int) -> BurstState:
    silent = {
        channel: structs.replace(
            item,
            named=dict(list(item.named.items())[:names]),
            others=item.others + max(0, len(item.named) - names),
        )
        for channel, item in state.silent.items()
    }
    return structs.replace(
        state,
        silent=silent,
        gates={
            key: structs.replace(gate, reason=gate.reason[:REASON_CHARS_MAX])
            for key, gate in _newest(state.gates, kept).items()
        },
        degraded=_newest(state.degraded, kept),
        piles=_newest(state.piles, kept),
    )


def _newest(found: dict[str, Any], kept: int) -> dict[str, Any]:
    return dict(list(found.items())[-kept:])
