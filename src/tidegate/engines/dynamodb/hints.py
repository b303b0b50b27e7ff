"""The newest position that this process has seen on each fence, to know a doomed commit early."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock

from tidegate.engines.dynamodb.items import FENCE
from tidegate.engines.dynamodb.transport import ItemKey, Value
from tidegate.kernel.model import Position

HINTS_MAX = 10_000


class FenceHints:
    """Positions on a fence only rise, so a commit that saw an older one can never land."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._newest: OrderedDict[tuple[ItemKey, str], Position] = OrderedDict()

    def note(self, place: ItemKey, attributes: Mapping[str, Value | None]) -> None:
        """What a fence was seen to hold; items that are no fence are passed over."""
        if place.sk != FENCE:
            return
        with self._lock:
            for name, value in attributes.items():
                if name.startswith("pos") and isinstance(value, int):
                    key = place, name
                    self._newest[key] = max(value, self._newest.pop(key, 0))
            while len(self._newest) > HINTS_MAX:
                self._newest.popitem(last=False)

    def outdated(self, place: ItemKey, demanded: Mapping[str, Value | None]) -> bool:
        """Whether a fence is known to be past what is demanded of it."""
        with self._lock:
            return any(
                self._newest.get((place, name), 0) > (value if isinstance(value, int) else 0)
                for name, value in demanded.items()
            )
