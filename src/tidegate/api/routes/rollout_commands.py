"""Rollouts are steered: opened, paused, resumed, cleared, given up or tried again.

Each verb runs in the rollout's own lane, before the reports that wait there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta

from tidegate.api.routes.promotions import PROMOTES, PromotedShown, promote_release_on, run_in_lane
from tidegate.api.routes.releases import ReleaseId, ScopeName
from tidegate.api.routes.rollouts import (
    HostId,
    RolloutPath,
    RolloutShown,
    demand,
    scope_of,
    show_rollout,
)
from tidegate.control.installation import Installation
from tidegate.control.runtime import CommandOutcome
from tidegate.control.storage.blobs import BlobDamaged
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.channels.refusals import ChannelNotFound, MalformedPolicy, WrongPackage
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.hosts.refusals import HostNotInRollout, RolloutIsPruned, RolloutUnknown
from tidegate.domain.planner import Plan
from tidegate.domain.releases.rows import KnownRelease, known_key
from tidegate.domain.rollouts.clearance import WAIVED_MAX, ClearRollout, clear_rollout
from tidegate.domain.rollouts.promotion import demand_package
from tidegate.domain.rollouts.refusals import RollbackRunning
from tidegate.domain.rollouts.slices import (
    AbortRollout,
    PauseRollout,
    ResumeRollout,
    abort_rollout,
    pause_rollout,
    resume_rollout,
)
from tidegate.domain.rollouts.states import Clearance
from tidegate.errors import IllegalTransition, NotFound, StaleVersion
from tidegate.kernel.model import Position
from tidegate.web.inputs import Input, Nothing
from tidegate.web.routing import Request, Response, Route, VersionGuard, requires

Reason = Annotated[str, Meta(min_length=1, max_length=1_024)]


class Opening(Input, frozen=True, kw_only=True):
    channel: ScopeName
    release_id: ReleaseId
    reason: Annotated[str, Meta(max_length=1_024)] = ""
    display_name: Annotated[str, Meta(max_length=256)] = ""


class Planning(Input, frozen=True, kw_only=True):
    channel: ScopeName
    release_id: ReleaseId


class RolloutReason(Input, frozen=True, kw_only=True):
    reason: Reason


class Clearing(Input, frozen=True, kw_only=True):
    mode: Clearance
    reason: Reason
    hosts: Annotated[tuple[HostId, ...], Meta(max_length=WAIVED_MAX)] = ()  # that are waived


Steered = Request[RolloutPath, Nothing, Any]


def open_one(request: Request[Nothing, Nothing, Opening], installation: Installation) -> Response:
    """Open a rollout: the same as promoting the release on the channel."""
    body = request.body
    return promote_release_on(
        request,
        installation,
        body.channel,
        body.release_id,
        reason=body.reason,
        display_name=body.display_name,
    )


def dry_plan(request: Request[Nothing, Nothing, Planning], installation: Installation) -> Response:
    """Which host would get a release in which wave; nothing changes."""
    body = request.body
    known, channel = installation.reads.find_all(
        (known_key(body.release_id), KnownRelease), (channel_key(body.channel), Channel)
    )
    if channel is None:
        raise ChannelNotFound(body.channel)
    demand_package(channel.row, body.release_id)
    if known is None:
        raise NotFound(
            f"there is no release {body.release_id}; publish a revision first",
            release_id=body.release_id,
        )
    return Response(installation.promotions.plan(body.channel).plan)


def pause(
    request: Request[RolloutPath, Nothing, RolloutReason], installation: Installation
) -> Response:
    """No order, no acknowledgement and no wave until it is resumed."""
    command = PauseRollout(
        rollout_id=request.path.rollout_id,
        operator=request.by,
        reason=request.body.reason,
        expected_version=request.version,
    )
    return _steered(
        request,
        installation,
        lambda: installation.execute(pause_rollout, command, meta=request.meta, key=request.once),
    )


def resume(
    request: Request[RolloutPath, Nothing, RolloutReason], installation: Installation
) -> Response:
    """Let a paused rollout go on; one that is halted is cleared instead."""
    command = ResumeRollout(
        rollout_id=request.path.rollout_id,
        operator=request.by,
        reason=request.body.reason,
        expected_version=request.version,
    )
    return _steered(
        request,
        installation,
        lambda: installation.execute(resume_rollout, command, meta=request.meta, key=request.once),
    )


def clear(request: Request[RolloutPath, Nothing, Clearing], installation: Installation) -> Response:
    """Decide about a rollout that stopped: try again, go on without hosts, or give it up."""
    return _cleared(
        request, installation, request.body.mode, request.body.reason, request.body.hosts
    )


def abort(
    request: Request[RolloutPath, Nothing, RolloutReason], installation: Installation
) -> Response:
    """End a rollout where it stands: nothing more is dispatched, nothing follows it."""
    command = AbortRollout(
        rollout_id=request.path.rollout_id,
        operator=request.by,
        reason=request.body.reason,
        expected_version=request.version,
    )
    return _steered(
        request,
        installation,
        lambda: installation.execute(abort_rollout, command, meta=request.meta, key=request.once),
    )


def retry(
    request: Request[RolloutPath, Nothing, RolloutReason], installation: Installation
) -> Response:
    """Try the failed and reverted hosts of a rollout that stopped again."""
    return _cleared(request, installation, Clearance.RESUME, request.body.reason)


def _cleared(
    request: Steered,
    installation: Installation,
    mode: Clearance,
    reason: str,
    host_ids: tuple[str, ...] = (),
) -> Response:
    target = demand(installation, request.path.rollout_id).row.target_closure
    command = ClearRollout(
        rollout_id=request.path.rollout_id,
        operator=request.by,
        reason=reason,
        mode=mode,
        closure_hash=target if mode is Clearance.RESUME else "",
        host_ids=host_ids,
        expected_version=request.version,
    )
    return _steered(
        request,
        installation,
        lambda: installation.execute(clear_rollout, command, meta=request.meta, key=request.once),
    )


def _steered(
    request: Steered, installation: Installation, run: Callable[[], CommandOutcome]
) -> Response:
    """Run it in the lane; the rollout as it stands then."""
    rollout_id = request.path.rollout_id
    before: Position = demand(installation, rollout_id).version
    outcome = run_in_lane(installation, rollout_id, run)
    answer = show_rollout(installation, rollout_id)
    answer.position = outcome.position or before
    return answer


_OPERATE = requires(Verb.OPERATE, scope_of)
_STEERED = (RolloutUnknown, RolloutIsPruned, IllegalTransition, StaleVersion, BlobDamaged)
_CLEARED = (*_STEERED, RollbackRunning, HostNotInRollout)


def _verb(name: str, handler: Callable[..., Response], *errors: type[Any], urgent: bool) -> Route:
    return Route(
        "POST",
        f"/v1/rollouts/{{rollout_id}}/{name}",
        handler,
        _OPERATE,
        RolloutShown,
        guard=VersionGuard.ASKED,
        urgent=urgent,
        errors=errors,
    )


ROUTES = (
    Route(
        "POST",
        "/v1/rollouts",
        open_one,
        requires(Verb.RELEASE, lambda request: channel_scope(request.body.channel)),
        PromotedShown,
        guard=VersionGuard.ASKED,
        errors=PROMOTES,
    ),
    Route(
        "POST",
        "/v1/rollouts/plan",
        dry_plan,
        requires(Verb.READ, lambda request: channel_scope(request.body.channel)),
        Plan,
        errors=(NotFound, WrongPackage, MalformedPolicy),
    ),
    _verb("pause", pause, *_STEERED, urgent=True),
    _verb("resume", resume, *_STEERED, urgent=False),
    _verb("clearance", clear, *_CLEARED, urgent=False),
    _verb("abort", abort, *_STEERED, urgent=True),
    _verb("retry", retry, *_CLEARED, urgent=False),
)
