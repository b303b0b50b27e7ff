"""Connections that answer plain requests at once: no task, no coroutine, one write.

    bytes ─▶ parser ─▶ a plain request for a route with a fast handler? ─▶ authenticate ─▶ respond
                          └─ any other request, any error ─▶ the usual path through the application

uvicorn's own protocol always takes the usual path. A request is plain if its head came in one piece
and its body soon after, on a connection with no response outstanding, and if no header asks for
more. It is authenticated like any other. A refused one takes the usual path, which explains why.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from tidegate.domain.access.principals import NOBODY, Principal
from tidegate.errors import TidegateError
from tidegate.web import application, connections, decoding, exchange, problems, responses, routing

PLAIN_BYTES_MAX = 16 * 1024  # of the head, and of the body; within the limits of both
PATIENCE_SECONDS = 1.0  # many clients send the body right after the head

# Headers that the application ignores here, or that the fast path handles in the same way.
PLAIN: Final = frozenset(
    {
        *(b"accept", b"accept-encoding", b"accept-language", b"authorization", b"connection"),
        *(b"content-length", b"content-type", b"host", b"tidegate-protocol", b"user-agent"),
        *(b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"),
        b"x-real-ip",
    }
)

_FIXED: Final = b"".join(
    b"%b: %b\r\n" % header for header in (responses.FOR_AGENTS, responses.NO_STORE)
)
_JSON: Final = b"content-type: application/json\r\ncontent-length: "

faults_log = logging.getLogger("tidegate.faults")


class _Nobody:
    """Replaces the event that a task would use to wait for more of a request."""

    def set(self) -> None:
        """Do nothing: no task waits."""


_NOBODY: Final = _Nobody()


class FastExchange:
    """One plain request and its response; for uvicorn's protocol it is an ordinary cycle."""

    __slots__ = (
        "_app",
        "_protocol",
        "_started",
        "body",
        "disconnected",
        "handler",
        "id",
        "keep_alive",
        "principal",
        "response_complete",
        "route",
    )
    message_event: Final = _NOBODY

    def __init__(
        self,
        protocol: FastConnection,
        app: application.Application,
        found: application.FastRoute,
        body: bytes = b"",
    ) -> None:
        self._protocol = protocol
        self._app = app
        self._started = time.perf_counter()
        self.route, self.handler = found
        self.id = exchange.new_request_id()
        self.principal: Principal = NOBODY
        self.body = body
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = True

    def send_success(self, content: Struct | None = None) -> None:
        try:
            if content is None:
                status, tail = 204, b"\r\n"
            else:
                status, body = self.route.status, responses.encode(content)
                tail = b"%b%d\r\n\r\n%b" % (_JSON, len(body), body)
        except Exception as error:  # noqa: BLE001 - a bug is answered, too, and logged whole
            self.fail(error)
            return
        id = self.id.encode()
        self._send(status, (b"x-request-id: ", id, b"\r\n", _FIXED, tail))

    def answer(self, answer: routing.Response) -> None:
        try:
            reply = responses.encode_response(answer, self.route, self.id)
        except Exception as error:  # noqa: BLE001 - a bug is answered, too, and logged whole
            self.fail(error)
            return
        self._send(reply.status, _parts(reply))

    def fail(self, error: BaseException) -> None:
        if not isinstance(error, TidegateError):
            faults_log.error("request %s failed", self.id, exc_info=error)
            error = problems.InternalError("something is wrong here; the request id finds it")
        reply = responses.encode_problem(error, self.id)
        self._send(reply.status, _parts(reply), error.code)

    def _send(self, status: int, parts: Iterable[bytes], code: str | None = None) -> None:
        seconds = time.perf_counter() - self._started
        self.response_complete = True
        if not self.disconnected:
            self._protocol.send(self, status, parts)
        route, who = self.route, self.principal.id
        self._app.note(route, self.id, who, route.method, status, seconds, code)


def _parts(reply: responses.EncodedResponse) -> list[bytes]:
    head = [b"%b: %b\r\n" % header for header in reply.headers]
    return [*head, b"\r\n", reply.body]


class _Common:
    """The headers of every response as bytes, which the server renews each second."""

    def __init__(self) -> None:
        self._last: tuple[object, bytes] = (None, b"")

    def of(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        known, text = self._last
        if headers is not known:
            text = b"".join([b"%b: %b\r\n" % header for header in headers])
            self._last = headers, text
        return text


class FastConnection(connections.Connection):
    """A connection with the fast path. ``uvicorn.Config(application, http=FastConnection)``."""

    _common: Final = _Common()

    def __init__(self, config: Config, *args: Any, **named: Any) -> None:
        super().__init__(config, *args, **named)
        self._fast_routes = self._application.fast_routes
        self._idle_since: float | None = None  # None: a request is in progress
        self._few = False  # whether few bytes are being parsed
        self._fresh = False  # whether this request began in these few bytes
        self._pending: FastExchange | None = None  # whose request is not complete yet
        # The timeout for the rest of that request.
        self._patience: asyncio.TimerHandle | None = None

    # ── bytes and parser ──

    def data_received(self, data: bytes) -> None:
        self._fresh = False
        self._few = len(data) <= PLAIN_BYTES_MAX
        super().data_received(data)
        if self._pending is not None and self._patience is None:
            self._patience = self.loop.call_later(PATIENCE_SECONDS, self._lose_patience)

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._fresh = self._few
        self._is_between = False

    def on_headers_complete(self) -> None:
        self._head_ended()
        found = self._fast_routes.get(self.url) if self._fresh else None
        if found is None or not self._is_idle() or not self._is_plain(found.route):
            self._start_cycle()
            return
        self._pending = FastExchange(self, self._application, found)

    def on_body(self, body: bytes) -> None:
        exchange = self._pending
        if exchange is None:
            super().on_body(body)
            return
        self._progressed = True
        exchange.body += body
        if len(exchange.body) > PLAIN_BYTES_MAX:
            self._go_the_usual_way()

    def on_message_complete(self) -> None:
        self._message_ended()
        exchange = self._pending
        if exchange is None:
            super().on_message_complete()
            return
        if self._is_answered(exchange):
            self._forget()
        else:
            self._go_the_usual_way()
            super().on_message_complete()

    def _is_idle(self) -> bool:
        """Whether a response can be sent at once: nothing is queued in either direction."""
        cycle = self.cycle
        return (
            (cycle is None or cycle.response_complete)
            and not self.flow.write_paused
            and not self.transport.is_closing()
        )

    def _is_plain(self, route: routing.Route) -> bool:
        parser = self.parser
        return (
            parser.get_method() == route.method.encode()
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
        )

    # ── the fast path and the usual path ──

    def _start_cycle(self) -> None:
        """Start the usual path, as uvicorn does."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers
        super().on_headers_complete()

    def _go_the_usual_way(self) -> None:
        """Pass what arrived so far to the application; it limits the wait for the rest."""
        exchange = self._pending
        self._forget()
        if exchange is None or self.transport.is_closing():
            return  # the client is gone, or what it sent was not HTTP
        self._start_cycle()
        if exchange.body:
            super().on_body(exchange.body)

    def _lose_patience(self) -> None:
        self._patience = None
        self._go_the_usual_way()

    def _forget(self) -> None:
        self._pending = None
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _is_answered(self, exchange: FastExchange) -> bool:
        """Whether the fast path responds, now or later; False: the application must."""
        route = exchange.route
        headers = dict(self.headers)
        if (
            len(headers) != len(self.headers)
            or not headers.keys() <= PLAIN
            or not decoding.accepts(headers.get(b"accept"), route.produces)
            or (exchange.body and headers.get(b"content-type") != b"application/json")
        ):
            return False
        client = self.client[0] if self.client else ""
        path = self.url
        try:
            local = self.server[0] if self.server else ""
            self._application.host_names.check(headers.get(b"host"), local)
        except TidegateError:
            return False
        arrived = routing.RawRequest(route.method, path, b"", headers, client, exchange.body)
        return self._is_let_in(exchange, arrived)

    def _is_let_in(self, exchange: FastExchange, arrived: routing.RawRequest) -> bool:
        before = self.cycle
        try:
            exchange.principal = self._application.agent(exchange.route, arrived)
            self.cycle = exchange
            if exchange.handler(exchange):
                return True
        except TidegateError:
            pass
        except Exception as error:
            if exchange.response_complete:
                raise
            exchange.fail(error)
            return True
        self.cycle = before
        if exchange.principal is not NOBODY:
            self._application.agent_again(exchange.principal)
        return False

    def send(self, exchange: FastExchange, status: int, parts: Iterable[bytes]) -> None:
        """Write the whole response, then continue with requests in the pipeline."""
        common = self._common.of(self.server_state.default_headers)
        if exchange.keep_alive:
            self.transport.write(b"".join((STATUS_LINE[status], common, *parts)))
        else:
            closing = b"connection: close\r\n"
            self.transport.write(b"".join((STATUS_LINE[status], common, closing, *parts)))
            self.transport.close()
        if self.cycle is exchange:
            # An idle connection keeps nothing of its last request.
            self.cycle = None
            self.headers = []
        self.on_response_complete()

    # ── idle connections ──

    def on_response_complete(self) -> None:
        """As uvicorn's, but the timer keeps running, and checks the connection when it is due."""
        self.server_state.total_requests += 1
        if self._in_body or self.transport.is_closing():
            self._response_ended()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        self._limits.rested(self)
        if self.timeout_keep_alive_task is None:
            self._look_in(self.timeout_keep_alive)

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = None
        if self.transport.is_closing() and self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    def _look_in(self, seconds: float) -> None:
        look = self.timeout_keep_alive_handler
        self.timeout_keep_alive_task = self.loop.call_later(seconds, look)

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection if it has been idle for the whole timeout."""
        self.timeout_keep_alive_task = None
        if self.transport.is_closing():
            return
        since = self._idle_since
        left: float = self.timeout_keep_alive
        if since is not None:
            left -= self.loop.time() - since
        if left > 0:
            self._look_in(left)
        else:
            self.hang_up()
