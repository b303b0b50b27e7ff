"""Promote and roll back: the pin of a channel moves, and a rollout opens, in one commit.

``If-Match`` takes the ETag of the channel or that of the registry's row; whoever names neither
moves the pin from wherever it stands.
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
    display_name: Annotated[str, Meta(max_length=256)] = ""  # of the rollout, for people
    refresh: bool = False  # confirm the pinned release with new evidence; no rollout opens
    override: tuple[OverridableGate, ...] = ()  # gates that it passes; needs `emergency`
    start_at: Annotated[datetime, Meta(tz=True)] | None = None  # no order before


class Rollback(inputs.Input, frozen=True, kw_only=True):
    to: releases.ReleaseId | None = (
        None  # a release of the channel's ladder; none: the first allowed rung
    )
    now: bool = False  # all hosts at once, in spite of freeze, hold and window; needs `emergency`
    ignore_budgets: bool = False  # with `now`
    lift_quarantine: bool = False  # with `to`: of that release
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
    request: routing.Request[channels.ChannelPath, inputs.Nothing, Promotion],
    promotion: PromotionOperations,
) -> routing.Response:
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
            overrides=body.override,
            start_at=body.start_at,
        )
    )


def roll_back(
    request: routing.Request[channels.ChannelPath, inputs.Nothing, Rollback],
    promotion: PromotionOperations,
) -> routing.Response:
    """Go back to a release that succeeded on the channel, and mark the pinned one as bad."""
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
    to: releases.ReleaseId | None = None  # the release that you would name
    now: bool = False  # a rollback at once: it hastens one that is under way


class RungShown(Struct, frozen=True, kw_only=True):
    """A release that succeeded on the channel."""

    release_id: str
    digest: str
    rollout_id: str
    succeeded_at: datetime
    hosts: int  # that converged
    skipped: str | None  # why a rollback does not take it by itself


class LadderShown(Struct, frozen=True, kw_only=True):
    """What the channel can go back to, and what a rollback would take now."""

    channel: str
    wanted: str | None  # what the channel is pinned to
    choice: str | None  # what a rollback takes
    refusal: str | None  # why there is none
    rungs: tuple[RungShown, ...]
    warnings: tuple[str, ...]  # what would hold the rollback, or what it passes and needs


def ladder(
    request: routing.Request[channels.ChannelPath, LadderQuery, inputs.Nothing],
    fleet_reader: FleetReader,
    accounts: Accounts,
    promotion: PromotionOperations,
) -> routing.Response:
    """The releases that the channel can go back to, and which one a rollback would take now."""
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
    """What a promotion led to, as the API shows it."""
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
