"""Every route of the server, in one list."""

from __future__ import annotations

from typing import Final

from tidegate.api import health, openapi
from tidegate.api.agents import routes
from tidegate.api.feed import events
from tidegate.api.routes import (
    budgets,
    channels,
    freezes,
    hosts,
    join_tokens,
    outbox,
    owner_cleanup,
    packages,
    policies,
    promotions,
    publications,
    quarantine,
    releases,
    repositories,
    requests,
    revision_content,
    revisions,
    rollout_commands,
    rollouts,
    sessions,
    simulations,
    status,
    subscriptions,
    targets,
    tokens,
    uploads,
    users,
    views,
    windows,
)
from tidegate.web.routing import Route

ROUTES: Final[tuple[Route, ...]] = (
    *health.ROUTES,
    *openapi.ROUTES,
    *views.ROUTES,
    *status.ROUTES,
    *sessions.ROUTES,
    *users.ROUTES,
    *tokens.ROUTES,
    *repositories.ROUTES,
    *requests.ROUTES,
    *packages.ROUTES,
    *revisions.ROUTES,
    *owner_cleanup.ROUTES,
    *revision_content.ROUTES,
    *uploads.ROUTES,
    *events.ROUTES,
    *outbox.ROUTES,
    *targets.ROUTES,
    *subscriptions.ROUTES,
    *publications.ROUTES,
    *releases.ROUTES,
    *budgets.ROUTES,
    *channels.ROUTES,
    *policies.ROUTES,
    *freezes.ROUTES,
    *windows.ROUTES,
    *hosts.ROUTES,
    *join_tokens.ROUTES,
    *quarantine.ROUTES,
    *rollouts.ROUTES,
    *promotions.ROUTES,
    *rollout_commands.ROUTES,
    *simulations.ROUTES,
    *routes.ROUTES,
)
