"""The commands of a rollout: open, pause, resume, clear, abort, retry, skip, override."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, structs

from tidegate.api.routes import promotions as route_promotions, releases, rollouts as route_rollouts
from tidegate.clock import Clock
from tidegate.control.lanes import LaneBusy
from tidegate.control.operations.promotion import PromotionOperations
from tidegate.control.operations.promotion_planning import Promotions
from tidegate.control.operations.protection import RequestShown
from tidegate.control.operations.rollouts import MAY_WAIT, RolloutOperations
from tidegate.control.queries.reads import Reads
from tidegate.control.storage.blobs import BlobDamaged
from tidegate.domain.access import roles, scopes, steps
from tidegate.domain.channels import refusals as channel_refusals, rows
from tidegate.domain.gates.earliest import EarliestStart
from tidegate.domain.hosts import refusals as host_refusals
from tidegate.domain.planner import Plan
from tidegate.domain.releases.rows import KnownRelease, known_key
from tidegate.domain.requests.refusals import BreakGlassForbidden
from tidegate.domain.rollouts import clearance, refusals as rollout_refusals, states
from tidegate.domain.rollouts.promotion import check_start, demand_package
from tidegate.errors import IllegalTransition, NotFound, StaleVersion
from tidegate.web import inputs, routing

Reason = Annotated[str, Meta(min_length=1, max_length=1_024)]


class Opening(inputs.Input, frozen=True, kw_only=True):
    channel: releases.ScopeName
    release_id: releases.ReleaseId
    reason: Annotated[str, Meta(max_length=1_024)] = ""
    display_name: Annotated[str, Meta(max_length=256)] = ""
    start_at: Annotated[datetime, Meta(tz=True)] | None = None  # no order is sent earlier


class Planning(inputs.Input, frozen=True, kw_only=True):
    channel: releases.ScopeName
    release_id: releases.ReleaseId
    start_at: Annotated[datetime, Meta(tz=True)] | None = None  # no order is sent earlier


class RolloutReason(inputs.Input, frozen=True, kw_only=True):
    reason: Reason


class Clearing(inputs.Input, frozen=True, kw_only=True):
    mode: states.Clearance
    reason: Reason
    hosts: Annotated[
        tuple[route_rollouts.HostId, ...], Meta(max_length=clearance.WAIVED_MAX)
    ] = ()  # that are meant


class Retrying(RolloutReason, frozen=True, kw_only=True):
    hosts: Annotated[
        tuple[route_rollouts.HostId, ...], Meta(max_length=clearance.WAIVED_MAX)
    ] = ()  # none: all that failed


class Overriding(inputs.Input, frozen=True, kw_only=True):
    gate: states.OverridableGate
    reason: Reason
    until: Annotated[datetime, Meta(tz=True)] | None = None  # null: until the rollout ends


class Skipping(RolloutReason, frozen=True, kw_only=True):
    host_id: route_rollouts.HostId


class SkippingWave(RolloutReason, frozen=True, kw_only=True):
    wave: Annotated[str, Meta(min_length=1, max_length=63)]  # its name, or its number from 1


class Continuing(inputs.Input, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(max_length=1_024)] = ""


def open_one(
    request: routing.Request[inputs.Nothing, inputs.Nothing, Opening],
    promotion: PromotionOperations,
) -> routing.Response:
    """Open a rollout; the same as promoting the release on the channel."""
    body = request.body
    return route_promotions.to_promoted(
        promotion.promote(
            request.caller,
            body.channel,
            body.release_id,
            reason=body.reason,
            display_name=body.display_name,
            start_at=body.start_at,
        )
    )


class PlanAhead(Plan, frozen=True, kw_only=True):
    """A plan that no rollout follows yet."""

    # When each wave could start at the earliest, by the windows.
    earliest: tuple[EarliestStart, ...] = ()
    holds: tuple[str, ...] = ()  # what would hold its orders now: a closed edge, a freeze, a hold


def dry_plan(
    request: routing.Request[inputs.Nothing, inputs.Nothing, Planning],
    reads: Reads,
    promotions: Promotions,
    clock: Clock,
) -> routing.Response:
    """Show which wave each host would be in, and when it could start; nothing changes."""
    body = request.body
    known, channel = reads.find_all(
        (known_key(body.release_id), KnownRelease), (rows.channel_key(body.channel), rows.Channel)
    )
    if channel is None:
        raise channel_refusals.ChannelNotFound(body.channel)
    demand_package(channel.row, body.release_id)
    if known is None:
        raise NotFound(f"there is no release {body.release_id}", release_id=body.release_id)
    now = clock()
    check_start(body.start_at, now)
    made = promotions.plan(body.channel).plan
    return routing.Response(
        PlanAhead(
            **structs.asdict(made),
            earliest=promotions.list_earliest(made, body.start_at or now),
            holds=promotions.list_holds(body.channel, body.release_id),
        )
    )


def pause(
    request: routing.Request[route_rollouts.RolloutPath, inputs.Nothing, RolloutReason],
    rollouts: RolloutOperations,
    documents: route_rollouts.RolloutDocuments,
) -> routing.Response:
    """Pause a rollout: no orders, no acknowledgements and no new waves until it is resumed."""
    rollout_id, reason = request.path.rollout_id, request.body.reason
    return documents.show(rollout_id, rollouts.pause(request.caller, rollout_id, reason))


def resume(
    request: routing.Request[route_rollouts.RolloutPath, inputs.Nothing, RolloutReason],
    rollouts: RolloutOperations,
    documents: route_rollouts.RolloutDocuments,
) -> routing.Response:
    """Resume a paused rollout; clear one that is halted instead."""
    rollout_id, reason = request.path.rollout_id, request.body.reason
    return documents.show(rollout_id, rollouts.resume(request.caller, rollout_id, reason))


def clear(
    request: routing.Request[route_rollouts.RolloutPath, inputs.Nothing, Clearing],
    rollouts: RolloutOperations,
    documents: route_rollouts.RolloutDocuments,
) -> routing.Response:
    """Clear a halted rollout: retry the failed hosts, waive them, or abandon the rollout."""
    body = request.body
    position = rollouts.clear(
        request.caller, request.path.rollout_id, body.mode, body.reason, body.hosts
    )
    return documents.show(request.path.rollout_id, position)


def abort(
    request: routing.Request[route_rollouts.RolloutPath, inputs.Nothing, RolloutReason],
    rollouts: RolloutOperations,
    documents: route_rollouts.RolloutDocuments,
) -> routing.Response:
    """Abort a rollout: no more orders are sent, and no rollout follows it."""
    rollout_id, reason = request.path.rollout_id, request.body.reason
    return documents.show(rollout_id, rollouts.abort(request.caller, rollout_id, reason))


def retry(
    request: routing.Request[route_rollouts.RolloutPath, inputs.Nothing, Retrying],
    rollouts: RolloutOperations,
    documents: route_rollouts.RolloutDocuments,
) -> routing.Response:
    """Retry failed and reverted hosts of a halted rollout: all of them, or those named."""
    body = request.body
    position = rollouts.retry(request.caller, request.path.rollout_id, body.reason, body.hosts)
    return documents.show(request.path.rollout_id, position)


def skip(
    request: routing.Request[route_rollouts.RolloutPath, inputs.Nothing, Skipping],
    rollouts: RolloutOperations,
    documents: route_rollouts.RolloutDocuments,
) -> routing.Response:
    """Continue without a host that has not started its order."""
    body = request.body
    done = rollouts.skip(request.caller, request.path.rollout_id, body.host_id, body.reason)
    response = documents.show(request.path.rollout_id, done.position)
    if done.warnings:
        response.body = structs.replace(response.body, warnings=done.warnings)
    return response


def override(
    request: routing.Request[route_rollouts.RolloutPath, inputs.Nothing, Overriding],
    rollouts: RolloutOperations,
    documents: route_rollouts.RolloutDocuments,
) -> routing.Response:
    """Override a gate of a rollout, until a time or until the rollout ends."""
    body = request.body
    position = rollouts.override(
        request.caller, request.path.rollout_id, body.gate, body.reason, body.until
    )
    return documents.show(request.path.rollout_id, position)


def continue_wave(
    request: routing.Request[route_rollouts.RolloutPath, inputs.Nothing, Continuing],
    rollouts: RolloutOperations,
    documents: route_rollouts.RolloutDocuments,
) -> routing.Response:
    """Start the next wave, which waits for a person."""
    rollout_id, reason = request.path.rollout_id, request.body.reason
    position = rollouts.continue_wave(request.caller, rollout_id, reason)
    return documents.show(request.path.rollout_id, position)


def skip_wave(
    request: routing.Request[route_rollouts.RolloutPath, inputs.Nothing, SkippingWave],
    rollouts: RolloutOperations,
    documents: route_rollouts.RolloutDocuments,
) -> routing.Response:
    """Skip a wave: its hosts without an order get none in this rollout."""
    body = request.body
    position = rollouts.skip_wave(request.caller, request.path.rollout_id, body.wave, body.reason)
    return documents.show(request.path.rollout_id, position)


def promote_all(
    request: routing.Request[route_rollouts.RolloutPath, inputs.Nothing, RolloutReason],
    rollouts: RolloutOperations,
    documents: route_rollouts.RolloutDocuments,
) -> routing.Response:
    """Start all waves now, without waiting for earlier ones; gates and budgets still apply."""
    rollout_id, reason = request.path.rollout_id, request.body.reason
    position = rollouts.promote_all(request.caller, rollout_id, reason)
    return documents.show(request.path.rollout_id, position)


_ERRORS = (
    host_refusals.RolloutUnknown,
    host_refusals.RolloutIsPruned,
    IllegalTransition,
    StaleVersion,
    BlobDamaged,
    LaneBusy,
)
_CLEARS = (*_ERRORS, rollout_refusals.RollbackRunning, host_refusals.HostNotInRollout)


def _verb(
    name: str, handler: Callable[..., routing.Response], step: steps.Step, *errors: type[Any]
) -> routing.Route:
    return routing.Route(
        "POST",
        f"/v1/rollouts/{{rollout_id}}/{name}",
        handler,
        routing.requires_step(step, route_rollouts.scope_of),
        route_rollouts.RolloutShown,
        guard=step.version,
        urgent=step.urgent,
        requests=RequestShown if step in MAY_WAIT else None,
        errors=(*errors, BreakGlassForbidden) if step in MAY_WAIT else errors,
        dry_run=True,
    )


ROUTES = (
    routing.Route(
        "POST",
        "/v1/rollouts",
        open_one,
        routing.requires_step(
            steps.PROMOTE, lambda request: scopes.channel_scope(request.body.channel)
        ),
        route_promotions.PromotedShown,
        guard=steps.PROMOTE.version,
        requests=RequestShown,
        errors=(*route_promotions.PROMOTES, BreakGlassForbidden),
        dry_run=True,
    ),
    routing.Route(
        "POST",
        "/v1/rollouts/plan",
        dry_plan,
        routing.requires(
            roles.Verb.READ, lambda request: scopes.channel_scope(request.body.channel)
        ),
        PlanAhead,
        errors=(NotFound, channel_refusals.WrongPackage, channel_refusals.MalformedPolicy),
    ),
    _verb("pause", pause, steps.PAUSE_ROLLOUT, *_ERRORS),
    _verb("resume", resume, steps.RESUME_ROLLOUT, *_ERRORS),
    _verb("clearance", clear, steps.CLEAR_ROLLOUT, *_CLEARS),
    _verb("abort", abort, steps.ABORT_ROLLOUT, *_ERRORS),
    _verb("retry", retry, steps.RETRY_ROLLOUT, *_CLEARS),
    _verb("override", override, steps.OVERRIDE_GATE, *_ERRORS),
    _verb(
        "skip",
        skip,
        steps.SKIP_HOST,
        *_ERRORS,
        host_refusals.HostNotInRollout,
        host_refusals.HostUnderWay,
    ),
    _verb(
        "continue",
        continue_wave,
        steps.CONTINUE_ROLLOUT,
        *_ERRORS,
        rollout_refusals.NothingToContinue,
    ),
    _verb(
        "skip-wave",
        skip_wave,
        steps.SKIP_WAVE,
        *_ERRORS,
        rollout_refusals.WaveNotFound,
        rollout_refusals.WavePassed,
    ),
    _verb("promote-all", promote_all, steps.PROMOTE_ALL, *_ERRORS),
)
