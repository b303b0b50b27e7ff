"""Deadlines and retries: a monotonic clock, waits with full jitter, calls that are repeated."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random, SystemRandom
from typing import TypeVar

from tidegate.engines.dynamodb.transport import AnswerLost, Busy
from tidegate.errors import StoreUnavailable

CALL_SECONDS_MAX = 10.0  # how long a call that is safe to repeat is retried
CALLS_MAX = 1_000
WAIT_SECONDS_FIRST = 0.005
WAIT_SECONDS_MAX = 0.160

T = TypeVar("T")


class RetryPace:
    """The clock and random numbers of a store; tests and the simulator pass their own."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        random: Random | None = None,
    ) -> None:
        self.now = clock
        self.sleep = sleep
        self._random = random or SystemRandom()

    def new_id(self) -> str:
        """A new random id."""
        return f"{self._random.getrandbits(128):032x}"

    def wait(
        self, waits: int, first: float = WAIT_SECONDS_FIRST, longest: float = WAIT_SECONDS_MAX
    ) -> None:
        """Sleep a random time below a bound that doubles with each wait."""
        bound = min(longest, first * 2.0 ** min(waits, 16))
        self.sleep(self._random.random() * bound)

    def retry(self, call: Callable[[], T], seconds_max: float | None = None) -> T:
        """Repeat a call until it has a result. The call must be safe to repeat.

        Raises:
            StoreUnavailable: there was no result in time.
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
