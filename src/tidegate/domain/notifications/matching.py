"""Decide which subscriptions get a notice."""

from __future__ import annotations

from tidegate.domain.access import roles, scopes
from tidegate.domain.notifications import events, notices, rows, states

OWN_FAILURES = frozenset({"notify.dead", "target.disabled"})  # about the subscription they name


def is_wanted(subscription: rows.Subscription, notice: notices.Notice) -> bool:
    """Whether this subscription gets the notice. None gets notices about its own failures.

    A pager also gets what resolves its alerts, whatever the subscription selects.
    """
    if subscription.disabled_at is not None:
        return False
    if notice.event in OWN_FAILURES and notice.subject == subscription.name:
        return False
    is_pager = subscription.kind is states.TargetKind.PAGERDUTY
    if not ((is_pager and notice.event in events.RESOLVING) or _selects(subscription, notice)):
        return False
    return any(_covers(scope, notice) for scope in subscription.scopes)


def _selects(subscription: rows.Subscription, notice: notices.Notice) -> bool:
    if subscription.events and notice.event not in subscription.events:
        return False
    return states.RANKS[notice.severity] >= states.RANKS[subscription.min_severity]


def _covers(scope: str, notice: notices.Notice) -> bool:
    if scope == roles.EVERYWHERE or scope in notice.scopes:
        return True
    return notices.ALL_CHANNELS in notice.scopes and scope.startswith(scopes.channel_scope(""))
