"""How often somebody may do something: a token bucket per key, in memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from threading import Lock

from tidegate.errors import Unavailable
from tidegate.lru import LruCache

KEYS_MAX = 100_000


class RateLimited(Unavailable):
    """Too many requests in too short a time; wait as long as Retry-After says."""

    code = "rate_limited"

    def __init__(self, limit: str, seconds: int) -> None:
        super().__init__(f"{limit}; try again in {seconds} s", limit=limit, retry_after=seconds)


class Bucket:
    """``rate`` a second on average, ``burst`` at once, for each key on its own."""

    def __init__(
        self,
        what: str,
        rate: float,
        burst: int,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._rate = rate
        self._burst = burst
        self._monotonic = monotonic
        self._left: LruCache[str, tuple[float, float]] = LruCache(KEYS_MAX)
        self._lock = Lock()

    def take(self, key: str) -> None:
        """Raises: RateLimited: nothing is left; says when there will be."""
        now = self._monotonic()
        with self._lock:
            left, since = self._left.find(key) or (float(self._burst), now)
            left = min(self._burst, left + (now - since) * self._rate)
            allowed = left >= 1
            self._left.keep(key, (left - 1 if allowed else left, now))
        if not allowed:
            seconds = max(1, math.ceil((1 - left) / self._rate))
            raise RateLimited(self._what, seconds)
