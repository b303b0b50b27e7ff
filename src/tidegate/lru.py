"""A bounded cache that drops the least recently used entry first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def _no_bytes(_: object) -> int:
    return 0


class LruCache(Generic[Key, Value]):
    """A cache with a limit of entries and of bytes. Several threads may use it."""

    def __init__(
        self, entries_max: int, *, bytes_max: int = 0, size: Callable[[Value], int] = _no_bytes
    ) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._size = size
        self._bytes = 0
        self._entries: OrderedDict[Key, Value] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def keep(self, key: Key, value: Value) -> None:
        """Store this value of the key, and drop the oldest entries beyond the limits."""
        with self._lock:
            self._keep(key, value)

    def find(self, key: Key) -> Value | None:
        """The cached value of the key; None if there is none."""
        with self._lock:
            return self._find(key)

    def find_or_make(self, key: Key, make: Callable[[], Value]) -> Value:
        """The cached value of the key, else a new one from ``make``.

        ``make`` must be fast: it runs under the lock of the cache.
        """
        with self._lock:
            found = self._find(key)
            if found is None:
                found = make()
                self._keep(key, found)
            return found

    def _find(self, key: Key) -> Value | None:
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def _keep(self, key: Key, value: Value) -> None:
        self._drop(key)
        self._entries[key] = value
        self._bytes += self._size(value)
        while len(self._entries) > self._entries_max or self._bytes > self._bytes_max:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: Key) -> None:
        value = self._entries.pop(key, None)
        if value is not None:
            self._bytes -= self._size(value)
