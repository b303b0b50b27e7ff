"""Find anything: rollouts, channels, revisions, hosts, log positions, by how their names begin."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from msgspec import Meta

from tidegate.control.queries.reads import Reads
from tidegate.dashboard.components import Option
from tidegate.dashboard.layout import Layout, PageQuery, PageView, page_route, see_other
from tidegate.dashboard.view_models import ErrorPage
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import channel_scope, repository_scope
from tidegate.domain.channels.rows import CHANNELS
from tidegate.domain.fleet.rows import HOSTS
from tidegate.domain.packages.rows import REVISIONS
from tidegate.domain.rollouts.rows import ROLLOUTS
from tidegate.web.inputs import Nothing
from tidegate.web.routing import Request, Response, requires_somewhere

EACH_MAX = 10


class SearchQuery(PageQuery, frozen=True, kw_only=True):
    q: Annotated[str, Meta(max_length=200)] = ""


def find(request: Request[Nothing, SearchQuery, Nothing], reads: Reads, layout: Layout) -> Response:
    """Lead to what is called so, or list what begins so."""
    wanted = request.query.q.strip()
    number = wanted.removeprefix("#").replace(",", "")
    if number.isascii() and number.isdigit() and len(number) <= 15:
        return see_other(f"/events?at={number}")
    links = _links(request, reads, wanted) if wanted else []
    if len(links) == 1 or any(link.label == wanted for link in links):
        exact = next((link for link in links if link.label == wanted), links[0])
        return see_other(exact.value)
    view = ErrorPage(
        title=f"{len(links)} things begin with “{wanted}”"
        if links
        else f"Nothing is called “{wanted}”",
        text="" if links else "Rollouts, channels, revisions, hosts and log positions are found.",
        icon="search",
        links=tuple(links),
    )
    page = PageView(template="error.html", title="Find", here="", view=view, still=True)
    return layout.answer(request, page)


def _links(
    request: Request[Nothing, SearchQuery, Nothing], reads: Reads, wanted: str
) -> list[Option]:
    principal = request.principal
    found: list[Option] = []
    for item in reads.range(CHANNELS, prefix=wanted, limit=EACH_MAX):
        if principal.may(Verb.READ, channel_scope(item.row.channel)):
            found.append(_link("/channels/", item.row.channel, "channels"))
    for item in reads.range(ROLLOUTS, prefix=wanted, limit=EACH_MAX):
        if principal.may(Verb.READ, channel_scope(item.row.channel)):
            found.append(_link("/rollouts/", item.row.rollout_id, "rollouts"))
    for item in reads.range(REVISIONS, prefix=wanted, limit=EACH_MAX):
        if principal.may(Verb.READ, repository_scope(item.row.repository)):
            found.append(_link("/revisions/", item.row.name, "releases"))
    if principal.may(Verb.READ):
        for item in reads.range(HOSTS, prefix=wanted, limit=EACH_MAX):
            found.append(_link("/hosts/", item.row.host_id, "hosts"))
    return found


def _link(path: str, name: str, icon: str) -> Option:
    return Option(path + quote(name, safe="@~"), name, icon)


ROUTES = (page_route("/find", find, requires_somewhere(Verb.READ)),)
