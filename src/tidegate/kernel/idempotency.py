"""How a repeat is known: by its idempotency key, and by the digest of what was asked under it."""

from __future__ import annotations

from hashlib import sha256

from msgspec import Struct

from tidegate.errors import IdempotencyMismatch
from tidegate.kernel import codec, model
from tidegate.kernel.store import Store


def digest(actor: str, route: str, asked: Struct) -> bytes:
    """What an idempotency key stands for: who asked what, never how it was answered."""
    parts = (actor.encode(), route.encode(), codec.encode(asked))
    return sha256(b"".join(len(part).to_bytes(8) + part for part in parts)).digest()


def earlier_receipt(store: Store, once: model.CommitKey) -> model.Receipt | None:
    """The receipt of the first copy of this request; None: there was none.

    Raises:
        IdempotencyMismatch: the key belongs to another request.
    """
    receipt = store.receipt(once.key)
    if receipt is not None and receipt.digest != once.digest:
        raise IdempotencyMismatch(once.key)
    return receipt
