"""The installation's secret, and the keys, MACs and encryption derived from it per purpose.

A sealed text is ``<key id>.<base64 of nonce and ciphertext>``, AES-256-GCM. It can be decrypted
only for the purpose and row that it was sealed for. The key id identifies the installation key, so
that an error can name a wrong one.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import secrets as randomness
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tidegate.errors import StoreRefused, Unavailable

SECRET_BYTES = 32
NONCE_BYTES = 12
KEY_ID_CHARS = 8

SECRET_FILE = "secret"


class SealBroken(Unavailable):
    """A row was sealed with another installation key, or for another row."""

    code = "seal_broken"


class Secrets:
    """Derives a key per purpose from one secret, in a file that only its owner can read."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def in_directory(cls, directory: Path) -> Secrets:
        """Read the installation's secret; make it at the first start.

        Raises:
            StoreRefused: others can read the directory.
        """
        private_directory(directory)
        path = directory / SECRET_FILE
        if not path.exists():
            _make_secret(path)
        return cls(_read_secret(path))

    def key(self, purpose: str) -> bytes:
        """Derive a key of 32 bytes for this purpose."""
        return hmac.digest(self._secret, purpose.encode(), "sha256")

    def mac(self, purpose: str, message: bytes) -> bytes:
        return hmac.digest(self.key(purpose), message, "sha256")

    @property
    def key_id(self) -> str:
        """Return a short id of the installation key, which reveals nothing about the key."""
        return self.mac("key_id", b"").hex()[:KEY_ID_CHARS]

    def seal(self, purpose: str, row: str, content: bytes) -> str:
        """Encrypt the content for this purpose and row."""
        nonce = randomness.token_bytes(NONCE_BYTES)
        box = AESGCM(self.key(purpose)).encrypt(nonce, content, row.encode())
        return f"{self.key_id}.{base64.b64encode(nonce + box).decode()}"

    def unseal(self, purpose: str, row: str, sealed: str) -> bytes:
        """Decrypt a sealed text. Raises: SealBroken."""
        key_id, _, text = sealed.partition(".")
        if key_id != self.key_id:
            raise SealBroken(
                f"{row} was sealed with the installation key {key_id[:KEY_ID_CHARS]}, and this is "
                f"{self.key_id}: put back the file {SECRET_FILE} of that installation"
            )
        try:
            box = base64.b64decode(text, validate=True)
            return AESGCM(self.key(purpose)).decrypt(
                box[:NONCE_BYTES], box[NONCE_BYTES:], row.encode()
            )
        except (InvalidTag, binascii.Error, ValueError):
            raise SealBroken(f"{row} was changed after it was sealed") from None


def private_directory(directory: Path) -> None:
    """Make the data directory if it does not exist, and check its permissions.

    Raises:
        StoreRefused: it cannot be made, or others can read it.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreRefused(f"{directory} cannot be made: {error.strerror}") from None
    if directory.stat().st_mode & 0o077:
        raise StoreRefused(f"{directory.name} can be read by others; chmod 0700 it")


def _make_secret(path: Path) -> None:
    """Write a new secret atomically and durably. If two processes start at once, one file wins."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix="secret-") as draft:
        draft.write(randomness.token_bytes(SECRET_BYTES))
        draft.flush()
        os.fsync(draft.fileno())
        with suppress(FileExistsError):
            os.link(draft.name, path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _read_secret(path: Path) -> bytes:
    if path.stat().st_mode & 0o077:
        raise StoreRefused(f"{path.name} can be read by others; chmod 0600 it")
    secret = path.read_bytes()
    if len(secret) != SECRET_BYTES:
        raise StoreRefused(f"{path.name} has {len(secret)} bytes, not {SECRET_BYTES}")
    return secret


def hash_secret(secret: str) -> str:
    """Hash a secret for storage. The secret must have enough entropy of its own."""
    return sha256(secret.encode()).hexdigest()
