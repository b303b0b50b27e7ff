"""Build paths of the API with safe quoting. Apart from the client, so that help imports no HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Query = Mapping[str, Any]


def at(*parts: str) -> str:
    """A path under /v1. Every part is quoted to be one segment."""
    from urllib.parse import quote

    return "/v1/" + "/".join(quote(part, safe="@~:") for part in parts)


def located(path: str, query: Query | None) -> str:
    """The request target. None values are omitted; a list repeats its key."""
    from urllib.parse import urlencode

    given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def _text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
