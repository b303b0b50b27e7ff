"""Routes for agents: enrollment, sessions, orders, reports, heartbeats, content.

An agent gets the release that its host should run, fetches it by digest, and reports every step.
Reports and polls are the frequent routes: they run on the event loop, without a thread, and a poll
that finds nothing writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Annotated, Any, Final, TypeVar

import msgspec

from tidegate.api.agents.auth import check_protocol, host_of, time_of
from tidegate.api.agents.commit_waiters import CommitWaiters
from tidegate.api.agents.fast_path import handlers
from tidegate.api.agents.order_waiters import OrderWaiters
from tidegate.api.feed.tail import Tail
from tidegate.api.metrics import Metrics
from tidegate.control.fleet import (
    agent_reports as fleet_agent_reports,
    agent_sessions,
    enrollment as fleet_enrollment,
    order_queue,
    used_proofs,
)
from tidegate.control.publication.manifests import Manifests, ManifestUnpublished, SignedManifest
from tidegate.control.queries.reads import Reads
from tidegate.control.storage.blobs import BlobDamaged, BlobMissing, Blobs
from tidegate.control.storage.content_store import open_content, read_manifest
from tidegate.domain.content.digests import DIGEST_PREFIX
from tidegate.domain.fleet import refusals as fleet_refusals, rows as fleet_rows
from tidegate.domain.fleet.claims import claims
from tidegate.domain.hosts import protocol, refusals as host_refusals, rows as host_rows
from tidegate.domain.packages import refusals as package_refusals, rows as package_rows
from tidegate.domain.releases import from_packages, rows as release_rows
from tidegate.errors import InvalidInput, NotFound, TidegateError, VersionConflict
from tidegate.web import downloads, inputs, problems, routing, shapes

CHANNELS_MAX = 64  # channels in a heartbeat
ROLLOUTS_MAX = 64
BYTES: Final = "application/octet-stream"

Hex64 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Nonce = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
Proof = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{128}$")]
HostId = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Time = Annotated[int, msgspec.Meta(ge=0, le=10**11)]
RolloutId = Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
Closure = Annotated[str, msgspec.Meta(max_length=256)]
ChannelName = Annotated[str, msgspec.Meta(min_length=1, max_length=63)]

T = TypeVar("T")


class Enroll(inputs.Input, frozen=True, kw_only=True):
    token: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    public_key: Hex64
    proof: Proof
    host_id: HostId | None = None  # with a join token: the name that the host takes


class OpenSession(inputs.Input, frozen=True, kw_only=True):
    host_id: HostId
    time: Time
    nonce: Nonce
    proof: Proof


class DispatchQuery(inputs.Input, frozen=True, kw_only=True):
    wait: Annotated[int, msgspec.Meta(ge=0, le=protocol.WAIT_SECONDS_MAX)] = 0


class Reports(inputs.Input, frozen=True, kw_only=True):
    """One ``report``, whose result is the status; or several, each with its own result."""

    report: dict[str, Any] | None = None
    reports: (
        Annotated[tuple[dict[str, Any], ...], msgspec.Meta(max_length=protocol.REPORTS_MAX)] | None
    ) = None


class HostFactsGiven(protocol.HostFacts, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the host reports of its machine: sent once, and again when it changes."""


class Pulse(inputs.Input, frozen=True, kw_only=True):
    agent_version: Annotated[str, msgspec.Meta(max_length=64)] = ""
    current_closures: Annotated[
        dict[ChannelName, Closure], msgspec.Meta(max_length=CHANNELS_MAX)
    ] = msgspec.field(default_factory=dict)  # channel → what runs
    rollouts: Annotated[tuple[RolloutId, ...], msgspec.Meta(max_length=ROLLOUTS_MAX)] = ()
    facts: HostFactsGiven | None = None  # null: unchanged since the host last sent them


class ManifestPath(inputs.Input, frozen=True):
    channel: ChannelName


class AgentReleasePath(inputs.Input, frozen=True):
    release_id: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]


class BlobPath(inputs.Input, frozen=True):
    release_id: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    sha256: Hex64


# ── enrollment and sessions ───────────────────────────────────────────────────────────────────────


def enroll(
    request: routing.Request[inputs.Nothing, inputs.Nothing, Enroll],
    enrollment: fleet_enrollment.Enrollment,
) -> routing.Response:
    """Register a host's key with a one-time token or a join token."""
    check_protocol(request.arrived.headers)
    body = request.body
    if body.token.startswith(f"{fleet_enrollment.JOIN_PREFIX}_"):
        if body.host_id is None:
            raise InvalidInput("with a join token, send the name of the host", field="host_id")
        joined, outcome = enrollment.join(body.token, body.host_id, body.public_key, body.proof)
        return routing.Response(joined, position=outcome.position)
    enrolled, outcome = enrollment.trade(body.token, body.public_key, body.proof)
    return routing.Response(enrolled, position=outcome.position)


def open_session(
    request: routing.Request[inputs.Nothing, inputs.Nothing, OpenSession],
    enrollment: fleet_enrollment.Enrollment,
) -> routing.Response:
    """Prove a host's key, and get the MAC key of a session."""
    check_protocol(request.arrived.headers)
    body = request.body
    return routing.Response(
        enrollment.open_session(body.host_id, body.time, body.nonce, body.proof)
    )


# ── orders ────────────────────────────────────────────────────────────────────────────────────────


async def dispatch(
    request: routing.Request[inputs.Nothing, DispatchQuery, inputs.Nothing],
    reads: Reads,
    deliveries: order_queue.OrderQueue,
    tail: Tail,
    commit_waiters: CommitWaiters,
    order_waiters: OrderWaiters,
) -> routing.Response:
    """Get the host's order; without one: 204, at once or after the wait."""
    host_id = host_of(request)
    if not request.query.wait:
        if handlers.is_idle(order_waiters, host_id, reads):
            return handlers.NO_ORDER
        handed = await _lease_order(reads, deliveries, commit_waiters, host_id)
        return routing.Response(None if handed is None else handlers.order_of(handed))
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.query.wait
    while True:
        # Before the read, so that an order that arrives meanwhile order_waiters the poll.
        woken = order_waiters.expect(host_id)
        try:
            look = await _read(reads, partial(deliveries.next_look, host_id))
            if look == 0:
                order_waiters.expect_release(woken)  # before the read, for the same reason
                order = await _lease_order(reads, deliveries, commit_waiters, host_id)
                if order is not None:
                    return routing.Response(handlers.order_of(order))
                look = None
            left = deadline - loop.time()
            if left <= 0 or tail.stopped or order_waiters.is_full:
                return routing.Response(None)
            await asyncio.wait((woken,), timeout=left if look is None else min(left, look))
        finally:
            order_waiters.forget(host_id, woken)


async def _lease_order(
    reads: Reads, deliveries: order_queue.OrderQueue, commit_waiters: CommitWaiters, host_id: str
) -> host_rows.QueuedDispatch | None:
    """Lease the order of the host. If it is found at once, no thread waits for the commit."""
    offer = deliveries.hand_out(host_id) if reads.is_local else None
    if offer is None:
        return await _in_thread(partial(deliveries.poll, host_id))
    order, leased = offer
    if leased is None:
        return None
    try:
        await commit_waiters.of(leased)
    except VersionConflict:  # another request leased it first
        return None
    return order


# ── reports ───────────────────────────────────────────────────────────────────────────────────────


async def report(
    request: routing.Request[inputs.Nothing, inputs.Nothing, Reports],
    agent_reports: fleet_agent_reports.AgentReports,
    metrics: Metrics,
    commit_waiters: CommitWaiters,
) -> routing.Response:
    """Report what happened on the host; it is durable when this responds. Repeats are accepted."""
    one, several = request.body.report, request.body.reports
    if (one is None) == (several is None):
        fault = shapes.FieldError("body", "has report or reports, one of the two")
        raise problems.InvalidRequest((fault,))
    contents = several if one is None else (one,)
    assert contents is not None
    reports = agent_reports.take_all(host_of(request), contents, request.meta)
    answers = await _answers(reports, commit_waiters)
    for answer in answers:
        if answer.status != 200:
            metrics.refusals.count(answer.code or "unknown")
    if one is None or answers[0].status == 200:
        return routing.Response(protocol.ReportsAnswer(tuple(answers)))
    return handlers.refusal(answers[0], request.id)


async def _answers(
    reports: Sequence[fleet_agent_reports.Report], landings: CommitWaiters
) -> list[protocol.ReportResult]:
    answers: list[protocol.ReportResult] = []
    for item in reports:
        error: BaseException | None = None
        if isinstance(item.taken, Future):
            try:
                await landings.of(item.taken)
            except TidegateError as refused:
                error = refused
        else:
            error = item.taken
        answers.append(fleet_agent_reports.to_reported(item, error))
    return answers


# ── heartbeats ────────────────────────────────────────────────────────────────────────────────────


def heartbeat(
    request: routing.Request[inputs.Nothing, inputs.Nothing, Pulse],
    heartbeats: fleet_agent_reports.Heartbeats,
) -> routing.Response:
    """Report that the host is alive and what runs on it; the response lists the known reports."""
    body = request.body
    beat = fleet_agent_reports.Heartbeat(
        host_id=host_of(request),
        agent_version=body.agent_version,
        current_closures=body.current_closures,
        said_at=time_of(request),
        rollouts=body.rollouts,
        facts=None
        if body.facts is None
        else protocol.HostFacts(**msgspec.structs.asdict(body.facts)),
    )
    return routing.Response(heartbeats.take(beat, request.meta))


# ── content ───────────────────────────────────────────────────────────────────────────────────────


def manifest(
    request: routing.Request[ManifestPath, inputs.Nothing, inputs.Nothing],
    reads: Reads,
    manifests: Manifests,
) -> routing.Response:
    """Get the signed manifest of a channel of the host; 304 if it has not changed."""
    channel = request.path.channel
    _demand_channel(reads, host_of(request), channel)
    entry = manifests.serve(channel)
    return routing.Response(entry.body, tag=entry.pointer.etag)


def release(
    request: routing.Request[AgentReleasePath, inputs.Nothing, inputs.Nothing],
    reads: Reads,
    blobs: Blobs,
) -> routing.Response:
    """List the files of a release of the host's channels: paths, hashes, sizes, reference URIs."""
    return routing.Response(_content(reads, blobs, host_of(request), request.path.release_id))


def blob(
    request: routing.Request[BlobPath, inputs.Nothing, inputs.Nothing], reads: Reads, blobs: Blobs
) -> routing.Response:
    """Download one file of a release, by its hash."""
    content = _content(reads, blobs, host_of(request), request.path.release_id)
    wanted = request.path.sha256
    listed = [file for file in content.files if file.sha256 == wanted and file.link is None]
    if not listed:
        raise BlobMissing(DIGEST_PREFIX + wanted)
    file = next((file for file in listed if file.uri is None), listed[0])
    if file.uri is not None:
        raise package_refusals.FileByReference(file.path, file.uri, wanted, file.bytes)
    return routing.Response(
        download=downloads.Download(file.bytes, partial(open_content, blobs, file)),
        tag=f'"{wanted}"',
        media=BYTES,
        headers={"cache-control": "private, max-age=31536000, immutable"},
    )


def _content(reads: Reads, blobs: Blobs, host_id: str, release_id: str) -> protocol.ReleaseContent:
    """Read the content of a release. Raises: NotFound: it does not exist for this host."""
    missing = NotFound(f"there is no release {release_id} for {host_id}", release_id=release_id)
    known = reads.find(release_rows.known_key(release_id), release_rows.KnownRelease)
    revision = None
    if known is not None and known.row.revision:
        revision = reads.find(package_rows.revision_key(known.row.revision), package_rows.Revision)
    # A deleted revision's name may be taken by another one, with other content.
    if known is None or revision is None or revision.row.content.digest != known.row.digest:
        raise missing
    number = release_id.rpartition(".")[2]
    carried = {scope.package for scope in _scopes(reads, host_id)}
    if not number.isdigit() or not any(
        from_packages.release_id_of(package, int(number)) == release_id for package in carried
    ):
        raise missing
    files = read_manifest(blobs, revision.row.content).files
    return protocol.ReleaseContent(release_id, known.row.digest, files)


def _scopes(reads: Reads, host_id: str) -> list[fleet_rows.ChannelScope]:
    """The channels that the host belongs to."""
    host, fleet = reads.find_all(
        (fleet_rows.host_key(host_id), fleet_rows.Host), (fleet_rows.fleet_key(), fleet_rows.Fleet)
    )
    if host is None or fleet is None:
        return []
    names = claims(fleet.row.channels, host_id, host.row.labels)
    return [scope for scope in fleet.row.channels if scope.channel in names]


def _demand_channel(reads: Reads, host_id: str, channel: str) -> None:
    """Check that the host belongs to the channel. Raises: NotFound."""
    if all(scope.channel != channel for scope in _scopes(reads, host_id)):
        raise NotFound(f"{host_id} is in no channel {channel}", channel=channel)


# ── point reads ───────────────────────────────────────────────────────────────────────────────────


async def _read(reads: Reads, read: Callable[[], T]) -> T:
    """Do a point read: on the event loop if the log is local, else in a thread."""
    return read() if reads.is_local else await _in_thread(read)


async def _in_thread(run: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, run)


_SPOKEN = (problems.UnsupportedProtocol,)
_BLOBS = (NotFound, BlobMissing, BlobDamaged)

ROUTES = (
    routing.Route(
        "POST",
        "/v1/agent/enroll",
        enroll,
        routing.PUBLIC,
        protocol.EnrollmentAnswer,
        errors=(
            *_SPOKEN,
            fleet_refusals.TokenRefused,
            fleet_refusals.TokenReplayed,
            fleet_enrollment.BadProof,
            fleet_refusals.HostIsEnrolled,
            fleet_refusals.HostExists,
            fleet_refusals.HostGone,
            fleet_refusals.HostLeavesProtected,
        ),
    ),
    routing.Route(
        "POST",
        "/v1/agent/session",
        open_session,
        routing.PUBLIC,
        protocol.SessionAnswer,
        errors=(
            *_SPOKEN,
            fleet_refusals.HostGone,
            fleet_refusals.KeyRevoked,
            agent_sessions.ClockSkewed,
            fleet_enrollment.BadProof,
            used_proofs.ProofReplayed,
        ),
    ),
    routing.Route(
        "GET",
        "/v1/agent/dispatch",
        dispatch,
        routing.AGENT,
        protocol.Order,
        also=(204,),
        errors=_SPOKEN,
        fast=handlers.answer_poll,
    ),
    routing.Route(
        "POST",
        "/v1/agent/events",
        report,
        routing.AGENT,
        protocol.ReportsAnswer,
        errors=(*_SPOKEN, host_refusals.RolloutIsSuperseded),
        fast=handlers.answer_report,
    ),
    routing.Route(
        "POST",
        "/v1/agent/heartbeat",
        heartbeat,
        routing.AGENT,
        protocol.HeartbeatAnswer,
        errors=_SPOKEN,
    ),
    routing.Route(
        "GET",
        "/v1/agent/manifest/{channel}",
        manifest,
        routing.AGENT,
        SignedManifest,
        cached=True,
        errors=(*_SPOKEN, NotFound, ManifestUnpublished, BlobDamaged),
    ),
    routing.Route(
        "GET",
        "/v1/agent/releases/{release_id}",
        release,
        routing.AGENT,
        protocol.ReleaseContent,
        errors=(*_SPOKEN, *_BLOBS),
    ),
    routing.Route(
        "GET",
        "/v1/agent/releases/{release_id}/blobs/{sha256}",
        blob,
        routing.AGENT,
        bytes,
        produces=BYTES,
        errors=(*_SPOKEN, *_BLOBS, package_refusals.FileByReference),
        ranges=True,
    ),
)
