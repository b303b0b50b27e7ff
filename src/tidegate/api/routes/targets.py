"""Targets: where the work of each operation goes, by this server's settings, and whether it would.

They are read from the configuration file and never stored, so nothing here changes any.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from tidegate.config import Settings
from tidegate.control.operations.targets import TargetOperations
from tidegate.control.outbox.targets.configured import (
    Described,
    TargetUnknown,
    describe_targets,
)
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.steps import TEST_TARGET
from tidegate.web.inputs import Input, Nothing, Paging
from tidegate.web.paging import Cursors
from tidegate.web.routing import Request, Response, Route, requires, requires_step
from tidegate.web.shapes import Listed


class TargetPath(Input, frozen=True):
    target: Annotated[str, Meta(min_length=1, max_length=63)]


class Tried(Struct, frozen=True, kw_only=True):
    """What a target answered, or what is wrong with it."""

    name: str
    ok: bool
    detail: str


def list_all(
    request: Request[Nothing, Paging, Nothing], settings: Settings, cursors: Cursors
) -> Response:
    """The targets of this server's settings, by operation; secrets are nowhere."""
    after, limit = cursors.after(request), request.query.limit
    found = [item for item in describe_targets(settings) if item.name > after]
    last = found[limit - 1].name if len(found) > limit else None
    return Response(cursors.list_page(request, found[:limit], last))


def try_out(request: Request[TargetPath, Nothing, Nothing], targets: TargetOperations) -> Response:
    """Try a target without giving it work: it is asked for nothing."""
    name = request.path.target
    found = targets.test(request.caller, name)
    return Response(Tried(name=name, ok=found.ok, detail=found.detail), position=found.position)


ROUTES = (
    Route("GET", "/v1/targets", list_all, requires(Verb.READ), Listed[Described]),
    Route(
        "POST",
        "/v1/targets/{target}/test",
        try_out,
        requires_step(TEST_TARGET),
        Tried,
        errors=(TargetUnknown,),
    ),
)
