"""Every page of the dashboard, in one list."""

from __future__ import annotations

from typing import Final

from tidegate.dashboard import gate_panel, grid_cache, live, simulation, static_files
from tidegate.dashboard.pages import (
    approvals,
    channel_actions,
    channel_forms,
    channels,
    events,
    hosts,
    joins,
    maintenance,
    maintenance_forms,
    notifications,
    outbox,
    overview,
    plan,
    releases,
    repository_forms,
    revisions,
    rollout_actions,
    rollouts,
    search,
    settings,
    sign_in,
)
from tidegate.web.routing import Route

PAGES: Final[tuple[Route, ...]] = (
    *static_files.ROUTES,
    *sign_in.ROUTES,
    *live.ROUTES,
    *overview.ROUTES,
    *rollouts.ROUTES,
    *grid_cache.ROUTES,
    *gate_panel.ROUTES,
    *rollout_actions.ROUTES,
    *channels.ROUTES,
    *channel_actions.ROUTES,
    *channel_forms.ROUTES,
    *approvals.ROUTES,
    *releases.ROUTES,
    *revisions.ROUTES,
    *plan.ROUTES,
    *simulation.ROUTES,
    *maintenance.ROUTES,
    *maintenance_forms.ROUTES,
    *notifications.ROUTES,
    *hosts.ROUTES,
    *joins.ROUTES,
    *events.ROUTES,
    *outbox.ROUTES,
    *settings.ROUTES,
    *repository_forms.ROUTES,
    *search.ROUTES,
)
