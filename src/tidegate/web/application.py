"""The ASGI application: find the route, let in who may, decode, run, answer, log.

    host 421 · path 404 · method 405 · who 401 · how often 429 · size 413 · media 415
    · may at all 403 · accept 406 · form 400 · may here 403 · version 428 · then the handler

Handlers are plain functions: they run in a bounded pool of threads, or right on the event loop
where all they do is a point read of a local log. Nothing here knows a noun.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from tidegate.clock import Clock
from tidegate.config import Settings
from tidegate.domain.access import dry_runs, principals, second_person, steps
from tidegate.errors import InvalidInput, LimitExceeded, TidegateError, VersionRequired
from tidegate.kernel.model import Position
from tidegate.web import (
    authentication,
    connection_limits,
    decoding,
    downloads,
    host_names,
    inputs,
    problems,
    request_log,
    responses,
    routing,
    uploads,
)
from tidegate.web.parts import Parts

WAITING_MAX = 1_000  # requests that wait for a thread; past it, clients are told to come back
BODY_SECONDS_MAX = 30.0
PROOF_SECONDS_MAX = 1.0  # a body that takes longer is authenticated again when it is whole
HEAD_BYTES_MAX = 16 * 1024
UNPROVEN_BYTES_MAX = 16 * 1024 * 1024  # of bodies that one address has under way without proof
MIN_POSITION_SECONDS_MAX = 5.0
DIGITS_MAX = 20  # of a length that a request announces
AHEAD_MAX = 1_000_000  # positions that the log might come to while somebody waits

faults_log = logging.getLogger("tidegate.faults")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
T = TypeVar("T")

HTML: Final = "text/html"
SET_UP: Final = "/setup"  # the page where the first account is made
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_LIFE: Final = secrets.token_hex(4)  # of this process; with a number behind it, of a request
_numbers = count(1)


def new_request_id() -> str:
    """Generate an id for a request that did not send one."""
    return f"{_LIFE}{next(_numbers):08x}"


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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await _Exchange(self, scope, receive, send).run()

    async def _live(self, receive: Receive, send: Send) -> None:
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


class _Exchange:
    """One request and its answer."""

    def __init__(self, app: Application, scope: Scope, receive: Receive, send: Send) -> None:
        self._app = app
        self._scope = scope
        self._receive = receive
        self._send = send
        self._started = time.perf_counter()
        self._headers: dict[bytes, bytes] = {}
        self._head_bytes = 0
        for name, value in scope["headers"]:
            self._head_bytes += len(name) + len(value)
            if self._head_bytes > HEAD_BYTES_MAX:
                break  # it is refused; to join thousands of fields takes long
            # RFC 9110 §5.3: a field that comes twice is one list.
            known = self._headers.get(name)
            self._headers[name] = value if known is None else known + b", " + value
        given = self._headers.get(b"x-request-id")
        fits = given is not None and _REQUEST_ID.fullmatch(given)
        self.id = given.decode() if given and fits else new_request_id()
        self._route: routing.Route | None = None
        self._principal = principals.NOBODY
        self._status = 0
        self._held = 0  # bytes of the body that count for the address
        self._code: str | None = None

    async def run(self) -> None:
        try:
            answer, route = await self._answered()
            await self._send_answer(answer, route)
        except TidegateError as error:
            await self._send_problem(error)
        except uploads.ClientGone:
            self._status = 499  # nobody hears it; it is for our log
        except Exception:  # noqa: BLE001 - a bug is answered, too, and logged whole
            faults_log.exception("request %s failed", self.id)
            await self._send_problem(
                problems.InternalError("something is wrong here; the request id finds it")
            )
        finally:
            self._let_go()
            self._log()

    async def _answered(self) -> tuple[routing.Response, routing.Route]:
        app, scope, headers = self._app, self._scope, self._headers
        if self._head_bytes > HEAD_BYTES_MAX:
            raise problems.HeadersTooLarge(
                f"The headers of a request may have at most {HEAD_BYTES_MAX} bytes.",
                allowed=HEAD_BYTES_MAX,
            )
        server = scope.get("server")
        app.host_names.check(headers.get(b"host"), server[0] if server else "")
        self._route, values = app.find(scope["method"], scope["raw_path"])
        route = self._route
        if route.permission is routing.AGENT:  # its proof is over the body, too
            arrived = self._arrived(await self._body(route))
            self._principal = await app.principal(route, arrived)
        else:
            self._principal = await app.principal(route, self._arrived(b""))
            begun = time.monotonic()
            arrived = self._arrived(b"" if route.uploads else await self._body(route))
            if time.monotonic() - begun > PROOF_SECONDS_MAX:  # it may have ended meanwhile
                self._principal = await app.principal(route, arrived)
            authentication.check_csrf(route, arrived, self._principal)
            authentication.authorize_anywhere(route, self._principal)
        accept = headers.get(b"accept")
        streams = route.streams and decoding.accepts(accept, routing.EVENT_STREAM)
        if not streams and not decoding.accepts(accept, route.produces):
            raise problems.NotAcceptable(
                f"this answer comes as {route.produces}", allowed=route.produces
            )
        request: routing.Request[Any, Any, Any] = routing.Request(
            decoding.path_of(route, values),
            decoding.query_of(route, arrived.query),
            await self._decoded(route, arrived.body),
            self._principal,
            self.id,
            route.name,
            arrived,
        )
        authentication.authorize(route, request)
        if route.is_write:
            self._guard(route, request)
        if route.uploads:
            self._check_media(route)
            request.incoming = uploads.IncomingBody(self._receive, self._announced())
        try:
            return await app.answer(route, request), route
        except second_person.SecondPersonNeeded as waits:
            return routing.Response(waits.request, status=202, position=waits.position), route
        except dry_runs.DryRunEnded as ended:
            return routing.Response(ended.result, status=200), route

    def _guard(self, route: routing.Route, request: routing.Request[Any, Any, Any]) -> None:
        """Raises: VersionRequired, InvalidInput."""
        key, version = self._headers.get(b"idempotency-key"), self._headers.get(b"if-match")
        glass: bytes | None = None
        if route.content is routing.Consumes.FORM:
            glass = decoding.form_field(request.arrived.body, decoding.BREAK_GLASS_FIELD)
            key = decoding.form_field(request.arrived.body, decoding.KEY_FIELD)
            seen = decoding.form_field(request.arrived.body, decoding.VERSION_FIELD)
            version = None if seen is None else b'"%b"' % seen
        request.key = decoding.key_of(key)
        request.break_glass = decoding.break_glass_of(
            self._headers.get(b"tidegate-break-glass"), field=glass
        )
        request.dry_run = decoding.dry_run_of(self._headers.get(b"tidegate-dry-run"))
        if request.dry_run and not route.dry_run:
            raise InvalidInput(
                "This has no dry run, and nothing was done. Leave Tidegate-Dry-Run out to do it.",
                field="Tidegate-Dry-Run",
            )
        if route.guard is steps.VersionRule.IGNORED:
            return
        request.version = decoding.version_of(version)
        if request.version is None and route.guard is steps.VersionRule.DEMANDED:
            raise VersionRequired("say which version you saw: If-Match with the ETag that you got")

    # ── the body ──

    def _arrived(self, body: bytes) -> routing.RawRequest:
        scope = self._scope
        client = scope.get("client")
        return routing.RawRequest(
            scope["method"],
            scope["raw_path"],
            scope["query_string"],
            self._headers,
            client[0] if client else "",
            body,
        )

    async def _body(self, route: routing.Route) -> bytes:
        if route.content is routing.Consumes.NOTHING:
            return b""
        body = await self._received(route.body_bytes_max)
        if body:
            self._check_media(route)
        return body

    async def _decoded(self, route: routing.Route, body: bytes) -> inputs.Input:
        """Raises: MalformedBody, InvalidRequest, LimitExceeded, Overloaded."""
        if len(body) <= decoding.LOOP_BYTES_MAX:
            return decoding.body_of(route, body)
        return await self._app.in_thread(lambda: decoding.body_of(route, body))

    def _check_media(self, route: routing.Route) -> None:
        """Raises: UnsupportedMedia."""
        media = (
            self._headers.get(b"content-type", b"")
            .partition(b";")[0]
            .strip()
            .lower()
            .decode("latin-1")
        )
        wanted = route.content.value
        if media != wanted or b"content-encoding" in self._headers:
            raise problems.UnsupportedMedia(
                f"this route takes {wanted}, not compressed; found {media[:80]!r}", allowed=wanted
            )

    async def _received(self, bytes_max: int) -> bytes:
        """Raises: LimitExceeded, RequestTooSlow."""
        announced = self._announced() or 0
        if announced > bytes_max:
            raise LimitExceeded("bytes of a body", announced, bytes_max)
        try:
            async with asyncio.timeout(BODY_SECONDS_MAX):
                return await self._read(bytes_max)
        except TimeoutError:
            raise problems.RequestTooSlow(
                f"The body of the request did not arrive within {BODY_SECONDS_MAX:g} seconds."
            ) from None

    def _announced(self) -> int | None:
        """How many bytes the body shall have; None: the request does not say."""
        said = self._headers.get(b"content-length", b"")
        return int(said) if said.isdigit() and len(said) < DIGITS_MAX else None

    async def _read(self, bytes_max: int) -> bytes:
        message = await self._receive()
        if not message.get("more_body") and message["type"] == "http.request":
            body: bytes = message.get("body", b"")
            if len(body) > bytes_max:
                raise LimitExceeded("bytes of a body", len(body), bytes_max)
            return body
        # One block that grows: thousands of parts would stay in the heap after they are joined.
        whole = bytearray()
        while True:
            if message["type"] == "http.disconnect":
                raise uploads.ClientGone
            whole += message.get("body", b"")
            if self._principal is principals.NOBODY:
                self._hold(len(whole))
            if len(whole) > bytes_max:
                raise LimitExceeded("bytes of a body", len(whole), bytes_max)
            if not message.get("more_body"):
                return bytes(whole)
            message = await self._receive()

    def _hold(self, size: int) -> None:
        """Count what is held of a body whose sender has proved nothing yet: the MAC of an agent is
        over the whole body. Raises: Overloaded.
        """
        client = self._scope.get("client")
        held, address = self._app.unproven, client[0] if client else ""
        total = held.get(address, 0) + size - self._held
        if total > UNPROVEN_BYTES_MAX:
            raise problems.Overloaded(
                f"Your address has {total} bytes of unfinished requests; "
                f"at most {UNPROVEN_BYTES_MAX} may be under way.",
                allowed=UNPROVEN_BYTES_MAX,
            )
        held[address] = total
        self._held = size

    def _let_go(self) -> None:
        if not self._held:
            return
        client = self._scope.get("client")
        held, address = self._app.unproven, client[0] if client else ""
        left = held[address] - self._held
        self._held = 0
        if left:
            held[address] = left
        else:
            del held[address]

    # ── the answer ──

    async def _send_answer(self, answer: routing.Response, route: routing.Route | None) -> None:
        if answer.download is not None:
            await self._send_download(answer, answer.download, route)
            return
        if answer.stream is not None:
            headers = responses.headers_of(answer, responses.etag_of(answer, None), route, self.id)
            await self._send_stream(answer, answer.stream, headers)
            return
        await self._reply(
            responses.encode_response(answer, route, self.id, self._headers.get(b"if-none-match"))
        )

    async def _send_problem(self, error: TidegateError) -> None:
        if self._status:
            return  # the answer has begun: it can only be cut off
        self._code = error.code
        if (
            self._principal is principals.NOBODY
            and (public := problems.conceal(error)) is not error
        ):
            faults_log.error("request %s: %s: %s", self.id, error.code, error.detail)
            error = public
        else:
            error.detail = await self._app.name_people(error.detail)
        raw_path = self._scope["raw_path"]
        render = self._app.page_of_error(self._route, raw_path, self._headers)
        if render is None:
            await self._reply(responses.encode_problem(error, self.id))
            return
        route = self._route
        if isinstance(error, problems.Unauthenticated) and await self._app.awaits_set_up(route):
            answer = routing.Response(None, status=303, headers={"location": SET_UP})
        else:
            query = self._scope["query_string"]
            error.facts.setdefault("request", self.id)
            answer = render(error, raw_path + (b"?" + query if query else b""))
        await self._send_answer(answer, route)

    async def _reply(self, reply: responses.EncodedResponse) -> None:
        self._status = status = reply.status
        start = {"type": "http.response.start", "status": status, "headers": reply.headers}
        await self._send(start)
        body = b"" if self._scope["method"] == "HEAD" else reply.body
        await self._send({"type": "http.response.body", "body": body})

    async def _send_download(
        self, answer: routing.Response, download: downloads.Download, route: routing.Route | None
    ) -> None:
        """The body or the part of it that was asked for, read while it is sent.

        The first piece is read before the head is sent: what cannot be read at all is a problem.
        """
        etag = responses.etag_of(answer, None)
        headers = responses.headers_of(answer, etag, route, self.id)
        if etag is not None and decoding.matches(self._headers.get(b"if-none-match"), etag):
            await self._reply(responses.EncodedResponse(304, headers, b""))
            return
        is_head = self._scope["method"] == "HEAD"
        part = None
        if not is_head:  # RFC 9110 §14.2: Range is for GET alone
            wanted, condition = (self._headers.get(name) for name in (b"range", b"if-range"))
            part = downloads.select_range(wanted, condition, download.size, etag)
        start, stop = part or (0, download.size)
        headers.append((b"accept-ranges", b"bytes"))
        headers.append((b"content-length", b"%d" % (stop - start)))
        if part is not None:
            answer.status = 206
            said = f"bytes {start}-{stop - 1}/{download.size}"
            headers.append((b"content-range", said.encode()))
        app = self._app
        pieces = await app.in_thread(lambda: download.read(start, stop))
        first = await app.in_thread(lambda: next(pieces, None))
        await self._send_stream(answer, app.in_pieces(pieces, first), headers)

    async def _send_stream(
        self, answer: routing.Response, stream: routing.Stream, headers: responses.Headers
    ) -> None:
        """Parts as they come, until they end or the client goes away."""
        self._status = answer.status or 200
        headers.append((b"content-type", answer.media.encode()))
        start = {"type": "http.response.start", "status": self._status, "headers": headers}
        await self._send(start)
        if self._scope["method"] == "HEAD":
            await self._send({"type": "http.response.body", "body": b""})
            return
        gone = asyncio.create_task(self._until_gone())
        parts = asyncio.create_task(self._send_parts(stream))
        _, pending = await asyncio.wait((gone, parts), return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if parts.done() and not parts.cancelled():
            parts.result()

    async def _send_parts(self, stream: routing.Stream) -> None:
        async for part in stream:
            await self._send({"type": "http.response.body", "body": part, "more_body": True})
        await self._send({"type": "http.response.body", "body": b""})

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def _log(self) -> None:
        self._app.note(
            self._route,
            self.id,
            self._principal.id,
            self._scope["method"],
            self._status,
            time.perf_counter() - self._started,
            self._code,
        )
