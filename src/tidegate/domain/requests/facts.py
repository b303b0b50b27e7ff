"""The facts about requests on protected channels."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Struct

from tidegate.domain.channels.facts import ChannelProtection
from tidegate.kernel import tags, vocabulary


class SeenChannel(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The channel when the request was made. If one of these changes, the request is void."""

    pin: str | None
    policy_digest: str
    selector: str
    protection: ChannelProtection
    hosts: int | None = None  # of the plan; only a change by more than a tenth counts
    created_at: datetime | None = None  # of the channel; it may be created again
    rollout: str | None = None  # the newest one of the channel
    subject: dict[str, str] = {}  # digests of the hold, freeze, release … that it names


class RequestFact(Struct, frozen=True, omit_defaults=True, kw_only=True):
    request_id: Annotated[str, tags.Partition()]
    channel: Annotated[str, tags.Untagged()]
    by: Annotated[str, tags.Untagged()]
    at: datetime


class RequestMade(RequestFact, frozen=True, kw_only=True):
    """A person requested something that needs another person's approval."""

    kind: Annotated[str, tags.Untagged()]  # the step: channel.promote
    command: dict[str, Any]  # its arguments
    digest: Annotated[str, tags.Untagged()]  # of the command and of ``seen``
    seen: Annotated[SeenChannel, tags.Untagged()]
    reason: str
    expires_at: datetime
    also: Annotated[
        tuple[str, ...], tags.Untagged()
    ] = ()  # other protected channels that it concerns


class RequestApproved(RequestFact, frozen=True, kw_only=True):
    """Another person approved the request with this digest."""

    digest: Annotated[str, tags.Untagged()]
    reason: str = ""


class RequestExecuted(RequestFact, frozen=True, kw_only=True):
    """The request was carried out in this commit."""


class RequestRejected(RequestFact, frozen=True, kw_only=True):
    reason: str


class RequestWithdrawn(RequestFact, frozen=True, kw_only=True):
    reason: str = ""


class RequestExpired(RequestFact, frozen=True, kw_only=True):
    """The request was not approved or not carried out in time."""


class RequestVoided(RequestFact, frozen=True, kw_only=True):
    """The channel, or a thing that the request names, has changed since the request was made."""

    reason: str


class EmergencyUsed(RequestFact, frozen=True, kw_only=True):
    """A person bypassed the approval with break-glass. Their command is in the same commit."""

    kind: Annotated[str, tags.Untagged()]
    command: dict[str, Any]
    reason: str
    also: Annotated[tuple[str, ...], tags.Untagged()] = ()


class EmergencyUnreviewed(RequestFact, frozen=True, kw_only=True):
    """A use of break-glass was not reviewed in time. It still waits for a review."""


class RequestReviewed(RequestFact, frozen=True, kw_only=True):
    """Another person reviewed a use of break-glass. A negative verdict undoes nothing."""

    accepted: bool
    reason: str


FACTS = vocabulary.facts(
    "fleet",
    RequestMade,
    RequestApproved,
    RequestExecuted,
    RequestRejected,
    RequestWithdrawn,
    RequestExpired,
    RequestVoided,
    EmergencyUsed,
    EmergencyUnreviewed,
    RequestReviewed,
)
