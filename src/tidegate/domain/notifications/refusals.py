"""The errors of requests about notifications."""

from __future__ import annotations

from tidegate.errors import Conflict, Formatted, Invalid, NotFound, Refused


class SubscriptionNotFound(NotFound):
    """There is no subscription with this name."""

    code = "subscription_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is no subscription {name!r}. List them: tidegate notify list", subscription=name
        )


class SubscriptionExists(Conflict):
    """A subscription with this name exists and has other terms."""

    code = "subscription_exists"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is a subscription {name!r} already. Change it: tidegate notify edit {name}",
            subscription=name,
        )


class InvalidSubscription(Invalid):
    """The events, scopes or target of the subscription are invalid."""

    code = "invalid_subscription"


class NothingWaits(Refused):
    """The queue of the subscription is empty, so there is nothing to skip."""

    code = "nothing_waits"

    def __init__(self, name: str) -> None:
        super().__init__(f"Nothing waits to be sent to {name}.", subscription=name)


class AddressMissing(Formatted, NotFound):
    """The address of the subscription was erased or is not in this database."""

    code = "address_missing"
    message = "The subscription has no address. Edit it to give it one."
