"""Hosts: the fleet by label and status, and one host with its rollouts, probes and gates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta

from tidegate.control.operations.hosts import HostOperations
from tidegate.control.queries import host_releases as query_host_releases
from tidegate.control.queries.reads import Found, Reads
from tidegate.dashboard import components, html, layout as dashboard_layout, sorting, state_labels
from tidegate.dashboard.host_waits import HostWaits
from tidegate.dashboard.pages.overview import places_of, why_failed
from tidegate.dashboard.view_models import host_screens
from tidegate.domain.access import callers, roles, steps
from tidegate.domain.fleet import agent_versions, refusals, rows as fleet_rows, selectors
from tidegate.domain.hosts import rows as host_rows, states as host_states
from tidegate.errors import TidegateError
from tidegate.kernel.model import Position
from tidegate.web import inputs, paging, routing

SCANNED_MAX = 5_000  # hosts that a selector is matched against for one page
PAGE = 500
ROLLOUTS_MAX = 50
FILTERS = ("all", "silent", "revoked", "retired")
SORTED_MAX = 2_000  # hosts that are sorted at once; with more, a page is sorted by name
COLUMNS: Final[sorting.SortColumns[host_screens.HostRow]] = sorting.SortColumns(
    "name",
    sorting.SortColumn(label="Host", name="name", key=lambda it: it.host_id),
    sorting.SortColumn(label="Status", name="status", key=lambda it: it.status.word),
    sorting.SortColumn(label="Labels", classes="optional"),
    sorting.SortColumn(
        label="Runs", name="runs", key=lambda it: it.runs or None, classes="optional"
    ),
    sorting.SortColumn(
        label="Order", name="order", key=lambda it: it.busy or None, classes="optional"
    ),
    sorting.SortColumn(
        label="Last report",
        name="heard",
        key=lambda it: it.seen_at,
        newest_first=True,
        classes="right",
    ),
)
TOO_MANY = f"More than {SORTED_MAX:,} hosts: they are in the order of their names. "


class HostsQuery(dashboard_layout.ListQuery, frozen=True, kw_only=True):
    filter: Annotated[str, Meta(max_length=16)] = "all"
    selector: dashboard_layout.Text = ""
    sort: dashboard_layout.SortWish = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = dashboard_layout.ROWS


class HostPagePath(inputs.Input, frozen=True):
    host_id: Annotated[str, Meta(min_length=1, max_length=256)]


class HostForm(inputs.Input, frozen=True, kw_only=True):
    reason: dashboard_layout.Reason


Listing = routing.Request[inputs.Nothing, HostsQuery, inputs.Nothing]


# ── the fleet ─────────────────────────────────────────────────────────────────────────────────────


def index(
    request: Listing, reads: Reads, cursors: paging.Cursors, layout: dashboard_layout.Layout
) -> routing.Response:
    """List the hosts that match a filter and a selector."""
    fleet = reads.find(fleet_rows.fleet_key(), fleet_rows.Fleet)
    query = request.query
    kind = query.filter if query.filter in FILTERS else "all"
    order = COLUMNS.order(query.sort)
    fault: components.FormError | None = None
    found = _HostsPage((), None)
    try:
        selector = selectors.parse(query.selector) if query.selector else None
        found = _list_hosts(request, reads, cursors, selector, order)
    except TidegateError as error:
        fault = dashboard_layout.to_form_error(error)
    filters = {"filter": kind, "selector": query.selector, "sort": query.sort}
    view = host_screens.Hosts(
        total=0 if fleet is None else fleet.row.hosts,
        hosts=found.rows,
        headings=COLUMNS.headings(order, "/hosts", filter=kind, selector=query.selector),
        filter=kind,
        selector=query.selector,
        sort=query.sort,
        note=found.note,
        next=layout.next_page(request, "/hosts", found.last, **filters),
        fault=fault,
    )
    page = dashboard_layout.PageView(template="hosts.html", title="Hosts", here="/hosts", view=view)
    return layout.answer(request, page)


class _HostsPage(NamedTuple):
    """A page of hosts; ``last``: the id that the next one starts after."""

    rows: tuple[host_screens.HostRow, ...]
    last: str | None
    note: str = ""


def _list_hosts(
    request: Listing,
    reads: Reads,
    cursors: paging.Cursors,
    selector: selectors.Selector | None,
    order: sorting.SortOrder[host_screens.HostRow],
) -> _HostsPage:
    """A page of the hosts that match a filter and a selector."""
    query = request.query
    after = cursors.after(request)
    rows, further = _matching(reads, query.filter, selector, "", SORTED_MAX)
    if further is None:
        # Other columns need reads, which are done for one page only.
        if order.column.name == "name":
            names = sorting.list_page(
                rows, _by_name(order), lambda it: it.host_id, after, query.limit
            )
            return _HostsPage(tuple(_host_rows(reads, names.rows)), names.last)
        lines = _host_rows(reads, rows)
        page = sorting.list_page(lines, order, lambda it: it.host_id, after, query.limit)
        return _HostsPage(page.rows, page.last)
    rows, last = _matching(reads, query.filter, selector, sorting.id_after(after), query.limit)
    return _HostsPage(
        tuple(_host_rows(reads, rows)), None if last is None else sorting.cursor_at(last), TOO_MANY
    )


def _by_name(order: sorting.SortOrder[host_screens.HostRow]) -> sorting.SortOrder[fleet_rows.Host]:
    column: sorting.SortColumn[fleet_rows.Host] = sorting.SortColumn(
        label="Host", name="name", key=lambda it: it.host_id
    )
    return sorting.SortOrder(column, order.descending)


def _matching(
    reads: Reads, kind: str, selector: selectors.Selector | None, after: str, limit: int
) -> tuple[list[fleet_rows.Host], str | None]:
    """The hosts by id, and the id that the next page starts after; None: this is the last page."""
    found: list[fleet_rows.Host] = []
    for _ in range(SCANNED_MAX // PAGE):
        page = _page(reads, kind, after)
        for item in page:
            if selector is None or selector.matches(item.row.labels, item.row.host_id):
                if len(found) == limit:
                    return found, after
                found.append(item.row)
            after = item.id
        if len(page) < PAGE:
            return found, None
    return found, after


def _page(reads: Reads, kind: str, after: str) -> list[Found[Any]]:
    match kind:
        case "silent":
            return [] if after else reads.first(fleet_rows.HOSTS, "by_silence", limit=PAGE - 1)
        case "revoked" | "retired":
            return reads.range(
                fleet_rows.HOSTS, index="by_status", of=(kind,), after=after, limit=PAGE
            )
    return reads.range(fleet_rows.HOSTS, after=after, limit=PAGE)


def _host_rows(reads: Reads, rows: Sequence[fleet_rows.Host]) -> Iterator[host_screens.HostRow]:
    for start in range(0, len(rows), dashboard_layout.ROWS):
        yield from _some_host_rows(reads, rows[start : start + dashboard_layout.ROWS])


def _some_host_rows(
    reads: Reads, rows: Sequence[fleet_rows.Host]
) -> Iterator[host_screens.HostRow]:
    liveness = reads.find_all(
        *((fleet_rows.liveness_key(row.host_id), fleet_rows.Liveness) for row in rows)
    )
    orders = reads.find_all(
        *((host_rows.order_key(row.host_id), host_rows.HostOrder) for row in rows)
    )
    latest = [None if found is None else found.row for found in liveness]
    running = query_host_releases.host_releases(reads, list(zip(rows, latest, strict=True)))
    for row, live, order, releases in zip(rows, liveness, orders, running, strict=True):
        silent = row.silent_since is not None and row.status == "enrolled"
        yield host_screens.HostRow(
            host_id=row.host_id,
            status=state_labels.SILENT if silent else state_labels.HOST_STATUS[row.status],
            labels=tuple(f"{key}={value}" for key, value in sorted(row.labels.items())),
            seen_at=None if live is None else live.row.last_seen_at,
            agent="" if live is None else _agent(live.row.agent_version),
            runs=", ".join(
                item.runs or html.short(item.digest) for item in releases if item.digest is not None
            ),
            busy="" if order is None else order.row.rollout_id,
        )


def _agent(version: str) -> str:
    return (
        f"{version} (too old: {agent_versions.AGENT_VERSION_MIN} or newer)"
        if agent_versions.is_too_old(version)
        else version
    )


# ── one host ──────────────────────────────────────────────────────────────────────────────────────


def show(
    request: routing.Request[HostPagePath, dashboard_layout.PageQuery, inputs.Nothing],
    pages: HostPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Show one host."""
    return layout.answer(request, pages.page_of(request, request.path.host_id))


@dataclass(frozen=True)
class HostPages:
    """Builds the page of one host."""

    reads: Reads
    waits: HostWaits

    def page_of(
        self, request: routing.Request[Any, Any, Any], host_id: str
    ) -> dashboard_layout.PageView:
        """Build the page. Raises: HostNotFound."""
        found = self.reads.find(fleet_rows.host_key(host_id), fleet_rows.Host)
        if found is None:
            raise refusals.HostNotFound(host_id)
        (row,) = _host_rows(self.reads, [found.row])
        records = [
            item.row
            for item in self.reads.range(
                host_rows.HOST_RECORDS, index="by_host", of=(host_id,), limit=ROLLOUTS_MAX
            )
        ]
        records.sort(key=lambda record: record.dispatched_at, reverse=True)
        live = self.reads.find(fleet_rows.liveness_key(host_id), fleet_rows.Liveness)
        (releases,) = query_host_releases.host_releases(
            self.reads, [(found.row, None if live is None else live.row)]
        )
        verbs = _verbs(request.caller, found.row)
        names = query_host_releases.release_names(self.reads, places_of(records))
        view = host_screens.HostPage(
            row=row,
            enrolled_at=found.row.enrolled_at,
            public_key=found.row.public_key,
            silent_since=found.row.silent_since,
            releases=tuple(
                components.Option(item.digest or "", item.channel, _describe_release(item))
                for item in releases
            ),
            facts=_facts(None if live is None else live.row),
            rollouts=tuple(_rollout_line(record, names) for record in records),
            probes=tuple(_probes(records[0])) if records else (),
            waits=self.waits.list_for(found.row),
            verbs=verbs,
            bar=components.arrange(verbs, ()),  # all in *More*, because they are final
        )
        return dashboard_layout.PageView(
            template="host.html",
            address=f"/hosts/{host_id}",
            title=host_id,
            here="/hosts",
            view=view,
            crumbs=(components.Link("Hosts", "/hosts"), components.Link(host_id)),
            verbs=verbs,
        )


def _describe_release(item: query_host_releases.HostRelease) -> str:
    """What a host runs of a channel, and the channel's pin if that is something else."""
    runs = "has not reported"
    if item.digest is not None:
        runs = f"runs {item.runs or 'what no release is'}"
    return runs if item.wanted in (None, item.runs) else f"{runs}, wants {item.wanted}"


def _facts(live: fleet_rows.Liveness | None) -> tuple[components.Option, ...]:
    """What the host reports of its machine."""
    if live is None or live.facts is None:
        return ()
    facts = live.facts
    pairs = (
        ("System", f"{facts.os} {facts.os_version}".strip()),
        ("Kernel", facts.kernel),
        ("Architecture", facts.arch),
        ("Addresses", ", ".join(facts.addresses)),
        ("Facts refused", live.facts_refused),
    )
    return tuple(components.Option(value, label) for label, value in pairs if value)


def _rollout_line(
    record: host_rows.HostRecord, names: Mapping[query_host_releases.Place, str]
) -> host_screens.HostRolloutLine:
    text = ""
    if record.state in (host_states.HostState.FAILED, host_states.HostState.REVERTED):
        text = why_failed(record, names)
    elif record.state is host_states.HostState.SOAKING and record.soak_due_at is not None:
        text = f"soaks until {html.absolute(record.soak_due_at)}"
    elif record.left:
        text = f"{record.left}: it no longer counts"
    return host_screens.HostRolloutLine(
        rollout_id=record.rollout_id,
        state=state_labels.HOSTS[record.state],
        wave="late" if record.late else f"wave {record.wave + 1}",
        text=text,
        at=record.dispatched_at,
        attempt=record.attempt,
    )


def _probes(record: host_rows.HostRecord) -> Iterator[host_screens.ProbeLine]:
    for name, probe in sorted(record.probes.items()):
        yield host_screens.ProbeLine(
            name=name,
            mode=str(probe.mode),
            chip=_probe_chip(probe),
            text=probe.failure_reason or "",
            at=probe.last_observed_at,
        )


def _probe_chip(probe: host_rows.Probe) -> components.Chip:
    match probe.status:
        case host_states.ProbeStatus.PASS:
            return components.Chip("check", "good", "Pass")
        case host_states.ProbeStatus.FAIL:
            return components.Chip("cross", "bad", "Fail")
    return components.Chip("dots", "idle", "Not seen yet")


def _verbs(caller: callers.Caller, row: fleet_rows.Host) -> tuple[components.VerbButton, ...]:
    revokes, retires = (
        caller.why_not(step, roles.EVERYWHERE) for step in (steps.REVOKE_HOST, steps.RETIRE_HOST)
    )
    gone = f"It is {row.status}."
    path = f"/hosts/{row.host_id}"
    return (
        components.VerbButton(
            id="revoke",
            label="Revoke key",
            icon="key",
            action=f"{path}/revoke",
            title=f"Revoke the key of {row.host_id}?",
            text="Requests of its agent are refused until it enrolls again.",
            fields=(dashboard_layout.REASON,),
            danger=True,
            why=revokes or ("" if row.status == "enrolled" else gone),
        ),
        components.VerbButton(
            id="retire",
            label="Retire",
            icon="moon",
            action=f"{path}/retire",
            title=f"Retire {row.host_id}?",
            text="No plan includes it, and its agent is refused. `host re-enroll` brings it back.",
            fields=(dashboard_layout.REASON,),
            danger=True,
            why=retires or ("" if row.status != "retired" else gone),
        ),
    )


def revoke(
    request: routing.Request[HostPagePath, dashboard_layout.PageQuery, HostForm],
    hosts: HostOperations,
    pages: HostPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Revoke the key of the host's agent."""
    run = partial(hosts.revoke, request.caller, request.path.host_id, request.body.reason)
    return _attempt(request, pages, layout, run, "revoked")


def retire(
    request: routing.Request[HostPagePath, dashboard_layout.PageQuery, HostForm],
    hosts: HostOperations,
    pages: HostPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Retire the host from the fleet."""
    run = partial(hosts.retire, request.caller, request.path.host_id, request.body.reason)
    return _attempt(request, pages, layout, run, "retired")


def _attempt(
    request: routing.Request[HostPagePath, dashboard_layout.PageQuery, HostForm],
    pages: HostPages,
    layout: dashboard_layout.Layout,
    run: Callable[[], Position],
    done: str,
) -> routing.Response:
    host_id = request.path.host_id
    page = partial(pages.page_of, request, host_id)
    return layout.attempt(request, run, f"/hosts/{host_id}", done, page)


ROUTES = (
    dashboard_layout.page_route("/hosts", index, routing.requires(roles.Verb.READ)),
    dashboard_layout.page_route("/hosts/{host_id}", show, routing.requires(roles.Verb.READ)),
    dashboard_layout.step_route("/hosts/{host_id}/revoke", revoke, steps.REVOKE_HOST),
    dashboard_layout.step_route("/hosts/{host_id}/retire", retire, steps.RETIRE_HOST),
)
