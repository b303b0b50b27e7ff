"""Which subscriptions a notice goes to."""

from __future__ import annotations

from tidegate.domain.access.roles import EVERYWHERE
from tidegate.domain.notifications.notices import Notice
from tidegate.domain.notifications.rows import Subscription
from tidegate.domain.notifications.states import RANKS


def is_wanted(subscription: Subscription, notice: Notice) -> bool:
    """Whether this subscription asks for the notice."""
    if subscription.disabled_at is not None:
        return False
    if subscription.events and notice.event not in subscription.events:
        return False
    if RANKS[notice.severity] < RANKS[subscription.min_severity]:
        return False
    return EVERYWHERE in subscription.scopes or not set(subscription.scopes).isdisjoint(
        notice.scopes
    )
