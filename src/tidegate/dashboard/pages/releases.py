"""Releases: revisions by lifecycle, what waits for whom, and why not for you."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta

from tidegate.control.queries.reads import Found, Reads
from tidegate.dashboard import state_labels
from tidegate.dashboard.components import Option
from tidegate.dashboard.layout import (
    ROWS,
    Layout,
    ListQuery,
    PageView,
    SortWish,
    UserDirectory,
    page_route,
)
from tidegate.dashboard.sorting import (
    SortColumn,
    SortColumns,
    SortOrder,
    cursor_at,
    id_after,
    list_page,
)
from tidegate.dashboard.view_models import PendingApproval, Releases, RevisionLine
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.principals import Principal
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import repository_scope
from tidegate.domain.access.steps import APPROVE_REVISION
from tidegate.domain.packages.rows import (
    REVISIONS,
    PackageRow,
    Repository,
    Revision,
    package_key,
    repository_key,
)
from tidegate.domain.packages.states import Lifecycle
from tidegate.web.inputs import Nothing
from tidegate.web.paging import Cursors
from tidegate.web.routing import Request, Response, requires_somewhere

TABS = {
    "waiting": ("Waiting for approval", Lifecycle.PROPOSED),
    "published": ("Published", Lifecycle.PUBLISHED),
    "drafts": ("Drafts", Lifecycle.DRAFT),
    "deletions": ("To be deleted", Lifecycle.DELETION_PROPOSED),
    "all": ("All", None),
}


SORTED_MAX = 5_000  # revisions that are sorted at once; of more, a page is in the order of names
COLUMNS: Final[SortColumns[Revision]] = SortColumns(
    "-changed",
    SortColumn(label="Package", name="package", key=lambda it: it.name),
    SortColumn(label="State", name="state", key=lambda it: str(it.lifecycle)),
    SortColumn(
        label="Number",
        name="number",
        key=lambda it: it.number or None,
        newest_first=True,
        classes="right optional",
    ),
    SortColumn(label="Content", classes="optional"),
    SortColumn(
        label="Size",
        name="size",
        key=lambda it: it.content.total_bytes,
        newest_first=True,
        classes="right optional",
    ),
    SortColumn(label="By", classes="optional"),
    SortColumn(
        label="Changed",
        name="changed",
        key=lambda it: changed_at(it),
        newest_first=True,
        classes="right",
    ),
)


class ReleasesQuery(ListQuery, frozen=True, kw_only=True):
    sort: SortWish = ""
    tab: Annotated[str, Meta(max_length=16)] = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = ROWS


def list_pending_approvals(
    request: Request[Any, Any, Any], reads: Reads, people: UserDirectory
) -> tuple[PendingApproval, ...]:
    """Proposals that this reader may see, the longest waiting first."""
    found = reads.range(REVISIONS, index="by_lifecycle", of=(str(Lifecycle.PROPOSED),), limit=ROWS)
    rows = [item.row for item in found if may_see(request.principal, item.row)]
    repositories = {row.repository for row in rows}
    quorums = {name: quorum_of(reads, name) for name in repositories}
    packages = reads.find_all(*((package_key(row.package), PackageRow) for row in rows))
    lines = [
        PendingApproval(
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
    found = reads.find(repository_key(repository), Repository)
    return 1 if found is None else found.row.quorum


def may_see(principal: Principal, row: Revision) -> bool:
    return principal.may(Verb.READ, repository_scope(row.repository))


def path_of(row: Revision) -> str:
    """The package's path within its repository."""
    return row.package.partition("/")[2] or row.package


def why_not(caller: Caller, row: Revision, quorum: int) -> str:
    """Why this reader cannot approve; empty: they can."""
    missing = caller.why_not(APPROVE_REVISION, repository_scope(row.repository))
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
    request: Request[Nothing, ReleasesQuery, Nothing],
    reads: Reads,
    cursors: Cursors,
    layout: Layout,
) -> Response:
    """Revisions by their lifecycle."""
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
    view = Releases(
        tab=tab,
        tabs=tuple(
            Option(name, label, str(len(asks)) if name == "waiting" and asks else "")
            for name, (label, _) in TABS.items()
        ),
        waiting=asks,
        revisions=lines,
        headings=COLUMNS.headings(order, "/releases", tab=tab),
        note=found.note,
        next=layout.next_page(request, "/releases", found.last, **filters),
    )
    page = PageView(template="releases.html", title="Releases", here="/releases", view=view)
    return layout.answer(request, page)


class _RevisionsPage(NamedTuple):
    """A page of revisions; ``last``: where the next one starts."""

    rows: tuple[Revision, ...]
    last: str | None
    note: str = ""


def _list_revisions(
    request: Request[Nothing, ReleasesQuery, Nothing],
    reads: Reads,
    after: str,
    order: SortOrder[Revision],
    lifecycle: Lifecycle | None,
) -> _RevisionsPage:
    """A page of the revisions in a state, as far as the reader may see them."""
    limit = request.query.limit
    found = _in_state(reads, lifecycle, "", SORTED_MAX + 1)
    if len(found) <= SORTED_MAX:
        rows = [item.row for item in found if may_see(request.principal, item.row)]
        return _RevisionsPage(*list_page(rows, order, lambda it: it.name, after, limit))
    found = _in_state(reads, lifecycle, id_after(after), limit)
    rows = [item.row for item in found if may_see(request.principal, item.row)]
    last = cursor_at(found[-1].id) if len(found) == limit else None
    note = f"More than {SORTED_MAX:,} revisions: they are in the order of their names."
    return _RevisionsPage(tuple(rows), last, note)


def _in_state(
    reads: Reads, lifecycle: Lifecycle | None, after: str, limit: int
) -> list[Found[Any]]:
    if lifecycle is None:
        return reads.range(REVISIONS, after=after, limit=limit)
    of = (str(lifecycle),)
    return reads.range(REVISIONS, index="by_lifecycle", of=of, after=after, limit=limit)


def changed_at(row: Revision) -> datetime | None:
    """When its state changed last."""
    return row.published_at or row.proposed_at or row.created_at


def revision_line(row: Revision, people: UserDirectory) -> RevisionLine:
    return RevisionLine(
        name=row.name,
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


ROUTES = (page_route("/releases", releases, requires_somewhere(Verb.READ)),)
