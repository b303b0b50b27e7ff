"""The forms of a channel's page: promote, hold, unhold, lift a quarantine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

from msgspec import Meta

from tidegate.control.installation import Installation
from tidegate.dashboard.layout import OptionalReason, PageQuery, Reason, attempt, step_route
from tidegate.dashboard.pages.channels import Asked, ChannelPagePath, page_of, scope_of
from tidegate.domain.access.steps import HOLD_CHANNEL, LIFT_QUARANTINE, PROMOTE, UNHOLD_CHANNEL
from tidegate.web.inputs import Input
from tidegate.web.routing import Request, Response


class ChannelForm(Input, frozen=True, kw_only=True):
    reason: Reason


class PromoteForm(Input, frozen=True, kw_only=True):
    release: Annotated[str, Meta(min_length=1, max_length=200)]
    display_name: Annotated[str, Meta(max_length=256)] = ""
    reason: OptionalReason = ""


class LiftForm(ChannelForm, frozen=True, kw_only=True):
    closure_hash: Annotated[str, Meta(min_length=1, max_length=256)]


def promote(
    request: Request[ChannelPagePath, PageQuery, PromoteForm], installation: Installation
) -> Response:
    """Pin the channel to a release and roll it out."""
    body = request.body

    def run() -> int:
        done = installation.promotion.promote(
            request.caller,
            request.path.channel,
            body.release,
            reason=body.reason,
            display_name=body.display_name,
        )
        return done.position

    return _done(request, installation, run, "promoted")


def _done(request: Asked, installation: Installation, do: Callable[[], int], done: str) -> Response:
    back = f"/channels/{request.path.channel}"
    return attempt(request, installation, do, back, done, lambda: page_of(request, installation))


def hold(
    request: Request[ChannelPagePath, PageQuery, ChannelForm], installation: Installation
) -> Response:
    """No promotion and no order on it, until it is let go."""
    run = partial(
        installation.channels.hold, request.caller, request.path.channel, request.body.reason
    )
    return _done(request, installation, run, "held")


def unhold(
    request: Request[ChannelPagePath, PageQuery, ChannelForm], installation: Installation
) -> Response:
    """Let a held channel go."""
    run = partial(
        installation.channels.unhold, request.caller, request.path.channel, request.body.reason
    )
    return _done(request, installation, run, "unheld")


def lift(
    request: Request[ChannelPagePath, PageQuery, LiftForm], installation: Installation
) -> Response:
    """Somebody looked: the content may be dispatched on the channel again."""
    body = request.body
    run = partial(
        installation.quarantine.lift,
        *(request.caller, request.path.channel, body.closure_hash, body.reason),
    )
    return _done(request, installation, run, "lifted")


ROUTES = (
    step_route("/channels/{channel}/promote", promote, PROMOTE, scope_of),
    step_route("/channels/{channel}/hold", hold, HOLD_CHANNEL, scope_of),
    step_route("/channels/{channel}/unhold", unhold, UNHOLD_CHANNEL, scope_of),
    step_route("/channels/{channel}/lift", lift, LIFT_QUARANTINE, scope_of),
)
