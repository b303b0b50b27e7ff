"""Promote and roll back: move the pin of a channel and open a rollout, in one commit.

``If-Match`` takes the ETag of the channel or of the scope's pin. Without it, the pin moves whatever
it is now.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from tidegate.api.routes import channels, releases
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.lanes import LaneBusy
from tidegate.control.operations.accounts import Accounts
from tidegate.control.operations.promotion import ChannelPromotion, PromotionOperations
from tidegate.control.operations.protection import RequestShown
from tidegate.control.queries.ladder import read_ladder
from tidegate.domain.access import roles, steps
from tidegate.domain.channels import refusals
from tidegate.domain.hosts.refusals import ClosureQuarantined
from tidegate.domain.requests.refusals import BreakGlassForbidden
from tidegate.domain.rollouts.states import OverridableGate
from tidegate.errors import NotFound, Refused, StaleVersion
from tidegate.web import inputs, routing


class Promotion(inputs.Input, frozen=True, kw_only=True):
    release_id: releases.ReleaseId
    reason: Annotated[str, Meta(max_length=1_024)] = ""
    display_name: Annotated[str, Meta(max_length=256)] = ""  # of the rollout, shown to people
    refresh: bool = False  # confirm the pinned release with new evidence; opens no rollout
    override: tuple[OverridableGate, ...] = ()  # gates that it may pass; needs `emergency`
    start_at: Annotated[datetime, Meta(tz=True)] | None = None  # no order is sent earlier


class Rollback(inputs.Input, frozen=True, kw_only=True):
    # A release of the channel's ladder; none: the first allowed rung.
    to: releases.ReleaseId | None = None
    now: bool = False  # all hosts at once, despite freeze, hold and window; needs `emergency`
    ignore_budgets: bool = False  # only with `now`
    lift_quarantine: bool = False  # only with `to`: lift the quarantine of that release
    reason: Annotated[str, Meta(max_length=1_024)] = ""


class PromotedShown(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The result of a promotion."""

    channel: str
    release_id: str
    rollout_id: str
    position: int
    superseded_rollout_id: str | None = None
    warnings: tuple[str, ...] = ()  # such as: wave canary takes no host now


def promote(
    request: routing.Request[channels.ChannelPath, inputs.Nothing, Promotion],
    promotion: PromotionOperations,
) -> routing.Response:
    """Promote a release on the channel and open its rollout, in one commit."""
    body = request.body
    return to_promoted(
        promotion.promote(
            request.caller,
            request.path.channel,
            body.release_id,
            reason=body.reason,
            display_name=body.display_name,
            refresh=body.refresh,
            overrides=body.override,
            start_at=body.start_at,
        )
    )


def roll_back(
    request: routing.Request[channels.ChannelPath, inputs.Nothing, Rollback],
    promotion: PromotionOperations,
) -> routing.Response:
    """Roll the channel back to a release that succeeded on it, and mark the pinned one as bad."""
    body = request.body
    return to_promoted(
        promotion.roll_back(
            request.caller,
            request.path.channel,
            to=body.to,
            now=body.now,
            ignore_budgets=body.ignore_budgets,
            lift_quarantine=body.lift_quarantine,
            reason=body.reason,
        )
    )


class LadderQuery(inputs.ReadQuery, frozen=True, kw_only=True):
    to: releases.ReleaseId | None = None  # the release that you would roll back to
    now: bool = False  # at once; this speeds up a rollback that is under way


class RungShown(Struct, frozen=True, kw_only=True):
    """A release that succeeded on the channel."""

    release_id: str
    digest: str
    rollout_id: str
    succeeded_at: datetime
    hosts: int  # hosts that converged
    skipped: str | None  # why a rollback skips it unless it is named


class LadderShown(Struct, frozen=True, kw_only=True):
    """The releases that the channel can go back to, and which one a rollback would choose now."""

    channel: str
    wanted: str | None  # the release that the channel is pinned to
    choice: str | None  # the release that a rollback chooses
    refusal: str | None  # why there is no choice
    rungs: tuple[RungShown, ...]
    warnings: tuple[str, ...]  # what would hold the rollback, or what it overrides and needs


def ladder(
    request: routing.Request[channels.ChannelPath, LadderQuery, inputs.Nothing],
    fleet_reader: FleetReader,
    accounts: Accounts,
    promotion: PromotionOperations,
) -> routing.Response:
    """List the releases that the channel can roll back to, and which one it would choose now."""
    found = read_ladder(fleet_reader, request.path.channel, accounts.name_of)
    choice = refusal = None
    try:
        choice = found.choose(request.query.to, now=request.query.now).release_id
    except Refused as error:
        refusal = error.detail
    return routing.Response(
        LadderShown(
            channel=found.channel,
            wanted=found.wanted,
            choice=choice,
            refusal=refusal,
            rungs=tuple(
                RungShown(
                    release_id=item.rung.release_id,
                    digest=item.rung.digest,
                    rollout_id=item.rung.rollout_id,
                    succeeded_at=item.rung.succeeded_at,
                    hosts=item.rung.hosts,
                    skipped=item.skipped or None,
                )
                for item in found.rungs
            ),
            warnings=()
            if choice is None
            else promotion.preview.warn_before_rollback(found.channel, now=request.query.now),
        )
    )


def to_promoted(result: ChannelPromotion) -> routing.Response:
    """Convert the result of a promotion to its document."""
    shown = PromotedShown(
        channel=result.channel,
        release_id=result.release_id,
        rollout_id=result.rollout_id,
        superseded_rollout_id=result.superseded_rollout_id,
        position=result.position,
        warnings=result.warnings,
    )
    return routing.Response(shown, position=result.position)


PROMOTES = (
    NotFound,
    refusals.ChannelNotFound,
    refusals.ChannelOnHold,
    refusals.WrongPackage,
    ClosureQuarantined,
    refusals.AlreadyPromoted,
    StaleVersion,
    LaneBusy,
)

ROUTES = (
    routing.Route(
        "POST",
        "/v1/channels/{channel}/promote",
        promote,
        routing.requires_step(steps.PROMOTE, channels.scope_of),
        PromotedShown,
        guard=steps.PROMOTE.version,
        requests=RequestShown,
        errors=(*PROMOTES, refusals.ReleaseNotPinned, BreakGlassForbidden),
        dry_run=True,
    ),
    routing.Route(
        "POST",
        "/v1/channels/{channel}/rollback",
        roll_back,
        routing.requires_step(steps.ROLL_BACK, channels.scope_of),
        PromotedShown,
        guard=steps.ROLL_BACK.version,
        requests=RequestShown,
        urgent=steps.ROLL_BACK.urgent,
        errors=(*PROMOTES, refusals.NothingToGoBackTo, refusals.NotOnLadder, BreakGlassForbidden),
        dry_run=True,
    ),
    routing.Route(
        "GET",
        "/v1/channels/{channel}/ladder",
        ladder,
        routing.requires(roles.Verb.READ, channels.scope_of),
        LadderShown,
        errors=(refusals.ChannelNotFound,),
    ),
)
