"""Uploads: bytes are stored first, raw or inside a request, then a revision names them.

    PUT …/uploads/{sha256} ──▶ temporary file ──▶ the digest matches ──▶ a blob, and a receipt
    files of a revision    ──▶ text, base64, references, receipts  ──▶ a manifest

A receipt names stored bytes for the user who sent them, in one repository, for 12 hours. It is
needed because knowing a hash must not be enough to get the bytes that another person stored. The
server stores only the blob; a MAC proves the receipt.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final

from msgspec import Struct

from tidegate.clock import Clock
from tidegate.control.queries.reads import Reads
from tidegate.control.secrets import Secrets
from tidegate.control.storage.blobs import BlobDraft, Blobs
from tidegate.control.storage.content_store import store_files
from tidegate.domain.access import callers, scopes, steps
from tidegate.domain.content import digests, entries
from tidegate.domain.content.limits import ContentLimits
from tidegate.domain.packages import refusals, rows
from tidegate.errors import Invalid, Refused, Unavailable

UPLOADS_MAX: Final = 16  # at the same time
# Well below the 24 hours for which a put protects a blob, so what a receipt names is not collected.
RECEIPT_KEPT: Final = timedelta(hours=12)
PURPOSE: Final = "uploads"


class UploadMismatch(Invalid):
    """The bytes that arrived do not have the SHA-256 that the request announced."""

    code = "upload_mismatch"


class UploadUnknown(Refused):
    """The receipt of an upload is wrong, too old, or of another user or repository."""

    code = "upload_unknown"

    def __init__(self, path: str, repository: str) -> None:
        super().__init__(
            f"The upload of {path[:200]!a} is not known: it is older than 12 hours, or was made by"
            f" another user or for another repository. Send its bytes again to"
            f" /v1/repositories/{repository}/uploads.",
            path=path[:200],
        )


class UploadsBusy(Unavailable):
    """Too many uploads are in progress on this server; nothing was stored."""

    code = "uploads_busy"


class StoredUpload(Struct, frozen=True):
    """Stored bytes. ``upload`` is the receipt that names them in the files of a revision."""

    sha256: str
    bytes: int
    upload: str
    expires_at: datetime


class UploadedFile(Struct, frozen=True):
    """A file whose bytes are already stored: its path, and the receipt."""

    path: str
    upload: str
    executable: bool = False
    sha256: str | None = None  # as announced; None: take it from the receipt
    bytes: int | None = None


class ReceivedFiles(Struct, frozen=True):
    """The files of a request: their bytes, or where their bytes are."""

    contents: Mapping[str, bytes]  # by path
    references: tuple[entries.File, ...] = ()
    executables: frozenset[str] = frozenset()  # paths among the contents
    uploads: tuple[UploadedFile, ...] = ()


class Upload:
    """An upload in progress. Always ``cancel`` it at the end: that is safe after ``finish``."""

    def __init__(self, uploads: UploadOperations, draft: BlobDraft, place: _UploadPlace) -> None:
        self._uploads = uploads
        self._draft = draft
        self._place = place
        self._size = 0
        self._is_over = False

    def write(self, piece: bytes) -> None:
        """Raises: ContentTooLarge, InsufficientStorage."""
        self._size += len(piece)
        self._uploads.limits.check_file("The file", self._size)
        self._draft.write(piece)

    def finish(self) -> StoredUpload:
        """Make the bytes durable. Raises: UploadMismatch, InsufficientStorage."""
        found = self._draft.digest.removeprefix(digests.DIGEST_PREFIX)
        if found != self._place.sha256:
            raise UploadMismatch(
                f"The {self._size} bytes that arrived have the SHA-256 {found}; announced was"
                f" {self._place.sha256}. Nothing was stored.",
                found=found,
                expected=self._place.sha256,
            )
        self._draft.keep()
        return self._uploads.receipt(self._place, self._size)

    def cancel(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._draft.discard()
            self._uploads.ended()


class _UploadPlace(Struct, frozen=True):
    """The user and repository that uploaded bytes belong to."""

    repository: str
    user_id: str
    sha256: str


class UploadOperations:
    """Receives files, within the limits of the settings."""

    def __init__(
        self, reads: Reads, blobs: Blobs, secrets: Secrets, limits: ContentLimits, clock: Clock
    ) -> None:
        self.limits = limits
        self._reads = reads
        self._blobs = blobs
        self._secrets = secrets
        self._clock = clock
        self._under_way = 0
        self._lock = Lock()

    def begin(
        self, caller: callers.Caller, repository: str, sha256: str, announced: int | None
    ) -> Upload:
        """Begin to receive the bytes of a file.

        Raises:
            MissingPermission, RepositoryNotFound, ContentTooLarge, UploadsBusy.
        """
        caller.demand(steps.CREATE_REVISION, scopes.repository_scope(repository))
        self._reads.demand(
            rows.repository_key(repository),
            rows.Repository,
            refusals.RepositoryNotFound(repository),
        )
        self.limits.check_file("The file", announced or 0)
        with self._lock:
            if self._under_way >= UPLOADS_MAX:
                raise UploadsBusy(
                    f"{UPLOADS_MAX} uploads are under way, which is all that this server takes at"
                    " once. Try again in a moment.",
                    allowed=UPLOADS_MAX,
                )
            self._under_way += 1
        try:
            return Upload(self, self._blobs.draft(), _UploadPlace(repository, caller.id, sha256))
        except BaseException:
            self.ended()
            raise

    def ended(self) -> None:
        with self._lock:
            self._under_way -= 1

    def receipt(self, place: _UploadPlace, size: int) -> StoredUpload:
        """Make the receipt that proves that this user stored these bytes for this repository."""
        expires = int((self._clock() + RECEIPT_KEPT).timestamp())
        text = f"{place.sha256}.{size}.{expires}"
        return StoredUpload(
            place.sha256,
            size,
            f"{text}.{self._mac(place.repository, place.user_id, text)}",
            datetime.fromtimestamp(expires, UTC),
        )

    def store(
        self, caller: callers.Caller, repository: str, files: ReceivedFiles
    ) -> tuple[entries.File, ...]:
        """Store all files durably, and the manifest that names them.

        Raises:
            InvalidFilePath, InvalidReference, ContentTooLarge, UploadUnknown, UploadMismatch.
        """
        stored = tuple(self._redeem(caller, repository, item) for item in files.uploads)
        return store_files(
            self._blobs,
            files.contents,
            (*files.references, *stored),
            files.executables,
            self.limits,
        ).files

    def _redeem(self, caller: callers.Caller, repository: str, item: UploadedFile) -> entries.File:
        text, _, mac = item.upload.rpartition(".")
        expected = self._mac(repository, caller.id, text)
        if not hmac.compare_digest(mac.encode(errors="replace"), expected.encode()):
            raise UploadUnknown(item.path, repository)
        sha256, size, expires = text.split(".")
        is_late = self._clock().timestamp() >= int(expires)
        if is_late or not self._blobs.exists(digests.DIGEST_PREFIX + sha256):
            raise UploadUnknown(item.path, repository)
        if item.sha256 not in (None, sha256) or item.bytes not in (None, int(size)):
            raise UploadMismatch(
                f"{item.path[:200]!a} is announced with other bytes than its upload has:"
                f" {size} with the SHA-256 {sha256}.",
                found=sha256,
                expected=item.sha256 or "",
            )
        return entries.File(item.path, sha256, int(size), executable=item.executable)

    def _mac(self, repository: str, user_id: str, text: str) -> str:
        message = "\n".join((repository, user_id, text))
        return self._secrets.mac(PURPOSE, message.encode(errors="replace")).hex()
