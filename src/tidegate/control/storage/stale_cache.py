"""What a process remembers of what it served, for the time in which its store does not answer.

A memory of the last bodies by their cache key, the least recently used forgotten first. It is
never asked while the store answers, so nothing in it needs to be kept in step.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

ENTRIES_MAX = 128
ENTRIES_BYTES_MAX = 64 * 1024 * 1024

Value = TypeVar("Value")


class StaleCache(Generic[Value]):
    """At most so many entries, and together so many bytes. May be used by several threads."""

    def __init__(
        self,
        size: Callable[[Value], int],
        *,
        entries_max: int = ENTRIES_MAX,
        bytes_max: int = ENTRIES_BYTES_MAX,
    ) -> None:
        self._size = size
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._entries: OrderedDict[str, Value] = OrderedDict()
        self._lock = Lock()

    def keep(self, key: str, value: Value) -> None:
        """Remember this value of the key, and forget the oldest ones that are too many."""
        with self._lock:
            self._drop(key)
            self._entries[key] = value
            self._bytes += self._size(value)
            while len(self._entries) > self._entries_max or self._bytes > self._bytes_max:
                self._drop(next(iter(self._entries)))

    def find(self, key: str) -> Value | None:
        """The last value of the key; None: it was never there, or was forgotten."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key]

    def _drop(self, key: str) -> None:
        value = self._entries.pop(key, None)
        if value is not None:
            self._bytes -= self._size(value)
