"""The catalogue: every event that can be sent, its severity, and when it happens.

The string of each event is its entry in the table of docs/notifications.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from tidegate.domain.notifications.states import Severity

TYPE_PREFIX: Final = "dev.tidegate."  # of a CloudEvents type: dev.tidegate.rollout.halted.v1
TEST_EVENT: Final = "notify.test"  # sent by hand; no subscription selects it

DIGEST_EVENT: Final = "notify.digest"  # several events in one message

INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL


class CataloguedEvent(NamedTuple):
    """One event."""

    severity: Severity
    when: str


EVENTS: Final[Mapping[str, CataloguedEvent]] = MappingProxyType(
    {
        "rollout.opened": CataloguedEvent(INFO, "a rollout starts"),
        "rollout.halted": CataloguedEvent(
            CRITICAL, "a host failed, and the rollout sends no more orders"
        ),
        "rollout.stopped": CataloguedEvent(
            CRITICAL,
            "every host of a halted rollout has rolled back, or failed for good: "
            "an operator must decide",
        ),
        "rollout.succeeded": CataloguedEvent(INFO, "a rollout ended, and it succeeded"),
        "rollout.rolled_back": CataloguedEvent(CRITICAL, "a rollout ended after hosts rolled back"),
        "rollout.failed": CataloguedEvent(CRITICAL, "a rollout ended, and it failed"),
        "rollout.aborted": CataloguedEvent(WARNING, "an operator ended a rollout"),
        "rollout.replaced": CataloguedEvent(INFO, "another rollout replaced one"),
        "rollout.empty": CataloguedEvent(WARNING, "a rollout ended, and no host ran it"),
        "rollout.waiting": CataloguedEvent(
            WARNING, "a rollout waits for a person, or for 30 minutes; once per gate and wave"
        ),
        "rollout.resumed": CataloguedEvent(INFO, "an operator lets a rollout continue"),
        "rollout.degraded": CataloguedEvent(
            WARNING,
            "a host failed or drifted after the rollout ended; once per rollout, after 60 s",
        ),
        "release.quarantined": CataloguedEvent(
            CRITICAL, "a release is quarantined on a channel, and no halt reported it already"
        ),
        "release.quarantine_lifted": CataloguedEvent(INFO, "a quarantine was lifted"),
        "revision.proposed": CataloguedEvent(INFO, "a revision waits for approval"),
        "revision.approved": CataloguedEvent(INFO, "a revision was approved"),
        "revision.rejected": CataloguedEvent(INFO, "a revision was rejected"),
        "revision.published": CataloguedEvent(INFO, "a revision was published"),
        "emergency.used": CataloguedEvent(
            CRITICAL,
            "an operator overrode a gate or a wave, rolled a channel back at once, or bypassed the "
            "approval of a protected channel",
        ),
        "emergency.unreviewed": CataloguedEvent(
            CRITICAL, "what was done with break-glass was not reviewed for 72 hours; once"
        ),
        "emergency.reviewed": CataloguedEvent(
            INFO, "another person accepted or disputed what was done with break-glass"
        ),
        "request.made": CataloguedEvent(
            WARNING, "an operator asks for what needs a second person on a protected channel"
        ),
        "request.approved": CataloguedEvent(INFO, "another person approved a request"),
        "request.rejected": CataloguedEvent(INFO, "a request was rejected"),
        "request.withdrawn": CataloguedEvent(INFO, "the person who made a request withdrew it"),
        "request.expired": CataloguedEvent(WARNING, "a request was not carried out in time"),
        "request.voided": CataloguedEvent(
            WARNING, "what a request is about has changed, so it can no longer be carried out"
        ),
        "request.executed": CataloguedEvent(INFO, "an approved request was carried out"),
        "hosts.silent": CataloguedEvent(
            WARNING,
            "hosts of a channel are silent; 60 s after the first, then at most every 15 minutes "
            "and only if the number grew by 10 % or 10 hosts",
        ),
        "hosts.heard": CataloguedEvent(INFO, "no host of the channel is silent any more"),
        "hosts.lost": CataloguedEvent(CRITICAL, "hosts are silent for 24 hours; once a day"),
        "freeze.started": CataloguedEvent(INFO, "a freeze starts"),
        "freeze.ended": CataloguedEvent(INFO, "a freeze ends"),
        "channel.held": CataloguedEvent(INFO, "a channel is held"),
        "channel.released": CataloguedEvent(INFO, "the hold on a channel is released"),
        "channel.edited": CataloguedEvent(INFO, "the selector or the policy of a channel changed"),
        "outbox.dead": CataloguedEvent(
            CRITICAL, "an outbox intent was given up; then one message per 5 minutes, counted"
        ),
        "notify.dead": CataloguedEvent(
            CRITICAL,
            "a message to another subscription was given up; then one per 5 minutes, counted",
        ),
        "notify.changed": CataloguedEvent(
            WARNING, "a person edited or deleted a subscription; for subscriptions of the scope `*`"
        ),
        "target.disabled": CataloguedEvent(
            CRITICAL, "the receiver of another subscription answered 410"
        ),
    }
)

# What ends an alert of a system for alerts, such as PagerDuty.
RESOLVING: Final = frozenset(
    {
        *("rollout.resumed", "rollout.succeeded", "rollout.rolled_back", "rollout.aborted"),
        *("rollout.replaced", "rollout.empty", "release.quarantine_lifted", "hosts.heard"),
        *("rollout.opened", "emergency.reviewed"),
    }
)


def severity_of(event: str) -> Severity:
    """The severity of an event."""
    return INFO if event == TEST_EVENT else EVENTS[event].severity


def event_type(event: str) -> str:
    """The CloudEvents type of an event."""
    return f"{TYPE_PREFIX}{event}.v1"
