"""200 hosts, one tally, one follow-up: the write path under load from two processes."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.contract.address import Address, address_of
from tests.journeys.small_rollout import (
    FOLDS,
    HOSTS,
    NOTICES,
    SCHEMA,
    TALLIES,
    ReportHost,
    SequenceGap,
    StartRollout,
    Tally,
    report_host,
    start_rollout,
)
from tidegate.control.lanes import Lanes
from tidegate.control.runtime import Control
from tidegate.engines.group_commit import GroupCommit
from tidegate.engines.memory import MemoryStore
from tidegate.kernel import codec
from tidegate.kernel.collections import entry
from tidegate.kernel.model import ALL, Key
from tidegate.kernel.replay import differences
from tidegate.kernel.store import Store

ROLLOUT = "stable@web.3"
HOST_COUNT = 200
WRITERS = 32
PROCESSES = 2


def report_all(store: Store, hosts: list[str], writers: int) -> Counter[str]:
    """Send two reports of every host, each of them twice, and return the results."""

    def of_one_host(lanes: Lanes, host: str) -> Counter[str]:
        answers: Counter[str] = Counter()
        for seq, healthy in ((1, False), (1, False), (2, True), (2, True)):
            report = ReportHost(ROLLOUT, host, seq, healthy)
            outcome = lanes.record(ROLLOUT, report_host, report).result(60)
            answers["landed" if outcome.receipt else "repeated"] += 1
        return answers

    with (
        closing(GroupCommit(store)) as writer,
        closing(Lanes(store, FOLDS, writer.submit)) as lanes,
        ThreadPoolExecutor(writers) as pool,
    ):
        return sum(pool.map(lambda host: of_one_host(lanes, host), hosts), Counter[str]())


def report_from_a_process(address: Address, hosts: list[str], writers: int) -> Counter[str]:
    with closing(address.open(SCHEMA)) as store:
        return report_all(store, hosts, writers)


@pytest.fixture
def address(request: pytest.FixtureRequest, engine: str, tmp_path: Path) -> Address | None:
    return address_of(request, engine, tmp_path)


@pytest.mark.req("CB-1", "CB-10", "CB-14")
def test_counts_200_hosts_once_each_from_32_writers_in_2_processes(address: Address | None) -> None:
    store: Store = MemoryStore(SCHEMA) if address is None else address.open(SCHEMA)
    hosts = [f"host-{number:03}" for number in range(HOST_COUNT)]
    shares = [hosts[part::PROCESSES] for part in range(PROCESSES)]
    with closing(store), closing(GroupCommit(store)) as writer:
        control = Control(store, FOLDS, writer.submit)
        control.execute(start_rollout, StartRollout(ROLLOUT, HOST_COUNT))

        if address is None:  # memory lives in one process, so two sets of lanes stand for two
            with ThreadPoolExecutor(PROCESSES) as pool:
                answers = list(pool.map(lambda share: report_all(store, share, 16), shares))
        else:
            with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
                waiting = [
                    pool.submit(report_from_a_process, address, share, WRITERS // PROCESSES)
                    for share in shares
                ]
                answers = [future.result() for future in waiting]

        assert sum(answers, Counter()) == Counter(landed=2 * HOST_COUNT, repeated=2 * HOST_COUNT)
        (tally,) = store.get(Key(TALLIES.name, ROLLOUT))
        assert tally is not None
        assert codec.decode(tally.data, Tally) == Tally(ROLLOUT, HOST_COUNT, HOST_COUNT, done=True)
        types = Counter(event.type for event in store.read(ALL).events)
        assert types == Counter(
            RolloutStarted=1, HostReported=400, HostSettled=HOST_COUNT, RolloutSettled=1
        )
        assert len(store.range(NOTICES.name, limit=10)) == 1
        settled = store.range(
            HOSTS.name, index="by_state", prefix=entry(ROLLOUT, "settled"), limit=500
        )
        assert len(settled) == HOST_COUNT
        assert differences(store, FOLDS) == []


def test_answers_a_gap_with_the_expected_number_and_writes_nothing(address: Address | None) -> None:
    store: Store = MemoryStore(SCHEMA) if address is None else address.open(SCHEMA)
    with (
        closing(store),
        closing(GroupCommit(store)) as writer,
        closing(Lanes(store, FOLDS, writer.submit)) as lanes,
    ):
        control = Control(
            store, FOLDS, writer.submit, clock=lambda: datetime(2026, 1, 1, tzinfo=UTC)
        )
        control.execute(start_rollout, StartRollout(ROLLOUT, 1))

        answer = lanes.record(ROLLOUT, report_host, ReportHost(ROLLOUT, "a", 3, True))

        with pytest.raises(SequenceGap) as refusal:
            answer.result(60)
        assert refusal.value.facts == {"expected": 1, "found": 3}
        assert [event.type for event in store.read(ALL).events] == ["RolloutStarted"]
