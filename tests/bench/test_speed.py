"""The harness of bench/speed runs whole, and its adapters do the work that is measured."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest

from bench.speed import report
from bench.speed.contender import ConditionFailed, Contender
from bench.speed.databases import Databases
from bench.speed.eventsourcing_recorder import Eventsourcing
from bench.speed.floors import FLOORS, OURS, PROMISED_EVENTS
from bench.speed.log_cache import LogCache
from bench.speed.measure import Cell, Sample, Work, best, cells
from bench.speed.memory import Mark
from bench.speed.ours import OUTBOX, STATE_ROWS, STATES, Memory, Postgres, Sqlite
from bench.speed.results import Results
from bench.speed.umadb_server import Umadb
from bench.speed.workload import CLIENTS, PAYLOAD_BYTES, READS, Condition, Layout

ROOT = Path(__file__).parents[2]
TINY = Layout(200)
EVERY_WORK = frozenset(Work)


def test_measures_every_cell_and_writes_the_page(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"Before.\n{report.BEGIN}\nold\n{report.END}\nAfter.\n")
    sizes = ["--events", str(TINY.events), "--rounds", "1", "--seconds", "0.01"]
    places = ["--state", str(tmp_path / "state"), "--page", str(page)]

    # A process of its own: the harness collects garbage before each cell, and pytest's takes long.
    run = subprocess.run(
        [sys.executable, "-m", "bench", "speed", "--only", "memory,sqlite", *sizes, *places],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )

    results = msgspec.json.decode((tmp_path / "state" / "results.json").read_bytes(), type=Results)
    for cell in cells(EVERY_WORK):
        for name in ("memory", "sqlite"):
            assert results.samples[str(cell)][name][0].operations >= 1
    assert results.memory is not None
    assert [mark.events for mark in results.memory] == [60, 200]
    written = page.read_text()
    assert written.startswith("Before.\n")
    assert written.endswith("After.\n")
    assert "old" not in written
    assert report.text(results) in written
    assert report.text(results) in run.stdout


def contender(name: str, tmp: Path, request: pytest.FixtureRequest) -> Contender:
    def databases() -> Databases:
        return Databases(request.getfixturevalue("postgres_url"), demanded={})

    made: dict[str, Callable[[], Contender]] = {
        "memory": Memory,
        "sqlite": lambda: Sqlite(LogCache(tmp)),
        "umadb": lambda: Umadb(LogCache(tmp)),
        "postgres": lambda: Postgres(databases()),
        "eventsourcing": lambda: Eventsourcing(databases()),
    }
    return made[name]()


@pytest.mark.parametrize("name", ["memory", "sqlite", "umadb", "postgres", "eventsourcing"])
def test_each_contender_reads_the_same_log_and_checks_conditions(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with contender(name, tmp_path, request).filled(TINY) as log:
        client = log.client()
        entries = TINY.appended(0, 1, Random(1), size=3)
        tags = entries[0].tags
        before = client.head(tags)

        after = client.append(entries, Condition(tags, before))

        with pytest.raises(ConditionFailed):
            client.append(entries, Condition(tags, before))
        assert before == TINY.events
        assert after == client.head(tags) == TINY.events + len(entries)
        for size in READS:
            assert client.read(TINY.read_tag(size, Random(1))) == TINY.events_under(size)


def test_rows_are_committed_with_their_event(tmp_path: Path) -> None:
    with Sqlite(LogCache(tmp_path)).empty() as log:
        client = log.client()
        position = 0
        for _ in range(STATE_ROWS + 1):  # one more, so that a state row is written a second time
            entries = TINY.appended(0, 1, Random(1))
            position = client.append_with_rows(entries, Condition(entries[0].tags, position))
        states = client.store.range(STATES.name, limit=1_000)
        messages = client.store.range(OUTBOX.name, limit=1_000)

        assert len(states) == STATE_ROWS
        assert len(messages) == STATE_ROWS + 1
        assert [record.version > record.born for record in states].count(True) == 1
        assert all(client.store.receipt(message.key.id) for message in messages)


@pytest.mark.parametrize("events", [200, 20_000, 1_000_000])
def test_clients_never_share_a_tag_or_write_to_one_that_is_read(events: int) -> None:
    layout = Layout(events)
    random = Random(1)
    read = {layout.read_tag(size, random) for size in READS for _ in range(500)}
    for clients in CLIENTS:
        own = [
            {tag for _ in range(200) for tag in layout.appended(n, clients, random)[0].tags}
            for n in range(clients)
        ]

        assert sum(map(len, own)) == len(set().union(*own))
        assert not read & set().union(*own)


def test_a_filled_log_has_the_expected_number_of_events_under_a_tag() -> None:
    layout = Layout(20_000)
    found = Counter(tag for entry in layout.entries() for tag in entry.tags)

    for size in READS:
        assert found[layout.read_tag(size, Random(1))] == layout.events_under(size)
    assert {len(entry.payload) for entry in layout.entries()} == {PAYLOAD_BYTES}


def test_the_best_round_is_taken_figure_by_figure() -> None:
    quiet = Sample(100, 100.0, 9.0, 20.0, 5.0, 3.0)
    disturbed = Sample(50, 50.0, 18.0, 19.0, 6.0, 2.0)

    assert best([disturbed, quiet]) == Sample(100, 100.0, 9.0, 19.0, 5.0, 2.0)


def promised(ours: float) -> Results:
    """Sample results in which ours commits `ours` times as fast as every peer."""
    names = ("sqlite", "postgres", "umadb", "eventsourcing")
    rates = {name: ours if name in OURS else 1.0 for name in names}
    samples = {
        str(cell): {
            name: [Sample(1, rate, 1 / rate, 1 / rate, 1.0, 0.0)] for name, rate in rates.items()
        }
        for cell in cells(EVERY_WORK)
    }
    memory = (Mark(300_000, 100, 50), Mark(PROMISED_EVENTS, 100, 50))
    titles = {name: name for name in names}
    return Results("now", {}, PROMISED_EVENTS, 1, 1.0, titles, samples, memory)


def test_floors_are_computed_from_the_results() -> None:
    fast, slow = promised(ours=10.0), promised(ours=1.0)
    unmeasured = msgspec.structs.replace(fast, samples={}, memory=None)

    assert [floor.reached(fast) for floor in FLOORS] == [True] * len(FLOORS)
    assert [floor.reached(unmeasured) for floor in FLOORS] == [None] * len(FLOORS)
    # Being no faster than a peer breaks the floors about peers, and only these.
    assert [floor.reached(slow) for floor in FLOORS] == [floor.at_most for floor in FLOORS]


def test_a_floor_that_is_an_upper_bound_is_missed_from_above() -> None:
    results = promised(ours=10.0)
    rows = str(Cell(Work.ROWS, True, 8))
    results.samples[rows]["sqlite"] = [Sample(1, 5.0, 0.2, 0.2, 1.0, 0.0)]
    grown = msgspec.structs.replace(results, memory=(Mark(3, 100, 50), Mark(10, 111, 50)))

    missed = [floor.text for floor in FLOORS if not floor.reached(grown)]

    assert len(missed) == 2
    assert "three rows, 8 clients" in missed[0]
    assert "resident memory" in missed[1]
    assert report.floors(grown).count("**no**") == 2
