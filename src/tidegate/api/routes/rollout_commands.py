"""The verbs of a rollout: open, pause, resume, clear, abort, retry, skip, override."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import asdict

from tidegate.api.routes.promotions import PROMOTES, PromotedShown, to_promoted
from tidegate.api.routes.releases import ReleaseId, ScopeName
from tidegate.api.routes.rollouts import (
    HostId,
    RolloutPath,
    RolloutShown,
    scope_of,
    show_rollout,
)
from tidegate.clock import Clock
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.lanes import LaneBusy
from tidegate.control.operations.promotion import PromotionOperations, Promotions
from tidegate.control.operations.protection import RequestShown
from tidegate.control.operations.rollouts import MAY_WAIT, RolloutOperations
from tidegate.control.queries.people import PeopleNames
from tidegate.control.queries.reads import Reads
from tidegate.control.storage.blobs import BlobDamaged
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.access.steps import (
    ABORT_ROLLOUT,
    CLEAR_ROLLOUT,
    CONTINUE_ROLLOUT,
    OVERRIDE_GATE,
    PAUSE_ROLLOUT,
    PROMOTE,
    PROMOTE_ALL,
    RESUME_ROLLOUT,
    RETRY_ROLLOUT,
    SKIP_HOST,
    SKIP_WAVE,
    Step,
)
from tidegate.domain.channels.refusals import ChannelNotFound, MalformedPolicy, WrongPackage
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.gates.earliest import EarliestStart
from tidegate.domain.hosts.refusals import (
    HostNotInRollout,
    HostUnderWay,
    RolloutIsPruned,
    RolloutUnknown,
)
from tidegate.domain.planner import Plan
from tidegate.domain.releases.rows import KnownRelease, known_key
from tidegate.domain.requests.refusals import BreakGlassForbidden
from tidegate.domain.rollouts.clearance import WAIVED_MAX
from tidegate.domain.rollouts.promotion import check_start, demand_package
from tidegate.domain.rollouts.refusals import (
    NothingToContinue,
    RollbackRunning,
    WaveNotFound,
    WavePassed,
)
from tidegate.domain.rollouts.states import Clearance, OverridableGate
from tidegate.errors import IllegalTransition, NotFound, StaleVersion
from tidegate.kernel.model import Position
from tidegate.web.inputs import Input, Nothing
from tidegate.web.routing import Request, Response, Route, requires, requires_step

Reason = Annotated[str, Meta(min_length=1, max_length=1_024)]


class Opening(Input, frozen=True, kw_only=True):
    channel: ScopeName
    release_id: ReleaseId
    reason: Annotated[str, Meta(max_length=1_024)] = ""
    display_name: Annotated[str, Meta(max_length=256)] = ""
    start_at: Annotated[datetime, Meta(tz=True)] | None = None  # no order before


class Planning(Input, frozen=True, kw_only=True):
    channel: ScopeName
    release_id: ReleaseId
    start_at: Annotated[datetime, Meta(tz=True)] | None = None  # no order before


class RolloutReason(Input, frozen=True, kw_only=True):
    reason: Reason


class Clearing(Input, frozen=True, kw_only=True):
    mode: Clearance
    reason: Reason
    hosts: Annotated[tuple[HostId, ...], Meta(max_length=WAIVED_MAX)] = ()  # that are meant


class Retrying(RolloutReason, frozen=True, kw_only=True):
    hosts: Annotated[tuple[HostId, ...], Meta(max_length=WAIVED_MAX)] = ()  # none: all that failed


class Overriding(Input, frozen=True, kw_only=True):
    gate: OverridableGate
    reason: Reason
    until: Annotated[datetime, Meta(tz=True)] | None = None  # None: to the end of the rollout


class Skipping(RolloutReason, frozen=True, kw_only=True):
    host_id: HostId


class SkippingWave(RolloutReason, frozen=True, kw_only=True):
    wave: Annotated[str, Meta(min_length=1, max_length=63)]  # its name, or its number from 1


class Continuing(Input, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(max_length=1_024)] = ""


RolloutVerb = Request[RolloutPath, Nothing, Any]


def open_one(
    request: Request[Nothing, Nothing, Opening], promotion: PromotionOperations
) -> Response:
    """Open a rollout: the same as promoting the release on the channel."""
    body = request.body
    return to_promoted(
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
    """A plan that nothing follows yet."""

    earliest: tuple[EarliestStart, ...] = ()  # by wave: when it could start, by windows
    holds: tuple[str, ...] = ()  # what would hold its orders now: a closed edge, a freeze, a hold


def dry_plan(
    request: Request[Nothing, Nothing, Planning],
    reads: Reads,
    promotions: Promotions,
    clock: Clock,
) -> Response:
    """Which host would get a release in which wave, and when at the earliest; nothing changes."""
    body = request.body
    known, channel = reads.find_all(
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
    now = clock()
    check_start(body.start_at, now)
    made = promotions.plan(body.channel).plan
    return Response(
        PlanAhead(
            **asdict(made),
            earliest=promotions.list_earliest(made, body.start_at or now),
            holds=promotions.list_holds(body.channel, body.release_id),
        )
    )


def pause(
    request: Request[RolloutPath, Nothing, RolloutReason],
    rollouts: RolloutOperations,
    reads: Reads,
    fleet_reader: FleetReader,
    people: PeopleNames,
) -> Response:
    """No order, no acknowledgement and no wave until it is resumed."""
    rollout_id, reason = request.path.rollout_id, request.body.reason
    return _show(
        request, reads, fleet_reader, people, rollouts.pause(request.caller, rollout_id, reason)
    )


def resume(
    request: Request[RolloutPath, Nothing, RolloutReason],
    rollouts: RolloutOperations,
    reads: Reads,
    fleet_reader: FleetReader,
    people: PeopleNames,
) -> Response:
    """Let a paused rollout go on; one that is halted is cleared instead."""
    rollout_id, reason = request.path.rollout_id, request.body.reason
    return _show(
        request, reads, fleet_reader, people, rollouts.resume(request.caller, rollout_id, reason)
    )


def clear(
    request: Request[RolloutPath, Nothing, Clearing],
    rollouts: RolloutOperations,
    reads: Reads,
    fleet_reader: FleetReader,
    people: PeopleNames,
) -> Response:
    """Decide about a rollout that stopped: try again, go on without hosts, or give it up."""
    body = request.body
    position = rollouts.clear(
        request.caller, request.path.rollout_id, body.mode, body.reason, body.hosts
    )
    return _show(request, reads, fleet_reader, people, position)


def abort(
    request: Request[RolloutPath, Nothing, RolloutReason],
    rollouts: RolloutOperations,
    reads: Reads,
    fleet_reader: FleetReader,
    people: PeopleNames,
) -> Response:
    """End a rollout where it is: no more orders are sent, and no rollout follows it."""
    rollout_id, reason = request.path.rollout_id, request.body.reason
    return _show(
        request, reads, fleet_reader, people, rollouts.abort(request.caller, rollout_id, reason)
    )


def retry(
    request: Request[RolloutPath, Nothing, Retrying],
    rollouts: RolloutOperations,
    reads: Reads,
    fleet_reader: FleetReader,
    people: PeopleNames,
) -> Response:
    """Try the failed and reverted hosts of a rollout that stopped again: all, or those named."""
    body = request.body
    position = rollouts.retry(request.caller, request.path.rollout_id, body.reason, body.hosts)
    return _show(request, reads, fleet_reader, people, position)


def skip(
    request: Request[RolloutPath, Nothing, Skipping],
    rollouts: RolloutOperations,
    reads: Reads,
    fleet_reader: FleetReader,
    people: PeopleNames,
) -> Response:
    """Continue without a host that has not started its order."""
    body = request.body
    position = rollouts.skip(request.caller, request.path.rollout_id, body.host_id, body.reason)
    return _show(request, reads, fleet_reader, people, position)


def override(
    request: Request[RolloutPath, Nothing, Overriding],
    rollouts: RolloutOperations,
    reads: Reads,
    fleet_reader: FleetReader,
    people: PeopleNames,
) -> Response:
    """Let a rollout pass a gate, whatever it says, until a time or to its end."""
    body = request.body
    position = rollouts.override(
        request.caller, request.path.rollout_id, body.gate, body.reason, body.until
    )
    return _show(request, reads, fleet_reader, people, position)


def continue_wave(
    request: Request[RolloutPath, Nothing, Continuing],
    rollouts: RolloutOperations,
    reads: Reads,
    fleet_reader: FleetReader,
    people: PeopleNames,
) -> Response:
    """Let the next wave go, which waits for a person."""
    rollout_id, reason = request.path.rollout_id, request.body.reason
    position = rollouts.continue_wave(request.caller, rollout_id, reason)
    return _show(request, reads, fleet_reader, people, position)


def skip_wave(
    request: Request[RolloutPath, Nothing, SkippingWave],
    rollouts: RolloutOperations,
    reads: Reads,
    fleet_reader: FleetReader,
    people: PeopleNames,
) -> Response:
    """Continue without a wave: its hosts that have no order get none of this rollout."""
    body = request.body
    position = rollouts.skip_wave(request.caller, request.path.rollout_id, body.wave, body.reason)
    return _show(request, reads, fleet_reader, people, position)


def promote_all(
    request: Request[RolloutPath, Nothing, RolloutReason],
    rollouts: RolloutOperations,
    reads: Reads,
    fleet_reader: FleetReader,
    people: PeopleNames,
) -> Response:
    """Let every wave go now, without waiting for those before; gates and budgets stay."""
    rollout_id, reason = request.path.rollout_id, request.body.reason
    position = rollouts.promote_all(request.caller, rollout_id, reason)
    return _show(request, reads, fleet_reader, people, position)


def _show(
    request: RolloutVerb,
    reads: Reads,
    fleet_reader: FleetReader,
    people: PeopleNames,
    position: Position,
) -> Response:
    """The rollout as it is after a verb."""
    response = show_rollout(reads, fleet_reader, people, request.path.rollout_id)
    response.position = position
    return response


_ERRORS = (RolloutUnknown, RolloutIsPruned, IllegalTransition, StaleVersion, BlobDamaged, LaneBusy)
_CLEARS = (*_ERRORS, RollbackRunning, HostNotInRollout)


def _verb(name: str, handler: Callable[..., Response], step: Step, *errors: type[Any]) -> Route:
    return Route(
        "POST",
        f"/v1/rollouts/{{rollout_id}}/{name}",
        handler,
        requires_step(step, scope_of),
        RolloutShown,
        guard=step.version,
        urgent=step.urgent,
        requests=RequestShown if step in MAY_WAIT else None,
        errors=(*errors, BreakGlassForbidden) if step in MAY_WAIT else errors,
    )


ROUTES = (
    Route(
        "POST",
        "/v1/rollouts",
        open_one,
        requires_step(PROMOTE, lambda request: channel_scope(request.body.channel)),
        PromotedShown,
        guard=PROMOTE.version,
        requests=RequestShown,
        errors=(*PROMOTES, BreakGlassForbidden),
    ),
    Route(
        "POST",
        "/v1/rollouts/plan",
        dry_plan,
        requires(Verb.READ, lambda request: channel_scope(request.body.channel)),
        PlanAhead,
        errors=(NotFound, WrongPackage, MalformedPolicy),
    ),
    _verb("pause", pause, PAUSE_ROLLOUT, *_ERRORS),
    _verb("resume", resume, RESUME_ROLLOUT, *_ERRORS),
    _verb("clearance", clear, CLEAR_ROLLOUT, *_CLEARS),
    _verb("abort", abort, ABORT_ROLLOUT, *_ERRORS),
    _verb("retry", retry, RETRY_ROLLOUT, *_CLEARS),
    _verb("override", override, OVERRIDE_GATE, *_ERRORS),
    _verb("skip", skip, SKIP_HOST, *_ERRORS, HostNotInRollout, HostUnderWay),
    _verb("continue", continue_wave, CONTINUE_ROLLOUT, *_ERRORS, NothingToContinue),
    _verb("skip-wave", skip_wave, SKIP_WAVE, *_ERRORS, WaveNotFound, WavePassed),
    _verb("promote-all", promote_all, PROMOTE_ALL, *_ERRORS),
)
