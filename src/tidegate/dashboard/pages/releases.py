"""Releases and approvals: revisions by lifecycle, what waits for whom, and why not for you."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from tidegate.control.queries.reads import Found, Reads
from tidegate.dashboard import state_labels
from tidegate.dashboard.components import Option
from tidegate.dashboard.layout import (
    ROWS,
    Layout,
    ListQuery,
    PageView,
    UserDirectory,
    page_route,
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


class ReleasesQuery(ListQuery, frozen=True, kw_only=True):
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
    lines: tuple[RevisionLine, ...] = ()
    following = ""
    if tab != "waiting":
        found = _found(request, reads, cursors, TABS[tab][1])
        lines = tuple(
            revision_line(item.row, people)
            for item in found
            if may_see(request.principal, item.row)
        )
        last = found[-1].id if len(found) == request.query.limit else None
        following = layout.further(request, last, tab=tab)
    view = Releases(
        tab=tab,
        tabs=tuple(
            Option(name, label, str(len(asks)) if name == "waiting" and asks else "")
            for name, (label, _) in TABS.items()
        ),
        waiting=asks,
        revisions=lines,
        next=following,
    )
    page = PageView(template="releases.html", title="Releases", here="/releases", view=view)
    return layout.answer(request, page)


def _found(
    request: Request[Nothing, ReleasesQuery, Nothing],
    reads: Reads,
    cursors: Cursors,
    lifecycle: Lifecycle | None,
) -> list[Found[Any]]:
    after = cursors.after(request)
    limit = request.query.limit
    if lifecycle is None:
        return reads.range(REVISIONS, after=after, limit=limit)
    of = (str(lifecycle),)
    return reads.range(REVISIONS, index="by_lifecycle", of=of, after=after, limit=limit)


def revision_line(row: Revision, people: UserDirectory) -> RevisionLine:
    return RevisionLine(
        name=row.name,
        package=path_of(row),
        repository=row.repository,
        workspace=row.workspace,
        lifecycle=state_labels.lifecycle(row.lifecycle),
        number=row.number,
        by=people(row.published_by or row.proposed_by or row.created_by),
        at=row.published_at or row.proposed_at or row.created_at,
        files=row.content.file_count,
        bytes=row.content.total_bytes,
        digest=row.content.digest,
    )


ROUTES = (page_route("/releases", releases, requires_somewhere(Verb.READ)),)
