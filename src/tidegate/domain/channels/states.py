"""The states of a channel."""

from __future__ import annotations

from enum import StrEnum


class ChannelState(StrEnum):
    """Whether a channel has a rollout that a new one must supersede."""

    ABSENT = "absent"
    IDLE = "idle"
    BUSY = "busy"
