"""Serves static files under an address that changes with any of them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tidegate.dashboard import html, layout
from tidegate.web import inputs, problems, routing

YEAR_SECONDS = 31_536_000


class StaticFilePath(inputs.Input, frozen=True):
    version: Annotated[str, Meta(max_length=64)]
    name: Annotated[str, Meta(max_length=128)]


def static(
    request: routing.Request[StaticFilePath, inputs.Nothing, inputs.Nothing],
) -> routing.Response:
    """Get a file of the dashboard."""
    found = html.static_files().get(request.path.name)
    if found is None:
        raise problems.NoSuchPath(f"there is no file {request.path.name}")
    media, content = found
    same = request.path.version == html.fingerprint()
    keep = f"public, max-age={YEAR_SECONDS}, immutable" if same else "no-cache"
    return routing.Response(content, media=media, headers={"cache-control": keep})


ROUTES = (
    routing.Route(
        "GET",
        "/static/{version}/{name...}",
        static,
        routing.PUBLIC,
        quick=True,
        produces="*/*",
        fails=layout.error_page,
    ),
)
