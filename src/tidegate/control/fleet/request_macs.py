"""Compute many MACs with one key (HMAC-SHA256, RFC 2104): the key is hashed once, not per message.

Short messages are hashed without releasing the interpreter lock. The library's one-shot HMAC
releases it each time, and under load waits long to acquire it again.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

KEY_BYTES_MAX: Final = 64  # a block of SHA-256; a longer key would have to be hashed first
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))


class RequestMacs:
    """Computes MACs with one key."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        assert len(key) <= KEY_BYTES_MAX, "keys are made here, of 32 bytes"
        padded = key.ljust(KEY_BYTES_MAX, b"\0")
        self._inner = sha256(padded.translate(_INNER))
        self._outer = sha256(padded.translate(_OUTER))

    def mac(self, message: bytes) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()
