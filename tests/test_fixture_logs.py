"""Logs that released versions wrote open on every engine, with the same content."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.fixtures.copies import FILES, FOLDS, SCHEMA, FixtureLog, list_logs, measured, restored
from tidegate import __version__
from tidegate.kernel.replay import differences, rebuild_changed
from tidegate.kernel.store import Store

BYTES_MAX = 500_000
SERVERS = {"postgres": "postgres_url", "dynamodb": "dynamodb_url"}
KEPT = [(log, engine) for log in list_logs() for engine in FILES]

pytestmark = pytest.mark.parametrize(
    ("log", "engine"), KEPT, ids=[f"{log.version}-{log.story}-{engine}" for log, engine in KEPT]
)


@pytest.fixture
def store(
    request: pytest.FixtureRequest, log: FixtureLog, engine: str, tmp_path: Path
) -> Iterator[Store]:
    url = request.getfixturevalue(SERVERS[engine]) if engine in SERVERS else ""
    with closing(restored(log, engine, tmp_path, url).open(SCHEMA)) as store:
        yield store


def test_opens_reads_and_replays_what_was_written(
    store: Store, log: FixtureLog, engine: str
) -> None:
    """A later version may rebuild rows; the events stay the same, byte for byte."""
    expected = log.expected(engine)
    if log.version != __version__:
        rebuild_changed(store, FOLDS, datetime.now(UTC))

    found = measured(store)

    rows = () if log.version == __version__ else ("rows", "content", "collections")
    assert {key: found[key] for key in found if key not in rows} == {
        key: expected[key] for key in expected if key not in rows
    }
    assert differences(store, FOLDS) == []


def test_stays_small(log: FixtureLog, engine: str) -> None:
    assert log.file(engine).stat().st_size <= BYTES_MAX
