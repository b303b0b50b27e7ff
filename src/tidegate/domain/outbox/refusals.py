"""What a request about the outbox is refused with."""

from __future__ import annotations

from tidegate import errors


class SecretRefused(errors.Invalid):
    """An outbox holds no credentials, key material or decrypted values; name what is wanted."""

    code = "secret_refused"

    def __init__(self, member: str) -> None:
        super().__init__(f"{member} looks like a secret; it was not written", field=member)


class NewerIntent(errors.Refused):
    """A newer intent of this operation exists; to do the older one again would undo it."""

    code = "newer_intent"


class IntentExists(errors.ConditionFailed):
    """The outbox has this intent already; it is written once."""

    code = "intent_exists"

    def __init__(self, id: str) -> None:
        super().__init__(f"{id} exists already; it is written once", row=id)
