"""Lists of revisions: all that one may read, by what they are, who drafted them, whose they are."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from tidegate.api.routes.repositories import Label
from tidegate.control.installation import Installation
from tidegate.control.queries.reads import Found
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import repository_scope
from tidegate.domain.packages.documents import RevisionDocument, to_document
from tidegate.domain.packages.rows import (
    REVISION_OWNERS,
    REVISIONS,
    PackageRow,
    Revision,
    owner_prefix,
    package_key,
    revision_key,
)
from tidegate.domain.packages.states import Lifecycle
from tidegate.web import paging
from tidegate.web.inputs import Nothing, Paging
from tidegate.web.routing import Request, Response, Route, requires_somewhere
from tidegate.web.shapes import Listed

ME = "me"

Author = Annotated[str, Meta(min_length=1, max_length=128, pattern="^[A-Za-z0-9_.-]+$")]
Owner = Annotated[str, Meta(min_length=3, max_length=571, pattern=r"^[^\x00-\x1f]+/[^\x00-\x1f]+$")]


class RevisionFilter(Paging, frozen=True, kw_only=True):
    repository: Label | None = None
    package: Annotated[str, Meta(max_length=160)] | None = None  # with its repository
    lifecycle: Lifecycle | None = None
    author: Author | None = None  # who drafted it; me: you
    owner: Owner | None = None  # one of its ownerReferences: kind/id


Asked = Request[Nothing, RevisionFilter, Nothing]
Page = tuple[list[Found[Any]], str | None]  # revisions, and where the next page begins


def list_all(
    request: Request[Nothing, RevisionFilter, Nothing], installation: Installation
) -> Response:
    """The revisions that you may read; by repository, package, lifecycle, author or owner."""
    after = paging.after(request, installation)
    found, last = _page(request, installation, after)
    seen = [item for item in found if _fits(item.row, request)]
    packages = installation.reads.find_all(
        *((package_key(item.row.package), PackageRow) for item in seen)
    )
    shown = [
        to_document(item.row, item.version, None if package is None else package.row)
        for item, package in zip(seen, packages, strict=True)
    ]
    return Response(paging.list_page(request, installation, shown, last))


def _page(request: Asked, installation: Installation, after: str) -> Page:
    """By the narrowest index that fits; what else is asked for is filtered."""
    query = request.query
    if query.owner is not None:
        return _owned(query.owner, installation, after, query.limit)
    if query.package is not None:
        index, of = "by_package", query.package
    elif query.author is not None:
        index, of = "by_author", _author(request)
    elif query.repository is None and query.lifecycle is not None:
        index, of = "by_lifecycle", str(query.lifecycle)
    else:
        index, of = None, ""
    if index is not None:
        found = installation.reads.range(
            REVISIONS, index=index, of=(of,), after=after, limit=query.limit
        )
    else:
        prefix = "" if query.repository is None else f"{query.repository}."
        found = installation.reads.range(REVISIONS, prefix=prefix, after=after, limit=query.limit)
    return found, found[-1].id if len(found) == query.limit else None


def _owned(owner: str, installation: Installation, after: str, limit: int) -> Page:
    prefix = owner_prefix(owner)
    rows = installation.reads.range(REVISION_OWNERS, prefix=prefix, after=after, limit=limit)
    names = (row.row.revision for row in rows)
    found = installation.reads.find_all(*((revision_key(name), Revision) for name in names))
    last = rows[-1].id if len(rows) == limit else None
    return [item for item in found if item is not None], last


def _fits(row: Revision, request: Asked) -> bool:
    query = request.query
    return (
        request.principal.may(Verb.READ, repository_scope(row.repository))
        and query.repository in (None, row.repository)
        and query.package in (None, row.package)
        and query.lifecycle in (None, row.lifecycle)
        and (query.author is None or row.created_by == _author(request))
        and (
            query.owner is None
            or query.owner in (owner.key for owner in row.metadata.owner_references)
        )
    )


def _author(request: Asked) -> str:
    asked = request.query.author or ME
    return request.by if asked == ME else asked


ROUTES = (
    Route(
        "GET", "/v1/revisions", list_all, requires_somewhere(Verb.READ), Listed[RevisionDocument]
    ),
)
