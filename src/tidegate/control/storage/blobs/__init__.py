"""Blobs: content stored by its digest, written before any commit that references it.

    put(body) ──▶ sha256:… ──▶ a commit references it   within BLOB_KEPT of the put
    collect: referenced by no row, and last put longer ago than BLOB_KEPT, checked twice

A put of an existing blob renews its time, so a caller that wants to reference a blob always puts
it. Blobs are never updated and need no locks: equal content has one name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final, Protocol

from tidegate.errors import Formatted, InvalidInput, NotFound, Unavailable

ALGORITHM: Final = "sha256"
CHUNK_BYTES: Final = 256 * 1024  # per piece: each transfer holds two or three
BLOB_KEPT: Final = timedelta(hours=24)  # how long a put protects a blob that no row references

_DIGEST = re.compile(rf"{ALGORITHM}:([0-9a-f]{{64}})")

Content = bytes | Iterable[bytes]


class BlobMissing(Formatted, NotFound):
    """No blob has this digest; it was never put, or it was collected."""

    code = "blob_missing"
    message = "there is no blob {digest}"
    digest: str


class BlobDamaged(Formatted, Unavailable):
    """The stored bytes are not those that were put: restore the blob from a copy."""

    code = "blob_damaged"
    message = "{digest} reads as {found}"
    digest: str
    found: str


class BlobsForeign(Unavailable):
    """The blobs belong to another log; its collector would take ours for orphans."""

    code = "blobs_foreign"

    def __init__(self, where: str, found: str, wanted: str) -> None:
        super().__init__(
            f"{where} holds the blobs of log {found}, not of {wanted}", found=found, wanted=wanted
        )


class BlobBusy(Unavailable):
    """The blob is being collected right now; put it again."""

    code = "blob_busy"


@dataclass(frozen=True, slots=True)
class Blob:
    """A stored blob, without its bytes."""

    digest: str
    put_at: datetime  # the time of its last put


class BlobDraft(Protocol):
    """A blob that is being written, in temporary storage. Always discard it at the end; after
    ``keep`` that does nothing.
    """

    @property
    def digest(self) -> str:
        """The digest of what was written so far."""
        ...

    def write(self, piece: bytes) -> None:
        """Raises: InsufficientStorage, Unavailable."""
        ...

    def keep(self) -> str:
        """Make it a durable blob and return its digest. Raises: as ``Blobs.put``."""
        ...

    def discard(self) -> None:
        """Remove what was written."""
        ...


class Blobs(Protocol):
    """A store of blobs, in files or in S3. Every method may be called from any thread."""

    def put(self, content: Content) -> str:
        """Store the content durably and return its digest.

        Raises:
            InsufficientStorage, Unavailable.
        """
        ...

    def draft(self) -> BlobDraft:
        """Begin a blob that is written in pieces. Raises: InsufficientStorage."""
        ...

    def get(self, digest: str) -> bytes:
        """Return the whole content. Raises: BlobMissing, BlobDamaged, InvalidInput."""
        ...

    def stream(self, digest: str) -> Iterator[bytes]:
        """Yield the content in pieces. The last piece comes only if all of them match the digest.

        Raises:
            BlobMissing, BlobDamaged, InvalidInput.
        """
        ...

    def read(self, digest: str, start: int, stop: int) -> Iterator[bytes]:
        """Yield a part of the content in pieces. It is not verified: only the whole content can be
        compared with the digest.

        Raises:
            BlobMissing, InvalidInput.
        """
        ...

    def exists(self, digest: str) -> bool:
        """Whether the blob can be read now. This does not protect it; a put does."""
        ...

    def write_fault(self) -> str:
        """Return why blobs cannot be written now; empty: the last put did not fail."""
        ...

    def iterate(self) -> Iterator[Blob]:
        """Yield all blobs, in any order."""
        ...

    def discard(self, digest: str, *, before: datetime) -> bool:
        """Delete the blob unless it was put at ``before`` or later; return whether it was deleted.

        This never undoes a put that returns meanwhile.
        """
        ...


def hex_of(digest: object) -> str:
    """Return the 64 hex digits of a digest, which are safe in a path.

    Raises:
        InvalidInput: it is not a digest.
    """
    found = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if found is None:
        raise InvalidInput(f"a digest is {ALGORITHM}: and 64 hex digits, found {digest!r}")
    return found[1]


def pieces(content: Content) -> Iterator[bytes]:
    """Yield the content in pieces, whichever form it has."""
    return iter((content,) if isinstance(content, bytes) else content)


def put_pieces(draft: BlobDraft, content: Content) -> str:
    """Write and keep the whole content, or nothing."""
    try:
        for piece in pieces(content):
            draft.write(piece)
        return draft.keep()
    finally:
        draft.discard()


def verify_pieces(digest: str, parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the pieces; hold back the last one until all of them match this digest.

    Raises:
        BlobDamaged.
    """
    known, last = sha256(), b""
    for part in parts:
        known.update(part)
        if last:
            yield last
        last = part
    found = f"{ALGORITHM}:{known.hexdigest()}"
    if found != digest:
        raise BlobDamaged(digest, found)
    yield last
