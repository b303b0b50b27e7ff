"""Every route of the server, in one list that one can read."""

from __future__ import annotations

from typing import Final

from tidegate.api import (
    access,
    agents,
    budgets,
    channels,
    content,
    events,
    freezes,
    health,
    hosts,
    openapi,
    outbox,
    packages,
    promotions,
    publications,
    quarantine,
    releases,
    repositories,
    reviews,
    revisions,
    rollouts,
    sessions,
    simulations,
    steering,
    targets,
    tokens,
    views,
)
from tidegate.api.routing import Route

ROUTES: Final[tuple[Route, ...]] = (
    *health.ROUTES,
    *openapi.ROUTES,
    *views.ROUTES,
    *sessions.ROUTES,
    *access.ROUTES,
    *tokens.ROUTES,
    *repositories.ROUTES,
    *packages.ROUTES,
    *revisions.ROUTES,
    *reviews.ROUTES,
    *content.ROUTES,
    *events.ROUTES,
    *outbox.ROUTES,
    *targets.ROUTES,
    *publications.ROUTES,
    *releases.ROUTES,
    *budgets.ROUTES,
    *channels.ROUTES,
    *freezes.ROUTES,
    *hosts.ROUTES,
    *quarantine.ROUTES,
    *rollouts.ROUTES,
    *promotions.ROUTES,
    *steering.ROUTES,
    *simulations.ROUTES,
    *agents.ROUTES,
)
