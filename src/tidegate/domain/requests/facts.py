"""What happens to a request on a protected channel."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Struct

from tidegate.domain.channels.facts import ChannelProtection
from tidegate.kernel import tags, vocabulary


class SeenChannel(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the request was made of: if one of these changes, it is void."""

    pin: str | None
    policy_digest: str
    selector: str
    protection: ChannelProtection
    hosts: int | None = None  # of the plan; only a move by more than a tenth counts
    created_at: datetime | None = None  # of the channel: created again, it is another one
    rollout: str | None = None  # the newest one of the channel
    subject: dict[str, str] = {}  # digests of the hold, freeze, release … that it names


class RequestFact(Struct, frozen=True, omit_defaults=True, kw_only=True):
    request_id: Annotated[str, tags.Partition()]
    channel: Annotated[str, tags.Untagged()]
    by: Annotated[str, tags.Untagged()]
    at: datetime


class RequestMade(RequestFact, frozen=True, kw_only=True):
    """A person asks for something that needs another person."""

    kind: Annotated[str, tags.Untagged()]  # the step: channel.promote
    command: dict[str, Any]  # its arguments
    digest: Annotated[str, tags.Untagged()]  # of what is asked for and what was seen
    seen: Annotated[SeenChannel, tags.Untagged()]
    reason: str
    expires_at: datetime
    also: Annotated[
        tuple[str, ...], tags.Untagged()
    ] = ()  # other protected channels that it concerns


class RequestApproved(RequestFact, frozen=True, kw_only=True):
    """Another person agrees to what has this digest."""

    digest: Annotated[str, tags.Untagged()]
    reason: str = ""


class RequestExecuted(RequestFact, frozen=True, kw_only=True):
    """It was carried out, in this commit."""


class RequestRejected(RequestFact, frozen=True, kw_only=True):
    reason: str


class RequestWithdrawn(RequestFact, frozen=True, kw_only=True):
    reason: str = ""


class RequestExpired(RequestFact, frozen=True, kw_only=True):
    """Nobody approved it in time, or nobody carried it out."""


class RequestVoided(RequestFact, frozen=True, kw_only=True):
    """The channel, or what the request names, is no longer as it was when it was made."""

    reason: str


class EmergencyUsed(RequestFact, frozen=True, kw_only=True):
    """A person went past the approval. What they did is in the same commit."""

    kind: Annotated[str, tags.Untagged()]
    command: dict[str, Any]
    reason: str
    also: Annotated[tuple[str, ...], tags.Untagged()] = ()


class EmergencyUnreviewed(RequestFact, frozen=True, kw_only=True):
    """Nobody looked in time at what was done alone. It still waits for a review."""


class RequestReviewed(RequestFact, frozen=True, kw_only=True):
    """Another person looked at what was done alone. The verdict undoes nothing."""

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
