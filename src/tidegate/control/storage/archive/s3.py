"""An archive as objects in an S3-compatible bucket.

    <prefix>archive.json     whose archive this is
    <prefix>segments/…       the segments

S3 writes objects atomically, and they are durable when the put returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from tidegate.control.storage.archive import segment_store
from tidegate.kernel.model import Position

MISSING: Final = frozenset({"404", "NoSuchKey", "NotFound"})


class S3SegmentStore:
    """A prefix of a bucket, which several servers may share.

    ``client`` is a boto3 S3 client; the caller chooses its retries and timeouts.
    """

    def __init__(self, client: Any, bucket: str, *, prefix: str = "") -> None:
        self._client = client
        self._bucket = bucket
        self._owner = f"{prefix}archive.json"
        self._segments = f"{prefix}segments/"

    def claim(self, claim: segment_store.ArchiveClaim) -> None:
        if (found := self._claimed()) is None:
            with self._answering():
                self._client.put_object(Bucket=self._bucket, Key=self._owner, Body=claim.text())
            found = self._claimed()  # of two concurrent claims, both see the last one
        segment_store.check_claim(f"{self._bucket}/{self._owner}", found or b"", claim)

    def write(self, label: segment_store.SegmentName, content: IO[bytes]) -> None:
        with self._answering():
            self._client.put_object(Bucket=self._bucket, Key=self._key(label), Body=content)

    def read(self, label: segment_store.SegmentName) -> Iterator[bytes]:
        with self._answering():
            if (body := self._body(self._key(label))) is None:
                raise segment_store.SegmentMissing(label)
            yield from body.iter_chunks(segment_store.CHUNK_BYTES)

    def names(self, start: Position | None = None) -> Iterator[str]:
        prefix = f"{self._segments}{segment_store.prefix_of(start)}"
        pages = self._client.get_paginator("list_objects_v2")
        with self._answering():
            for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
                for item in page.get("Contents", ()):
                    yield item["Key"].removeprefix(self._segments)

    def remove(self, label: segment_store.SegmentName) -> None:
        with self._answering():
            self._client.delete_object(Bucket=self._bucket, Key=self._key(label))

    def _claimed(self) -> bytes | None:
        with self._answering():
            body = self._body(self._owner)
            found: bytes | None = None if body is None else body.read()
        return found

    def _body(self, key: str) -> Any:
        """Open an object as a stream; None: there is no such object."""
        try:
            return self._client.get_object(Bucket=self._bucket, Key=key)["Body"]
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in MISSING:
                return None
            raise

    def _key(self, label: segment_store.SegmentName) -> str:
        return f"{self._segments}{label}"

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise segment_store.ArchiveUnavailable(f"{self._bucket}: {error}") from error
