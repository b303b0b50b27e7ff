"""What agents ask and say: enrollment, sessions, orders, reports, heartbeats, content.

An agent is told what its host shall run, fetches it by digest, and reports every step. Reports and
polls are the hot routes: they run on the event loop, without a thread; a poll that finds nothing
writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from tidegate.api.agents.auth import check_protocol, host_of, time_of
from tidegate.api.agents.commit_waiters import CommitWaiters
from tidegate.api.agents.fast_path.handlers import (
    NO_ORDER,
    answer_poll,
    answer_report,
    is_idle,
    order_of,
    refusal,
)
from tidegate.api.agents.order_waiters import OrderWaiters
from tidegate.api.feed.tail import Tail
from tidegate.api.metrics import Metrics
from tidegate.control.fleet.agent_reports import (
    AgentReports,
    Heartbeat,
    Heartbeats,
    Report,
    to_reported,
)
from tidegate.control.fleet.agent_sessions import ClockSkewed
from tidegate.control.fleet.enrollment import JOIN_PREFIX, BadProof, Enrollment
from tidegate.control.fleet.order_queue import OrderQueue
from tidegate.control.fleet.used_proofs import ProofReplayed
from tidegate.control.publication.manifests import Manifests, ManifestUnpublished, SignedManifest
from tidegate.control.queries.reads import Reads
from tidegate.control.storage.blobs import BlobDamaged, BlobMissing, Blobs
from tidegate.control.storage.content_store import open_content, read_manifest
from tidegate.domain.content.digests import DIGEST_PREFIX
from tidegate.domain.fleet.claims import claims
from tidegate.domain.fleet.refusals import (
    HostExists,
    HostGone,
    HostIsEnrolled,
    HostLeavesProtected,
    KeyRevoked,
    TokenRefused,
    TokenReplayed,
)
from tidegate.domain.fleet.rows import ChannelScope, Fleet, Host, fleet_key, host_key
from tidegate.domain.hosts.protocol import (
    REPORTS_MAX,
    WAIT_SECONDS_MAX,
    EnrollmentAnswer,
    HeartbeatAnswer,
    HostFacts,
    Order,
    ReleaseContent,
    ReportResult,
    ReportsAnswer,
    SessionAnswer,
)
from tidegate.domain.hosts.refusals import RolloutIsSuperseded
from tidegate.domain.hosts.rows import QueuedDispatch
from tidegate.domain.packages.refusals import FileByReference
from tidegate.domain.packages.rows import Revision, revision_key
from tidegate.domain.releases.from_packages import release_id_of
from tidegate.domain.releases.rows import KnownRelease, known_key
from tidegate.errors import InvalidInput, NotFound, TidegateError, VersionConflict
from tidegate.web.downloads import Download
from tidegate.web.inputs import Input, Nothing
from tidegate.web.problems import InvalidRequest, UnsupportedProtocol
from tidegate.web.routing import AGENT, PUBLIC, Request, Response, Route
from tidegate.web.shapes import FieldError

CHANNELS_MAX = 64  # whose closures a heartbeat names
ROLLOUTS_MAX = 64
BYTES: Final = "application/octet-stream"

Hex64 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Nonce = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
Proof = Annotated[str, Meta(pattern="^[0-9a-f]{128}$")]
HostId = Annotated[str, Meta(min_length=1, max_length=128)]
Time = Annotated[int, Meta(ge=0, le=10**11)]
RolloutId = Annotated[str, Meta(min_length=1, max_length=300)]
Closure = Annotated[str, Meta(max_length=256)]
ChannelName = Annotated[str, Meta(min_length=1, max_length=63)]

T = TypeVar("T")


class Enroll(Input, frozen=True, kw_only=True):
    token: Annotated[str, Meta(min_length=1, max_length=256)]
    public_key: Hex64
    proof: Proof
    host_id: HostId | None = None  # with a join token: the name that the host takes


class OpenSession(Input, frozen=True, kw_only=True):
    host_id: HostId
    time: Time
    nonce: Nonce
    proof: Proof


class DispatchQuery(Input, frozen=True, kw_only=True):
    wait: Annotated[int, Meta(ge=0, le=WAIT_SECONDS_MAX)] = 0


class Reports(Input, frozen=True, kw_only=True):
    """One ``report``, whose fate is the status of the answer; or several, each with its own."""

    report: dict[str, Any] | None = None
    reports: Annotated[tuple[dict[str, Any], ...], Meta(max_length=REPORTS_MAX)] | None = None


class HostFactsGiven(HostFacts, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the host says of its machine: sent once, and again when it changes."""


class Pulse(Input, frozen=True, kw_only=True):
    agent_version: Annotated[str, Meta(max_length=64)] = ""
    current_closures: Annotated[dict[ChannelName, Closure], Meta(max_length=CHANNELS_MAX)] = (
        msgspec.field(default_factory=dict)
    )  # channel → what runs
    rollouts: Annotated[tuple[RolloutId, ...], Meta(max_length=ROLLOUTS_MAX)] = ()
    facts: HostFactsGiven | None = None  # None: as the host said before


class ManifestPath(Input, frozen=True):
    channel: ChannelName


class AgentReleasePath(Input, frozen=True):
    release_id: Annotated[str, Meta(min_length=1, max_length=128)]


class BlobPath(Input, frozen=True):
    release_id: Annotated[str, Meta(min_length=1, max_length=128)]
    sha256: Hex64


# ── at the door ───────────────────────────────────────────────────────────────────────────────────


def enroll(request: Request[Nothing, Nothing, Enroll], enrollment: Enrollment) -> Response:
    """Trade a one-time token or a join token for the registration of a host's key."""
    check_protocol(request.arrived.headers)
    body = request.body
    if body.token.startswith(f"{JOIN_PREFIX}_"):
        if body.host_id is None:
            raise InvalidInput("with a join token, send the name of the host", field="host_id")
        joined, outcome = enrollment.join(body.token, body.host_id, body.public_key, body.proof)
        return Response(joined, position=outcome.position)
    enrolled, outcome = enrollment.trade(body.token, body.public_key, body.proof)
    return Response(enrolled, position=outcome.position)


def open_session(
    request: Request[Nothing, Nothing, OpenSession], enrollment: Enrollment
) -> Response:
    """Prove a host's key, get the MAC key of a session."""
    check_protocol(request.arrived.headers)
    body = request.body
    return Response(enrollment.open_session(body.host_id, body.time, body.nonce, body.proof))


# ── orders ────────────────────────────────────────────────────────────────────────────────────────


async def dispatch(
    request: Request[Nothing, DispatchQuery, Nothing],
    reads: Reads,
    deliveries: OrderQueue,
    tail: Tail,
    commit_waiters: CommitWaiters,
    order_waiters: OrderWaiters,
) -> Response:
    """The host's order; none: 204, at once or after the wait."""
    host_id = host_of(request)
    deliveries = deliveries
    tail = tail
    wakes = order_waiters
    if not request.query.wait:
        if is_idle(wakes, host_id, reads):
            return NO_ORDER
        handed = await _handed(request, reads, deliveries, commit_waiters, host_id)
        return Response(None if handed is None else order_of(handed))
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.query.wait
    while True:
        woken = wakes.expect(host_id)  # before the look: what comes behind it is heard
        try:
            look = await _read(reads, partial(deliveries.next_look, host_id))
            if look == 0:
                wakes.expect_release(woken)  # before the hand-out, for the same reason
                order = await _handed(request, reads, deliveries, commit_waiters, host_id)
                if order is not None:
                    return Response(order_of(order))
                look = None
            left = deadline - loop.time()
            if left <= 0 or tail.stopped or wakes.is_full:
                return Response(None)
            await asyncio.wait((woken,), timeout=left if look is None else min(left, look))
        finally:
            wakes.forget(host_id, woken)


async def _handed(
    request: Request[Nothing, DispatchQuery, Nothing],
    reads: Reads,
    deliveries: OrderQueue,
    commit_waiters: CommitWaiters,
    host_id: str,
) -> QueuedDispatch | None:
    """An order under its lease. No thread waits for the commit where one look finds the order."""
    offer = deliveries.hand_out(host_id) if reads.is_local else None
    if offer is None:
        return await _in_thread(partial(deliveries.poll, host_id))
    order, leased = offer
    if leased is None:
        return None
    try:
        await commit_waiters.of(leased)
    except VersionConflict:  # somebody else was faster
        return None
    return order


# ── reports ───────────────────────────────────────────────────────────────────────────────────────


async def report(
    request: Request[Nothing, Nothing, Reports],
    agent_reports: AgentReports,
    metrics: Metrics,
    commit_waiters: CommitWaiters,
) -> Response:
    """What happened on the host: durable when this answers. Repeats are accepted again."""
    one, several = request.body.report, request.body.reports
    if (one is None) == (several is None):
        fault = FieldError("body", "has report or reports, one of the two")
        raise InvalidRequest((fault,))
    contents = several if one is None else (one,)
    assert contents is not None
    reports = agent_reports.take_all(host_of(request), contents, request.meta)
    answers = await _answers(reports, commit_waiters)
    for answer in answers:
        if answer.status != 200:
            metrics.refusals.count(answer.code or "unknown")
    if one is None or answers[0].status == 200:
        return Response(ReportsAnswer(tuple(answers)))
    return refusal(answers[0], request.id)


async def _answers(reports: Sequence[Report], landings: CommitWaiters) -> list[ReportResult]:
    answers: list[ReportResult] = []
    for item in reports:
        error: BaseException | None = None
        if isinstance(item.taken, Future):
            try:
                await landings.of(item.taken)
            except TidegateError as refused:
                error = refused
        else:
            error = item.taken
        answers.append(to_reported(item, error))
    return answers


# ── heartbeats ────────────────────────────────────────────────────────────────────────────────────


def heartbeat(request: Request[Nothing, Nothing, Pulse], heartbeats: Heartbeats) -> Response:
    """That the host lives, and what runs on it; answers which reports are known."""
    body = request.body
    said = Heartbeat(
        host_id=host_of(request),
        agent_version=body.agent_version,
        current_closures=body.current_closures,
        said_at=time_of(request),
        rollouts=body.rollouts,
        facts=None if body.facts is None else HostFacts(**asdict(body.facts)),
    )
    return Response(heartbeats.take(said, request.meta))


# ── content ───────────────────────────────────────────────────────────────────────────────────────


def manifest(
    request: Request[ManifestPath, Nothing, Nothing], reads: Reads, manifests: Manifests
) -> Response:
    """What may run on a channel of the host, signed; 304 while it is the same."""
    channel = request.path.channel
    _demand_channel(reads, host_of(request), channel)
    entry = manifests.serve(channel)
    return Response(entry.body, tag=entry.pointer.etag)


def release(
    request: Request[AgentReleasePath, Nothing, Nothing], reads: Reads, blobs: Blobs
) -> Response:
    """The files of a release of the host's channels: paths, hashes, sizes, uris of references."""
    return Response(_content(reads, blobs, host_of(request), request.path.release_id))


def blob(request: Request[BlobPath, Nothing, Nothing], reads: Reads, blobs: Blobs) -> Response:
    """The bytes of one file of a release, by their hash."""
    content = _content(reads, blobs, host_of(request), request.path.release_id)
    wanted = request.path.sha256
    listed = [file for file in content.files if file.sha256 == wanted and file.link is None]
    if not listed:
        raise BlobMissing(DIGEST_PREFIX + wanted)
    file = next((file for file in listed if file.uri is None), listed[0])
    if file.uri is not None:
        raise FileByReference(file.path, file.uri, wanted, file.bytes)
    return Response(
        download=Download(file.bytes, partial(open_content, blobs, file)),
        tag=f'"{wanted}"',
        media=BYTES,
        headers={"cache-control": "private, max-age=31536000, immutable"},
    )


def _content(reads: Reads, blobs: Blobs, host_id: str, release_id: str) -> ReleaseContent:
    """Raises: NotFound: there is none, or it is not for this host."""
    missing = NotFound(f"there is no release {release_id} for {host_id}", release_id=release_id)
    known = reads.find(known_key(release_id), KnownRelease)
    revision = None
    if known is not None and known.row.revision:
        revision = reads.find(revision_key(known.row.revision), Revision)
    if known is None or revision is None:
        raise missing
    number = release_id.rpartition(".")[2]
    carried = {scope.package for scope in _scopes(reads, host_id)}
    if not number.isdigit() or not any(
        release_id_of(package, int(number)) == release_id for package in carried
    ):
        raise missing
    files = read_manifest(blobs, revision.row.content).files
    return ReleaseContent(release_id, known.row.digest, files)


def _scopes(reads: Reads, host_id: str) -> list[ChannelScope]:
    """The channels that the host belongs to."""
    host, fleet = reads.find_all((host_key(host_id), Host), (fleet_key(), Fleet))
    if host is None or fleet is None:
        return []
    names = claims(fleet.row.channels, host_id, host.row.labels)
    return [scope for scope in fleet.row.channels if scope.channel in names]


def _demand_channel(reads: Reads, host_id: str, channel: str) -> None:
    """Raises: NotFound."""
    if all(scope.channel != channel for scope in _scopes(reads, host_id)):
        raise NotFound(f"{host_id} is in no channel {channel}", channel=channel)


# ── where it runs ─────────────────────────────────────────────────────────────────────────────────


async def _read(reads: Reads, read: Callable[[], T]) -> T:
    """A point read: right here if the log is local, else in a thread."""
    return read() if reads.is_local else await _in_thread(read)


async def _in_thread(run: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, run)


_SPOKEN = (UnsupportedProtocol,)
_BLOBS = (NotFound, BlobMissing, BlobDamaged)

ROUTES = (
    Route(
        "POST",
        "/v1/agent/enroll",
        enroll,
        PUBLIC,
        EnrollmentAnswer,
        errors=(
            *_SPOKEN,
            TokenRefused,
            TokenReplayed,
            BadProof,
            HostIsEnrolled,
            HostExists,
            HostGone,
            HostLeavesProtected,
        ),
    ),
    Route(
        "POST",
        "/v1/agent/session",
        open_session,
        PUBLIC,
        SessionAnswer,
        errors=(*_SPOKEN, HostGone, KeyRevoked, ClockSkewed, BadProof, ProofReplayed),
    ),
    Route(
        "GET",
        "/v1/agent/dispatch",
        dispatch,
        AGENT,
        Order,
        also=(204,),
        errors=_SPOKEN,
        fast=answer_poll,
    ),
    Route(
        "POST",
        "/v1/agent/events",
        report,
        AGENT,
        ReportsAnswer,
        errors=(*_SPOKEN, RolloutIsSuperseded),
        fast=answer_report,
    ),
    Route("POST", "/v1/agent/heartbeat", heartbeat, AGENT, HeartbeatAnswer, errors=_SPOKEN),
    Route(
        "GET",
        "/v1/agent/manifest/{channel}",
        manifest,
        AGENT,
        SignedManifest,
        cached=True,
        errors=(*_SPOKEN, NotFound, ManifestUnpublished, BlobDamaged),
    ),
    Route(
        "GET",
        "/v1/agent/releases/{release_id}",
        release,
        AGENT,
        ReleaseContent,
        errors=(*_SPOKEN, *_BLOBS),
    ),
    Route(
        "GET",
        "/v1/agent/releases/{release_id}/blobs/{sha256}",
        blob,
        AGENT,
        bytes,
        produces=BYTES,
        errors=(*_SPOKEN, *_BLOBS, FileByReference),
        ranges=True,
    ),
)
