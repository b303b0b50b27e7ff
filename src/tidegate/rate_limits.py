"""Rate limits: a token bucket per key, in memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from tidegate import errors, lru

KEYS_MAX = 100_000
ROUNDING = 1e-9


class RateLimited(errors.Unavailable):
    """Too many requests in too short a time; wait as long as Retry-After says."""

    code = "rate_limited"

    def __init__(self, limit: str, seconds: int) -> None:
        super().__init__(f"{limit}; try again in {seconds} s", limit=limit, retry_after=seconds)


@dataclass(slots=True)
class _Level:
    """How many tokens a bucket had at a time."""

    tokens: float
    at: float  # of a monotonic clock


class Bucket:
    """Allows each key ``rate`` a second on average and ``burst`` at once."""

    def __init__(
        self, what: str, rate: float, burst: int, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._what = what
        self._rate = rate
        self._burst = burst
        self._monotonic = monotonic
        self._levels: lru.LruCache[str, _Level] = lru.LruCache(KEYS_MAX)
        self._lock = Lock()

    def take(self, key: str, cost: float = 1.0) -> None:
        """Take this much from the bucket of the key.

        Raises:
            RateLimited: the bucket has less; the error says when it will have enough.
        """
        now = self._monotonic()
        with self._lock:
            level = self._levels.find(key)
            if level is None:
                level = _Level(self._burst, now)
                self._levels.keep(key, level)
            left = min(self._burst, level.tokens + (now - level.at) * self._rate)
            allowed = left >= cost - ROUNDING
            level.tokens, level.at = left - cost if allowed else left, now
        if not allowed:
            seconds = max(1, math.ceil((cost - left) / self._rate))
            raise RateLimited(self._what, seconds)

    def give_back(self, key: str, cost: float = 1.0) -> None:
        """Undo a ``take`` for something that does not count against the limit."""
        with self._lock:
            level = self._levels.find(key)
            if level is not None:
                level.tokens = min(self._burst, level.tokens + cost)
