"""Opaque cursors of pages. Each is authenticated and bound to its route and filters."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from tidegate.web import problems, routing, shapes

MAC_BYTES = 12

Item = TypeVar("Item")
Asked = routing.Request[Any, Any, Any]


class Cursors:
    """Makes and reads cursors. ``mac`` signs them with a key of the installation."""

    def __init__(self, mac: Callable[[bytes], bytes]) -> None:
        self._mac = mac

    def after(self, request: Asked) -> str:
        """The id that the page starts after; empty: the beginning. Raises: InvalidCursor."""
        text: str = request.query.next
        if not text:
            return ""
        try:
            content = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except (binascii.Error, ValueError):
            raise _invalid() from None
        mac, last = content[:MAC_BYTES], content[MAC_BYTES:]
        if not hmac.compare_digest(mac, self._authenticate(request, last)):
            raise _invalid()
        return last.decode()

    def list_page(
        self, request: Asked, items: Sequence[Item], last: str | None
    ) -> shapes.Listed[Item]:
        """Build one page. The next page starts after ``last``; None: this is the last page."""
        if last is None:
            return shapes.Listed(tuple(items))
        text = last.encode()
        cursor = base64.urlsafe_b64encode(self._authenticate(request, text) + text)
        return shapes.Listed(tuple(items), cursor.decode().rstrip("="))

    def _authenticate(self, request: Asked, last: bytes) -> bytes:
        filters = msgspec.to_builtins(request.query)
        for name in ("next", "limit", "min_position", "wait"):
            filters.pop(name, None)
        about = msgspec.json.encode(
            [request.route, msgspec.to_builtins(request.path), filters], order="sorted"
        )
        return self._mac(about + b"\n" + last)[:MAC_BYTES]


def _invalid() -> problems.InvalidCursor:
    return problems.InvalidCursor(
        "next is used as the page before gave it, with the same filters", field="query.next"
    )
