"""Digests of bytes and of whole file sets.

    content digest = "sha256:" + hex of SHA-256 over

    tidegate.content.v2⏎
    then for each file, in the order of the UTF-8 bytes of the paths:
        type     1 byte              f: a file, x: an executable file, l: a symbolic link
        path     8 bytes + n bytes   its length, big-endian, then its UTF-8 bytes
        hash     8 bytes + 32 bytes  its length, big-endian, then the SHA-256 of the file's bytes,
                                     or of the UTF-8 bytes of the link's target

Every part has a fixed size or is preceded by its size. So the bytes can be parsed in only one way,
and two different file sets never have the same bytes, whatever their paths contain.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from tidegate.domain.content import entries, refusals

FORM: Final = b"tidegate.content.v2\n"
LENGTH_BYTES: Final = 8
DIGEST_PREFIX: Final = "sha256:"


def encode(files: Iterable[entries.File]) -> bytes:
    """The bytes whose SHA-256 is the digest of these files.

    The caller must have checked their paths and hashes.
    """
    ordered = sorted(files, key=lambda file: (file.path.encode(), file.type, file.sha256))
    return FORM + b"".join(map(_entry, ordered))


def digest_of(data: bytes) -> str:
    """The digest of these bytes, their key in the blob store."""
    return DIGEST_PREFIX + sha256(data).hexdigest()


def check_digest(digest: str) -> None:
    """Raises: InvalidDigest."""
    hashed = digest.removeprefix(DIGEST_PREFIX)
    if hashed == digest or not entries.is_hash(hashed):
        raise refusals.InvalidDigest("a digest is sha256: and 64 hexadecimal digits in lower case")


def _entry(file: entries.File) -> bytes:
    hashed = bytes.fromhex(file.sha256)
    return file.type.encode() + _prefixed(file.path.encode()) + _prefixed(hashed)


def _prefixed(part: bytes) -> bytes:
    return len(part).to_bytes(LENGTH_BYTES, "big") + part
