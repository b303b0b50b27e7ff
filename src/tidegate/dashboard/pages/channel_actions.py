"""What the verbs of a channel do: pin and roll out, hold, let go, lift a quarantine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta

from tidegate.control.installation import Installation
from tidegate.dashboard.layout import (
    OptionalReason,
    PageQuery,
    Reason,
    action_route,
    attempt,
    step_route,
)
from tidegate.dashboard.pages.channels import Asked, ChannelPagePath, page_of, scope_of
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.steps import PROMOTE
from tidegate.domain.channels.slices import (
    HoldChannel,
    LiftQuarantine,
    UnholdChannel,
    hold_channel,
    lift_quarantine,
    unhold_channel,
)
from tidegate.web.inputs import Input
from tidegate.web.routing import Request, Response, requires


class ChannelForm(Input, frozen=True, kw_only=True):
    reason: Reason


class PromoteForm(Input, frozen=True, kw_only=True):
    release: Annotated[str, Meta(min_length=1, max_length=200)]
    display_name: Annotated[str, Meta(max_length=256)] = ""
    reason: OptionalReason = ""


class LiftForm(ChannelForm, frozen=True, kw_only=True):
    closure_hash: Annotated[str, Meta(min_length=1, max_length=128)]


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
    command = HoldChannel(
        channel=request.path.channel, operator=request.by, reason=request.body.reason
    )
    run = lambda: installation.run(hold_channel, command, meta=request.meta).position  # noqa: E731
    return _done(request, installation, run, "held")


def unhold(
    request: Request[ChannelPagePath, PageQuery, ChannelForm], installation: Installation
) -> Response:
    """Let a held channel go."""
    command = UnholdChannel(
        channel=request.path.channel, operator=request.by, reason=request.body.reason
    )
    run = lambda: installation.run(unhold_channel, command, meta=request.meta).position  # noqa: E731
    return _done(request, installation, run, "unheld")


def lift(
    request: Request[ChannelPagePath, PageQuery, LiftForm], installation: Installation
) -> Response:
    """Somebody looked: the content may be dispatched on the channel again."""
    command = LiftQuarantine(
        channel=request.path.channel,
        closure_hash=request.body.closure_hash,
        operator=request.by,
        reason=request.body.reason,
    )
    run = lambda: installation.run(lift_quarantine, command, meta=request.meta).position  # noqa: E731
    return _done(request, installation, run, "lifted")


ROUTES = (
    step_route("/channels/{channel}/promote", promote, PROMOTE, scope_of),
    action_route("/channels/{channel}/hold", hold, requires(Verb.RELEASE, scope_of), urgent=True),
    action_route("/channels/{channel}/unhold", unhold, requires(Verb.RELEASE, scope_of)),
    action_route("/channels/{channel}/lift", lift, requires(Verb.OPERATE, scope_of)),
)
