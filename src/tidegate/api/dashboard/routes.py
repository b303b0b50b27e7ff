"""Every page of the dashboard, in one list."""

from __future__ import annotations

from typing import Final

from tidegate.api.dashboard import (
    approvals,
    channels,
    door,
    events,
    files,
    find,
    forecasts,
    gatepanel,
    grids,
    hosts,
    live,
    outbox,
    overview,
    pinned,
    plan,
    revisions,
    rollouts,
    settings,
    steered,
)
from tidegate.api.routing import Route

PAGES: Final[tuple[Route, ...]] = (
    *files.ROUTES,
    *door.ROUTES,
    *live.ROUTES,
    *overview.ROUTES,
    *rollouts.ROUTES,
    *grids.ROUTES,
    *gatepanel.ROUTES,
    *steered.ROUTES,
    *channels.ROUTES,
    *pinned.ROUTES,
    *approvals.ROUTES,
    *revisions.ROUTES,
    *plan.ROUTES,
    *forecasts.ROUTES,
    *hosts.ROUTES,
    *events.ROUTES,
    *outbox.ROUTES,
    *settings.ROUTES,
    *find.ROUTES,
)
