"""A server that starts on a database whose reducer caches were emptied by hand."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.in_process_fleet import CORE_NEXT, InProcessFleet, play_journey, rows
from tidegate.config import Settings
from tidegate.control.fleet.order_queue import OrderQueue
from tidegate.domain.composition import SCHEMA
from tidegate.domain.hosts.rows import DISPATCH_QUEUE, HOST_RECORDS, QueuedDispatch
from tidegate.engines.sqlite import SqliteStore
from tidegate.kernel import codec
from tidegate.kernel.replay import differences
from tidegate.main import open_installation

pure = {"engines": None, "reason": "how a server starts; the rebuild itself is proved on engines"}


@pytest.mark.req("RO-20", **pure)
def test_rebuilds_the_records_of_hosts_before_it_serves(tmp_path: Path) -> None:
    with closing(SqliteStore(str(tmp_path / "tidegate.db"), SCHEMA)) as store:
        fleet = play_journey(InProcessFleet(store))
        before = rows(store, HOST_RECORDS.name)
        assert len(before) > 0
        store.restore(HOST_RECORDS.name, ())
        store.restore(DISPATCH_QUEUE.name, ())

    with closing(open_installation(Settings(data=str(tmp_path)))) as server:
        assert rows(server.store, HOST_RECORDS.name) == before
        assert differences(server.store, server.folds) == []
        deliveries = OrderQueue(server.store, server.submit, fleet.clock)
        assert deliveries.refill() == 1
        (queued,) = server.store.range(DISPATCH_QUEUE.name, limit=2)
        assert codec.decode(queued.data, QueuedDispatch).rollout_id == CORE_NEXT
        assert deliveries.poll("c1") is None, "its edge closed again after the order was reserved"
