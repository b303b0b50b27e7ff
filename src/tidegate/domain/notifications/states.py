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
    SLACK = "slack"
    """A message in a Slack channel, by an incoming webhook of Slack."""
    TEAMS = "teams"
    """A card in a Microsoft Teams channel, by a webhook of a workflow."""
    PAGERDUTY = "pagerduty"
    """An alert in PagerDuty, by the Events API v2. Critical events trigger, others resolve."""
    GRAFANA = "grafana"
    """An annotation in Grafana."""
    MAIL = "mail"
    """A mail, by the SMTP server of the settings."""


SIGNED: Final = frozenset({TargetKind.WEBHOOK})  # messages carry a signature, by a secret of ours
# For people: more than DIGEST_MIN waiting messages become one.
IN_DIGESTS: Final = frozenset({TargetKind.SLACK, TargetKind.TEAMS, TargetKind.MAIL})
DIGEST_MIN: Final = 20
