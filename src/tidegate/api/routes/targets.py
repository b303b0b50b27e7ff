"""Targets: where this server's settings send the work of each operation, and whether they respond.

Targets are read from the configuration file and never stored, so no route changes them.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from tidegate.config import Settings
from tidegate.control.operations.targets import TargetOperations
from tidegate.control.outbox.targets import configured
from tidegate.domain.access import roles, steps
from tidegate.web import inputs, paging, routing, shapes


class TargetPath(inputs.Input, frozen=True):
    target: Annotated[str, Meta(min_length=1, max_length=63)]


class Tried(Struct, frozen=True, kw_only=True):
    """What a target returned, or what is wrong with it."""

    name: str
    ok: bool
    detail: str


def list_all(
    request: routing.Request[inputs.Nothing, inputs.Paging, inputs.Nothing],
    settings: Settings,
    cursors: paging.Cursors,
) -> routing.Response:
    """List the targets in this server's settings, by operation, without secrets."""
    after, limit = cursors.after(request), request.query.limit
    found = [item for item in configured.describe_targets(settings) if item.name > after]
    last = found[limit - 1].name if len(found) > limit else None
    return routing.Response(cursors.list_page(request, found[:limit], last))


def try_out(
    request: routing.Request[TargetPath, inputs.Nothing, inputs.Nothing], targets: TargetOperations
) -> routing.Response:
    """Test a target without giving it work."""
    name = request.path.target
    found = targets.test(request.caller, name)
    return routing.Response(
        Tried(name=name, ok=found.ok, detail=found.detail), position=found.position
    )


ROUTES = (
    routing.Route(
        "GET",
        "/v1/targets",
        list_all,
        routing.requires(roles.Verb.READ),
        shapes.Listed[configured.Described],
    ),
    routing.Route(
        "POST",
        "/v1/targets/{target}/test",
        try_out,
        routing.requires_step(steps.TEST_TARGET),
        Tried,
        errors=(configured.TargetUnknown,),
    ),
)
