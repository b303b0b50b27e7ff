"""Promote and roll back: the pin of a channel moves, and a rollout opens, in one commit.

``If-Match`` takes the ETag of the channel or that of the registry's row; whoever names neither
moves the pin from wherever it stands.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from tidegate.api.routes.channels import ChannelPath, scope_of
from tidegate.api.routes.releases import ReleaseId
from tidegate.control.lanes import LaneBusy
from tidegate.control.operations.promotion import (
    ChannelPromotion,
    NothingBefore,
    PromotionOperations,
)
from tidegate.domain.access.steps import PROMOTE, ROLL_BACK
from tidegate.domain.channels.refusals import (
    AlreadyPromoted,
    ChannelNotFound,
    ChannelOnHold,
    ReleaseNotPinned,
    WrongPackage,
)
from tidegate.domain.hosts.refusals import ClosureQuarantined
from tidegate.errors import NotFound, StaleVersion
from tidegate.web.inputs import Input, Nothing
from tidegate.web.routing import Request, Response, Route, requires_step


class Promotion(Input, frozen=True, kw_only=True):
    release_id: ReleaseId
    reason: Annotated[str, Meta(max_length=1_024)] = ""
    display_name: Annotated[str, Meta(max_length=256)] = ""  # of the rollout, for people
    refresh: bool = False  # confirm the pinned release with new evidence; no rollout opens


class Rollback(Input, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(max_length=1_024)] = ""


class PromotedShown(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a promotion led to."""

    channel: str
    release_id: str
    rollout_id: str
    position: int
    superseded_rollout_id: str | None = None
    warnings: tuple[str, ...] = ()  # such as: wave canary takes no host now


def promote(
    request: Request[ChannelPath, Nothing, Promotion], promotion: PromotionOperations
) -> Response:
    """Make a release authoritative on the channel and roll it out: one commit."""
    body = request.body
    return to_promoted(
        promotion.promote(
            request.caller,
            request.path.channel,
            body.release_id,
            reason=body.reason,
            display_name=body.display_name,
            refresh=body.refresh,
        )
    )


def roll_back(
    request: Request[ChannelPath, Nothing, Rollback], promotion: PromotionOperations
) -> Response:
    """Promote again what was authoritative on the channel before, and leave what is now as bad."""
    return to_promoted(
        promotion.roll_back(request.caller, request.path.channel, reason=request.body.reason)
    )


def to_promoted(result: ChannelPromotion) -> Response:
    """What a promotion led to, as the API shows it."""
    shown = PromotedShown(
        channel=result.channel,
        release_id=result.release_id,
        rollout_id=result.rollout_id,
        superseded_rollout_id=result.superseded_rollout_id,
        position=result.position,
        warnings=result.warnings,
    )
    return Response(shown, position=result.position)


PROMOTES = (
    NotFound,
    ChannelNotFound,
    ChannelOnHold,
    WrongPackage,
    ClosureQuarantined,
    AlreadyPromoted,
    StaleVersion,
    LaneBusy,
)

ROUTES = (
    Route(
        "POST",
        "/v1/channels/{channel}/promote",
        promote,
        requires_step(PROMOTE, scope_of),
        PromotedShown,
        guard=PROMOTE.version,
        errors=(*PROMOTES, ReleaseNotPinned),
    ),
    Route(
        "POST",
        "/v1/channels/{channel}/rollback",
        roll_back,
        requires_step(ROLL_BACK, scope_of),
        PromotedShown,
        guard=ROLL_BACK.version,
        errors=(*PROMOTES, NothingBefore),
    ),
)
