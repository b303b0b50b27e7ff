"""Releases, and the pin of each scope: actual, events, evidence.

A release is a published revision. A scope is a channel. Its pin changes only by a transition with
accepted evidence. The names of members are those of docs/design/releases.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from tidegate.control.operations import releases as operation_releases
from tidegate.control.queries import history, log_reader, pin_history
from tidegate.control.queries.as_of import HistoryTooLong, RowHistory
from tidegate.control.queries.people import PeopleNames
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.access import roles, scopes, steps
from tidegate.domain.channels.refusals import ChannelNotFound, PinOfChannel
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.provenance import RejectedEvidence
from tidegate.domain.releases import facts, refusals, rows as release_rows
from tidegate.domain.requests import rows as request_rows, states
from tidegate.errors import ConditionFailed, NotFound
from tidegate.kernel.model import Position
from tidegate.web import as_of, inputs, paging, routing, shapes

REQUESTS_MAX = 1_000  # requests that were carried out, over all channels

ScopeName = Annotated[
    str, Meta(min_length=1, max_length=63, pattern="^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")
]
ReleaseId = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[a-z0-9][a-z0-9._-]*$")]
Digest = Annotated[str, Meta(min_length=1, max_length=128)]
Operations = Annotated[tuple[str, ...], Meta(max_length=8)]
Batch = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class ScopePath(inputs.Input, frozen=True):
    scope: ScopeName


class ReleasePath(inputs.Input, frozen=True):
    release_id: ReleaseId


class Pin(inputs.Input, frozen=True, kw_only=True, rename="camel"):
    """A release for a scope, and its evidence."""

    release_id: ReleaseId
    digest: Digest
    provenance: dict[str, Any]
    confidence: dict[str, Any]
    status: facts.PinStatus = facts.PinStatus.ACTIVE
    operations: Operations = ()  # effects to deliver through the outbox

    @property
    def requested(self) -> operation_releases.RequestedPin:
        return operation_releases.RequestedPin(
            release_id=self.release_id,
            digest=self.digest,
            authority={"provenance": self.provenance, "confidence": self.confidence},
            status=self.status,
            operations=self.operations,
        )


class Retirement(inputs.Input, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(min_length=1, max_length=256)]


class EvidenceSent(inputs.Input, frozen=True, kw_only=True):
    source: Annotated[str, Meta(min_length=1, max_length=128, pattern="^[a-z0-9][a-z0-9._-]*$")]
    batch: Batch
    document: dict[str, Any]


class ManifestSent(inputs.Input, frozen=True, kw_only=True, rename="camel"):
    """A factory's manifest: the digests of what it built."""

    batch: Batch
    ref: Annotated[str, Meta(min_length=1, max_length=1_024)]
    observed_at: Annotated[str, Meta(max_length=64)]
    digests: Annotated[tuple[Digest, ...], Meta(min_length=1, max_length=16)]
    import_run_id: Annotated[str, Meta(max_length=128)] | None = None
    status: facts.PinStatus = facts.PinStatus.ACTIVE
    operations: Operations = ()


class NamedReleaseEvent(release_rows.ReleaseEvent, frozen=True, rename="camel", kw_only=True):
    by_name: str | None  # their current name; null: erased, or not a person
    what: pin_history.PinMove  # the kind of change, in plain words
    approved_by: tuple[str, ...] = ()  # who approved the request for it
    approved_by_names: tuple[str | None, ...] = ()  # their current names
    break_glass: str | None = None  # the request that records that one person did it alone
    reviewed_by: str | None = None  # who reviewed the break-glass; null: not reviewed yet
    reviewed_by_name: str | None = None


class Happened(Struct, frozen=True):
    """One event of a scope, in the order of the log."""

    position: int
    at: datetime
    type: str
    row: str
    value: dict[str, Any]


def _scope(request: routing.Request[ScopePath, Any, Any]) -> str:
    return scopes.channel_scope(request.path.scope)


# ── releases that may be pinned ───────────────────────────────────────────────────────────────────


def list_known(
    request: routing.Request[inputs.Nothing, inputs.Paging, inputs.Nothing],
    reads: Reads,
    cursors: paging.Cursors,
) -> routing.Response:
    """List all releases: published revisions under their release ids."""
    after = cursors.after(request)
    found = reads.range(release_rows.KNOWN, after=after, limit=request.query.limit)
    last = found[-1].id if len(found) == request.query.limit else None
    return routing.Response(cursors.list_page(request, [item.row for item in found], last))


def get_known(
    request: routing.Request[ReleasePath, inputs.ReadQuery, inputs.Nothing], reads: Reads
) -> routing.Response:
    """Get one release."""
    found = reads.find(release_rows.known_key(request.path.release_id), release_rows.KnownRelease)
    if found is None:
        raise NotFound(f"there is no release {request.path.release_id}")
    return routing.Response(found.row, version=found.version)


# ── pins and history ──────────────────────────────────────────────────────────────────────────────


def list_actual(
    request: routing.Request[inputs.Nothing, inputs.Paging, inputs.Nothing],
    reads: Reads,
    cursors: paging.Cursors,
) -> routing.Response:
    """List the pins of all scopes that you may read."""
    after = cursors.after(request)
    found = reads.range(release_rows.ACTUAL, after=after, limit=request.query.limit)
    last = found[-1].id if len(found) == request.query.limit else None
    seen = [
        item.row
        for item in found
        if request.principal.may(roles.Verb.READ, scopes.channel_scope(item.row.scope))
    ]
    return routing.Response(cursors.list_page(request, seen, last))


def actual(
    request: routing.Request[ScopePath, as_of.AsOfQuery, inputs.Nothing],
    reads: Reads,
    log: log_reader.LogReader,
    row_history: RowHistory,
) -> routing.Response:
    """Get the pin of a scope and its evidence; as_of shows an earlier one."""
    scope = request.path.scope
    if not request.query.as_of:
        found = _found(reads, scope)
        return routing.Response(found.row, version=found.version)
    position = as_of.position_of(log, request.query.as_of)
    return _actual_at(row_history, scope, position)


def events(
    request: routing.Request[ScopePath, inputs.Paging, inputs.Nothing],
    reads: Reads,
    cursors: paging.Cursors,
    people: PeopleNames,
) -> routing.Response:
    """List every change of a scope's pin, oldest first."""
    found, last = _page(request, reads, cursors, release_rows.EVENTS, "EVENT#")
    moves = pin_history.pin_moves(reads, request.path.scope, [item.row for item in found])
    approvals = _approvals(reads, request.path.scope)
    alone = _emergencies(reads, request.path.scope)
    shown = [
        NamedReleaseEvent(
            **structs.asdict(item.row),
            by_name=people.find_name(item.row.by),
            what=what,
            approved_by=(approved := approvals.get(item.row.recorded_at, ())),
            approved_by_names=tuple(map(people.find_name, approved)),
            break_glass=(used := alone.get(item.row.recorded_at, _NOT_USED)).request_id,
            reviewed_by=used.reviewed_by,
            reviewed_by_name=people.find_name(used.reviewed_by),
        )
        for item, what in zip(found, moves, strict=True)
    ]
    return routing.Response(cursors.list_page(request, shown, last))


def _approvals(reads: Reads, scope: str) -> dict[datetime, tuple[str, ...]]:
    """Who approved the requests that were carried out on the channel, by time. A request and what
    it asks for are one commit, so they have the same time. Only the newest requests are read.
    """
    executed = reads.newest(
        request_rows.REQUESTS, "by_state", of=(states.RequestState.EXECUTED,), limit=REQUESTS_MAX
    )
    rows: list[request_rows.ChannelRequest] = [found.row for found in executed]
    return {
        row.ended_at: row.approvals
        for row in rows
        if scope in row.channels and row.ended_at is not None
    }


class _UsedBreakGlass(Struct, frozen=True):
    """One use of break-glass, and who reviewed it."""

    request_id: str | None = None
    reviewed_by: str | None = None


_NOT_USED = _UsedBreakGlass()


def _emergencies(reads: Reads, scope: str) -> dict[datetime, _UsedBreakGlass]:
    """When a person bypassed the approval on the channel, by time, as in ``_approvals``."""
    rows: list[request_rows.ChannelRequest] = [
        found.row
        for state in (states.RequestState.TO_REVIEW, states.RequestState.REVIEWED)
        for found in reads.newest(
            request_rows.REQUESTS, "by_state", of=(state,), limit=REQUESTS_MAX
        )
    ]
    return {
        row.made_at: _UsedBreakGlass(row.request_id, row.ended_by or None)
        for row in rows
        if scope in row.channels
    }


def evidence(
    request: routing.Request[ScopePath, inputs.Paging, inputs.Nothing],
    reads: Reads,
    cursors: paging.Cursors,
) -> routing.Response:
    """List what was observed about a scope and has no authority."""
    found, last = _page(request, reads, cursors, release_rows.EVIDENCE, "EVIDENCE#")
    return routing.Response(cursors.list_page(request, [item.row for item in found], last))


def happened(
    request: routing.Request[ScopePath, inputs.Paging, inputs.Nothing],
    reads: Reads,
    scope_history: history.ScopeHistory,
    cursors: paging.Cursors,
) -> routing.Response:
    """List changes, evidence, intents and their results, in the order of the log."""
    after = int(cursors.after(request) or "0")
    limit = request.query.limit
    found = scope_history.list(request.path.scope, after=after, limit=limit)
    if not found and not after:
        demand_scope(reads, request.path.scope)
    last = str(found[-1].position) if len(found) == limit else None
    return routing.Response(cursors.list_page(request, found, last))


def demand_channel(reads: Reads, scope: str) -> None:
    """Check a scope without rows. A deleted channel keeps its rows. Raises: ChannelNotFound."""
    reads.demand(channel_key(scope), Channel, ChannelNotFound(scope))


def demand_scope(reads: Reads, scope: str) -> None:
    """Check a scope without rows: it is registered, or a channel. Raises: ChannelNotFound."""
    if reads.find(release_rows.actual_key(scope), release_rows.Actual) is None:
        demand_channel(reads, scope)


def _page(
    request: routing.Request[ScopePath, inputs.Paging, inputs.Nothing],
    reads: Reads,
    cursors: paging.Cursors,
    collection: Any,
    kind: str,
) -> tuple[Sequence[Found[Any]], str | None]:
    scope, after = request.path.scope, cursors.after(request)
    found = reads.range(
        collection,
        prefix=release_rows.row_id(scope, kind),
        after=after,
        limit=request.query.limit,
    )
    if not found and not after:
        demand_scope(reads, scope)
    return found, found[-1].id if len(found) == request.query.limit else None


# ── changes ───────────────────────────────────────────────────────────────────────────────────────


def register(
    request: routing.Request[ScopePath, inputs.Nothing, Pin],
    releases: operation_releases.ReleaseOperations,
) -> routing.Response:
    """Open a scope with its first pin."""
    pin = request.body.requested
    return _pinned(releases.register(request.caller, request.path.scope, pin))


def transition(
    request: routing.Request[ScopePath, inputs.Nothing, Pin],
    releases: operation_releases.ReleaseOperations,
) -> routing.Response:
    """Pin a scope to a release, or confirm its pin."""
    pin = request.body.requested
    return _pinned(releases.transition(request.caller, request.path.scope, pin))


def retire(
    request: routing.Request[ScopePath, inputs.Nothing, Retirement],
    releases: operation_releases.ReleaseOperations,
) -> routing.Response:
    """Close a scope. Its history is kept."""
    scope, reason = request.path.scope, request.body.reason
    return _pinned(releases.retire(request.caller, scope, reason))


def keep(
    request: routing.Request[ScopePath, inputs.Nothing, EvidenceSent],
    releases: operation_releases.ReleaseOperations,
) -> routing.Response:
    """Store an observation as evidence that has no authority."""
    body = request.body
    position = releases.keep_evidence(
        request.caller, request.path.scope, body.source, body.batch, body.document
    )
    return routing.Response(shapes.Written(position), position=position)


def import_manifest(
    request: routing.Request[ScopePath, inputs.Nothing, ManifestSent],
    releases: operation_releases.ReleaseOperations,
) -> routing.Response:
    """Import a factory manifest. It moves the pin if it matches one release; else it is stored."""
    body = request.body
    manifest = operation_releases.FactoryManifest(
        batch=body.batch,
        ref=body.ref,
        observed_at=body.observed_at,
        digests=body.digests,
        import_run_id=body.import_run_id,
        status=body.status,
        operations=body.operations,
    )
    position = releases.import_manifest(request.caller, request.path.scope, manifest)
    return routing.Response(shapes.Written(position), position=position)


def _pinned(outcome: operation_releases.PinOutcome) -> routing.Response:
    found = outcome.found
    return routing.Response(found.row, version=found.version, position=outcome.position)


def _found(reads: Reads, scope: str) -> Found[release_rows.Actual]:
    missing = NotFound(f"{scope} is not registered", scope=scope)
    return reads.demand(release_rows.actual_key(scope), release_rows.Actual, missing)


def _actual_at(row_history: RowHistory, scope: str, position: Position) -> routing.Response:
    found = history.pinned_at(row_history, scope, position)
    if found is None:
        raise NotFound(f"{scope} was not registered at {position}", scope=scope)
    return routing.Response(found.row, version=found.version, position=position)


_READ = routing.requires(roles.Verb.READ, _scope)
_PINS = (
    NotFound,
    PinOfChannel,
    RejectedEvidence,
    refusals.ReleaseNotPinnable,
    refusals.DuplicateEvent,
    ConditionFailed,
)


def _verb(
    name: str,
    handler: Callable[..., routing.Response],
    step: steps.Step,
    answer: type[Any],
    status: int = 200,
) -> routing.Route:
    return routing.Route(
        "POST",
        f"/v1/releases/{{scope}}/{name}",
        handler,
        routing.requires_step(step, _scope),
        answer,
        status=status,
        guard=step.version,
        errors=_PINS,
    )


ROUTES = (
    routing.Route(
        "GET",
        "/v1/releases",
        list_known,
        routing.requires(roles.Verb.READ),
        shapes.Listed[release_rows.KnownRelease],
    ),
    routing.Route(
        "GET",
        "/v1/releases/{release_id}",
        get_known,
        routing.requires(roles.Verb.READ),
        release_rows.KnownRelease,
        cached=True,
        errors=(NotFound,),
    ),
    routing.Route(
        "GET",
        "/v1/actual",
        list_actual,
        routing.requires_somewhere(roles.Verb.READ),
        shapes.Listed[release_rows.Actual],
    ),
    routing.Route(
        "GET",
        "/v1/releases/{scope}/actual",
        actual,
        _READ,
        release_rows.Actual,
        cached=True,
        errors=(NotFound, HistoryTooLong),
    ),
    routing.Route(
        "GET",
        "/v1/releases/{scope}/events",
        events,
        _READ,
        shapes.Listed[NamedReleaseEvent],
        errors=(ChannelNotFound,),
    ),
    routing.Route(
        "GET",
        "/v1/releases/{scope}/evidence",
        evidence,
        _READ,
        shapes.Listed[release_rows.KeptEvidence],
        errors=(ChannelNotFound,),
    ),
    routing.Route(
        "GET",
        "/v1/releases/{scope}/history",
        happened,
        _READ,
        shapes.Listed[Happened],
        errors=(ChannelNotFound,),
    ),
    _verb("register", register, steps.REGISTER_RELEASE, release_rows.Actual, status=201),
    _verb("transition", transition, steps.TRANSITION_RELEASE, release_rows.Actual),
    _verb("retire", retire, steps.RETIRE_RELEASE, release_rows.Actual),
    _verb("evidence", keep, steps.KEEP_EVIDENCE, shapes.Written, status=201),
    _verb("manifests", import_manifest, steps.IMPORT_MANIFEST, shapes.Written, status=201),
)
