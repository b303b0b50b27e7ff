"""The application of a server: its routes, and the parts that handlers may ask for."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate import __version__
from tidegate.api import fleet_metrics, notify_metrics, openapi
from tidegate.api.agents import auth, commit_waiters, order_waiters
from tidegate.api.feed.tail import Tail
from tidegate.api.metrics import Metrics
from tidegate.api.routes import ROUTES
from tidegate.clock import Clock
from tidegate.config import Settings
from tidegate.control.installation import Installation
from tidegate.control.queries import fleet_picture, forecasts, host_lists, remedy_offers, status
from tidegate.control.queries.people import PeopleNames
from tidegate.control.storage.blobs import Blobs
from tidegate.dashboard import gate_panel, grid_cache, layout, simulation
from tidegate.dashboard.routes import PAGES
from tidegate.web import authentication, paging, request_log, routing
from tidegate.web.application import Application, Surroundings
from tidegate.web.parts import Parts


def make_application(
    installation: Installation,
    *,
    routes: Sequence[routing.Route] = (*ROUTES, *PAGES),
    agents: authentication.AgentProof | None = None,
    lines: request_log.RequestLog | None = None,
) -> Application:
    """Build the web application of an installation."""
    is_local = installation.is_local
    parts = make_parts(installation, routes)
    tail, metrics = parts[Tail], parts[Metrics]
    application = Application(
        routes,
        parts,
        Surroundings(
            settings=installation.settings,
            clock=installation.clock,
            credentials=installation.accounts,
            tail=tail,
            is_local=is_local,
            count=metrics.requests.count,
            agents=agents
            or auth.AgentAuthenticator(
                installation.clock,
                installation.enrollment,
                installation.key_listeners,
                is_local=is_local,
            ),
            error_page=layout.error_page if any(route.is_page for route in routes) else None,
            lines=lines,
            name_people=parts[PeopleNames].name_in,
        ),
    )
    metrics.follow(
        position=lambda: tail.position,
        subscribers=lambda: tail.subscribers,
        connections=application.connections.__len__,
    )
    return application


def make_parts(installation: Installation, routes: Sequence[routing.Route]) -> Parts:
    """Build the parts that handlers of these routes may ask for, by type."""
    tail = Tail(installation.log, installation.listeners)
    cursors = paging.Cursors(lambda text: installation.secrets.mac("cursors", text))
    reads, log, clock = installation.reads, installation.log, installation.clock
    fleet_reader = installation.fleet_reader
    pictures = fleet_picture.FleetPictures(reads, clock)
    people = PeopleNames(installation.name_of)
    offers = remedy_offers.RemedyOffers(reads, people)
    metrics = Metrics()
    metrics.registry.register(fleet_metrics.FleetMetrics(reads, fleet_reader, pictures, clock))
    metrics.registry.register(notify_metrics.NotifyMetrics(reads, clock))
    by_class = (
        # of the installation
        installation.reads,
        installation.log,
        installation.row_history,
        installation.scope_history,
        installation.outbox_reader,
        installation.fleet_reader,
        installation.health,
        installation.enrollment,
        installation.deliveries,
        installation.agent_reports,
        installation.heartbeats,
        installation.publisher,
        installation.manifests,
        installation.accounts,
        installation.access,
        installation.automation,
        installation.budgets,
        installation.channels,
        installation.freezes,
        installation.windows,
        installation.guard,
        installation.join_tokens,
        installation.hosts,
        installation.outbox,
        installation.owner_cleanup,
        installation.packages,
        installation.promotion,
        installation.promotions,
        installation.publications,
        installation.quarantine,
        installation.releases,
        installation.repositories,
        installation.requests,
        installation.revisions,
        installation.rollouts,
        installation.targets,
        installation.subscriptions,
        installation.uploads,
        # of this server
        tail,
        cursors,
        metrics,
        pictures,
        host_lists.HostLists(reads),
        people,
        offers,
        status.StatusReader(reads, fleet_reader, pictures, people, offers),
        commit_waiters.CommitWaiters(tail),
        order_waiters.OrderWaiters(tail, installation.listeners),
        openapi.ApiDocument(tuple(routes), __version__),
        # of the dashboard
        layout.Layout(clock, installation.accounts, tail, cursors),
        grid_cache.GridCache(fleet_reader, reads, log),
        gate_panel.GateReports(fleet_reader, clock, people),
        simulation.Simulations(reads, fleet_reader, installation.promotions, installation.forecast),
    )
    return Parts(
        {
            **{type(part): part for part in by_class},
            Settings: installation.settings,
            Clock: clock,
            Blobs: installation.blobs,
            forecasts.Forecaster: installation.forecast,
        }
    )
