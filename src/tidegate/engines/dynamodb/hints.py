"""The newest position seen on each fence, so that commits that must fail are refused early."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.engines.dynamodb import items, transport
from tidegate.kernel.model import Position
from tidegate.lru import LruCache

HINTS_MAX = 10_000


class FenceHints:
    """A cache of positions on fences. They only increase, so a commit that saw an older one fails.

    If two threads note the same fence, the older position may win. A hint that is too old costs an
    attempt, and never makes an answer wrong.
    """

    def __init__(self) -> None:
        self._newest: LruCache[tuple[transport.ItemKey, str], Position] = LruCache(HINTS_MAX)

    def note(
        self, place: transport.ItemKey, attributes: Mapping[str, transport.Value | None]
    ) -> None:
        """Remember the positions on a fence. Items that are no fence are ignored."""
        if place.sk != items.FENCE:
            return
        for name, value in attributes.items():
            if name.startswith("pos") and isinstance(value, int):
                self._newest.keep((place, name), max(value, self._find(place, name)))

    def is_outdated(
        self, place: transport.ItemKey, demanded: Mapping[str, transport.Value | None]
    ) -> bool:
        """Whether a fence is known to be past the positions that a commit requires."""
        return any(
            self._find(place, name) > (value if isinstance(value, int) else 0)
            for name, value in demanded.items()
        )

    def _find(self, place: transport.ItemKey, name: str) -> Position:
        return self._newest.find((place, name)) or 0
