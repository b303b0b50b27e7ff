"""The row of a request."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from tidegate.domain.requests import facts, states
from tidegate.kernel import collections as kernel_collections, model


class ChannelRequest(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A request on a protected channel and its approvals."""

    request_id: str
    channel: str
    kind: str
    command: dict[str, Any]
    by: str
    reason: str
    made_at: datetime
    state: states.RequestState
    digest: str = ""
    seen: facts.SeenChannel | None = None  # None: it was carried out with break-glass
    expires_at: datetime | None = None
    approvals: tuple[str, ...] = ()
    ended_by: str = ""
    ended_at: datetime | None = None
    ended_reason: str = ""
    accepted: bool | None = None  # the verdict of the review
    also: tuple[str, ...] = ()  # other protected channels that it concerns
    reminded_at: datetime | None = None  # when people were notified that the review is overdue

    @property
    def channels(self) -> tuple[str, ...]:
        """The protected channels that it concerns. An approver needs the permission on each."""
        return self.channel, *self.also

    @property
    def approvals_needed(self) -> int:
        return 0 if self.seen is None else self.seen.protection.approvals


REQUESTS = kernel_collections.Collection(
    "requests",
    ChannelRequest,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("request_id", "channel", "state", "made_at"),
    indexes=(
        kernel_collections.Index("by_making", ("made_at",)),
        kernel_collections.Index("by_state", ("state", "made_at")),
    ),
)


def request_key(request_id: str) -> model.Key:
    return model.Key(REQUESTS.name, request_id)


COLLECTIONS = (REQUESTS,)
