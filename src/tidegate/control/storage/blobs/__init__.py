"""Blobs: bodies by the digest of their content, written before any commit that names them.

    put(body) ──▶ sha256:… ──▶ a commit names it        within BLOB_KEPT of the put
    collect: named by no row, and last put longer ago than BLOB_KEPT, looked at twice

A put of what is there already renews its time, so whoever wants to name a blob puts it, always.
There is nothing to update and nothing to lock: equal content has one name.
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
CHUNK_BYTES: Final = 256 * 1024  # of a piece: each transfer holds two or three of them
BLOB_KEPT: Final = timedelta(hours=24)  # how long a put protects a blob that no row names yet

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
    """The blob is being collected at this very moment; put it again."""

    code = "blob_busy"


@dataclass(frozen=True, slots=True)
class Blob:
    """One stored body, without its bytes."""

    digest: str
    put_at: datetime  # the last time that somebody put it


class BlobDraft(Protocol):
    """A body that is being written, in temporary storage. Discard it in any case: once it is kept,
    that does nothing more.
    """

    @property
    def digest(self) -> str:
        """Of what was written so far."""
        ...

    def write(self, piece: bytes) -> None:
        """Raises: InsufficientStorage, Unavailable."""
        ...

    def keep(self) -> str:
        """Make it a blob, durable, and give its digest. Raises: as ``Blobs.put``."""
        ...

    def discard(self) -> None:
        """Remove what was written."""
        ...


class Blobs(Protocol):
    """A place for bodies. Files and S3 have one; every method may be called from any thread."""

    def put(self, content: Content) -> str:
        """Keep the content and give its digest; when this returns, the content is durable.

        Raises:
            InsufficientStorage, Unavailable.
        """
        ...

    def draft(self) -> BlobDraft:
        """A body to write piece by piece. Raises: InsufficientStorage."""
        ...

    def get(self, digest: str) -> bytes:
        """The content, whole. Raises: BlobMissing, BlobDamaged, InvalidInput."""
        ...

    def stream(self, digest: str) -> Iterator[bytes]:
        """The content in pieces. The last is given only once all of them prove the digest.

        Raises:
            BlobMissing, BlobDamaged, InvalidInput.
        """
        ...

    def read(self, digest: str, start: int, stop: int) -> Iterator[bytes]:
        """A part of the content in pieces. It is not compared with the digest: only the whole can
        be, by who has all of it.

        Raises:
            BlobMissing, InvalidInput.
        """
        ...

    def exists(self, digest: str) -> bool:
        """Whether it can be read now. It does not protect the blob: a put does."""
        ...

    def write_fault(self) -> str:
        """Why blobs cannot be written now; empty: they can, or no put has failed."""
        ...

    def iterate(self) -> Iterator[Blob]:
        """All blobs, in no order that counts."""
        ...

    def discard(self, digest: str, *, before: datetime) -> bool:
        """Remove the blob unless it was put at ``before`` or later; whether it was removed.

        No put that returns while this runs is undone by it.
        """
        ...


def digest_of(content: bytes) -> str:
    """The name of a blob with this content."""
    return f"{ALGORITHM}:{sha256(content).hexdigest()}"


def hex_of(digest: object) -> str:
    """The 64 digits of a digest, and nothing else: so a path made of them is safe.

    Raises:
        InvalidInput: it is no digest of ours.
    """
    found = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if found is None:
        raise InvalidInput(f"a digest is {ALGORITHM}: and 64 hex digits, found {digest!r}")
    return found[1]


def pieces(content: Content) -> Iterator[bytes]:
    """The content piece by piece, whichever way it was given."""
    return iter((content,) if isinstance(content, bytes) else content)


def put_pieces(draft: BlobDraft, content: Content) -> str:
    """Write and keep all of the content, or none."""
    try:
        for piece in pieces(content):
            draft.write(piece)
        return draft.keep()
    finally:
        draft.discard()


def verify_pieces(digest: str, parts: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces, the last of them held back until all together have this digest.

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
