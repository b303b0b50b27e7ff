"""Targets: where the work of each operation goes, by this server's settings, and whether it would.

They are read from the configuration file and never stored, so nothing here changes any.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from tidegate.control.installation import Installation
from tidegate.control.outbox.targets import TargetDone
from tidegate.control.outbox.targets.configured import (
    Described,
    TargetUnknown,
    describe_targets,
    try_target,
)
from tidegate.domain.access.roles import Verb
from tidegate.web import paging
from tidegate.web.inputs import Input, Nothing, Paging
from tidegate.web.routing import Request, Response, Route, requires
from tidegate.web.shapes import Listed


class TargetPath(Input, frozen=True):
    target: Annotated[str, Meta(min_length=1, max_length=63)]


class Tried(Struct, frozen=True, kw_only=True):
    """What a target answered, or what is wrong with it."""

    name: str
    ok: bool
    detail: str


def list_all(request: Request[Nothing, Paging, Nothing], installation: Installation) -> Response:
    """The targets of this server's settings, by operation; secrets are nowhere."""
    after, limit = paging.after(request, installation), request.query.limit
    found = [item for item in describe_targets(installation.settings) if item.name > after]
    last = found[limit - 1].name if len(found) > limit else None
    return Response(paging.list_page(request, installation, found[:limit], last))


def try_out(request: Request[TargetPath, Nothing, Nothing], installation: Installation) -> Response:
    """Try a target without giving it work: it is asked for nothing."""
    name = request.path.target
    outcome = try_target(installation.settings, name, installation.clock)
    ok = isinstance(outcome, TargetDone)
    detail = outcome.detail if isinstance(outcome, TargetDone) else outcome.reason
    return Response(Tried(name=name, ok=ok, detail=detail), position=installation.log.head())


ROUTES = (
    Route("GET", "/v1/targets", list_all, requires(Verb.READ), Listed[Described]),
    Route(
        "POST",
        "/v1/targets/{target}/test",
        try_out,
        requires(Verb.OPERATE),
        Tried,
        errors=(TargetUnknown,),
    ),
)
