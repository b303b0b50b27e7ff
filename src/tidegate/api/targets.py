"""Targets: where the work of each operation goes, by this server's settings, and whether it would.

They are read from the configuration file and never stored, so nothing here changes any.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from tidegate.api import paging
from tidegate.api.routing import Answer, Request, Route, may
from tidegate.control.installation import Installation
from tidegate.control.outbox.targets import TargetDone
from tidegate.control.outbox.targets.configured import (
    Described,
    TargetUnknown,
    describe_targets,
    try_target,
)
from tidegate.domain.access.roles import Verb
from tidegate.wire import Input, Listed, Nothing, Paging


class TargetPath(Input, frozen=True):
    target: Annotated[str, Meta(min_length=1, max_length=63)]


class Tried(Struct, frozen=True, kw_only=True):
    """What a target answered, or what is wrong with it."""

    name: str
    ok: bool
    detail: str


def list_all(request: Request[Nothing, Paging, Nothing], installation: Installation) -> Answer:
    """The targets of this server's settings, by operation; secrets are nowhere."""
    after, limit = paging.after(request, installation), request.query.limit
    found = [item for item in describe_targets(installation.settings) if item.name > after]
    last = found[limit - 1].name if len(found) > limit else None
    return Answer(paging.listed(request, installation, found[:limit], last))


def try_out(request: Request[TargetPath, Nothing, Nothing], installation: Installation) -> Answer:
    """Try a target without giving it work: it is asked for nothing."""
    name = request.path.target
    outcome = try_target(installation.settings, name, installation.clock)
    ok = isinstance(outcome, TargetDone)
    detail = outcome.detail if isinstance(outcome, TargetDone) else outcome.reason
    return Answer(Tried(name=name, ok=ok, detail=detail), position=installation.head())


ROUTES = (
    Route("GET", "/v1/targets", list_all, may(Verb.READ), Listed[Described]),
    Route(
        "POST",
        "/v1/targets/{target}/test",
        try_out,
        may(Verb.OPERATE),
        Tried,
        errors=(TargetUnknown,),
    ),
)
