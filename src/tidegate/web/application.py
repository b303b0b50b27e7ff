"""The ASGI application: routes requests to handlers and runs the handlers.

    host 421 · path 404 · method 405 · authentication 401 · rate 429 · size 413 · media 415
    · any permission 403 · accept 406 · form 400 · permission here 403 · version 428 · handler

Handlers are plain functions. They run in a bounded thread pool, or on the event loop if all they do
is a point read of a local log. This module knows no noun of the domain.
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

WAITING_MAX = 1_000  # requests that wait for a thread; more are answered with 503
MIN_POSITION_SECONDS_MAX = 5.0
AHEAD_MAX = 1_000_000  # positions; a request that names one further ahead is refused at once

T = TypeVar("T")

HTML: Final = "text/html"


class FastRoute(NamedTuple):
    """A route, and the function that answers its plain requests at the socket."""

    route: routing.Route
    answer: routing.FastHandler


class LogFollower(Protocol):
    """Follows the log's position. It is started and stopped with the server."""

    position: Position

    async def start(self) -> None: ...

    def stop(self) -> None: ...

    async def reached(self, position: Position, seconds: float) -> bool:
        """Wait until the log reaches a position; return False if it does not do so in time."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What an application needs from the process that it runs in."""

    settings: Settings
    clock: Clock
    credentials: authentication.SignInCredentials
    tail: LogFollower
    is_local: bool  # point reads take microseconds, so they may run on the event loop
    # Called with the operation, status and seconds of each response.
    count: Callable[[str, int, float], None]
    agents: authentication.AgentProof | None = None
    # For paths that have no route, when a browser asks.
    error_page: routing.ErrorPageOf | None = None
    lines: request_log.RequestLog | None = None
    # Replaces the ids of people in a sentence by their names.
    name_people: Callable[[str], str] | None = None


class Application:
    """An ASGI application of routes, and of the parts that their handlers need.

    Raises:
        InvalidDefinition: a handler needs a part that does not exist.
    """

    def __init__(
        self, routes: Sequence[routing.Route], parts: Parts, surroundings: Surroundings
    ) -> None:
        settings, agents = surroundings.settings, surroundings.agents
        self.routes = tuple(routes)
        self.parts = parts
        self._surroundings = surroundings
        self._handlers = {route.operation: parts.bind(route.handler) for route in routes}
        self._router = routing.Router(self.routes)
        self.agents = agents
        self.connections = connection_limits.ConnectionLimits(
            settings.connections_per_address,
            connection_limits.connections_max(),
            settings.proxy_networks,
        )
        self.host_names = host_names.HostNames(settings)
        self._authenticator = authentication.Authenticator(
            surroundings.credentials, settings, agents
        )
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="tidegate-api")
        self._waiting = 0
        self._is_set_up = False  # it never becomes False again
        self.unproven: dict[str, int] = {}  # bytes by address; used on the event loop only
        self.lines = surroundings.lines
        # Nothing at a socket may block, so the fast path exists only where the log is local.
        self.fast_routes = {
            route.path.encode(): FastRoute(route, parts.bind(route.fast))
            for route in (routes if surroundings.is_local and settings.fast_path else ())
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
                await self._surroundings.tail.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def stop(self) -> None:
        """End the streams. Threads finish what they have."""
        self._surroundings.tail.stop()

    def close(self) -> None:
        """Wait for the threads. Call this after the last response."""
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
        """Count a request that was answered, and write its log line."""
        operation = "none" if route is None else route.operation
        self._surroundings.count(operation, status, seconds)
        if self.lines is not None:
            at = self._surroundings.clock()
            path = "" if route is None else route.path
            ms = int(seconds * 1e6) / 1000
            self.lines.add(
                request_log.RequestLine(
                    at, "requests", request_id, principal, method, path, status, ms, code
                )
            )

    # ── handling a request ──

    def find(self, method: str, raw_path: bytes) -> tuple[routing.Route, list[str]]:
        """Find the route of a request, and its path parameters.

        Raises:
            NoSuchPath, MethodNotAllowed, InvalidRequest.
        """
        methods, values = self._router.plain.get(raw_path), list[str]()
        if methods is None:
            found = self._router.find(decoding.segments_of(raw_path))
            if found is None:
                raise problems.NoSuchPath("no route has this path")
            methods, values = found
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(sorted(methods))
            raise problems.MethodNotAllowed(
                f"this path does not support {method}", found=method, allowed=allowed
            )
        return route, values

    def page_of_error(
        self, route: routing.Route | None, raw_path: bytes, headers: Mapping[bytes, bytes]
    ) -> routing.ErrorPageOf | None:
        """The function that renders an error as a page; None: send a problem detail.

        Browsers get a page also for a path without a route, unless it is below /v1.
        """
        if route is not None:
            return route.fails
        if raw_path.startswith(b"/v1") or b"text/html" not in headers.get(b"accept", b""):
            return None
        return self._surroundings.error_page

    async def awaits_set_up(self, route: routing.Route | None) -> bool:
        """Whether this is a page that cannot be shown yet, because no account exists."""
        if self._is_set_up or route is None or route.is_write or route.produces != HTML:
            return False
        try:
            self._is_set_up = await self.in_thread(lambda: self._surroundings.credentials.is_set_up)
        except TidegateError:
            return False  # the store is unavailable: treat the browser as signed out
        return not self._is_set_up

    async def name_people(self, sentence: str) -> str:
        """Put the names of people into a sentence, if they can be read now."""
        name = self._surroundings.name_people
        if name is None or "user_" not in sentence:
            return sentence
        with suppress(TidegateError):
            return await self.in_thread(lambda: name(sentence))
        return sentence

    async def principal(
        self, route: routing.Route, arrived: routing.RawRequest
    ) -> principals.Principal:
        """Authenticate a request. Raises: Unauthenticated, CrossSite, RateLimited."""
        # A session stores when it was last used, and that commit may wait. A token needs point
        # reads only.
        if self._surroundings.is_local and b"cookie" not in arrived.headers:
            return self._authenticator.principal(route, arrived)
        return await self.in_thread(lambda: self._authenticator.principal(route, arrived))

    def agent(self, route: routing.Route, arrived: routing.RawRequest) -> principals.Principal:
        """Authenticate an agent's request on the event loop, because the log is local.

        Raises:
            Unauthenticated, UnsupportedProtocol, InvalidInput, RateLimited.
        """
        return self._authenticator.principal(route, arrived)

    def agent_again(self, host: principals.Principal) -> None:
        """Take back one count: the usual route authenticates and counts this request again."""
        self._authenticator.give_back(host)

    async def answer(
        self, route: routing.Route, request: routing.Request[Any, Any, Any]
    ) -> routing.Response:
        """Run the handler of a route. Raises: what the handler raises."""
        least: Position = getattr(request.query, "min_position", 0)
        if least > self._surroundings.tail.position:
            await self._reach(least)
        handler = self._handlers[route.operation]
        if route.is_async:
            return await handler(request)  # type: ignore[no-any-return]
        if route.quick and self._surroundings.is_local:
            return handler(request)  # type: ignore[no-any-return]
        return await self.in_thread(lambda: handler(request))

    async def _reach(self, position: Position) -> None:
        """Wait until the log reaches a position, if it is near. Raises: PositionNotReached."""
        tail = self._surroundings.tail
        near = position - tail.position <= AHEAD_MAX
        if near and await tail.reached(position, MIN_POSITION_SECONDS_MAX):
            return
        raise problems.PositionNotReached(
            f"the log is at {tail.position}, not yet at {position}",
            found=tail.position,
            wanted=position,
        )

    async def in_pieces(self, pieces: Iterator[bytes], first: bytes | None) -> routing.Stream:
        """Yield the first piece and those after it. Each is read in a thread after the client has
        taken the piece before it, so a slow client uses memory for two pieces and no thread.
        """
        piece = first
        while piece is not None:
            yield piece
            piece = await self.in_thread(lambda: next(pieces, None))

    async def in_thread(self, run: Callable[[], T]) -> T:
        """Run something that may block in the thread pool. Raises: Overloaded."""
        if self._waiting >= WAITING_MAX:
            raise problems.Overloaded(
                f"{WAITING_MAX} requests are waiting already", allowed=WAITING_MAX
            )
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, run)
        finally:
            self._waiting -= 1
