"""The errors of requests about the outbox."""

from __future__ import annotations

from tidegate import errors


class SecretRefused(errors.Invalid):
    """An outbox must not hold credentials, key material or decrypted values; name them instead."""

    code = "secret_refused"

    def __init__(self, member: str) -> None:
        super().__init__(f"{member} looks like a secret; it was not written", field=member)


class NewerIntent(errors.Refused):
    """A newer intent of this operation exists; redriving the older one would undo it."""

    code = "newer_intent"


class IntentExists(errors.ConditionFailed):
    """The outbox already has this intent."""

    code = "intent_exists"

    def __init__(self, id: str) -> None:
        super().__init__(f"{id} exists already; it is written once", row=id)
