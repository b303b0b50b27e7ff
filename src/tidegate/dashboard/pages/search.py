"""Search by the start of a name: channels, rollouts, releases, revisions, requests, hosts, log."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from msgspec import Meta

from tidegate.control.queries.reads import Reads
from tidegate.dashboard import components, layout as dashboard_layout
from tidegate.dashboard.view_models import form_screens
from tidegate.domain.access import roles, scopes
from tidegate.domain.channels.rows import CHANNELS
from tidegate.domain.fleet.rows import HOSTS
from tidegate.domain.packages.rows import REVISIONS, Revision, revision_key
from tidegate.domain.releases.rows import KNOWN
from tidegate.domain.requests.rows import REQUESTS
from tidegate.domain.rollouts.rows import ROLLOUTS
from tidegate.web import inputs, routing

EACH_MAX = 10
KINDS = "channels, rollouts, releases, revisions, requests, hosts and log positions"


class SearchQuery(dashboard_layout.PageQuery, frozen=True, kw_only=True):
    q: Annotated[str, Meta(max_length=200)] = ""


def find(
    request: routing.Request[inputs.Nothing, SearchQuery, inputs.Nothing],
    reads: Reads,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Redirect to an exact match, or list what begins with the text."""
    wanted = request.query.q.strip()
    number = wanted.removeprefix("#").replace(",", "")
    if number.isascii() and number.isdigit() and len(number) <= 15:
        return dashboard_layout.see_other(f"/events?at={number}")
    links = _links(request, reads, wanted) if wanted else []
    if len(links) == 1 or any(link.label == wanted for link in links):
        exact = next((link for link in links if link.label == wanted), links[0])
        return dashboard_layout.see_other(exact.value)
    view = form_screens.ErrorPage(
        title=f"{len(links)} results begin with “{wanted}”"
        if links
        else f"Nothing is called “{wanted}”",
        text="" if links else f"You can find {KINDS} by the start of their names.",
        icon="search",
        links=tuple(links),
    )
    page = dashboard_layout.PageView(
        template="error.html", title="Find", here="", view=view, still=True
    )
    return layout.answer(request, page)


def _links(
    request: routing.Request[inputs.Nothing, SearchQuery, inputs.Nothing], reads: Reads, wanted: str
) -> list[components.Option]:
    principal = request.principal
    found: list[components.Option] = []
    for item in reads.range(CHANNELS, prefix=wanted, limit=EACH_MAX):
        if principal.may(roles.Verb.READ, scopes.channel_scope(item.row.channel)):
            found.append(_link("/channels/", item.row.channel, "channels"))
    for item in reads.range(ROLLOUTS, prefix=wanted, limit=EACH_MAX):
        if principal.may(roles.Verb.READ, scopes.channel_scope(item.row.channel)):
            found.append(_link("/rollouts/", item.row.rollout_id, "rollouts"))
    for release in reads.range(KNOWN, prefix=wanted, limit=EACH_MAX):
        revision = reads.find(revision_key(release.row.revision), Revision)
        if revision is not None and principal.may(
            roles.Verb.READ, scopes.repository_scope(revision.row.repository)
        ):
            name = release.row.release_id
            found.append(_link("/revisions/", revision.row.name, "releases", name))
    for item in reads.range(REVISIONS, prefix=wanted, limit=EACH_MAX):
        if principal.may(roles.Verb.READ, scopes.repository_scope(item.row.repository)):
            found.append(_link("/revisions/", item.row.name, "releases"))
    for asked in reads.range(REQUESTS, prefix=wanted, limit=EACH_MAX):
        if principal.may(roles.Verb.READ, scopes.channel_scope(asked.row.channel)):
            found.append(_link("/approvals/", asked.row.request_id, "shield"))
    if principal.may(roles.Verb.READ):
        for item in reads.range(HOSTS, prefix=wanted, limit=EACH_MAX):
            found.append(_link("/hosts/", item.row.host_id, "hosts"))
    return found


def _link(path: str, name: str, icon: str, label: str = "") -> components.Option:
    return components.Option(path + quote(name, safe="@~"), label or name, icon)


ROUTES = (dashboard_layout.page_route("/find", find, routing.requires_somewhere(roles.Verb.READ)),)
