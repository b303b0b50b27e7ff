"""Hosts: list, show, explain, enroll, label, revoke and retire them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, field, structs

from tidegate.api.routes import channel_documents
from tidegate.api.routes.channels import ReasonBody
from tidegate.api.routes.releases import ScopeName
from tidegate.clock import Clock
from tidegate.control.fleet import enrollment, reader
from tidegate.control.lanes import LaneBusy
from tidegate.control.operations.hosts import HostOperations
from tidegate.control.operations.protection import RequestShown
from tidegate.control.queries import log_reader, rollout_waits
from tidegate.control.queries.host_lists import HostCriteria, HostLists, silent_criteria
from tidegate.control.queries.host_releases import HostRelease, host_releases
from tidegate.control.queries.people import PeopleNames
from tidegate.control.queries.reads import Found, Reads
from tidegate.control.queries.remedy_offers import RemedyOffers
from tidegate.control.storage.blobs import BlobDamaged, BlobMissing
from tidegate.domain.access import roles, steps
from tidegate.domain.channels import refusals as channel_refusals, rows as channel_rows
from tidegate.domain.fleet import agent_versions, refusals as fleet_refusals, rows as fleet_rows
from tidegate.domain.fleet.claims import claims
from tidegate.domain.fleet.selectors import parse
from tidegate.domain.gates.inputs import Explanation
from tidegate.domain.hosts import protocol, rows as host_rows
from tidegate.domain.requests.refusals import BreakGlassForbidden
from tidegate.errors import NotFound, StaleVersion
from tidegate.kernel.model import Position
from tidegate.web import inputs as web_inputs, paging, routing, shapes

PAGES_MAX = 20
RECORDS_MAX = 50  # rollouts of a host that are shown with it
LABELS_MAX = 64
SILENT_SECONDS_MAX = 10 * 365 * 86_400

HostId = Annotated[str, Meta(min_length=1, max_length=128)]
Labels = Annotated[dict[str, str], Meta(max_length=LABELS_MAX)]


class HostPath(web_inputs.Input, frozen=True):
    host_id: HostId


class HostFilter(web_inputs.Paging, frozen=True, kw_only=True):
    status: Annotated[str, Meta(pattern="^(enrolled|revoked|retired)$")] | None = None
    # A label selector: app=web,!canary.
    selector: Annotated[str, Meta(max_length=1_024)] | None = None
    channel: ScopeName | None = None
    runs: Annotated[str, Meta(max_length=128)] | None = None  # a release: web.3
    silent_seconds: Annotated[int, Meta(ge=0, le=SILENT_SECONDS_MAX)] | None = None
    # no heartbeat for so long; 0: those that count as silent
    old_agent: bool = False  # only hosts whose agent should be upgraded


class Invitation(web_inputs.Input, frozen=True, kw_only=True):
    host_id: HostId
    labels: Labels | None = None  # null: those that it had before


class ReEnrollment(web_inputs.Input, frozen=True, kw_only=True):
    labels: Labels | None = None  # null: those that it has
    reason: Annotated[str, Meta(max_length=1_024)] = ""


class Labelling(web_inputs.Input, frozen=True, kw_only=True):
    """All labels that the host gets."""

    labels: Labels


class HostListed(fleet_rows.Host, frozen=True, kw_only=True):
    version: int
    last_seen_at: datetime | None = None
    agent_version: str = ""
    agent_too_old: bool = False  # the agent should be upgraded
    releases: tuple[HostRelease, ...] = ()  # what its channels are pinned to, and what it runs


class HostShown(fleet_rows.Host, frozen=True, kw_only=True):
    """A host: its channels, its last heartbeat, what it runs, and its rollouts."""

    version: int
    channels: tuple[str, ...] = ()
    releases: tuple[HostRelease, ...] = ()  # what its channels are pinned to, and what it runs
    last_seen_at: datetime | None = None
    agent_version: str = ""
    agent_too_old: bool = False
    current_closures: dict[str, str] = field(default_factory=dict)
    facts: protocol.HostFacts | None = None  # what the host reports of its machine; not verified
    facts_refused: str = ""  # why the facts for selectors did not become labels
    order: str | None = None  # the rollout of its current order
    records: tuple[host_rows.HostRecord, ...] = ()


# ── reading ───────────────────────────────────────────────────────────────────────────────────────


def list_all(
    request: routing.Request[web_inputs.Nothing, HostFilter, web_inputs.Nothing],
    reads: Reads,
    host_lists: HostLists,
    clock: Clock,
    cursors: paging.Cursors,
) -> routing.Response:
    """List hosts by name: all, or by channel, release, silence or old agent."""
    criteria = _criteria(request.query, reads, host_lists, clock())
    after = cursors.after(request)
    found, last = _matching(host_lists, reads, criteria, after, request.query.limit)
    releases = host_releases(reads, [(item.row, live) for item, live in found])
    items = [_listed(*pair, named) for pair, named in zip(found, releases, strict=True)]
    return routing.Response(cursors.list_page(request, items, last))


def _matching(
    host_lists: HostLists, reads: Reads, criteria: HostCriteria, after: str, limit: int
) -> tuple[list[tuple[Found[fleet_rows.Host], fleet_rows.Liveness | None]], str | None]:
    """The hosts that match, and the id that the next page starts after; None: the last page."""
    matching: list[tuple[Found[fleet_rows.Host], fleet_rows.Liveness | None]] = []
    for _ in range(PAGES_MAX):
        page = reads.range(fleet_rows.HOSTS, after=after, limit=web_inputs.LIMIT_MAX)
        matching += host_lists.matching(page, criteria)
        if len(matching) >= limit:
            return matching[:limit], matching[limit - 1][0].id
        if len(page) < web_inputs.LIMIT_MAX:
            return matching, None
        after = page[-1].id
    return matching, after


def _criteria(
    query: HostFilter, reads: Reads, host_lists: HostLists, now: datetime
) -> HostCriteria:
    """Convert the query to criteria. Raises: InvalidSelector, ChannelNotFound, NotFound."""
    texts = [] if query.selector is None else [query.selector]
    if query.channel is not None:
        texts.append(channel_documents.demand(reads, query.channel).row.selector)
    digest, channels = None, frozenset[str]()
    if query.runs is not None:
        digest, channels = host_lists.running(query.runs)
    is_silent, silent_before = silent_criteria(query.silent_seconds, now)
    return HostCriteria(
        status=query.status,
        selectors=tuple(map(parse, texts)),
        digest=digest,
        channels=channels,
        is_silent=is_silent,
        silent_before=silent_before,
        has_old_agent=query.old_agent,
    )


def _listed(
    item: Found[fleet_rows.Host],
    live: fleet_rows.Liveness | None,
    releases: tuple[HostRelease, ...],
) -> HostListed:
    agent_version = "" if live is None else live.agent_version
    return HostListed(
        **structs.asdict(item.row),
        version=item.version,
        last_seen_at=None if live is None else live.last_seen_at,
        agent_version=agent_version,
        agent_too_old=agent_versions.is_too_old(agent_version),
        releases=releases,
    )


def get(
    request: routing.Request[HostPath, web_inputs.ReadQuery, web_inputs.Nothing], reads: Reads
) -> routing.Response:
    """Get a host: labels, channels, last report and rollouts."""
    return _shown(reads, request.path.host_id)


def _shown(reads: Reads, host_id: str) -> routing.Response:
    """The document of one host. Raises: HostNotFound."""
    host, fleet, live, order = reads.find_all(
        (fleet_rows.host_key(host_id), fleet_rows.Host),
        (fleet_rows.fleet_key(), fleet_rows.Fleet),
        (fleet_rows.liveness_key(host_id), fleet_rows.Liveness),
        (host_rows.order_key(host_id), host_rows.HostOrder),
    )
    if host is None:
        raise fleet_refusals.HostNotFound(host_id)
    records = reads.range(host_rows.HOST_RECORDS, index="by_host", of=(host_id,), limit=RECORDS_MAX)
    (releases,) = host_releases(reads, [(host.row, None if live is None else live.row)])
    body = HostShown(
        **structs.asdict(host.row),
        version=host.version,
        releases=releases,
        channels=_channels(host.row, None if fleet is None else fleet.row),
        order=None if order is None else order.row.rollout_id,
        records=tuple(item.row for item in records),
        **({} if live is None else _liveness_members(live.row)),
    )
    return routing.Response(body, version=host.version)


def _liveness_members(live: fleet_rows.Liveness) -> dict[str, Any]:
    return {
        "last_seen_at": live.last_seen_at,
        "agent_version": live.agent_version,
        "agent_too_old": agent_versions.is_too_old(live.agent_version),
        "current_closures": live.current_closures,
        "facts": live.facts,
        "facts_refused": live.facts_refused,
    }


def _channels(host: fleet_rows.Host, fleet: fleet_rows.Fleet | None) -> tuple[str, ...]:
    if fleet is None or host.status == fleet_rows.RETIRED:
        return ()
    return tuple(sorted(claims(fleet.channels, host.host_id, host.labels)))


def ask_why(
    request: routing.Request[HostPath, web_inputs.Paging, web_inputs.Nothing],
    reads: Reads,
    fleet_reader: reader.FleetReader,
    clock: Clock,
    cursors: paging.Cursors,
    log: log_reader.LogReader,
    people: PeopleNames,
    offers: RemedyOffers,
) -> routing.Response:
    """Explain why the host waits: each gate, for the rollout of each of its channels.

    If a channel has no rollout now, it is the one that late hosts join.
    """
    host_id = request.path.host_id
    host, fleet = reads.find_all(
        (fleet_rows.host_key(host_id), fleet_rows.Host), (fleet_rows.fleet_key(), fleet_rows.Fleet)
    )
    if host is None:
        raise fleet_refusals.HostNotFound(host_id)
    names = _channels(host.row, None if fleet is None else fleet.row)
    rows = reads.find_all(
        *((channel_rows.channel_key(name), channel_rows.Channel) for name in names)
    )
    channels = [row.row for row in rows if row is not None]
    followed = [row.active_rollout_id or fleet_reader.late_target(row) for row in channels]
    ids = [rollout_id for rollout_id in followed if rollout_id is not None]
    if not ids:
        return routing.Response(cursors.list_page(request, list[Explanation](), None))
    state = fleet_reader.state(ids, clock(), late=True)
    found = [
        people.name_in_explanation(rollout_waits.explain_host(log, state, rollout_id, host_id))
        for rollout_id in ids
    ]
    found = [offers.offer(item, request.principal) for item in found]
    return routing.Response(cursors.list_page(request, found, None))


# ── changing ──────────────────────────────────────────────────────────────────────────────────────


def invite(
    request: routing.Request[web_inputs.Nothing, web_inputs.Nothing, Invitation],
    hosts: HostOperations,
) -> routing.Response:
    """Make a one-time token that enrolls a host; it is shown only in this response."""
    body = request.body
    return routing.Response(hosts.enroll(request.caller, body.host_id, body.labels))


def re_enroll(
    request: routing.Request[HostPath, web_inputs.Nothing, ReEnrollment], hosts: HostOperations
) -> routing.Response:
    """Make a one-time token for a re-imaged or retired host; it is shown only in this response."""
    body = request.body
    made = hosts.re_enroll(request.caller, request.path.host_id, body.labels, body.reason)
    return routing.Response(made)


def label(
    request: routing.Request[HostPath, web_inputs.Nothing, Labelling],
    hosts: HostOperations,
    reads: Reads,
) -> routing.Response:
    """Replace all labels of a host."""
    host_id = request.path.host_id
    position = hosts.label(request.caller, host_id, request.body.labels)
    return _written(reads, host_id, position)


def revoke(
    request: routing.Request[HostPath, web_inputs.Nothing, ReasonBody],
    hosts: HostOperations,
    reads: Reads,
) -> routing.Response:
    """Revoke a host's key at once; it may enroll again with another key."""
    host_id = request.path.host_id
    position = hosts.revoke(request.caller, host_id, request.body.reason)
    return _written(reads, host_id, position)


def retire(
    request: routing.Request[HostPath, web_inputs.Nothing, ReasonBody],
    hosts: HostOperations,
    reads: Reads,
) -> routing.Response:
    """Retire a host from the fleet, until it is enrolled again."""
    host_id = request.path.host_id
    position = hosts.retire(request.caller, host_id, request.body.reason)
    return _written(reads, host_id, position)


def _written(reads: Reads, host_id: str, position: Position) -> routing.Response:
    answer = _shown(reads, host_id)
    answer.position = position
    return answer


_READ = routing.requires(roles.Verb.READ)
_GONE = (fleet_refusals.HostNotFound, fleet_refusals.HostGone, LaneBusy)

ROUTES = (
    routing.Route(
        "GET",
        "/v1/hosts",
        list_all,
        _READ,
        shapes.Listed[HostListed],
        errors=(fleet_refusals.InvalidSelector, channel_refusals.ChannelNotFound, NotFound),
    ),
    routing.Route(
        "POST",
        "/v1/hosts/enroll",
        invite,
        routing.requires_step(steps.ENROLL_HOST),
        enrollment.MadeToken,
        status=201,
        errors=(
            fleet_refusals.HostGone,
            fleet_refusals.InvalidLabel,
            fleet_refusals.HostLeavesProtected,
        ),
    ),
    routing.Route(
        "GET",
        "/v1/hosts/{host_id}",
        get,
        _READ,
        HostShown,
        cached=True,
        errors=(fleet_refusals.HostNotFound,),
    ),
    routing.Route(
        "GET",
        "/v1/hosts/{host_id}/explain",
        ask_why,
        _READ,
        shapes.Listed[Explanation],
        errors=(fleet_refusals.HostNotFound, BlobMissing, BlobDamaged),
    ),
    routing.Route(
        "PUT",
        "/v1/hosts/{host_id}/labels",
        label,
        routing.requires_step(steps.LABEL_HOST),
        HostShown,
        guard=steps.LABEL_HOST.version,
        requests=RequestShown,
        errors=(
            *_GONE,
            fleet_refusals.InvalidLabel,
            fleet_refusals.SelectorOverlap,
            StaleVersion,
            BreakGlassForbidden,
        ),
        dry_run=True,
    ),
    routing.Route(
        "POST",
        "/v1/hosts/{host_id}/revoke",
        revoke,
        routing.requires_step(steps.REVOKE_HOST),
        HostShown,
        urgent=steps.REVOKE_HOST.urgent,
        errors=_GONE,
        dry_run=True,
    ),
    routing.Route(
        "POST",
        "/v1/hosts/{host_id}/retire",
        retire,
        routing.requires_step(steps.RETIRE_HOST),
        HostShown,
        errors=_GONE,
        dry_run=True,
    ),
    routing.Route(
        "POST",
        "/v1/hosts/{host_id}/re-enroll",
        re_enroll,
        routing.requires_step(steps.RE_ENROLL_HOST),
        enrollment.MadeToken,
        status=201,
        errors=(
            fleet_refusals.HostNotFound,
            fleet_refusals.InvalidLabel,
            fleet_refusals.HostLeavesProtected,
        ),
    ),
)
