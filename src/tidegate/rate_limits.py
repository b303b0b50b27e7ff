"""Rate limits: a token bucket per key, in memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from threading import Lock

from tidegate import errors, lru

KEYS_MAX = 100_000
ROUNDING = 1e-9


class RateLimited(errors.Unavailable):
    """Too many requests in too short a time; wait as long as Retry-After says."""

    code = "rate_limited"

    def __init__(self, limit: str, seconds: int) -> None:
        super().__init__(f"{limit}; try again in {seconds} s", limit=limit, retry_after=seconds)


class Bucket:
    """Allows each key ``rate`` a second on average and ``burst`` at once."""

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
        self._tokens: lru.LruCache[str, tuple[float, float]] = lru.LruCache(KEYS_MAX)
        self._lock = Lock()

    def take(self, key: str, cost: float = 1.0) -> None:
        """Take this much from the bucket of the key.

        Raises:
            RateLimited: the bucket has less; the error says when it will have enough.
        """
        now = self._monotonic()
        with self._lock:
            left, since = self._tokens.find(key) or (float(self._burst), now)
            left = min(self._burst, left + (now - since) * self._rate)
            allowed = left >= cost - ROUNDING
            self._tokens.keep(key, (left - cost if allowed else left, now))
        if not allowed:
            seconds = max(1, math.ceil((cost - left) / self._rate))
            raise RateLimited(self._what, seconds)

    def give_back(self, key: str, cost: float = 1.0) -> None:
        """Undo a ``take`` for something that does not count against the limit."""
        with self._lock:
            found = self._tokens.find(key)
            if found is not None:
                left, since = found
                self._tokens.keep(key, (min(self._burst, left + cost), since))
