"""The format number of a log: a program opens the formats that it can read and refuses the rest."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import apsw
import psycopg
import pytest

from tests.contract.address import Address, Connect
from tests.contract.world import ProductAdded, append
from tests.servers.process import free_port
from tidegate.commands.startup import open_installation
from tidegate.config import Settings
from tidegate.engines.dynamodb.client import BotoTransport
from tidegate.engines.dynamodb.items import FORMAT, FORMAT_ATTRIBUTE
from tidegate.engines.dynamodb.transport import RemoveItem, UpdateItem
from tidegate.errors import StoreRefused
from tidegate.kernel.store import LOG_FORMAT

SECONDS_MAX = 60.0


def _mark_sqlite(address: Address, number: int) -> None:
    with closing(apsw.Connection(address.where)) as raw:
        raw.execute("UPDATE log_meta SET value = ? WHERE name = 'format'", (str(number),))


def _mark_postgres(address: Address, number: int) -> None:
    with psycopg.connect(address.where, autocommit=True) as raw:
        raw.execute(f"SET search_path TO {address.namespace}")
        raw.execute("UPDATE log_meta SET value = %s WHERE name = 'format'", (str(number),))


def _mark_dynamodb(address: Address, number: int) -> None:
    url = urlsplit(address.where)
    named = parse_qs(url.query)
    transport = BotoTransport(url.netloc, region="local", endpoint=named["endpoint"][0])
    with closing(transport):
        if number == 1:  # programs that wrote format 1 left no mark
            transport.transact([RemoveItem(FORMAT)], "to format 1")
        else:
            change = UpdateItem(
                FORMAT, {FORMAT_ATTRIBUTE: LOG_FORMAT}, sets={FORMAT_ATTRIBUTE: number}
            )
            transport.transact([change], f"to format {number}")


MARKS: dict[str, Callable[[Address, int], None]] = {
    "sqlite": _mark_sqlite,
    "postgres": _mark_postgres,
    "dynamodb": _mark_dynamodb,
}


@pytest.mark.parametrize(
    ("number", "sentence"),
    [(LOG_FORMAT - 1, "start with an empty store"), (LOG_FORMAT + 1, "upgrade Tidegate")],
)
def test_a_log_of_another_format_is_refused(
    address: Address | None, connect: Connect, number: int, sentence: str
) -> None:
    if address is None:
        return  # memory keeps no log beyond its process
    append(connect(), ProductAdded("p-1"))
    MARKS[address.engine](address, number)

    with pytest.raises(StoreRefused, match=f"format {number}.*{sentence}"):
        connect()


def test_the_program_that_wrote_a_log_can_open_it_again(connect: Connect) -> None:
    append(connect(), ProductAdded("p-1"))

    append(connect(), ProductAdded("p-2"))

    assert len(connect().feed(after=0, limit=10).events) == 2


@pytest.mark.long
def test_serve_refuses_an_older_log_with_one_sentence(tmp_path: Path) -> None:
    data = tmp_path / "data"
    open_installation(Settings(data=str(data))).close()
    _mark_sqlite(Address("sqlite", str(next(data.glob("*.db")))), 1)

    serve = [sys.executable, "-m", "tidegate.main", "serve"]
    refused = subprocess.run(
        [*serve, "--data", str(data), "--port", str(free_port())],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )

    assert refused.returncode != 0
    assert "this log has format 1" in refused.stderr
    assert "start with an empty store" in refused.stderr
    assert "Traceback" not in refused.stderr
