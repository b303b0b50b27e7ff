"""Errors as RFC 9457 problem details: the only place that maps families to HTTP statuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tidegate import errors, rate_limits
from tidegate.web.shapes import FieldError

MEDIA: Final = "application/problem+json"
RETRY_SECONDS = 1
FAULTS_MAX = 20  # that a problem lists
FAULTS_IN_SENTENCE_MAX = 8  # of these, in the sentence


class NoSuchPath(errors.NotFound):
    """No route has this path; /v1/openapi.json lists all of them."""

    code = "no_such_path"


class MethodNotAllowed(errors.Invalid):
    """The path is served, but not with this method."""

    code = "method_not_allowed"


class NotAcceptable(errors.Invalid):
    """The response has no media type that the request accepts."""

    code = "not_acceptable"


class UnsupportedMedia(errors.Invalid):
    """The body has a media type that this route does not take."""

    code = "unsupported_media_type"


class HeadersTooLarge(errors.TooLarge):
    """The URL, the headers or the trailers of the request are too large."""

    code = "headers_too_large"


class RequestTooSlow(errors.Unavailable):
    """The request did not arrive in time; nothing was done."""

    code = "request_too_slow"


class RangeNotSatisfiable(errors.Invalid):
    """The requested range is outside of the body."""

    code = "range_not_satisfiable"


class MalformedBody(errors.Invalid):
    """The body is not JSON, or is nested too deeply."""

    code = "malformed_body"


class InvalidRequest(errors.Invalid):
    """Fields of the request are invalid; each is named."""

    code = "invalid_request"

    def __init__(self, faults: Sequence[FieldError], *, is_cut: bool = False) -> None:
        """``is_cut``: not all faults were collected."""
        sentences = [f"{fault.field}: {fault.detail}" for fault in faults[:FAULTS_IN_SENTENCE_MAX]]
        if len(faults) > FAULTS_IN_SENTENCE_MAX:
            least = "at least " if is_cut else ""
            sentences.append(f"and {least}{len(faults) - FAULTS_IN_SENTENCE_MAX} more")
        super().__init__("; ".join(sentences), count=len(faults))
        self.faults = tuple(faults[:FAULTS_MAX])


class InvalidCursor(errors.Invalid):
    """The cursor is not one that this server made for this list and these filters."""

    code = "invalid_cursor"


class Unauthenticated(errors.Forbidden):
    """Sign in, or send an API token as ``Authorization: Bearer …``."""

    code = "unauthenticated"


class MisdirectedRequest(errors.Invalid):
    """The Host header is not a name of this server."""

    code = "misdirected_request"


class UnsupportedProtocol(errors.Invalid):
    """The agent has a protocol version that this server does not support; upgrade it."""

    code = "unsupported_protocol"


class CrossSite(errors.Forbidden):
    """A write from a browser must come from our own pages, with the CSRF token of its session."""

    code = "cross_site"


class Overloaded(errors.Unavailable):
    """Too many requests are waiting on this server; nothing was done."""

    code = "overloaded"


class TooManyConnections(errors.Unavailable):
    """Your address, or the whole server, has too many connections."""

    code = "too_many_connections"


class PositionNotReached(errors.Conflict):
    """The log has not reached the position that the request waits for; retry later."""

    code = "position_not_reached"


class InternalError(errors.TidegateError):
    """The server failed; its log has the cause under the request id."""

    code = "internal_error"


# A leaf is before its family: the first match counts.
STATUS: Final[Mapping[type[errors.TidegateError], int]] = {
    MethodNotAllowed: 405,
    NotAcceptable: 406,
    UnsupportedMedia: 415,
    RangeNotSatisfiable: 416,
    Unauthenticated: 401,
    UnsupportedProtocol: 426,
    MisdirectedRequest: 421,
    rate_limits.RateLimited: 429,
    HeadersTooLarge: 431,
    RequestTooSlow: 408,
    errors.InsufficientStorage: 507,
    errors.Invalid: 400,
    errors.NotFound: 404,
    errors.Forbidden: 403,
    errors.Gone: 410,
    errors.TooLarge: 413,
    errors.PreconditionRequired: 428,
    errors.Refused: 422,
    errors.Conflict: 409,
    errors.Unavailable: 503,
    errors.Unknown: 503,
    errors.TidegateError: 500,
}


CONCEALED: Final = "The server cannot do this at the moment. The reason is in the server's log."
# The messages of these errors are about the request, or about limits that are public.
_SAID_TO_ALL: Final = (rate_limits.RateLimited, Overloaded, RequestTooSlow, TooManyConnections)


def conceal(error: errors.TidegateError) -> errors.TidegateError:
    """The error as a caller who is not authenticated may see it.

    Messages from the surroundings of the server may name paths, hosts and database users.
    """
    if not isinstance(error, errors.Unavailable | errors.Unknown) or isinstance(
        error, _SAID_TO_ALL
    ):
        return error
    public = type(error).__new__(type(error))
    retry_after = error.facts.get("retry_after")
    facts = {} if retry_after is None else {"retry_after": retry_after}
    errors.TidegateError.__init__(public, CONCEALED, **facts)
    return public


def status_of(error: type[errors.TidegateError]) -> int:
    return next(STATUS[kind] for kind in error.__mro__ if kind in STATUS)


def title_of(error: type[errors.TidegateError]) -> str:
    return (error.__doc__ or "").partition("\n")[0].replace("``", "")


def body_of(error: errors.TidegateError, instance: str) -> bytes:
    """Encode a problem document. Facts come first, so that none can replace a standard member."""
    body: dict[str, Any] = {
        **error.facts,
        "type": f"/problems/{error.code}",
        "title": title_of(type(error)),
        "status": status_of(type(error)),
        "detail": error.detail,
        "code": error.code,
        "instance": instance,
    }
    if isinstance(error, InvalidRequest):
        body["errors"] = error.faults
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # a value in the message contains a lone surrogate
        body = {name: _portable(value) for name, value in body.items()}
        return msgspec.json.encode(body)


def _portable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, tuple):
        return [
            {"field": _portable(fault.field), "detail": _portable(fault.detail)} for fault in value
        ]
    return value


def headers_of(error: errors.TidegateError) -> list[tuple[bytes, bytes]]:
    """The headers of a problem, in addition to its body."""
    headers: list[tuple[bytes, bytes]] = []
    if isinstance(error, errors.Unavailable | errors.Unknown | errors.Conflict):
        seconds = error.facts.get("retry_after") or RETRY_SECONDS
        headers.append((b"retry-after", str(seconds).encode()))
    if isinstance(error, Unauthenticated):
        headers.append((b"www-authenticate", b'Bearer realm="tidegate"'))
    if isinstance(error, UnsupportedProtocol):
        headers.append((b"upgrade", f"tidegate/{error.facts['allowed']}".encode()))
    if isinstance(error, RangeNotSatisfiable):
        headers.append((b"content-range", f"bytes */{error.facts['size']}".encode()))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", str(error.facts["allowed"]).encode()))
    return headers
