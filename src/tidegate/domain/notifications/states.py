"""Severities of events and kinds of targets."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """The severity of an event."""

    INFO = "info"
    """Something happened as expected."""
    WARNING = "warning"
    """A person should look at it today."""
    CRITICAL = "critical"
    """A person should look at it now."""


RANKS: Final = {severity: rank for rank, severity in enumerate(Severity)}


class TargetKind(StrEnum):
    """The kind of system that a subscription sends to."""

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


SIGNED: Final = frozenset({TargetKind.WEBHOOK})  # messages are signed with a secret
# Targets for people: more than DIGEST_MIN waiting messages become one digest.
IN_DIGESTS: Final = frozenset({TargetKind.SLACK, TargetKind.TEAMS, TargetKind.MAIL})
DIGEST_MIN: Final = 20
