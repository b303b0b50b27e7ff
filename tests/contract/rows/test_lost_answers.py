"""Answers lost on the way from each database: under the same key an increment counts once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.contract.dynamodb_faults import Send, fresh_table, lose_answer, lose_request
from tests.contract.failing_files import FailingFiles
from tests.contract.postgres_proxy import PostgresProxy, serve_proxy
from tests.contract.rows.registry import FIRST, SCHEMA, T0, Release
from tidegate.engines.postgres import PostgresStore, writer
from tidegate.engines.sqlite import SqliteStore
from tidegate.errors import OutcomeUnknown, WriterClosed
from tidegate.kernel.records.actions import Stored
from tidegate.kernel.records.changes import Add
from tidegate.kernel.records.records import Records
from tidegate.kernel.store import Store

FOREVER = 2_000


def create(store: Store) -> None:
    Records(store, lambda: T0).create("plain", "a", FIRST)


def add(store: Store) -> Stored:
    return Records(store, lambda: T0).update("plain", "a", {"attempts": Add(1)}, key="add")


def found(store: Store) -> Release:
    value = Records(store, lambda: T0).get("plain", "a").value
    assert isinstance(value, Release)
    return value


# ── SQLite: the flush fails, and keeps failing ────────────────────────────────────────────────────


@pytest.fixture
def files() -> Iterator[FailingFiles]:
    made = FailingFiles()
    yield made
    made.unregister()


@pytest.mark.parametrize("engine", ["sqlite"])
def test_counts_once_after_a_flush_that_kept_failing(
    engine: str, files: FailingFiles, tmp_path: Path
) -> None:
    with closing(SqliteStore(str(tmp_path / "log.db"), SCHEMA)) as store:
        create(store)
        files.failing_syncs = FOREVER
        with pytest.raises(OutcomeUnknown):
            add(store)
        files.failing_syncs = 0
        with pytest.raises(WriterClosed):  # the process ends, and a new one finds out the outcome
            add(store)

    with closing(SqliteStore(str(tmp_path / "log.db"), SCHEMA)) as store:
        again = add(store)

        assert again.value.attempts == 1
        assert add(store) == again
        assert found(store) == again.value


# ── PostgreSQL: the connection is cut after the commit, and the outcome cannot be read ────────────


@pytest.fixture
def wire(postgres_url: str) -> Iterator[PostgresProxy]:
    with serve_proxy(postgres_url) as made:
        yield made


@pytest.mark.parametrize("engine", ["postgres"])
def test_counts_once_after_a_connection_was_cut(
    engine: str, wire: PostgresProxy, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = f"lost_{uuid4().hex[:16]}"
    monkeypatch.setattr(writer, "OUTCOME_SECONDS_MAX", 0.2)
    with (
        closing(PostgresStore(postgres_url, SCHEMA, namespace)) as direct,
        closing(PostgresStore(wire.url, SCHEMA, namespace)) as store,
    ):
        create(direct)
        wire.cut, wire.is_cut_for_good = "after", True
        with pytest.raises(OutcomeUnknown):
            add(store)
        assert direct.receipt("add") is not None
        wire.cut, wire.refusing = "", False

        again = add(store)

        assert again.value.attempts == 1
        assert add(direct) == again
        assert found(direct) == again.value


# ── DynamoDB: the request or its answer is lost, and the outcome cannot be read ───────────────────


@pytest.mark.parametrize("engine", ["dynamodb"])
@pytest.mark.parametrize("fate", [lose_request, lose_answer])
def test_counts_once_after_a_transaction_without_an_answer(
    engine: str, dynamodb_url: str, fate: Callable[[Send], Any]
) -> None:
    table = fresh_table(dynamodb_url, SCHEMA)
    store, meddler = table.open(SCHEMA)
    create(store)
    meddler.plot("transact", fate)
    meddler.plot("put", *[lose_request] * FOREVER)
    with pytest.raises(OutcomeUnknown):
        add(store)

    fresh, _ = table.open(SCHEMA)
    again = add(fresh)

    assert again.value.attempts == 1
    assert add(fresh) == again
    assert found(fresh) == again.value
