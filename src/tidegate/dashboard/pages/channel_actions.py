"""What the verbs of a channel do: pin and roll out, hold, let go, lift a quarantine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta

from tidegate.control.installation import Installation
from tidegate.control.operations.promotion import Promote
from tidegate.dashboard.layout import PageQuery, Reason, action_route, attempt
from tidegate.dashboard.pages.channels import Asked, ChannelPagePath, page_of, scope_of
from tidegate.domain.access.roles import Verb
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
    reason: Reason = ""


class PromoteForm(Input, frozen=True, kw_only=True):
    release: Annotated[str, Meta(min_length=1, max_length=200)]
    version: Annotated[int, Meta(ge=0, le=2**53 - 1)] | None = None
    command_id: Annotated[str, Meta(min_length=8, max_length=64)]
    display_name: Annotated[str, Meta(max_length=60)] = ""
    reason: Reason = ""


class LiftForm(ChannelForm, frozen=True, kw_only=True):
    closure_hash: Annotated[str, Meta(min_length=1, max_length=128)]


def promote(
    request: Request[ChannelPagePath, PageQuery, PromoteForm], installation: Installation
) -> Response:
    """Pin the channel to a release and roll it out."""
    body = request.body

    def do() -> int:
        asked = Promote(
            channel=request.path.channel,
            release_id=body.release,
            command_id=body.command_id,
            by=request.by,
            expected_version=body.version,
            display_name=body.display_name,
            reason=body.reason.strip(),
        )
        outcome = installation.promotions.promote(asked, meta=request.meta)
        installation.manifests.publish_promoted(asked.channel, by=request.by)
        installation.nudge()
        return outcome.position

    return _done(request, installation, do, "promoted")


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
    run = lambda: installation.execute(hold_channel, command, meta=request.meta).position  # noqa: E731
    return _done(request, installation, run, "held")


def unhold(
    request: Request[ChannelPagePath, PageQuery, ChannelForm], installation: Installation
) -> Response:
    """Let a held channel go."""
    command = UnholdChannel(
        channel=request.path.channel, operator=request.by, reason=request.body.reason
    )
    run = lambda: installation.execute(unhold_channel, command, meta=request.meta).position  # noqa: E731
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
    run = lambda: installation.execute(lift_quarantine, command, meta=request.meta).position  # noqa: E731
    return _done(request, installation, run, "lifted")


ROUTES = (
    action_route("/channels/{channel}/promote", promote, requires(Verb.RELEASE, scope_of)),
    action_route("/channels/{channel}/hold", hold, requires(Verb.RELEASE, scope_of), urgent=True),
    action_route("/channels/{channel}/unhold", unhold, requires(Verb.RELEASE, scope_of)),
    action_route("/channels/{channel}/lift", lift, requires(Verb.OPERATE, scope_of)),
)
