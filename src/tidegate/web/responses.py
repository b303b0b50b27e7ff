"""Encodes what a handler returns as a status, headers and bytes."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.errors import TidegateError
from tidegate.web import decoding, problems, routing

CSP: Final = (
    b"default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; "
    b"form-action 'self'; object-src 'none'"
)
SECURITY: Final[tuple[tuple[bytes, bytes], ...]] = (
    (b"content-security-policy", CSP),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
# No browser reads responses to agents, and agents ask far more often than any other client.
FOR_AGENTS: Final = (b"x-content-type-options", b"nosniff")
NO_STORE: Final = (b"cache-control", b"no-store")
_ASK_AGAIN: Final = (b"cache-control", b"private, no-cache")
ETAG_DIGEST_BYTES: Final = 6  # at most 15 digits; an object is only compared with itself
_BODILESS: Final = frozenset({204, 304})

Headers = list[tuple[bytes, bytes]]


class EncodedResponse(NamedTuple):
    """A whole response. Its headers include its length, unless the status has no body."""

    status: int
    headers: Headers
    body: bytes


def headers_of(
    answer: routing.Response, etag: str | None, route: routing.Route | None, request_id: str
) -> Headers:
    """All headers except those that describe the body."""
    headers: Headers = [(b"x-request-id", request_id.encode())]
    headers += (
        (FOR_AGENTS,) if route is not None and route.permission is routing.AGENT else SECURITY
    )
    if answer.headers:
        headers += [(k.encode("latin-1"), v.encode("latin-1")) for k, v in answer.headers.items()]
    if answer.cookies:
        headers += [(b"set-cookie", cookie.encode("latin-1")) for cookie in answer.cookies]
    if answer.position:
        headers.append((b"tidegate-position", b"%d" % answer.position))
    if etag is not None:
        headers.append((b"etag", etag.encode()))
    if "cache-control" not in answer.headers:
        headers.append(NO_STORE if etag is None else _ASK_AGAIN)
    return headers


def encode_response(
    answer: routing.Response,
    route: routing.Route | None,
    request_id: str,
    known: bytes | None = None,
) -> EncodedResponse:
    """Encode a response. ``known`` is If-None-Match, the ETags that the client has.

    ``route`` is None for the error page of a path that has no route.
    """
    content = answer.body
    body = content if content is None or isinstance(content, bytes) else encode(content)
    etag = etag_of(answer, body)
    headers = headers_of(answer, etag, route, request_id)
    if etag is not None and not (route and route.is_write) and decoding.matches(known, etag):
        return EncodedResponse(304, headers, b"")
    if body is None:
        return _whole(answer.status or 204, headers, b"")
    headers.append((b"content-type", answer.media.encode()))
    return _whole(answer.status or (route.status if route else 200), headers, body)


def etag_of(answer: routing.Response, body: bytes | None) -> str | None:
    """The strong ETag of a response with this body; None: it has none.

    Its first number is the version of the object, which If-Match refers to. The second is a hash of
    the body, which also shows other rows, names that are in no row, and what changes with time.
    """
    if answer.version is None:
        return answer.tag
    if body is None:
        return f'"{answer.version}"'
    digest = blake2b(body, digest_size=ETAG_DIGEST_BYTES).digest()
    return f'"{answer.version}-{int.from_bytes(digest)}"'


def encode_problem(error: TidegateError, request_id: str) -> EncodedResponse:
    """Encode an error as a problem document."""
    headers = [
        *SECURITY,
        (b"x-request-id", request_id.encode()),
        (b"content-type", problems.MEDIA.encode()),
        NO_STORE,
        *problems.headers_of(error),
    ]
    body = problems.body_of(error, f"/requests/{request_id}")
    return _whole(problems.status_of(type(error)), headers, body)


def _whole(status: int, headers: Headers, body: bytes) -> EncodedResponse:
    if status not in _BODILESS:
        headers.append((b"content-length", b"%d" % len(body)))
    return EncodedResponse(status, headers, body)


_encoder = msgspec.json.Encoder()


def encode(body: Any) -> bytes:
    """Encode a response body as JSON."""
    return _encoder.encode(body)
