"""One HTTP request of the application: read it, authorize it, run its handler, respond, log."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from tidegate.domain.access import dry_runs, principals, second_person, steps
from tidegate.errors import InvalidInput, LimitExceeded, TidegateError, VersionRequired
from tidegate.web import (
    authentication,
    decoding,
    downloads,
    inputs,
    problems,
    responses,
    routing,
    uploads,
)

if TYPE_CHECKING:
    from tidegate.web import application

BODY_SECONDS_MAX = 30.0
PROOF_SECONDS_MAX = 1.0  # after a body that took longer, authenticate again
HEAD_BYTES_MAX = 16 * 1024
# Of unfinished bodies that one address has sent without authentication.
UNPROVEN_BYTES_MAX = 16 * 1024 * 1024
DIGITS_MAX = 20  # of a Content-Length

faults_log = logging.getLogger("tidegate.faults")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

SET_UP: Final = "/setup"  # the page that creates the first account
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
# Identifies this process; a number after it identifies a request.
_LIFE: Final = secrets.token_hex(4)
_numbers = count(1)


def new_request_id() -> str:
    """Generate an id for a request that did not send one."""
    return f"{_LIFE}{next(_numbers):08x}"


class Exchange:
    """One request and its response."""

    def __init__(
        self, app: application.Application, scope: Scope, receive: Receive, send: Send
    ) -> None:
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
                break  # the request is refused; joining thousands of fields would take long
            # RFC 9110 §5.3: a field that occurs twice is one list.
            known = self._headers.get(name)
            self._headers[name] = value if known is None else known + b", " + value
        given = self._headers.get(b"x-request-id")
        fits = given is not None and _REQUEST_ID.fullmatch(given)
        self.id = given.decode() if given and fits else new_request_id()
        self._route: routing.Route | None = None
        self._principal = principals.NOBODY
        self._status = 0
        self._held = 0  # bytes of the body that count against the address
        self._code: str | None = None

    async def run(self) -> None:
        try:
            answer, route = await self._respond()
            await self._send_answer(answer, route)
        except TidegateError as error:
            await self._send_problem(error)
        except uploads.ClientGone:
            self._status = 499  # the client is gone; the status is for our log only
        except Exception:  # noqa: BLE001 - a bug is answered, too, and logged whole
            faults_log.exception("request %s failed", self.id)
            await self._send_problem(
                problems.InternalError("something is wrong here; the request id finds it")
            )
        finally:
            self._release_unproven()
            self._log()

    async def _respond(self) -> tuple[routing.Response, routing.Route]:
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
        if route.permission is routing.AGENT:  # its MAC covers the body, too
            arrived = self._raw_request(await self._body(route))
            self._principal = await app.principal(route, arrived)
        else:
            self._principal = await app.principal(route, self._raw_request(b""))
            begun = time.monotonic()
            arrived = self._raw_request(b"" if route.uploads else await self._body(route))
            # The credential may have expired meanwhile.
            if time.monotonic() - begun > PROOF_SECONDS_MAX:
                self._principal = await app.principal(route, arrived)
            authentication.check_csrf(route, arrived, self._principal)
            authentication.authorize_anywhere(route, self._principal)
        accept = headers.get(b"accept")
        streams = route.streams and decoding.accepts(accept, routing.EVENT_STREAM)
        if not streams and not decoding.accepts(accept, route.produces):
            raise problems.NotAcceptable(
                f"this route responds with {route.produces}", allowed=route.produces
            )
        request: routing.Request[Any, Any, Any] = routing.Request(
            decoding.path_of(route, values),
            decoding.query_of(route, arrived.query),
            await self._decode_body(route, arrived.body),
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
            request.incoming = uploads.IncomingBody(self._receive, self._announced_length())
        try:
            return await app.answer(route, request), route
        except second_person.SecondPersonNeeded as waits:
            return routing.Response(waits.request, status=202, position=waits.position), route
        except dry_runs.DryRunEnded as ended:
            return routing.Response(ended.result, status=200), route

    def _guard(self, route: routing.Route, request: routing.Request[Any, Any, Any]) -> None:
        """Read the idempotency key, the version, break-glass and dry run into the request.

        Raises:
            VersionRequired, InvalidInput.
        """
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
            raise VersionRequired("send If-Match with the ETag of the version that you saw")

    # ── the body ──

    def _raw_request(self, body: bytes) -> routing.RawRequest:
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
        body = await self._receive_body(route.body_bytes_max)
        if body:
            self._check_media(route)
        return body

    async def _decode_body(self, route: routing.Route, body: bytes) -> inputs.Input:
        """Decode the body. Raises: MalformedBody, InvalidRequest, LimitExceeded, Overloaded."""
        if len(body) <= decoding.LOOP_BYTES_MAX:
            return decoding.body_of(route, body)
        return await self._app.in_thread(lambda: decoding.body_of(route, body))

    def _check_media(self, route: routing.Route) -> None:
        """Check the Content-Type. Raises: UnsupportedMedia."""
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

    async def _receive_body(self, bytes_max: int) -> bytes:
        """Read the whole body. Raises: LimitExceeded, RequestTooSlow."""
        announced = self._announced_length() or 0
        if announced > bytes_max:
            raise LimitExceeded("bytes of a body", announced, bytes_max)
        try:
            async with asyncio.timeout(BODY_SECONDS_MAX):
                return await self._read(bytes_max)
        except TimeoutError:
            raise problems.RequestTooSlow(
                f"The body of the request did not arrive within {BODY_SECONDS_MAX:g} seconds."
            ) from None

    def _announced_length(self) -> int | None:
        """The length that Content-Length announces; None: it is missing."""
        text = self._headers.get(b"content-length", b"")
        return int(text) if text.isdigit() and len(text) < DIGITS_MAX else None

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
                self._count_unproven(len(whole))
            if len(whole) > bytes_max:
                raise LimitExceeded("bytes of a body", len(whole), bytes_max)
            if not message.get("more_body"):
                return bytes(whole)
            message = await self._receive()

    def _count_unproven(self, size: int) -> None:
        """Count the bytes of a body whose sender is not authenticated yet, because the MAC of an
        agent covers the whole body. Raises: Overloaded.
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

    def _release_unproven(self) -> None:
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

    # ── the response ──

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
            return  # the response has begun, so it can only be cut off
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
        """Send a body, or the part of it that was requested, while it is read.

        The first piece is read before the head is sent, so a body that cannot be read is a problem.
        """
        etag = responses.etag_of(answer, None)
        headers = responses.headers_of(answer, etag, route, self.id)
        if etag is not None and decoding.matches(self._headers.get(b"if-none-match"), etag):
            await self._reply(responses.EncodedResponse(304, headers, b""))
            return
        is_head = self._scope["method"] == "HEAD"
        part = None
        if not is_head:  # RFC 9110 §14.2: Range is for GET only
            wanted, condition = (self._headers.get(name) for name in (b"range", b"if-range"))
            part = downloads.select_range(wanted, condition, download.size, etag)
        start, stop = part or (0, download.size)
        headers.append((b"accept-ranges", b"bytes"))
        headers.append((b"content-length", b"%d" % (stop - start)))
        if part is not None:
            answer.status = 206
            content_range = f"bytes {start}-{stop - 1}/{download.size}"
            headers.append((b"content-range", content_range.encode()))
        app = self._app
        pieces = await app.in_thread(lambda: download.read(start, stop))
        first = await app.in_thread(lambda: next(pieces, None))
        await self._send_stream(answer, app.in_pieces(pieces, first), headers)

    async def _send_stream(
        self, answer: routing.Response, stream: routing.Stream, headers: responses.Headers
    ) -> None:
        """Send the parts of a stream until it ends or the client disconnects."""
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
