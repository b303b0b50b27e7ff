"""Promote and roll back: the pin of a channel moves, and a rollout opens, in one commit.

``If-Match`` takes the ETag of the channel or that of the registry's row; whoever names neither
moves the pin from wherever it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct

from tidegate import decoders
from tidegate.api.routes.channels import ChannelPath, demand, scope_of
from tidegate.api.routes.releases import ReleaseId
from tidegate.control.installation import Installation
from tidegate.control.operations.promotion import NothingBefore, Promote, RollBackChannel
from tidegate.control.queries.history import pinned_at
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.access.roles import Verb
from tidegate.domain.channels.refusals import (
    AlreadyPromoted,
    ChannelNotFound,
    ChannelOnHold,
    WrongPackage,
)
from tidegate.domain.hosts.refusals import ClosureQuarantined
from tidegate.domain.releases.rows import Actual, actual_key
from tidegate.domain.rollouts.names import ref_of
from tidegate.domain.rollouts.promotion import PromotionResult, promote_release
from tidegate.errors import NotFound, StaleVersion
from tidegate.web.inputs import Input, Nothing
from tidegate.web.routing import Request, Response, Route, VersionGuard, requires

T = TypeVar("T")


class Promotion(Input, frozen=True, kw_only=True):
    release_id: ReleaseId
    reason: Annotated[str, Meta(max_length=1_024)] = ""
    display_name: Annotated[str, Meta(max_length=256)] = ""  # of the rollout, for people


class Rollback(Input, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(max_length=1_024)] = ""


class PromotedShown(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a promotion led to."""

    channel: str
    release_id: str
    rollout_id: str
    position: int
    superseded_rollout_id: str | None = None


def promote(
    request: Request[ChannelPath, Nothing, Promotion], installation: Installation
) -> Response:
    """Make a release authoritative on the channel and roll it out: one commit."""
    body = request.body
    return promote_release_on(
        request,
        installation,
        request.path.channel,
        body.release_id,
        reason=body.reason,
        display_name=body.display_name,
    )


def promote_release_on(
    request: Request[Any, Any, Any],
    installation: Installation,
    channel: str,
    release_id: str,
    *,
    reason: str,
    display_name: str = "",
) -> Response:
    """Raises: StaleVersion, and what ``promote_release`` raises."""
    asked = Promote(
        channel=channel,
        release_id=release_id,
        command_id=request.mint("command"),
        by=request.by,
        expected_version=_pin_seen(request, installation, channel),
        display_name=display_name,
        reason=reason.strip(),
    )
    outcome = installation.control.earlier(
        promote_release, asked, meta=request.meta, key=request.once
    )
    if outcome is None:
        _demand_seen(request, installation, channel)
        promotions, meta, key = installation.promotions, request.meta, request.once
        run = lambda: promotions.promote(asked, meta=meta, key=key)  # noqa: E731
        outcome = _open_rollout(request, installation, channel, run)
    return _told(installation, channel, outcome)


def _open_rollout(
    request: Request[Any, Any, Any],
    installation: Installation,
    channel: str,
    run: Callable[[], CommandOutcome],
) -> CommandOutcome:
    """In the lane of the rollout that it ends, before reports that wait there."""
    found = demand(installation, channel)
    outcome = run_in_lane(installation, found.row.active_rollout_id, run)
    installation.manifests.publish_promoted(channel, by=request.by)
    installation.nudge()
    return outcome


def run_in_lane(installation: Installation, rollout_id: str | None, run: Callable[[], T]) -> T:
    """Run a command alone in a rollout's lane, before any report that waits there."""
    if rollout_id is None:
        return run()
    answer: T = installation.lanes.command(rollout_id, run).result()
    return answer


def _pin_seen(
    request: Request[Any, Any, Any], installation: Installation, channel: str
) -> int | None:
    """The registry's counter at the version that the client saw."""
    if request.version is None:
        return None
    found = pinned_at(installation, channel, request.version)
    return None if found is None else found.row.version


def _demand_seen(request: Request[Any, Any, Any], installation: Installation, channel: str) -> None:
    """Raises: StaleVersion: neither the channel nor its pin is at the version that If-Match names.

    ChannelNotFound.
    """
    found = demand(installation, channel)
    if request.version is None:
        return
    pin = installation.reads.find(actual_key(channel), Actual)
    if request.version not in (found.version, 0 if pin is None else pin.version):
        raise StaleVersion(request.version, found.version)


def _told(installation: Installation, channel: str, outcome: CommandOutcome) -> Response:
    answer = decoders.decoder(PromotionResult).decode(outcome.answer or b"{}")
    rollout_id = answer.rollout_id
    if rollout_id is None:  # a repeat without a key: what its first copy did stands
        rollout_id = demand(installation, channel).row.newest_rollout_id or ""
    shown = PromotedShown(
        channel=channel,
        release_id=ref_of(rollout_id),
        rollout_id=rollout_id,
        superseded_rollout_id=answer.superseded_rollout_id,
        position=outcome.position,
    )
    return Response(shown, position=outcome.position)


def roll_back(
    request: Request[ChannelPath, Nothing, Rollback], installation: Installation
) -> Response:
    """Promote again what was authoritative on the channel before, and leave what is now as bad."""
    channel = request.path.channel
    asked = RollBackChannel(
        channel=channel,
        command_id=request.mint("command"),
        by=request.by,
        reason=request.body.reason.strip(),
    )
    seen = _pin_seen(request, installation, channel)
    promotions, meta, key = installation.promotions, request.meta, request.once
    outcome = installation.control.earlier(promote_release, asked, meta=meta, key=key)
    if outcome is None:
        _demand_seen(request, installation, channel)
        run = lambda: promotions.rollback(  # noqa: E731
            asked, expected_version=seen, meta=meta, key=key
        )
        outcome = _open_rollout(request, installation, channel, run)
    return _told(installation, channel, outcome)


_RELEASE = requires(Verb.RELEASE, scope_of)
PROMOTES = (
    NotFound,
    ChannelNotFound,
    ChannelOnHold,
    WrongPackage,
    ClosureQuarantined,
    AlreadyPromoted,
    StaleVersion,
)

ROUTES = (
    Route(
        "POST",
        "/v1/channels/{channel}/promote",
        promote,
        _RELEASE,
        PromotedShown,
        guard=VersionGuard.ASKED,
        errors=PROMOTES,
    ),
    Route(
        "POST",
        "/v1/channels/{channel}/rollback",
        roll_back,
        _RELEASE,
        PromotedShown,
        guard=VersionGuard.ASKED,
        errors=(*PROMOTES, NothingBefore),
    ),
)
