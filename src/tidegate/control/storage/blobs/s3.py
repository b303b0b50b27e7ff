"""Blobs as objects of an S3-compatible bucket, for several servers without a shared directory.

    <prefix>log                the id of the log whose blobs these are
    <prefix>sha256/<digits>    a blob; its metadata says when it was last put
    <prefix>leaving/<digits>   a mark: its removal is in progress

S3 has no locks and no conditional delete that notices a renewal. So a putter and the collector each
write first and read second: the putter puts the blob, then looks for the mark; the collector sets
the mark, then checks when the blob was put. In every order, at least one sees the other. A mark is
deleted only after its blob, so a putter that finds its blob and no mark is safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from tidegate.clock import Clock, system_clock
from tidegate.control.storage import blobs as storage_blobs
from tidegate.errors import InvalidInput, Unavailable

SPOOLED_BYTES_MAX: Final = 8 * 1024 * 1024  # larger bodies are spooled to disk
OBJECT_BYTES_MAX: Final = 5 * 1024**3  # what S3 takes in one request
LOOKS_MAX: Final = 100
LOOK_SECONDS: Final = 0.1
MISSING: Final = frozenset({"404", "NoSuchKey", "NotFound"})
PUT_AT: Final = "put-at"


class BucketUnavailable(Unavailable):
    """The bucket did not respond as expected; perhaps nothing was written."""

    code = "bucket_unavailable"


class S3Blobs:
    """The blobs of one log in one bucket, below a prefix.

    ``client`` is a boto3 S3 client; the caller chooses its retries and timeouts. Configure it with
    ``response_checksum_validation="when_required"``: some servers return the checksum of the whole
    object for a range, which boto3 would report as damage. Digests are compared here anyway.

    Raises:
        BlobsForeign: the prefix carries the id of another log. BucketUnavailable.
    """

    def __init__(
        self,
        client: Any,
        bucket: str,
        log_id: str,
        *,
        prefix: str = "",
        clock: Clock = system_clock,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix
        self._clock = clock
        self._sleep = sleep
        self._claim(log_id)

    def put(self, content: storage_blobs.Content) -> str:
        return storage_blobs.put_pieces(self.draft(), content)

    def draft(self) -> S3Draft:
        return S3Draft(self)

    def upload(self, digits: str, draft: IO[bytes]) -> None:
        """Upload what was written, under its digest."""
        self._upload(digits, draft)
        self._outlive_removal(digits, draft)

    def get(self, digest: str) -> bytes:
        return b"".join(self.stream(digest))

    def stream(self, digest: str) -> Iterator[bytes]:
        answer = self._found("get_object", self._blob(storage_blobs.hex_of(digest)))
        if answer is None:
            raise storage_blobs.BlobMissing(digest)
        return storage_blobs.verify_pieces(
            digest, answer["Body"].iter_chunks(storage_blobs.CHUNK_BYTES)
        )

    def read(self, digest: str, start: int, stop: int) -> Iterator[bytes]:
        key = self._blob(storage_blobs.hex_of(digest))
        if start >= stop:
            return iter(())
        answer = self._found("get_object", key, Range=f"bytes={start}-{stop - 1}")
        if answer is None:
            raise storage_blobs.BlobMissing(digest)
        found: Iterator[bytes] = answer["Body"].iter_chunks(storage_blobs.CHUNK_BYTES)
        return found

    def exists(self, digest: str) -> bool:
        return self._put_at(storage_blobs.hex_of(digest)) is not None

    def write_fault(self) -> str:
        return ""  # S3 has no local disk that could be full

    def iterate(self) -> Iterator[storage_blobs.Blob]:
        for digits in self._listed(storage_blobs.ALGORITHM):
            if (put_at := self._put_at(digits)) is not None:
                yield storage_blobs.Blob(f"{storage_blobs.ALGORITHM}:{digits}", put_at)

    def discard(self, digest: str, *, before: datetime) -> bool:
        digits = storage_blobs.hex_of(digest)
        self._write(self._mark(digits), b"")
        try:
            put_at = self._put_at(digits)
            if put_at is None or put_at >= before:
                return False
            self._ask("delete_object", Key=self._blob(digits))
        finally:
            self._ask("delete_object", Key=self._mark(digits))
        return True

    def sweep(self) -> int:
        """Delete the marks of a collector that died. Call this only while no collector runs."""
        marks = list(self._listed("leaving"))
        for digits in marks:
            self._ask("delete_object", Key=self._mark(digits))
        return len(marks)

    # ── a put during a removal ──

    def _upload(self, digits: str, draft: IO[bytes]) -> None:
        draft.seek(0)
        self._write(self._blob(digits), draft)

    def _outlive_removal(self, digits: str, draft: IO[bytes]) -> None:
        """Wait until no removal of the blob is in progress, and upload it again if it was deleted.

        Raises:
            BlobBusy: the mark remains; its collector is slow, or died, so that ``sweep`` is needed.
        """
        for _ in range(LOOKS_MAX):
            if self._found("head_object", self._mark(digits)) is not None:
                self._sleep(LOOK_SECONDS)
            elif self._put_at(digits) is None:
                self._upload(digits, draft)  # then check again: another removal may have begun
            else:
                return
        raise storage_blobs.BlobBusy(
            f"{storage_blobs.ALGORITHM}:{digits} is being collected; put it again"
        )

    # ── the bucket ──

    def _claim(self, log_id: str) -> None:
        key = f"{self._prefix}log"
        if self._found("head_object", key) is None:
            self._write(key, log_id.encode())
        answer = self._found("get_object", key)
        found = "" if answer is None else answer["Body"].read().decode()
        if found != log_id:
            raise storage_blobs.BlobsForeign(f"{self._bucket}/{self._prefix}", found, log_id)

    def _put_at(self, digits: str) -> datetime | None:
        answer = self._found("head_object", self._blob(digits))
        if answer is None:
            return None
        # Names of metadata are sent as header names, whose case some servers change.
        put_at = {name.lower(): text for name, text in answer["Metadata"].items()}.get(PUT_AT)
        found: datetime = (
            answer["LastModified"] if put_at is None else datetime.fromisoformat(put_at)
        )
        return found.astimezone(UTC)

    def _listed(self, room: str) -> Iterator[str]:
        prefix = f"{self._prefix}{room}/"
        pages = self._client.get_paginator("list_objects_v2")
        try:
            for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
                for item in page.get("Contents", ()):
                    yield item["Key"].removeprefix(prefix)
        except (BotoCoreError, ClientError) as error:
            raise BucketUnavailable(f"{self._bucket}: {error}") from error

    def _write(self, key: str, body: bytes | IO[bytes]) -> None:
        metadata = {PUT_AT: self._clock().isoformat()}
        self._ask("put_object", Key=key, Body=body, Metadata=metadata)

    def _found(self, verb: str, key: str, **more: Any) -> Any:
        """Send a request about an object; None: there is no such object."""
        try:
            return getattr(self._client, verb)(Bucket=self._bucket, Key=key, **more)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in MISSING:
                return None
            raise BucketUnavailable(f"{self._bucket}: {error}") from error
        except BotoCoreError as error:
            raise BucketUnavailable(f"{self._bucket}: {error}") from error

    def _ask(self, verb: str, **arguments: Any) -> Any:
        try:
            return getattr(self._client, verb)(Bucket=self._bucket, **arguments)
        except (BotoCoreError, ClientError) as error:
            raise BucketUnavailable(f"{self._bucket}: {error}") from error

    def _blob(self, digits: str) -> str:
        return f"{self._prefix}{storage_blobs.ALGORITHM}/{digits}"

    def _mark(self, digits: str) -> str:
        return f"{self._prefix}leaving/{digits}"


class S3Draft:
    """An object that is being written, spooled in memory or on disk until its digest is known."""

    def __init__(self, blobs: S3Blobs) -> None:
        self._blobs = blobs
        self._file = SpooledTemporaryFile(SPOOLED_BYTES_MAX)  # noqa: SIM115 - discard closes it
        self._known = sha256()

    @property
    def digest(self) -> str:
        return f"{storage_blobs.ALGORITHM}:{self._known.hexdigest()}"

    def write(self, piece: bytes) -> None:
        self._known.update(piece)
        self._file.write(piece)
        if self._file.tell() > OBJECT_BYTES_MAX:
            raise InvalidInput(f"a blob has at most {OBJECT_BYTES_MAX} bytes")

    def keep(self) -> str:
        self._blobs.upload(self._known.hexdigest(), self._file)
        return self.digest

    def discard(self) -> None:
        self._file.close()
