"""Logs that earlier code wrote open on every engine, and say byte for byte what they said then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.fixtures.copies import EXPECTED, FILES, FOLDS, LOGS, SCHEMA, measured, restored
from tidegate.kernel.replay import differences
from tidegate.kernel.store import Store

BYTES_MAX = 500_000
SERVERS = {"postgres": "postgres_url", "dynamodb": "dynamodb_url"}
NOUNS = (
    *("users", "packages", "revisions", "release_actual", "outbox", "publications"),
    *("host_rollout_records", "hosts", "channels", "rollouts", "quarantined_closures"),
)

pytestmark = pytest.mark.parametrize("engine", FILES)


@pytest.fixture
def store(request: pytest.FixtureRequest, engine: str, tmp_path: Path) -> Iterator[Store]:
    url = request.getfixturevalue(SERVERS[engine]) if engine in SERVERS else ""
    with closing(restored(engine, tmp_path, url).open(SCHEMA)) as store:
        yield store


def test_reads_every_event_and_row_as_it_was_written(store: Store, engine: str) -> None:
    assert measured(store) == json.loads(EXPECTED.read_text())[engine]


def test_replays_the_log_to_the_rows_that_are_there(store: Store) -> None:
    assert differences(store, FOLDS) == []


def test_holds_every_noun_and_stays_small(engine: str) -> None:
    collections = json.loads(EXPECTED.read_text())[engine]["collections"]

    assert [name for name in NOUNS if not collections.get(name)] == []
    assert (LOGS / FILES[engine]).stat().st_size <= BYTES_MAX
