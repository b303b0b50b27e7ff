"""The addresses of every page of the dashboard in the furnished installation.

Tests that check all pages use this list. A route without an entry fails
`test_every_page_has_an_address`.
"""

from __future__ import annotations

from typing import Final

# The path of each route → addresses that show it in different states.
ADDRESSES: Final[dict[str, tuple[str, ...]]] = {
    "/": ("/",),
    "/rollouts": ("/rollouts", "/rollouts?outcome=failed", "/rollouts?sort=name"),
    "/rollouts/{rollout_id}": ("/rollouts/stable@web.1", "/rollouts/early@web.1"),
    "/rollouts/{rollout_id}/held": ("/rollouts/stable@web.1/held",),
    "/channels": ("/channels",),
    "/channels/{channel}": ("/channels/stable", "/channels/early"),
    "/releases": ("/releases", "/releases?tab=all", "/releases?tab=drafts"),
    "/revisions/{name}": ("/revisions/default.web.v2", "/revisions/default.web.v1"),
    "/approvals": ("/approvals", "/approvals?tab=decided"),
    "/approvals/{request_id}": ("/approvals/R-a2da86b3f0",),
    "/new/channel": ("/new/channel",),
    "/channels/{channel}/edit": ("/channels/stable/edit",),
    "/maintenance": ("/maintenance",),
    "/new/window": ("/new/window",),
    "/windows/{window_id}/edit": ("/windows/nightly/edit",),
    "/new/freeze": ("/new/freeze",),
    "/new/budget": ("/new/budget",),
    "/budgets/{budget_id}/edit": ("/budgets/web-hosts/edit",),
    "/notifications": ("/notifications",),
    "/new/subscription": ("/new/subscription",),
    "/subscriptions/{subscription}/edit": ("/subscriptions/ops/edit",),
    "/plan": ("/plan",),
    "/hosts": ("/hosts", "/hosts?filter=silent", "/hosts?selector=%3D"),
    "/hosts/{host_id}": ("/hosts/web-00", "/hosts/web-01"),
    "/joins": ("/joins",),
    "/new/join": ("/new/join",),
    "/events": (
        "/events",
        "/events?at=12",
        "/events?time=2026-01-01T00:00",
        "/events?type=RevisionPublished",
    ),
    "/outbox": ("/outbox", "/outbox?tab=done"),
    "/settings": ("/settings",),
    "/new/repository": ("/new/repository",),
    "/repositories/{repository}/edit": ("/repositories/default/edit",),
    "/find": ("/find?q=web",),
}
# Shown to people who are not signed in.
OUTSIDE: Final[dict[str, tuple[str, ...]]] = {
    "/signin": ("/signin",),
    "/setup": ("/setup",),
    "/reset": ("/reset?login=author&code=x",),
}
# Responses that are a part of another page, or redirect to one.
PARTS: Final = frozenset({"/rollouts/{rollout_id}/gates", "/plan/forecast", "/events/new"})
MISSING: Final = ("/nowhere", "/rollouts/stable@web.99")
