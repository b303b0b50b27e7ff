"""Follows the end of the log once per process, for all clients that wait for new events.

    store ──feed──▶ Tail ──▶ ring of the newest events, each encoded once
                      └──▶ one signal ──▶ every subscriber reads the ring from its own position

Commits of this process wake it up; those of other processes are found by polling. While no client
waits, events reported by agents are read a little later, in batches. A subscriber that has fallen
behind the ring reads from the store until it catches up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import msgspec

from tidegate.api.feed.cloud_events import to_cloud_event
from tidegate.control.queries.log_reader import LogReader
from tidegate.errors import Unavailable
from tidegate.kernel.model import Event, Position

POLL_SECONDS = 0.5
GATHER_SECONDS = 0.005  # between two reads, so that a burst of commits is read at once
LEISURE_SECONDS = 0.1  # until reports are read while no client waits
PAGE = 500
RING_MAX = 4_096
RING_BYTES_MAX = 32 * 1024 * 1024


class TailEntry:
    """An event in the ring. Its envelope is encoded on first use."""

    __slots__ = ("_json", "_sse", "event")

    def __init__(self, event: Event) -> None:
        self.event = event
        self._json: bytes | None = None
        self._sse: bytes | None = None

    @property
    def json(self) -> bytes:
        if self._json is None:
            self._json = msgspec.json.encode(to_cloud_event(self.event))
        return self._json

    @property
    def sse(self) -> bytes:
        """The event in the format of server-sent events."""
        if self._sse is None:
            event = self.event
            head = f"id: {event.position}\nevent: tidegate.{event.type}\ndata: "
            self._sse = head.encode() + self.json + b"\n\n"
        return self._sse


class Tail:
    """Follows the log on one event loop. Call all methods but ``nudge`` on that loop."""

    def __init__(self, log: LogReader, listeners: list[Callable[[], None]]) -> None:
        self._log = log
        self._listeners = listeners  # called after each commit of this process
        self.subscribers = 0
        self.position: Position = 0
        self._ring: deque[TailEntry] = deque()
        self._bytes = 0
        self._floor: Position = 0  # the ring holds all events after this position
        self._changed: asyncio.Future[None] | None = None
        self._woken = asyncio.Event()
        self._waiting = 0  # subscribers that wait for the next change
        # The delayed read while no client waits.
        self._delayed_wake: asyncio.TimerHandle | None = None
        self._reading = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        # Called with the new events.
        self.watchers: list[Callable[[Sequence[TailEntry]], None]] = []
        self.stopped = False

    async def start(self) -> None:
        """Find the end of the log and follow it from there."""
        self._loop = asyncio.get_running_loop()
        self._changed = self._loop.create_future()
        self.position = await self._loop.run_in_executor(None, self._log.head)
        self._floor = self.position
        self._listeners.append(self.nudge)
        self._task = asyncio.create_task(self._follow())

    def stop(self) -> None:
        """Wake up all subscribers one last time, so that their streams end."""
        self.stopped = True
        if self.nudge in self._listeners:
            self._listeners.remove(self.nudge)
        if self._task is not None:
            self._task.cancel()
        if self._delayed_wake is not None:
            self._delayed_wake.cancel()
        self._signal()
        self._notify_watchers(())

    @contextmanager
    def subscribed(self) -> Iterator[None]:
        """Count a client that follows the log while the block runs."""
        self.subscribers += 1
        try:
            yield
        finally:
            self.subscribers -= 1

    def nudge(self) -> None:
        """Note that this process committed something. May be called from any thread."""
        if self._loop is not None and not self.stopped:
            with suppress(RuntimeError):  # the loop is closed: there are no subscribers any more
                self._loop.call_soon_threadsafe(self._woken.set)

    def hint(self) -> None:
        """Note that reports became durable. Call it on the loop."""
        if self._waiting:
            self._woken.set()
        elif self._delayed_wake is None and self._loop is not None and not self.stopped:
            self._delayed_wake = self._loop.call_later(LEISURE_SECONDS, self._wake)

    def _wake(self) -> None:
        self._delayed_wake = None
        self._woken.set()

    def since(self, after: Position) -> Sequence[TailEntry] | None:
        """The events after a position; None: the ring starts later."""
        if after >= self.position:
            return ()
        if after < self._floor:
            return None
        found: list[TailEntry] = []
        for entry in reversed(self._ring):
            if entry.event.position <= after:
                break
            found.append(entry)
        found.reverse()
        return found

    async def changed(self, seconds: float) -> bool:
        """Wait for new events. Return False after a timeout, or when the tail stopped."""
        if self.stopped or self._changed is None:
            return False
        if self._delayed_wake is not None:
            self._delayed_wake.cancel()
            self._wake()
        self._waiting += 1
        try:
            done, _ = await asyncio.wait((self._changed,), timeout=seconds)
        finally:
            self._waiting -= 1
        return bool(done) and not self.stopped

    async def reached(self, position: Position, seconds: float) -> bool:
        """Wait until the log reaches a position. Return False after a timeout."""
        deadline = asyncio.get_running_loop().time() + seconds
        while self.position < position:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0 or not await self.changed(left):
                return self.position >= position
        return True

    async def _follow(self) -> None:
        assert self._loop is not None
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), POLL_SECONDS)
            self._woken.clear()
            with suppress(Unavailable):  # the store is unavailable: retry at the next poll
                await self._read_on()
            await asyncio.sleep(GATHER_SECONDS)

    async def refresh(self) -> None:
        """Read new events now, so that a client that knows of a commit finds it.

        Raises:
            Unavailable.
        """
        await self._read_on()

    async def _read_on(self) -> None:
        async with self._reading:  # two concurrent readers would append the same events twice
            await self._read_to_the_end()

    async def _read_to_the_end(self) -> None:
        assert self._loop is not None
        while True:
            read = partial(self._log.feed, after=self.position, limit=PAGE)
            events = await self._loop.run_in_executor(None, read)
            if events:
                self._append(events)
            if len(events) < PAGE:
                return

    def _append(self, events: Sequence[Event]) -> None:
        entries = [TailEntry(event) for event in events]
        self._ring.extend(entries)
        self._bytes += sum(len(event.body) for event in events)
        while len(self._ring) > RING_MAX or self._bytes > RING_BYTES_MAX:
            gone = self._ring.popleft()
            self._bytes -= len(gone.event.body)
            self._floor = gone.event.position
        self.position = events[-1].position
        self._signal()
        self._notify_watchers(entries)

    def _notify_watchers(self, entries: Sequence[TailEntry]) -> None:
        for watcher in self.watchers:
            watcher(entries)

    def _signal(self) -> None:
        if self._loop is None or self._changed is None:
            return
        before, self._changed = self._changed, self._loop.create_future()
        if not before.done():
            before.set_result(None)
