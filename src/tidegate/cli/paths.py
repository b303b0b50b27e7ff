"""Paths of the API, spelt safely. Apart from the client, so that help imports no HTTP;
what spells them comes in when there is one to spell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Query = Mapping[str, Any]


def at(*parts: str) -> str:
    """A path under /v1; every part is one segment, whatever is in it."""
    from urllib.parse import quote

    return "/v1/" + "/".join(quote(part, safe="@~:") for part in parts)


def located(path: str, query: Query | None) -> str:
    """The request target; what is None is left out, a list names its key several times."""
    from urllib.parse import urlencode

    given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def _text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
