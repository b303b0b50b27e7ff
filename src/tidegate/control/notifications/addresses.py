"""Addresses of subscriptions: stored in rows, sealed by the installation key, never shown again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from tidegate import decoders, errors
from tidegate.control.secrets import Secrets
from tidegate.control.webhooks import to_secret
from tidegate.domain.notifications import refusals, rows
from tidegate.kernel.model import Meta
from tidegate.kernel.records.records import Records


class TargetAddress(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Where messages go, and the secret that authenticates them there."""

    url: str = ""
    to: tuple[str, ...] = ()  # mail addresses
    secret: str = ""
    previous_secret: str = ""  # of a webhook: signs, too, until the receiver has the new one
    previous_until: datetime | None = None


_address = decoders.build(TargetAddress)


class Addresses:
    """Stores the addresses of subscriptions."""

    def __init__(self, records: Callable[[Meta], Records], secrets: Secrets) -> None:
        self._records = records
        self._secrets = secrets

    def keep(self, id: str, subscription: str, address: TargetAddress, meta: Meta) -> None:
        """Store an address under its own id. A repeat keeps the first address."""
        sealed = self._secrets.seal("subscription_addresses", id, msgspec.json.encode(address))
        try:
            row = rows.SealedAddress(subscription, sealed)
            self._records(meta).create(rows.ADDRESSES.name, id, row)
        except errors.ConditionFailed:
            return

    def open(self, id: str) -> TargetAddress:
        """Raises: AddressMissing, SealBroken."""
        found = self._records(Meta()).find(rows.ADDRESSES.name, id)
        if found is None:
            raise refusals.AddressMissing()
        content = self._secrets.unseal("subscription_addresses", id, found.value.sealed)
        return _address.decode(content)

    def erase(self, id: str, meta: Meta) -> None:
        self._records(meta).delete(rows.ADDRESSES.name, id)

    def mark(self, address: TargetAddress) -> str:
        """Return a MAC of an address, which does not reveal the address."""
        return self._secrets.mac("address_marks", msgspec.json.encode(address)).hex()

    def make_secret(self, id: str) -> str:
        """Derive the secret of a webhook from the id of its address; the same at every call."""
        return to_secret(self._secrets.mac("webhook_secrets", id.encode()))
