"""Recognizes a repeated request by its idempotency key and the digest of the request."""

from __future__ import annotations

from hashlib import sha256

from msgspec import Struct

from tidegate.errors import IdempotencyMismatch
from tidegate.kernel import codec, model
from tidegate.kernel.store import Store


def digest(actor: str, name: str, asked: Struct) -> bytes:
    """The digest of a request: who asked for what. The answer is not part of it."""
    parts = (actor.encode(), name.encode(), codec.encode(asked))
    return sha256(b"".join(len(part).to_bytes(8) + part for part in parts)).digest()


def earlier_receipt(store: Store, once: model.CommitKey) -> model.Receipt | None:
    """The receipt of an earlier copy of this request; None if there was none.

    Raises:
        IdempotencyMismatch: the key was used for another request.
    """
    receipt = store.receipt(once.key)
    if receipt is not None and receipt.digest != once.digest:
        raise IdempotencyMismatch(once.key)
    return receipt
