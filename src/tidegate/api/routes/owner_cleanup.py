"""Deletes the open revisions of an owner that no longer exists."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tidegate.control.operations.owner_cleanup import OwnerCleanupOperations
from tidegate.control.storage.owner_cleanup import Reaped
from tidegate.domain.access.steps import CLEAN_UP_OWNER
from tidegate.domain.packages.facts import OwnerReference
from tidegate.web import inputs, routing


class GoneOwner(inputs.Input, frozen=True, kw_only=True):
    """An owner, as in ownerReferences."""

    kind: Annotated[str, Meta(min_length=1, max_length=317)]
    id: Annotated[str, Meta(min_length=1, max_length=253)]


def create(
    request: routing.Request[inputs.Nothing, inputs.Nothing, GoneOwner],
    owner_cleanup: OwnerCleanupOperations,
) -> routing.Response:
    """Delete the Draft and Proposed revisions of a deleted owner; published ones are kept.

    Each deletion is a commit of its own. A revision that may not be deleted, or that has changed
    meanwhile, is kept and listed. One request deletes at most a thousand; repeat it for the rest.
    """
    owner = OwnerReference(request.body.kind, request.body.id)
    reaped = owner_cleanup.clean_up(request.caller, owner)
    return routing.Response(reaped, position=reaped.position)


ROUTES = (
    routing.Route(
        "POST", "/v1/revision-reaps", create, routing.requires_step(CLEAN_UP_OWNER), Reaped
    ),
)
