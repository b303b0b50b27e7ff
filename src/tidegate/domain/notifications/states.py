"""The words of notifications: how grave an event is, and what a target is."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """How grave an event is."""

    INFO = "info"
    """Something happened as it should."""
    WARNING = "warning"
    """Somebody should look at it today."""
    CRITICAL = "critical"
    """Somebody should look at it now."""


RANKS: Final = {severity: rank for rank, severity in enumerate(Severity)}


class TargetKind(StrEnum):
    """What a subscription sends to."""

    WEBHOOK = "webhook"
    """A signed request to a URL, for a program: Standard Webhooks and CloudEvents."""


SIGNED: Final = frozenset({TargetKind.WEBHOOK})  # messages carry a signature, by a secret of ours
