"""Releases, and what each scope is pinned to: actual, events, evidence.

A release is a published revision. A scope is a channel; its pin changes only by a transition that
carries accepted evidence. Members are spelt as docs/design/releases.md
spells them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import asdict

from tidegate.control.operations.releases import (
    FactoryManifest,
    PinOutcome,
    ReleaseOperations,
    RequestedPin,
)
from tidegate.control.queries.as_of import HistoryTooLong, RowHistory
from tidegate.control.queries.history import ScopeHistory, pinned_at
from tidegate.control.queries.log_reader import LogReader
from tidegate.control.queries.people import PeopleNames
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.access.steps import (
    IMPORT_MANIFEST,
    KEEP_EVIDENCE,
    REGISTER_RELEASE,
    RETIRE_RELEASE,
    TRANSITION_RELEASE,
    Step,
)
from tidegate.domain.channels.refusals import PinOfChannel
from tidegate.domain.provenance import RejectedEvidence
from tidegate.domain.releases.facts import PinStatus
from tidegate.domain.releases.refusals import DuplicateEvent, ReleaseNotPinnable
from tidegate.domain.releases.rows import (
    ACTUAL,
    EVENTS,
    EVIDENCE,
    KNOWN,
    Actual,
    EventType,
    KeptEvidence,
    KnownRelease,
    ReleaseEvent,
    actual_key,
    known_key,
    row_id,
)
from tidegate.domain.requests.rows import REQUESTS, ChannelRequest
from tidegate.domain.requests.states import RequestState
from tidegate.domain.rollouts.names import later_prefix
from tidegate.domain.rollouts.rows import TALLIES
from tidegate.errors import ConditionFailed, NotFound
from tidegate.kernel.model import Position
from tidegate.web.as_of import AsOfQuery, position_of
from tidegate.web.inputs import Input, Nothing, Paging, ReadQuery
from tidegate.web.paging import Cursors
from tidegate.web.routing import (
    Request,
    Response,
    Route,
    requires,
    requires_somewhere,
    requires_step,
)
from tidegate.web.shapes import Listed, Written

REQUESTS_MAX = 1_000  # carried out, of all channels
ROLLBACKS_MAX = 100  # to one release of a channel, told apart from promotions

ScopeName = Annotated[
    str, Meta(min_length=1, max_length=63, pattern="^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")
]
ReleaseId = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[a-z0-9][a-z0-9._-]*$")]
Digest = Annotated[str, Meta(min_length=1, max_length=128)]
Operations = Annotated[tuple[str, ...], Meta(max_length=8)]
Batch = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class ScopePath(Input, frozen=True):
    scope: ScopeName


class ReleasePath(Input, frozen=True):
    release_id: ReleaseId


class Pin(Input, frozen=True, kw_only=True, rename="camel"):
    """A release for a scope, and on what evidence."""

    release_id: ReleaseId
    digest: Digest
    provenance: dict[str, Any]
    confidence: dict[str, Any]
    status: PinStatus = PinStatus.ACTIVE
    operations: Operations = ()  # effects that are owed to the world

    @property
    def requested(self) -> RequestedPin:
        return RequestedPin(
            release_id=self.release_id,
            digest=self.digest,
            authority={"provenance": self.provenance, "confidence": self.confidence},
            status=self.status,
            operations=self.operations,
        )


class Retirement(Input, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(min_length=1, max_length=256)]


class EvidenceSent(Input, frozen=True, kw_only=True):
    source: Annotated[str, Meta(min_length=1, max_length=128, pattern="^[a-z0-9][a-z0-9._-]*$")]
    batch: Batch
    document: dict[str, Any]


class ManifestSent(Input, frozen=True, kw_only=True, rename="camel"):
    """A factory's batch manifest: the digests of what it built."""

    batch: Batch
    ref: Annotated[str, Meta(min_length=1, max_length=1_024)]
    observed_at: Annotated[str, Meta(max_length=64)]
    digests: Annotated[tuple[Digest, ...], Meta(min_length=1, max_length=16)]
    import_run_id: Annotated[str, Meta(max_length=128)] | None = None
    status: PinStatus = PinStatus.ACTIVE
    operations: Operations = ()


class NamedReleaseEvent(ReleaseEvent, frozen=True, rename="camel", kw_only=True):
    by_name: str | None  # how they are called now; None: erased, or no person
    rolled_back: bool  # the channel went back to the release
    approved_by: tuple[str, ...] = ()  # who approved the request that led to it
    approved_by_names: tuple[str | None, ...] = ()  # how they are called now


class Happened(Struct, frozen=True):
    """One thing that happened in a scope, in the order of the log."""

    position: int
    at: datetime
    type: str
    row: str
    value: dict[str, Any]


def _scope(request: Request[ScopePath, Any, Any]) -> str:
    return channel_scope(request.path.scope)


# ── releases that may be pinned ───────────────────────────────────────────────────────────────────


def list_known(
    request: Request[Nothing, Paging, Nothing], reads: Reads, cursors: Cursors
) -> Response:
    """All releases: published revisions under their release ids."""
    after = cursors.after(request)
    found = reads.range(KNOWN, after=after, limit=request.query.limit)
    last = found[-1].id if len(found) == request.query.limit else None
    return Response(cursors.list_page(request, [item.row for item in found], last))


def get_known(request: Request[ReleasePath, ReadQuery, Nothing], reads: Reads) -> Response:
    """One release."""
    found = reads.find(known_key(request.path.release_id), KnownRelease)
    if found is None:
        raise NotFound(f"there is no release {request.path.release_id}")
    return Response(found.row, version=found.version)


# ── what is current, what happened ────────────────────────────────────────────────────────────────


def list_actual(
    request: Request[Nothing, Paging, Nothing], reads: Reads, cursors: Cursors
) -> Response:
    """What every scope that you may read is pinned to."""
    after = cursors.after(request)
    found = reads.range(ACTUAL, after=after, limit=request.query.limit)
    last = found[-1].id if len(found) == request.query.limit else None
    seen = [
        item.row
        for item in found
        if request.principal.may(Verb.READ, channel_scope(item.row.scope))
    ]
    return Response(cursors.list_page(request, seen, last))


def actual(
    request: Request[ScopePath, AsOfQuery, Nothing],
    reads: Reads,
    log: LogReader,
    row_history: RowHistory,
) -> Response:
    """What is authoritative in a scope, by which evidence; as_of shows what was."""
    scope = request.path.scope
    if not request.query.as_of:
        found = _found(reads, scope)
        return Response(found.row, version=found.version)
    position = position_of(log, request.query.as_of)
    return _actual_at(row_history, scope, position)


def events(
    request: Request[ScopePath, Paging, Nothing],
    reads: Reads,
    cursors: Cursors,
    people: PeopleNames,
) -> Response:
    """Every change of a scope's pin, in order of time."""
    found, last = _page(request, reads, cursors, EVENTS, "EVENT#")
    rollbacks = _rollbacks(reads, request.path.scope, [item.row for item in found])
    approvals = _approvals(reads, request.path.scope)
    shown = [
        NamedReleaseEvent(
            **asdict(item.row),
            by_name=people.find_name(item.row.by),
            rolled_back=(item.row.recorded_at, item.row.release_id) in rollbacks,
            approved_by=(approved := approvals.get(item.row.recorded_at, ())),
            approved_by_names=tuple(map(people.find_name, approved)),
        )
        for item in found
    ]
    return Response(cursors.list_page(request, shown, last))


def _approvals(reads: Reads, scope: str) -> dict[datetime, tuple[str, ...]]:
    """When a request on the channel was carried out, and who approved it. A request and what it
    asks for are one commit, so they have one time. Only the newest requests are looked at.
    """
    executed = reads.newest(REQUESTS, "by_state", of=(RequestState.EXECUTED,), limit=REQUESTS_MAX)
    rows: list[ChannelRequest] = [found.row for found in executed]
    return {
        row.ended_at: row.approvals
        for row in rows
        if scope in row.channels and row.ended_at is not None
    }


def _rollbacks(
    reads: Reads, scope: str, events: Sequence[ReleaseEvent]
) -> set[tuple[datetime, str]]:
    """When the channel went back to one of these releases. Such a rollout is not the first of its
    release there, so its id has a number: prod@web.1~2.
    """
    moved = {item.release_id for item in events if item.event_type is EventType.PROMOTED}
    tallies = [
        found.row
        for release_id in sorted(moved)
        for found in reads.range(
            TALLIES, prefix=later_prefix(scope, release_id), limit=ROLLBACKS_MAX
        )
    ]
    return {
        (tally.opened_at, tally.target_ref) for tally in tallies if tally.rollback_of is not None
    }


def evidence(
    request: Request[ScopePath, Paging, Nothing], reads: Reads, cursors: Cursors
) -> Response:
    """What was observed about a scope and is no authority."""
    found, last = _page(request, reads, cursors, EVIDENCE, "EVIDENCE#")
    return Response(cursors.list_page(request, [item.row for item in found], last))


def happened(
    request: Request[ScopePath, Paging, Nothing], scope_history: ScopeHistory, cursors: Cursors
) -> Response:
    """Changes, evidence, intents and what became of them, in the order of the log."""
    after = int(cursors.after(request) or "0")
    limit = request.query.limit
    found = scope_history.list(request.path.scope, after=after, limit=limit)
    last = str(found[-1].position) if len(found) == limit else None
    return Response(cursors.list_page(request, found, last))


def _page(
    request: Request[ScopePath, Paging, Nothing],
    reads: Reads,
    cursors: Cursors,
    collection: Any,
    kind: str,
) -> tuple[Sequence[Found[Any]], str | None]:
    found = reads.range(
        collection,
        prefix=row_id(request.path.scope, kind),
        after=cursors.after(request),
        limit=request.query.limit,
    )
    return found, found[-1].id if len(found) == request.query.limit else None


# ── changes ───────────────────────────────────────────────────────────────────────────────────────


def register(request: Request[ScopePath, Nothing, Pin], releases: ReleaseOperations) -> Response:
    """Open a scope with its first pin."""
    pin = request.body.requested
    return _pinned(releases.register(request.caller, request.path.scope, pin))


def transition(request: Request[ScopePath, Nothing, Pin], releases: ReleaseOperations) -> Response:
    """Pin a scope to a release, or confirm its pin."""
    pin = request.body.requested
    return _pinned(releases.transition(request.caller, request.path.scope, pin))


def retire(
    request: Request[ScopePath, Nothing, Retirement], releases: ReleaseOperations
) -> Response:
    """Close a scope; nothing of it is deleted."""
    scope, reason = request.path.scope, request.body.reason
    return _pinned(releases.retire(request.caller, scope, reason))


def keep(
    request: Request[ScopePath, Nothing, EvidenceSent], releases: ReleaseOperations
) -> Response:
    """Keep what was observed, whatever it says; it will never authorise anything."""
    body = request.body
    position = releases.keep_evidence(
        request.caller, request.path.scope, body.source, body.batch, body.document
    )
    return Response(Written(position), position=position)


def import_manifest(
    request: Request[ScopePath, Nothing, ManifestSent], releases: ReleaseOperations
) -> Response:
    """A factory manifest: it moves the pin if it matches one release, else it is kept."""
    body = request.body
    manifest = FactoryManifest(
        batch=body.batch,
        ref=body.ref,
        observed_at=body.observed_at,
        digests=body.digests,
        import_run_id=body.import_run_id,
        status=body.status,
        operations=body.operations,
    )
    position = releases.import_manifest(request.caller, request.path.scope, manifest)
    return Response(Written(position), position=position)


def _pinned(outcome: PinOutcome) -> Response:
    found = outcome.found
    return Response(found.row, version=found.version, position=outcome.position)


def _found(reads: Reads, scope: str) -> Found[Actual]:
    missing = NotFound(f"{scope} is not registered", scope=scope)
    return reads.demand(actual_key(scope), Actual, missing)


def _actual_at(row_history: RowHistory, scope: str, position: Position) -> Response:
    found = pinned_at(row_history, scope, position)
    if found is None:
        raise NotFound(f"{scope} was not registered at {position}", scope=scope)
    return Response(found.row, version=found.version, position=position)


_READ = requires(Verb.READ, _scope)
_PINS = (
    NotFound,
    PinOfChannel,
    RejectedEvidence,
    ReleaseNotPinnable,
    DuplicateEvent,
    ConditionFailed,
)


def _verb(
    name: str, handler: Callable[..., Response], step: Step, answer: type[Any], status: int = 200
) -> Route:
    return Route(
        "POST",
        f"/v1/releases/{{scope}}/{name}",
        handler,
        requires_step(step, _scope),
        answer,
        status=status,
        guard=step.version,
        errors=_PINS,
    )


ROUTES = (
    Route("GET", "/v1/releases", list_known, requires(Verb.READ), Listed[KnownRelease]),
    Route(
        "GET",
        "/v1/releases/{release_id}",
        get_known,
        requires(Verb.READ),
        KnownRelease,
        cached=True,
        errors=(NotFound,),
    ),
    Route("GET", "/v1/actual", list_actual, requires_somewhere(Verb.READ), Listed[Actual]),
    Route(
        "GET",
        "/v1/releases/{scope}/actual",
        actual,
        _READ,
        Actual,
        cached=True,
        errors=(NotFound, HistoryTooLong),
    ),
    Route("GET", "/v1/releases/{scope}/events", events, _READ, Listed[NamedReleaseEvent]),
    Route("GET", "/v1/releases/{scope}/evidence", evidence, _READ, Listed[KeptEvidence]),
    Route("GET", "/v1/releases/{scope}/history", happened, _READ, Listed[Happened]),
    _verb("register", register, REGISTER_RELEASE, Actual, status=201),
    _verb("transition", transition, TRANSITION_RELEASE, Actual),
    _verb("retire", retire, RETIRE_RELEASE, Actual),
    _verb("evidence", keep, KEEP_EVIDENCE, Written, status=201),
    _verb("manifests", import_manifest, IMPORT_MANIFEST, Written, status=201),
)
