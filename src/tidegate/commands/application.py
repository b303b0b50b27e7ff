"""What a server answers: every route, and the parts that their handlers may ask for."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate import __version__
from tidegate.api.agents.auth import AgentAuthenticator
from tidegate.api.agents.commit_waiters import CommitWaiters
from tidegate.api.agents.order_waiters import OrderWaiters
from tidegate.api.feed.tail import Tail
from tidegate.api.fleet_metrics import FleetMetrics
from tidegate.api.metrics import Metrics
from tidegate.api.notify_metrics import NotifyMetrics
from tidegate.api.openapi import ApiDocument
from tidegate.api.routes import ROUTES
from tidegate.clock import Clock
from tidegate.config import Settings
from tidegate.control.installation import Installation
from tidegate.control.queries.fleet_picture import FleetPictures
from tidegate.control.queries.forecasts import Forecaster
from tidegate.control.queries.host_lists import HostLists
from tidegate.control.queries.people import PeopleNames
from tidegate.control.queries.status import StatusReader
from tidegate.control.storage.blobs import Blobs
from tidegate.dashboard.gate_panel import GateReports
from tidegate.dashboard.grid_cache import GridCache
from tidegate.dashboard.layout import Layout, error_page
from tidegate.dashboard.routes import PAGES
from tidegate.dashboard.simulation import Simulations
from tidegate.web.application import Application, Surroundings
from tidegate.web.authentication import AgentProof
from tidegate.web.paging import Cursors
from tidegate.web.parts import Parts
from tidegate.web.request_log import RequestLog
from tidegate.web.routing import Route


def make_application(
    installation: Installation,
    *,
    routes: Sequence[Route] = (*ROUTES, *PAGES),
    agents: AgentProof | None = None,
    lines: RequestLog | None = None,
) -> Application:
    """Everything that a server answers, over one installation."""
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
            or AgentAuthenticator(
                installation.clock,
                installation.enrollment,
                installation.key_listeners,
                is_local=is_local,
            ),
            error_page=error_page if any(route.is_page for route in routes) else None,
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


def make_parts(installation: Installation, routes: Sequence[Route]) -> Parts:
    """What the handlers of these routes may ask for, by type."""
    tail = Tail(installation.log, installation.listeners)
    cursors = Cursors(lambda text: installation.secrets.mac("cursors", text))
    reads, log, clock = installation.reads, installation.log, installation.clock
    fleet_reader = installation.fleet_reader
    pictures = FleetPictures(reads, clock)
    people = PeopleNames(installation.name_of)
    metrics = Metrics()
    metrics.registry.register(FleetMetrics(reads, fleet_reader, pictures, clock))
    metrics.registry.register(NotifyMetrics(reads, clock))
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
        HostLists(reads),
        people,
        StatusReader(reads, fleet_reader, pictures, people),
        CommitWaiters(tail),
        OrderWaiters(tail, installation.listeners),
        ApiDocument(tuple(routes), __version__),
        # of the dashboard
        Layout(clock, installation.accounts, tail, cursors),
        GridCache(fleet_reader, reads, log),
        GateReports(fleet_reader, clock, people),
        Simulations(reads, fleet_reader, installation.promotions, installation.forecast),
    )
    return Parts(
        {
            **{type(part): part for part in by_class},
            Settings: installation.settings,
            Clock: clock,
            Blobs: installation.blobs,
            Forecaster: installation.forecast,
        }
    )
