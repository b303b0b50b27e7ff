"""Static files: our own and the vendored ones, under an address that changes with any of them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tidegate.api.dashboard.pages import fails
from tidegate.api.dashboard.rendering import fingerprint, static_files
from tidegate.api.problems import NoSuchPath
from tidegate.api.routing import PUBLIC, Answer, Request, Route
from tidegate.control.installation import Installation
from tidegate.wire import Input, Nothing

YEAR_SECONDS = 31_536_000


class FilePath(Input, frozen=True):
    version: Annotated[str, Meta(max_length=64)]
    name: Annotated[str, Meta(max_length=128)]


def static(request: Request[FilePath, Nothing, Nothing], installation: Installation) -> Answer:
    """A file of the dashboard."""
    found = static_files().get(request.path.name)
    if found is None:
        raise NoSuchPath(f"there is no file {request.path.name}")
    media, content = found
    same = request.path.version == fingerprint()
    keep = f"public, max-age={YEAR_SECONDS}, immutable" if same else "no-cache"
    return Answer(content, media=media, headers={"cache-control": keep})


ROUTES = (
    Route(
        "GET",
        "/static/{version}/{name...}",
        static,
        PUBLIC,
        quick=True,
        produces="*/*",
        fails=fails,
    ),
)
