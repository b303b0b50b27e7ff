"""Cursors: opaque, bound to the route and its filters, and not to be made by anybody else."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from tidegate.control.installation import Installation
from tidegate.web.problems import InvalidCursor
from tidegate.web.routing import Request
from tidegate.web.shapes import Listed

MAC_BYTES = 12

Item = TypeVar("Item")


def after(request: Request[Any, Any, Any], installation: Installation) -> str:
    """Where the page starts: behind this; empty: at the beginning. Raises: InvalidCursor."""
    text: str = request.query.next
    if not text:
        return ""
    try:
        content = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise _invalid() from None
    mac, last = content[:MAC_BYTES], content[MAC_BYTES:]
    if not hmac.compare_digest(mac, _mac(request, installation, last)):
        raise _invalid()
    return last.decode()


def list_page(
    request: Request[Any, Any, Any],
    installation: Installation,
    items: Sequence[Item],
    last: str | None,
) -> Listed[Item]:
    """One page; ``last`` is where the next one starts behind, None: there is none."""
    if last is None:
        return Listed(tuple(items))
    text = last.encode()
    cursor = base64.urlsafe_b64encode(_mac(request, installation, text) + text)
    return Listed(tuple(items), cursor.decode().rstrip("="))


def _mac(request: Request[Any, Any, Any], installation: Installation, last: bytes) -> bytes:
    filters = msgspec.to_builtins(request.query)
    for name in ("next", "limit", "min_position", "wait"):
        filters.pop(name, None)
    about = msgspec.json.encode(
        [request.route, msgspec.to_builtins(request.path), filters], order="sorted"
    )
    return installation.secrets.mac("cursors", about + b"\n" + last)[:MAC_BYTES]


def _invalid() -> InvalidCursor:
    return InvalidCursor(
        "next is used as the page before gave it, with the same filters", field="query.next"
    )
