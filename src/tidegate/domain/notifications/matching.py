"""Decide which subscriptions get a notice."""

from __future__ import annotations

from tidegate.domain.access import roles, scopes
from tidegate.domain.notifications import notices, rows, states

OWN_FAILURES = frozenset({"notify.dead", "target.disabled"})  # about the subscription they name


def is_wanted(subscription: rows.Subscription, notice: notices.Notice) -> bool:
    """Whether this subscription gets the notice. None gets notices about its own failures."""
    if subscription.disabled_at is not None:
        return False
    if notice.event in OWN_FAILURES and notice.subject == subscription.name:
        return False
    if subscription.events and notice.event not in subscription.events:
        return False
    if states.RANKS[notice.severity] < states.RANKS[subscription.min_severity]:
        return False
    return any(_covers(scope, notice) for scope in subscription.scopes)


def _covers(scope: str, notice: notices.Notice) -> bool:
    if scope == roles.EVERYWHERE or scope in notice.scopes:
        return True
    return notices.ALL_CHANNELS in notice.scopes and scope.startswith(scopes.channel_scope(""))
