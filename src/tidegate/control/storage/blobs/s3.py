"""Blobs as objects of an S3-compatible bucket, for several servers without a shared directory.

    <prefix>log                the id of the log whose blobs these are
    <prefix>sha256/<digits>    a blob; its metadata says when it was last put
    <prefix>leaving/<digits>   its removal is under way

S3 has no lock and no removal on a condition that sees a renewal. So putter and collector each
write first and look second: one puts the blob, then looks for the mark; the other sets the mark,
then looks when the blob was put. In whatever order they run, at least one sees the other: a mark
that is gone again had its blob removed before, so a putter that finds no mark and its blob is safe.
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
from tidegate.control.storage.blobs import (
    ALGORITHM,
    CHUNK_BYTES,
    Blob,
    BlobBusy,
    BlobMissing,
    BlobsForeign,
    Content,
    hex_of,
    put_pieces,
    verify_pieces,
)
from tidegate.errors import InvalidInput, Unavailable

SPOOLED_BYTES_MAX: Final = 8 * 1024 * 1024  # beyond, a body waits on disk for its digest
OBJECT_BYTES_MAX: Final = 5 * 1024**3  # what S3 takes in one request
LOOKS_MAX: Final = 100
LOOK_SECONDS: Final = 0.1
MISSING: Final = frozenset({"404", "NoSuchKey", "NotFound"})
PUT_AT: Final = "put-at"


class BucketUnavailable(Unavailable):
    """The bucket did not answer as it should; nothing is known to be written."""

    code = "bucket_unavailable"


class S3Blobs:
    """The blobs of one log in one bucket, below a prefix.

    ``client`` is boto3's client for S3; its retries and time limits are the caller's choice. Give
    it ``response_checksum_validation="when_required"``: some servers answer a range with the
    checksum of the whole object, which boto3 would take for damage. We compare digests ourselves.

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

    def put(self, content: Content) -> str:
        return put_pieces(self.draft(), content)

    def draft(self) -> S3Draft:
        return S3Draft(self)

    def upload(self, digits: str, draft: IO[bytes]) -> None:
        """Store what was written under its digest."""
        self._upload(digits, draft)
        self._outlive_removal(digits, draft)

    def get(self, digest: str) -> bytes:
        return b"".join(self.stream(digest))

    def stream(self, digest: str) -> Iterator[bytes]:
        answer = self._found("get_object", self._blob(hex_of(digest)))
        if answer is None:
            raise BlobMissing(digest)
        return verify_pieces(digest, answer["Body"].iter_chunks(CHUNK_BYTES))

    def read(self, digest: str, start: int, stop: int) -> Iterator[bytes]:
        key = self._blob(hex_of(digest))
        if start >= stop:
            return iter(())
        answer = self._found("get_object", key, Range=f"bytes={start}-{stop - 1}")
        if answer is None:
            raise BlobMissing(digest)
        found: Iterator[bytes] = answer["Body"].iter_chunks(CHUNK_BYTES)
        return found

    def exists(self, digest: str) -> bool:
        return self._put_at(hex_of(digest)) is not None

    def write_fault(self) -> str:
        return ""  # S3 has no disk of ours that could be full

    def iterate(self) -> Iterator[Blob]:
        for digits in self._listed(ALGORITHM):
            if (put_at := self._put_at(digits)) is not None:
                yield Blob(f"{ALGORITHM}:{digits}", put_at)

    def discard(self, digest: str, *, before: datetime) -> bool:
        digits = hex_of(digest)
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
        """Take away the marks of a collector that died; only while no collector runs."""
        marks = list(self._listed("leaving"))
        for digits in marks:
            self._ask("delete_object", Key=self._mark(digits))
        return len(marks)

    # ── putting beside a removal ──

    def _upload(self, digits: str, draft: IO[bytes]) -> None:
        draft.seek(0)
        self._write(self._blob(digits), draft)

    def _outlive_removal(self, digits: str, draft: IO[bytes]) -> None:
        """Wait until no removal is under way, and put again what it took.

        Raises:
            BlobBusy: the mark stays; its collector is slow, or died and must be swept up.
        """
        for _ in range(LOOKS_MAX):
            if self._found("head_object", self._mark(digits)) is not None:
                self._sleep(LOOK_SECONDS)
            elif self._put_at(digits) is None:
                self._upload(digits, draft)  # and look again: another removal may have begun
            else:
                return
        raise BlobBusy(f"{ALGORITHM}:{digits} is being collected; put it again")

    # ── the bucket ──

    def _claim(self, log_id: str) -> None:
        key = f"{self._prefix}log"
        if self._found("head_object", key) is None:
            self._write(key, log_id.encode())
        answer = self._found("get_object", key)
        found = "" if answer is None else answer["Body"].read().decode()
        if found != log_id:
            raise BlobsForeign(f"{self._bucket}/{self._prefix}", found, log_id)

    def _put_at(self, digits: str) -> datetime | None:
        answer = self._found("head_object", self._blob(digits))
        if answer is None:
            return None
        # Names of metadata travel as names of headers, which some servers spell anew.
        said = {name.lower(): text for name, text in answer["Metadata"].items()}.get(PUT_AT)
        found: datetime = answer["LastModified"] if said is None else datetime.fromisoformat(said)
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
        said = {PUT_AT: self._clock().isoformat()}
        self._ask("put_object", Key=key, Body=body, Metadata=said)

    def _found(self, verb: str, key: str, **more: Any) -> Any:
        """The answer about an object; None where there is none."""
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
        return f"{self._prefix}{ALGORITHM}/{digits}"

    def _mark(self, digits: str) -> str:
        return f"{self._prefix}leaving/{digits}"


class S3Draft:
    """An object that is being written: it waits in memory or on disk until its digest is known."""

    def __init__(self, blobs: S3Blobs) -> None:
        self._blobs = blobs
        self._file = SpooledTemporaryFile(SPOOLED_BYTES_MAX)  # noqa: SIM115 - discard closes it
        self._known = sha256()

    @property
    def digest(self) -> str:
        return f"{ALGORITHM}:{self._known.hexdigest()}"

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
