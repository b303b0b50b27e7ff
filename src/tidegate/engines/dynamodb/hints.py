"""The newest position that this process has seen on each fence, to know a doomed commit early."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.engines.dynamodb import items, transport
from tidegate.kernel.model import Position
from tidegate.lru import LruCache

HINTS_MAX = 10_000


class FenceHints:
    """Positions on a fence only rise, so a commit that saw an older one can never land.

    Two threads that note the same fence may leave the older position. A hint that is too old costs
    one attempt, and never an answer.
    """

    def __init__(self) -> None:
        self._newest: LruCache[tuple[transport.ItemKey, str], Position] = LruCache(HINTS_MAX)

    def note(
        self, place: transport.ItemKey, attributes: Mapping[str, transport.Value | None]
    ) -> None:
        """What a fence was seen to hold; items that are no fence are passed over."""
        if place.sk != items.FENCE:
            return
        for name, value in attributes.items():
            if name.startswith("pos") and isinstance(value, int):
                self._newest.keep((place, name), max(value, self._find(place, name)))

    def outdated(
        self, place: transport.ItemKey, demanded: Mapping[str, transport.Value | None]
    ) -> bool:
        """Whether a fence is known to be past what is demanded of it."""
        return any(
            self._find(place, name) > (value if isinstance(value, int) else 0)
            for name, value in demanded.items()
        )

    def _find(self, place: transport.ItemKey, name: str) -> Position:
        return self._newest.find((place, name)) or 0
