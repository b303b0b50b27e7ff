"""What a rollout asks of another channel before its orders go out."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class EdgeRequires(StrEnum):
    """What a channel must show before the one that names it may go."""

    SUCCEEDED = "succeeded"  # this very release succeeded there, and nothing bad was said since
    IDLE = "idle"  # its newest rollout is over, whatever it was of: order alone


class ChannelEdge(Struct, frozen=True):
    """A channel that comes first. Stored in full: no member is left out because it is usual."""

    channel: str
    require: EdgeRequires = EdgeRequires.SUCCEEDED
    soak_seconds: int = 0  # for so long the release stayed that channel's newest success
