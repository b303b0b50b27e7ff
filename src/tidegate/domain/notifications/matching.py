"""Which subscriptions a notice goes to."""

from __future__ import annotations

from tidegate.domain.access.roles import EVERYWHERE
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.notifications.notices import ALL_CHANNELS, Notice
from tidegate.domain.notifications.rows import Subscription
from tidegate.domain.notifications.states import RANKS

OWN_FAILURES = frozenset({"notify.dead", "target.disabled"})  # about the subscription they name


def is_wanted(subscription: Subscription, notice: Notice) -> bool:
    """Whether this subscription asks for the notice. None is told of its own failure."""
    if subscription.disabled_at is not None:
        return False
    if notice.event in OWN_FAILURES and notice.subject == subscription.name:
        return False
    if subscription.events and notice.event not in subscription.events:
        return False
    if RANKS[notice.severity] < RANKS[subscription.min_severity]:
        return False
    return any(_covers(scope, notice) for scope in subscription.scopes)


def _covers(scope: str, notice: Notice) -> bool:
    if scope == EVERYWHERE or scope in notice.scopes:
        return True
    return ALL_CHANNELS in notice.scopes and scope.startswith(channel_scope(""))
