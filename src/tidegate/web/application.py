"""The ASGI application: find the route, let in who may, decode, run, answer, log.

    host 421 · path 404 · method 405 · who 401 · how often 429 · size 413 · media 415
    · may at all 403 · accept 406 · form 400 · may here 403 · version 428 · then the handler

Handlers are plain functions: they run in a bounded pool of threads, or right on the event loop
where all they do is a point read of a local log. Nothing here knows a noun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from tidegate.clock import Clock
from tidegate.config import Settings
from tidegate.domain.access import principals
from tidegate.errors import TidegateError
from tidegate.kernel.model import Position
from tidegate.web import (
    authentication,
    connection_limits,
    decoding,
    exchange,
    host_names,
    problems,
    request_log,
    routing,
)
from tidegate.web.parts import Parts

WAITING_MAX = 1_000  # requests that wait for a thread; past it, clients are told to come back
MIN_POSITION_SECONDS_MAX = 5.0
AHEAD_MAX = 1_000_000  # positions that the log might come to while somebody waits

T = TypeVar("T")

HTML: Final = "text/html"


class FastRoute(NamedTuple):
    """A route with the function that answers its plain requests at the socket."""

    route: routing.Route
    answer: routing.FastHandler


class LogFollower(Protocol):
    """Knows where the log is. It is started and stopped with the server."""

    position: Position

    async def start(self) -> None: ...

    def stop(self) -> None: ...

    async def reached(self, position: Position, seconds: float) -> bool:
        """Wait until the log is at this position; False: not within so many seconds."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What an application needs of the process that it runs in."""

    settings: Settings
    clock: Clock
    credentials: authentication.SignInCredentials
    tail: LogFollower
    is_local: bool  # point reads take microseconds: they may run on the event loop
    count: Callable[[str, int, float], None]  # operation, status and seconds of each answer
    agents: authentication.AgentProof | None = None
    error_page: routing.ErrorPageOf | None = (
        None  # of a path that browsers ask for and nothing serves
    )
    lines: request_log.RequestLog | None = None
    name_people: Callable[[str], str] | None = None  # puts names of people into a sentence


class Application:
    """Routes and the parts that their handlers ask for, as an ASGI application.

    Raises:
        InvalidDefinition: a handler asks for a part that is not there.
    """

    def __init__(self, routes: Sequence[routing.Route], parts: Parts, around: Surroundings) -> None:
        settings, agents = around.settings, around.agents
        self.routes = tuple(routes)
        self.parts = parts
        self._around = around
        self._handlers = {route.operation: parts.bind(route.handler) for route in routes}
        self._router = routing.Router(self.routes)
        self.agents = agents
        per_address = None if settings.behind_proxy else settings.connections_per_address
        self.connections = connection_limits.ConnectionLimits(
            per_address, connection_limits.connections_max()
        )
        self.host_names = host_names.HostNames(settings)
        self._door = authentication.Authenticator(around.credentials, settings, agents)
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="tidegate-api")
        self._waiting = 0
        self._is_set_up = False  # once it is, it stays so
        self.unproven: dict[str, int] = {}  # by address; on the event loop alone
        self.lines = around.lines
        # Nothing may wait at a socket, so there is a fast path only where the log is local.
        self.fast_routes = {
            route.path.encode(): FastRoute(route, parts.bind(route.fast))
            for route in (routes if around.is_local and settings.fast_path else ())
            if route.fast is not None
        }

    async def __call__(
        self, scope: exchange.Scope, receive: exchange.Receive, send: exchange.Send
    ) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await exchange.Exchange(self, scope, receive, send).run()

    async def _live(self, receive: exchange.Receive, send: exchange.Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self._around.tail.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def stop(self) -> None:
        """End the streams and take no more work for threads."""
        self._around.tail.stop()

    def close(self) -> None:
        """Wait for the threads; after the last answer."""
        self._threads.shutdown(wait=True)
        if self.lines is not None:
            self.lines.flush()

    def note(
        self,
        route: routing.Route | None,
        request_id: str,
        principal: str,
        method: str,
        status: int,
        seconds: float,
        code: str | None = None,
    ) -> None:
        """Count a request that was answered, and write its line."""
        operation = "none" if route is None else route.operation
        self._around.count(operation, status, seconds)
        if self.lines is not None:
            at = self._around.clock()
            path = "" if route is None else route.path
            ms = int(seconds * 1e6) / 1000
            self.lines.add(
                request_log.RequestLine(
                    at, "requests", request_id, principal, method, path, status, ms, code
                )
            )

    # ── the way of a request ──

    def find(self, method: str, raw_path: bytes) -> tuple[routing.Route, list[str]]:
        """Raises: NoSuchPath, MethodNotAllowed, InvalidRequest."""
        methods, values = self._router.plain.get(raw_path), list[str]()
        if methods is None:
            found = self._router.find(decoding.segments_of(raw_path))
            if found is None:
                raise problems.NoSuchPath("nothing is served under this path")
            methods, values = found
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(sorted(methods))
            raise problems.MethodNotAllowed(
                f"{method} is not served here", found=method, allowed=allowed
            )
        return route, values

    def page_of_error(
        self, route: routing.Route | None, raw_path: bytes, headers: Mapping[bytes, bytes]
    ) -> routing.ErrorPageOf | None:
        """How a refusal looks to people; None: it is a problem detail.

        A path that nothing serves is answered as a page to browsers, unless it is the API's.
        """
        if route is not None:
            return route.fails
        if raw_path.startswith(b"/v1") or b"text/html" not in headers.get(b"accept", b""):
            return None
        return self._around.error_page

    async def awaits_set_up(self, route: routing.Route | None) -> bool:
        """Whether a page cannot be shown to anybody because there is no account yet."""
        if self._is_set_up or route is None or route.is_write or route.produces != HTML:
            return False
        try:
            self._is_set_up = await self.in_thread(lambda: self._around.credentials.is_set_up)
        except TidegateError:
            return False  # the store is away: treat the browser as signed out
        return not self._is_set_up

    async def name_people(self, sentence: str) -> str:
        """The sentence with the names of people, if they can be read now."""
        name = self._around.name_people
        if name is None or "user_" not in sentence:
            return sentence
        with suppress(TidegateError):
            return await self.in_thread(lambda: name(sentence))
        return sentence

    async def principal(
        self, route: routing.Route, arrived: routing.RawRequest
    ) -> principals.Principal:
        """Raises: Unauthenticated, CrossSite, RateLimited."""
        # A session notes when it was seen, and a commit may wait; a token is point reads alone.
        if self._around.is_local and b"cookie" not in arrived.headers:
            return self._door.principal(route, arrived)
        return await self.in_thread(lambda: self._door.principal(route, arrived))

    def agent(self, route: routing.Route, arrived: routing.RawRequest) -> principals.Principal:
        """Who asks on a route for agents, told right here: the log is local.

        Raises:
            Unauthenticated, UnsupportedProtocol, InvalidInput, RateLimited.
        """
        return self._door.principal(route, arrived)

    def agent_again(self, host: principals.Principal) -> None:
        """The request goes the usual way, where its host is asked for again: count it once."""
        self._door.give_back(host)

    async def answer(
        self, route: routing.Route, request: routing.Request[Any, Any, Any]
    ) -> routing.Response:
        """What the handler says. Raises: whatever it raises."""
        least: Position = getattr(request.query, "min_position", 0)
        if least > self._around.tail.position:
            await self._reach(least)
        handler = self._handlers[route.operation]
        if route.is_async:
            return await handler(request)  # type: ignore[no-any-return]
        if route.quick and self._around.is_local:
            return handler(request)  # type: ignore[no-any-return]
        return await self.in_thread(lambda: handler(request))

    async def _reach(self, position: Position) -> None:
        """Wait for the log to come there, unless it is far. Raises: PositionNotReached."""
        tail = self._around.tail
        near = position - tail.position <= AHEAD_MAX
        if near and await tail.reached(position, MIN_POSITION_SECONDS_MAX):
            return
        raise problems.PositionNotReached(
            f"the log is at {tail.position}, not yet at {position}",
            found=tail.position,
            wanted=position,
        )

    async def in_pieces(self, pieces: Iterator[bytes], first: bytes | None) -> routing.Stream:
        """The first piece and those after it, each read in a thread when the client has taken the
        one before it: so a slow client holds memory for two pieces, and no thread.
        """
        piece = first
        while piece is not None:
            yield piece
            piece = await self.in_thread(lambda: next(pieces, None))

    async def in_thread(self, run: Callable[[], T]) -> T:
        """Run something that may wait. Raises: Overloaded."""
        if self._waiting >= WAITING_MAX:
            raise problems.Overloaded(f"{WAITING_MAX} requests wait already", allowed=WAITING_MAX)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, run)
        finally:
            self._waiting -= 1
