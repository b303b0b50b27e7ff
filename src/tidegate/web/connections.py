"""A connection with limits on size and time, so that a client cannot make it expensive.

    connected ──▶ head: 64 KiB, 10 s ──▶ body: the route's bytes, 30 s ──▶ response ──▶ idle: 75 s
                                            └─ trailers: 64 KiB              └─ read within 30 s

``Connection`` is uvicorn's protocol with these limits. ``FastConnection`` adds the fast path for
agents. uvicorn has no limit on an unfinished head: httptools collects it in memory for as long as
bytes arrive. ``connection_limits`` counts connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tidegate.errors import TidegateError
from tidegate.web import application, exchange, problems, responses

HEAD_BYTES_MAX = 64 * 1024  # of an unfinished head, and of trailers
HEADERS_MAX = 256  # of an unfinished request
PIECE_BYTES = 16 * 1024  # what the parser gets at once, between two checks of these limits
HEAD_SECONDS_MAX = 10.0  # from the start of the connection, or from the first byte after a response
REST_SECONDS_MAX = 5.0  # for the rest of a request that is already answered
UNREAD_SECONDS_MAX = 30.0  # while the client reads nothing of its response
PIPELINE_MAX = 32  # requests that wait for the response to an earlier one


class PipelineTooLong(Exception):
    """A client sent too many requests without waiting for a response."""


class Connection(HttpToolsProtocol):
    """An HTTP connection with limits. ``uvicorn.Config(application, http=Connection)``."""

    cycle: Any  # uvicorn's cycle or an exchange of the fast path; None: no request yet

    def __init__(self, config: Config, *args: Any, **named: Any) -> None:
        super().__init__(config, *args, **named)
        assert isinstance(config.app, application.Application)
        self._application = config.app
        self._limits = config.app.connections
        self._is_between = True  # whether the parser is at the beginning of a request
        self._in_body = False  # whether the head is complete and the body is not
        self._progressed = False  # whether this piece brought a head, body bytes or an end
        self._unfinished_bytes = 0  # of a head or of trailers
        self._deadline: asyncio.TimerHandle | None = None  # of a head, or of an answered request
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        refusal = self._limits.admit(self)
        if refusal is not None:
            self.refuse(refusal)
        else:
            self._wait(HEAD_SECONDS_MAX, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.release(self)
        for timer in (self._deadline, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    # ── bytes ──

    def data_received(self, data: bytes) -> None:
        if len(data) <= PIECE_BYTES:
            self._read(data)
            return
        for at in range(0, len(data), PIECE_BYTES):
            self._read(data[at : at + PIECE_BYTES])
            if self.transport.is_closing():
                return

    def _read(self, piece: bytes) -> None:
        self._progressed = False
        super().data_received(piece)
        if self.transport.is_closing():
            return
        if self._progressed:
            self._unfinished_bytes = 0
            if self._is_between:
                return
        else:
            self._unfinished_bytes += len(piece)
        if self._unfinished_bytes > HEAD_BYTES_MAX or len(self.headers or ()) > HEADERS_MAX:
            what = "trailers" if self._in_body else "URL and headers"
            detail = (
                f"The {what} of a request may have at most {HEAD_BYTES_MAX} bytes, "
                f"and at most {HEADERS_MAX} lines."
            )
            self.refuse(problems.HeadersTooLarge(detail, allowed=HEAD_BYTES_MAX))
            return
        if self._deadline is None and not self._in_body:
            self._wait(HEAD_SECONDS_MAX, self._head_is_late)

    def on_message_begin(self) -> None:
        self._is_between = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_ended()
        if len(self.pipeline) >= PIPELINE_MAX:
            raise PipelineTooLong
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._progressed = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._message_ended()
        super().on_message_complete()

    def _head_ended(self) -> None:
        self._in_body = self._progressed = True
        if self._deadline is not None:
            self._stop_waiting()

    def _message_ended(self) -> None:
        self._is_between = self._progressed = True
        self._in_body = False
        if self._deadline is not None:
            self._stop_waiting()

    # ── time ──

    def _wait(self, seconds: float, late: Callable[[], None]) -> None:
        self._deadline = self.loop.call_later(seconds, late)

    def _stop_waiting(self) -> None:
        assert self._deadline is not None
        self._deadline.cancel()
        self._deadline = None
        self._limits.heard(self)

    def _head_is_late(self) -> None:
        self._deadline = None
        if self._is_responding():  # the time starts at the end of the response
            self._wait(HEAD_SECONDS_MAX, self._head_is_late)
        elif self._is_between and not self._unfinished_bytes:
            self.hang_up()
        else:
            detail = f"The head of the request did not arrive within {HEAD_SECONDS_MAX:g} seconds."
            self.refuse(problems.RequestTooSlow(detail))

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._response_ended()
        self._limits.rested(self)

    def _response_ended(self) -> None:
        if self.transport.is_closing():
            self._watch_unread()
        elif self._in_body and self.cycle.response_complete and self._deadline is None:
            self._wait(REST_SECONDS_MAX, self.hang_up)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_unread()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None and not self.transport.is_closing():
            self._unread.cancel()
            self._unread = None

    def _watch_unread(self) -> None:
        """Abort the connection if its client reads nothing for a while.

        A transport stays open until its buffer is empty, even after ``close``.
        """
        left = self.transport.get_write_buffer_size()
        if left and self._unread is None:
            self._unread = self.loop.call_later(UNREAD_SECONDS_MAX, self._check_unread, left)

    def _check_unread(self, before: int) -> None:
        self._unread = None
        if self.transport.get_write_buffer_size() < before:
            self._watch_unread()
        else:
            self.transport.abort()

    # ── closing ──

    def is_idle(self) -> bool:
        """Whether the connection only waits for a next request."""
        return self._is_between and not self._is_responding() and not self._unfinished_bytes

    def _is_responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def refuse(self, error: TidegateError) -> None:
        """Send the error unless a response has begun, and close the connection."""
        cycle = self.cycle
        if self._is_responding():
            begun = getattr(cycle, "response_started", True) or bool(self.pipeline)
            cycle.disconnected = True
            cycle.message_event.set()
        else:
            begun = False
        if not begun:
            request_id = exchange.new_request_id()
            reply = responses.encode_problem(error, request_id)
            status, default = reply.status, self.server_state.default_headers
            headers = [*default, *reply.headers, (b"connection", b"close")]
            head = b"".join([b"%b: %b\r\n" % header for header in headers])
            self.transport.write(b"".join((STATUS_LINE[status], head, b"\r\n", reply.body)))
            self._application.note(None, request_id, "", "", status, 0.0, error.code)
        self.hang_up()

    def send_400_response(self, msg: str) -> None:
        if self._is_responding():
            self.hang_up()
        else:
            super().send_400_response(msg)

    def hang_up(self) -> None:
        self.transport.close()
        self._watch_unread()
