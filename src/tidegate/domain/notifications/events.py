"""The catalogue: every event that people can be told of, and how grave it is."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidegate.domain.notifications.states import Severity

TYPE_PREFIX: Final = "dev.tidegate."  # of a CloudEvents type: dev.tidegate.rollout.halted.v1

EVENTS: Final[Mapping[str, Severity]] = MappingProxyType(
    {
        "rollout.halted": Severity.CRITICAL,
    }
)


def event_type(event: str) -> str:
    """The CloudEvents type of an event."""
    return f"{TYPE_PREFIX}{event}.v1"
