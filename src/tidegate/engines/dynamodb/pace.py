"""Waiting: deadlines by a monotonic clock, full jitter, calls repeated until they are answered."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random, SystemRandom
from typing import TypeVar

from tidegate.engines.dynamodb.transport import AnswerLost, Busy
from tidegate.errors import StoreUnavailable

CALL_SECONDS_MAX = 10.0  # how long a read, or a put that may be repeated, is tried
CALLS_MAX = 1_000
WAIT_SECONDS_FIRST = 0.005
WAIT_SECONDS_MAX = 0.160

T = TypeVar("T")


class RetryPace:
    """Time and chance as this store uses them; tests and the simulator bring their own."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        random: Random | None = None,
    ) -> None:
        self.now = clock
        self.sleep = sleep
        self._random = random or SystemRandom()

    def fresh(self) -> str:
        """An id that nobody else has."""
        return f"{self._random.getrandbits(128):032x}"

    def wait(
        self, waits: int, first: float = WAIT_SECONDS_FIRST, longest: float = WAIT_SECONDS_MAX
    ) -> None:
        """Full jitter under a bound that doubles with each wait."""
        bound = min(longest, first * 2.0 ** min(waits, 16))
        self.sleep(self._random.random() * bound)

    def persist(self, call: Callable[[], T], seconds_max: float | None = None) -> T:
        """The answer of a call that may safely be sent again.

        Raises:
            StoreUnavailable: there was none in time.
        """
        deadline = self.now() + (CALL_SECONDS_MAX if seconds_max is None else seconds_max)
        trouble: Exception | None = None
        for waits in range(CALLS_MAX):
            try:
                return call()
            except (Busy, AnswerLost) as error:
                trouble = error
            if self.now() >= deadline:
                break
            self.wait(waits)
        raise StoreUnavailable(f"DynamoDB does not answer: {trouble}") from trouble
