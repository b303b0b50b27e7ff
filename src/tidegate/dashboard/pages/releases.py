"""Releases: revisions by lifecycle, which wait for approval, and why you cannot approve them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta

from tidegate.control.queries.reads import Found, Reads
from tidegate.dashboard import components, layout as dashboard_layout, sorting, state_labels
from tidegate.dashboard.view_models import release_screens
from tidegate.domain.access import callers, principals, roles, scopes, steps
from tidegate.domain.packages import rows as package_rows, states
from tidegate.domain.releases.from_packages import release_id_of
from tidegate.web import inputs, paging, routing

TABS = {
    "waiting": ("Waiting for approval", states.Lifecycle.PROPOSED),
    "published": ("Published", states.Lifecycle.PUBLISHED),
    "drafts": ("Drafts", states.Lifecycle.DRAFT),
    "deletions": ("To be deleted", states.Lifecycle.DELETION_PROPOSED),
    "all": ("All", None),
}


SORTED_MAX = 5_000  # revisions that are sorted at once; with more, a page is sorted by name
COLUMNS: Final[sorting.SortColumns[package_rows.Revision]] = sorting.SortColumns(
    "-changed",
    sorting.SortColumn(label="Package", name="package", key=lambda it: it.name),
    sorting.SortColumn(label="State", name="state", key=lambda it: str(it.lifecycle)),
    sorting.SortColumn(
        label="Number",
        name="number",
        key=lambda it: it.number or None,
        newest_first=True,
        classes="right optional",
    ),
    sorting.SortColumn(label="Content", classes="optional"),
    sorting.SortColumn(
        label="Size",
        name="size",
        key=lambda it: it.content.total_bytes,
        newest_first=True,
        classes="right optional",
    ),
    sorting.SortColumn(label="By", classes="optional"),
    sorting.SortColumn(
        label="Changed",
        name="changed",
        key=lambda it: changed_at(it),
        newest_first=True,
        classes="right",
    ),
)


class ReleasesQuery(dashboard_layout.ListQuery, frozen=True, kw_only=True):
    sort: dashboard_layout.SortWish = ""
    tab: Annotated[str, Meta(max_length=16)] = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = dashboard_layout.ROWS


def list_pending_approvals(
    request: routing.Request[Any, Any, Any], reads: Reads, people: dashboard_layout.UserDirectory
) -> tuple[release_screens.PendingApproval, ...]:
    """Proposals that this reader may see, oldest first."""
    found = reads.range(
        package_rows.REVISIONS,
        index="by_lifecycle",
        of=(str(states.Lifecycle.PROPOSED),),
        limit=dashboard_layout.ROWS,
    )
    rows = [item.row for item in found if may_see(request.principal, item.row)]
    repositories = {row.repository for row in rows}
    quorums = {name: quorum_of(reads, name) for name in repositories}
    packages = reads.find_all(
        *((package_rows.package_key(row.package), package_rows.PackageRow) for row in rows)
    )
    lines = [
        release_screens.PendingApproval(
            name=row.name,
            package=path_of(row),
            number=1 if package is None else package.row.last_number + 1,
            by=people(row.proposed_by),
            at=row.proposed_at,
            approvals=len(row.approvals),
            quorum=max(1, quorums[row.repository]),
            why=why_not(request.caller, row, quorums[row.repository]),
        )
        for row, package in zip(rows, packages, strict=True)
    ]
    return tuple(sorted(lines, key=lambda line: (line.at is None, line.at)))


def quorum_of(reads: Reads, repository: str) -> int:
    found = reads.find(package_rows.repository_key(repository), package_rows.Repository)
    return 1 if found is None else found.row.quorum


def may_see(principal: principals.Principal, row: package_rows.Revision) -> bool:
    return principal.may(roles.Verb.READ, scopes.repository_scope(row.repository))


def path_of(row: package_rows.Revision) -> str:
    """The package's path within its repository."""
    return row.package.partition("/")[2] or row.package


def why_not(caller: callers.Caller, row: package_rows.Revision, quorum: int) -> str:
    """Why this reader cannot approve; empty: they can."""
    missing = caller.why_not(steps.APPROVE_REVISION, scopes.repository_scope(row.repository))
    if missing:
        return missing
    if quorum and caller.id == row.proposed_by:
        return "you proposed it: another person must approve"
    if quorum and caller.id in row.editors:
        return "you changed it: another person must approve"
    if caller.id in row.approvals and len(row.approvals) < quorum:
        return "you approved it already"
    return ""


def releases(
    request: routing.Request[inputs.Nothing, ReleasesQuery, inputs.Nothing],
    reads: Reads,
    cursors: paging.Cursors,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """List revisions by lifecycle."""
    people = layout.names(request)
    asks = list_pending_approvals(request, reads, people)
    tab = request.query.tab or ("waiting" if asks else "all")
    tab = tab if tab in TABS else "all"
    found = _RevisionsPage((), None)
    order = COLUMNS.order(request.query.sort)
    if tab != "waiting":
        found = _list_revisions(request, reads, cursors.after(request), order, TABS[tab][1])
    lines = tuple(revision_line(row, people) for row in found.rows)
    filters = {"tab": tab, "sort": request.query.sort}
    view = release_screens.Releases(
        tab=tab,
        tabs=tuple(
            components.Option(name, label, str(len(asks)) if name == "waiting" and asks else "")
            for name, (label, _) in TABS.items()
        ),
        waiting=asks,
        revisions=lines,
        headings=COLUMNS.headings(order, "/releases", tab=tab),
        note=found.note,
        next=layout.next_page(request, "/releases", found.last, **filters),
    )
    page = dashboard_layout.PageView(
        template="releases.html", title="Releases", here="/releases", view=view
    )
    return layout.answer(request, page)


class _RevisionsPage(NamedTuple):
    """A page of revisions; ``last``: the id that the next one starts after."""

    rows: tuple[package_rows.Revision, ...]
    last: str | None
    note: str = ""


def _list_revisions(
    request: routing.Request[inputs.Nothing, ReleasesQuery, inputs.Nothing],
    reads: Reads,
    after: str,
    order: sorting.SortOrder[package_rows.Revision],
    lifecycle: states.Lifecycle | None,
) -> _RevisionsPage:
    """A page of the revisions in a state that the reader may see."""
    limit = request.query.limit
    found = _in_state(reads, lifecycle, "", SORTED_MAX + 1)
    if len(found) <= SORTED_MAX:
        rows = [item.row for item in found if may_see(request.principal, item.row)]
        return _RevisionsPage(*sorting.list_page(rows, order, lambda it: it.name, after, limit))
    found = _in_state(reads, lifecycle, sorting.id_after(after), limit)
    rows = [item.row for item in found if may_see(request.principal, item.row)]
    last = sorting.cursor_at(found[-1].id) if len(found) == limit else None
    note = f"More than {SORTED_MAX:,} revisions: they are in the order of their names."
    return _RevisionsPage(tuple(rows), last, note)


def _in_state(
    reads: Reads, lifecycle: states.Lifecycle | None, after: str, limit: int
) -> list[Found[Any]]:
    if lifecycle is None:
        return reads.range(package_rows.REVISIONS, after=after, limit=limit)
    of = (str(lifecycle),)
    return reads.range(
        package_rows.REVISIONS, index="by_lifecycle", of=of, after=after, limit=limit
    )


def changed_at(row: package_rows.Revision) -> datetime | None:
    """When the state of a revision last changed."""
    return row.published_at or row.proposed_at or row.created_at


def revision_line(
    row: package_rows.Revision, people: dashboard_layout.UserDirectory
) -> release_screens.RevisionLine:
    return release_screens.RevisionLine(
        name=row.name,
        title=release_id_of(row.package, row.number) if row.number else path_of(row),
        package=path_of(row),
        repository=row.repository,
        workspace=row.workspace,
        lifecycle=state_labels.lifecycle(row.lifecycle),
        number=row.number,
        by=people(row.published_by or row.proposed_by or row.created_by),
        at=changed_at(row),
        files=row.content.file_count,
        bytes=row.content.total_bytes,
        digest=row.content.digest,
    )


ROUTES = (
    dashboard_layout.page_route("/releases", releases, routing.requires_somewhere(roles.Verb.READ)),
)
